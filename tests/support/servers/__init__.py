"""The real parts that tests start: API, product, Postgres, Temporal, terminal host, browser."""
