"""The one client of Temporal: connect, start with search attributes, ask until answered."""
