"""The page: plain modules that a browser runs as they are; `api/routes/page.py` serves them."""
