"""Sessions that leave the store or come into it: export, import, redaction."""
