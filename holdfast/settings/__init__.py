"""Every environment variable and config.toml."""
