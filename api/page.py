"""The first page: what this is, for somebody who opened the address in a browser."""

from __future__ import annotations

PAGE = """<!doctype html>
<html lang="en">
<meta charset="utf-8">
<meta name="viewport" content="width=device-width, initial-scale=1">
<title>Holdfast</title>
<style>
  body { font: 16px/1.5 system-ui, sans-serif; max-width: 40rem; margin: 4rem auto; padding: 0 1rem;
         color: #1c2733; background: #fbfaf7 }
  code { background: #eee8dc; padding: .1em .35em; border-radius: .25em }
  a { color: #0b5c8a }
</style>
<h1>Holdfast</h1>
<p>A server for AI-agent sessions that hold fast: every session is a durable workflow, so work goes
on when a browser closes, a network drops, or a process is killed.</p>
<ul>
  <li>The API is described at <a href="/api/v1/docs">/api/v1/docs</a>
      (<a href="/api/v1/openapi.json">OpenAPI</a>).</li>
  <li><code>holdfast token</code> prints a bearer token; <code>holdfast send</code> talks to a
      session; <code>holdfast attach</code> watches one.</li>
  <li><a href="/readyz">/readyz</a> says whether everything runs.</li>
</ul>
</html>
"""
