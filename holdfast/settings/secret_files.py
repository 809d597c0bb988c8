"""Secrets in files, as containers get them: HOLDFAST_DATABASE_URL_FILE beside its variable."""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path

SECRETS = ("database_url", "database_listen_url", "token")
BYTES_MAX = 64 * 1024


def secrets_of_files(environment: Mapping[str, str]) -> dict[str, str]:
    """The settings whose files are named; ValueError when one cannot be read. Variables win."""
    found = {}
    for name in SECRETS:
        variable = f"HOLDFAST_{name.upper()}_FILE"
        if path := environment.get(variable):
            found[name] = secret_of(variable, path)
    return found


def secret_of(variable: str, path: str) -> str:
    """The secret in a file, without the line end that editors leave; ValueError without one."""
    try:
        with Path(path).open("rb") as file:
            secret = file.read(BYTES_MAX).decode().strip()
    except (OSError, UnicodeDecodeError) as error:
        raise ValueError(f"{variable}: {path} cannot be read: {error}") from error
    if not secret:
        raise ValueError(f"{variable}: {path} is empty")
    return secret
