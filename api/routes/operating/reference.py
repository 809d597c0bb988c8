"""`/api/v1/docs`: the OpenAPI document as a page of ours, without scripts or foreign addresses."""

from __future__ import annotations

import html
import json
from functools import lru_cache
from typing import Any

from fastapi import APIRouter, Request, Response

from api.routes.page import POLICY

router = APIRouter(include_in_schema=False)
HEAD = """<!doctype html>
<html lang="en">
<head>
<meta charset="utf-8">
<meta name="viewport" content="width=device-width, initial-scale=1">
<meta name="color-scheme" content="light dark">
<title>Holdfast: HTTP API</title>
<link rel="icon" href="data:,">
<link rel="stylesheet" href="/page/reference.css">
</head>
<body>
<h1>Holdfast: HTTP API</h1>
<p>Every operation of <a href="/api/v1/openapi.json">openapi.json</a>.</p>
"""


@router.get("/docs")
def reference(request: Request) -> Response:
    """The page; it is made once."""
    headers = {"Content-Security-Policy": POLICY, "Referrer-Policy": "no-referrer"}
    text = _page(json.dumps(request.app.openapi()))
    return Response(text, media_type="text/html; charset=utf-8", headers=headers)


@lru_cache(maxsize=1)
def _page(document: str) -> str:
    known = json.loads(document)
    groups: dict[str, list[str]] = {}
    for path, methods in known["paths"].items():
        for method, operation in methods.items():
            group = (operation.get("tags") or ["other"])[0]
            groups.setdefault(group, []).append(_operation(method, path, operation))
    parts = [HEAD]
    for group, shown in groups.items():
        parts += [f"<h2>{html.escape(group)}</h2>", *shown]
    parts.append("<h2>Schemas</h2>")
    for name, schema in sorted(known["components"]["schemas"].items()):
        parts.append(
            f'<details id="{html.escape(name)}"><summary>{html.escape(name)}</summary>'
            f"{_code(schema)}</details>"
        )
    return "\n".join([*parts, "</body>", "</html>", ""])


def _operation(method: str, path: str, operation: dict[str, Any]) -> str:
    parts = [
        "<details><summary>",
        f"<code>{method.upper()} {html.escape(path)}</code> ",
        html.escape(operation.get("description") or operation.get("summary") or ""),
        "</summary>",
    ]
    parts += [_parameter(one) for one in operation.get("parameters", [])]
    if "requestBody" in operation:
        parts.append(f"<p>Body: {_content(operation['requestBody'])}</p>")
    for status, answer in operation.get("responses", {}).items():
        words = html.escape(answer.get("description", ""))
        parts.append(f"<p><code>{html.escape(status)}</code> {words} {_content(answer)}</p>")
    return "".join([*parts, "</details>"])


def _parameter(one: dict[str, Any]) -> str:
    need = "required" if one.get("required") else "optional"
    words = html.escape(one.get("description", ""))
    name, where = html.escape(one["name"]), html.escape(one["in"])
    return f"<p><code>{name}</code> in {where}, {need}. {words} {_code(one.get('schema', {}))}</p>"


def _content(part: dict[str, Any]) -> str:
    """The kinds of a body, each with a link to its schema or the schema itself."""
    shown = []
    for kind, one in part.get("content", {}).items():
        schema = one.get("schema", {})
        name = html.escape(str(schema.get("$ref", "")).rpartition("/")[2])
        link = f'<a href="#{name}">{name}</a>' if name else _code(schema)
        shown.append(f"{html.escape(kind)} {link}")
    return " ".join(shown)


def _code(schema: dict[str, Any]) -> str:
    return f"<code>{html.escape(json.dumps(schema))}</code>"
