"""The memory of a project: documents, an index file, embeddings, hybrid search."""
