"""Temporal's own variables: TEMPORAL_ADDRESS, TEMPORAL_NAMESPACE, and a profile of its config file.

Certificates and keys are read by Temporal's SDK (`holdfast/temporal/connection.py`); here is only
what says that there is a service elsewhere. A config file counts only when a variable names it or
one of its profiles: what lies in somebody's home for `temporal` must not move the product.
"""

from __future__ import annotations

import os
import tomllib
from collections.abc import Mapping
from pathlib import Path
from typing import Any

PROFILE, CONFIG_FILE = "TEMPORAL_PROFILE", "TEMPORAL_CONFIG_FILE"
PROFILE_DEFAULT = "default"
BYTES_MAX = 1024 * 1024


def names_a_file(environment: Mapping[str, str] = os.environ) -> bool:
    """Whether a variable asks for Temporal's config file."""
    return bool(environment.get(PROFILE) or environment.get(CONFIG_FILE))


def external_service(environment: Mapping[str, str] = os.environ) -> dict[str, str]:
    """`address` and `namespace` as far as they are said; ValueError without the profile."""
    said = _profile(environment) if names_a_file(environment) else {}
    for key in ("address", "namespace"):
        if value := environment.get(f"TEMPORAL_{key.upper()}"):
            said[key] = value
    return said


def _profile(environment: Mapping[str, str]) -> dict[str, str]:
    name = environment.get(PROFILE) or PROFILE_DEFAULT
    path = Path(environment.get(CONFIG_FILE) or _default_file(environment))
    try:
        with path.open("rb") as file:
            content = tomllib.loads(file.read(BYTES_MAX).decode())
    except (OSError, ValueError) as error:
        raise ValueError(f"{path}: Temporal's config file cannot be read: {error}") from error
    found: Any = content.get("profile", {})
    found = found.get(name) if isinstance(found, dict) else None
    if not isinstance(found, dict):
        raise ValueError(f"{path}: there is no profile {name!r}")
    return {key: str(found[key]) for key in ("address", "namespace") if found.get(key)}


def _default_file(environment: Mapping[str, str]) -> Path:
    base = environment.get("XDG_CONFIG_HOME") or Path.home() / ".config"
    return Path(base) / "temporalio" / "temporal.toml"
