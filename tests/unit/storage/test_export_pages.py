"""Exports for people: nothing in a message can break out of its place."""

from __future__ import annotations

from typing import Any

import pytest

from holdfast.storage.transfer.export_pages import blocks, markdown, page


def export(*said: tuple[str, str], **metadata: Any) -> dict[str, Any]:
    """A document with these messages, each a role and a text."""
    usage = {"input_tokens": 1, "output_tokens": 2, "estimated_cost_usd": 0.5}
    session = {
        "id": "01S", "title": None, "preview": "", "state": "ended", "source": "cli",
        "created_at": 0, "ended_at": 1, "message_count": len(said), "usage": usage,
    }  # fmt: skip
    messages = [
        {
            "id": f"01M{number}", "role": role, "content": content, "created_at": 0,
            "superseded": False, "agent_path": "primary", "metadata": metadata,
        }
        for number, (role, content) in enumerate(said)
    ]  # fmt: skip
    return {"session": session, "messages": messages}


@pytest.mark.req("H-039")
def test_code_is_kept_as_it_is_and_prose_makes_no_heading() -> None:
    said = "# no heading\nTitle\n===\n```python\n# a comment\n```\n#!/bin/sh"
    written = markdown(export(("primary", said)))
    assert "\n\\# no heading\nTitle\n\\===\n" in written
    assert "```\n# a comment\n```\n#!/bin/sh\n" in written


@pytest.mark.req("H-039")
@pytest.mark.parametrize("opened", ["```", "~~~~", "  ```sh", "````\n```"])
def test_a_fence_that_nobody_closes_ends_with_its_message(opened: str) -> None:
    written = markdown(export(("primary", f"see\n{opened}\ncode"), ("operator", "next")))
    prose = [part for is_code, part in blocks(written) if not is_code]
    assert any("## Operator" in part for part in prose)
    assert not any("code" in part for part in prose)


@pytest.mark.req("H-039")
def test_the_page_shows_code_in_a_box_and_folds_long_output() -> None:
    shown = page(
        export(
            ("primary", "look:\n```html\n<i>&amp;</i>\n```\ndone"),
            ("tool", "short"),
            ("tool", "line\n" * 100),
            ("odd<role>", "</pre><script>x</script>"),
        )
    )
    assert '<pre>look:</pre><pre class="code">&lt;i&gt;&amp;amp;&lt;/i&gt;</pre>' in shown
    assert "<pre>short</pre>" in shown
    assert "<details><summary>101 lines, 500 characters</summary>" in shown
    assert "<script" not in shown
    assert "odd<role>" not in shown


@pytest.mark.req("H-039")
def test_the_page_loads_nothing_and_runs_nothing() -> None:
    calls = [{"name": "<b>", "arguments": {"url": "javascript:alert(1)", "x": "</pre>"}}]
    shown = page(export(("primary", "https://example.org"), tool_calls=calls))
    for word in ("src=", "href=", "<script", "@import", "url(", "<b>", "</pre>&"):
        assert word not in shown
    assert "default-src 'none'" in shown


@pytest.mark.req("H-039")
def test_a_title_is_text_and_nothing_else() -> None:
    document = export(("operator", "hello"))
    document["session"]["title"] = "</title><script>alert(1)</script>"
    shown = page(document)
    assert "<script" not in shown
    assert "&lt;script&gt;alert(1)&lt;/script&gt;" in shown
