"""Asking the API whether the product is ready, with nothing but the standard library."""

from __future__ import annotations

import http.client
import json
from urllib.parse import urlsplit

ANSWER_BYTES_MAX = 64 * 1024


def ask(url: str, method: str, path: str, token: str = "") -> tuple[int, object]:
    """One short request: its status and JSON, or status 0 when nobody answered."""
    parts = urlsplit(url)
    connection = http.client.HTTPConnection(parts.hostname or "", parts.port, timeout=1.0)
    headers = {"Authorization": f"Bearer {token}"} if token else {}
    try:
        connection.request(method, path, headers=headers)
        answer = connection.getresponse()
        return answer.status, _json(answer.read(ANSWER_BYTES_MAX))
    except (OSError, http.client.HTTPException):
        return 0, None
    finally:
        connection.close()


def is_ready(url: str) -> bool:
    """Whether `/readyz` answers 200."""
    return ask(url, "GET", "/readyz")[0] == 200


def warnings(url: str) -> list[str]:
    """What `/readyz` wants the operator to know although all is ready."""
    _, body = ask(url, "GET", "/readyz")
    found = body.get("warnings", []) if isinstance(body, dict) else []
    return [str(warning) for warning in found]


def why_not(url: str) -> str:
    """What `/readyz` says while it is not 200."""
    status, body = ask(url, "GET", "/readyz")
    return "the API does not answer yet" if status == 0 else f"{status} {json.dumps(body)[:500]}"


def _json(data: bytes) -> object:
    try:
        return json.loads(data)
    except ValueError:
        return None
