"""The only SQL: tables, and queries beside their noun."""
