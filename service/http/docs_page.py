"""`/docs`: every route on one page, made from the OpenAPI document, with no outside assets."""

from __future__ import annotations

import base64
import hashlib
import json
from collections.abc import Sequence
from html import escape
from typing import Any

from service.error_table import TABLE

STYLE = """
body{font:16px/1.5 system-ui,sans-serif;max-width:60rem;margin:2rem auto;padding:0 1rem;
color:#1b1f24;background:#fff}
h2{margin-top:2.5rem;font-size:1.05rem;font-family:ui-monospace,monospace;overflow-wrap:anywhere}
code,pre{font-family:ui-monospace,monospace;font-size:.9em;background:#f3f4f6;border-radius:4px}
code{padding:.1em .3em}pre{padding:.8em;overflow:auto}
table{border-collapse:collapse;width:100%}td,th{text-align:left;padding:.3em .6em;
border-bottom:1px solid #ddd;vertical-align:top}table+table{margin-top:1em}
td code{overflow-wrap:anywhere}
td:not(:last-child),th:not(:last-child){width:9.5em}a{color:#1b5a96}
@media(max-width:40em){table{display:block;overflow-x:auto}td,th{padding:.3em .4em}
td:not(:last-child),th:not(:last-child){width:auto}}
.m{display:inline-block;min-width:3.2rem;color:#fff;background:#24567a;border-radius:4px;
padding:0 .4em;text-align:center}.m.post{background:#2f6f43}
@media(prefers-color-scheme:dark){body{background:#14171a;color:#e6e6e6}a{color:#83b4ee}
code,pre{background:#22272e}td,th{border-color:#333}}
"""

HEADERS = {
    "X-Content-Type-Options": "nosniff",
    "Referrer-Policy": "no-referrer",
    "Content-Security-Policy": "default-src 'none'; base-uri 'none'; form-action 'none'; "
    "frame-ancestors 'none'; style-src 'sha256-"
    + base64.b64encode(hashlib.sha256(STYLE.encode()).digest()).decode()
    + "'",
}
"""Nothing is loaded and nothing runs; the one style sheet is named by its hash."""


def docs_page(openapi: dict[str, Any]) -> str:
    """The page as HTML."""
    operations = [
        _operation(method, path, operation, openapi["components"]["schemas"])
        for path, methods in openapi["paths"].items()
        for method, operation in methods.items()
    ]
    info = openapi["info"]
    return (
        "<!doctype html><html lang=en><meta charset=utf-8>"
        '<meta name=viewport content="width=device-width,initial-scale=1">'
        f"<title>{escape(info['title'])} API</title><style>{STYLE}</style>"
        f"<h1>{escape(info['title'])} API {escape(info['version'])}</h1>"
        f"<p>{escape(info.get('summary', ''))}</p>"
        '<p>The full description is <a href="/openapi.json">/openapi.json</a> (OpenAPI 3.1); '
        '<a href="/limits">/limits</a> lists what is accepted.</p>'
        + "".join(operations)
        + _problems()
    )


def _operation(method: str, path: str, operation: dict[str, Any], schemas: dict[str, Any]) -> str:
    parts = [
        f"<h2><span class='m {escape(method)}'>{escape(method.upper())}</span> {escape(path)}</h2>",
        f"<p>{_text(operation.get('description') or operation.get('summary', ''))}</p>",
    ]
    parts.append(_key(operation.get("security", [])))
    rows = [
        (f"<code>{escape(p['name'])}</code>", escape(p["in"]), _text(p.get("description", "")))
        for p in operation.get("parameters", [])
    ]
    if rows:
        parts.append(_table(("parameter", "in", ""), rows))
    body = operation.get("requestBody", {}).get("content", {}).get("application/json")
    if body:
        schema = schemas[body["schema"]["$ref"].rpartition("/")[2]]
        text = schema.get("example") or _fields(schema)
        parts.append(f"<pre>{escape(json.dumps(text, indent=2))}</pre>")
    answers = [
        (escape(status), _text(answer.get("description", "")))
        for status, answer in operation.get("responses", {}).items()
    ]
    parts.append(_table(("status", ""), answers))
    return "".join(parts)


def _key(security: list[dict[str, list[str]]]) -> str:
    scopes = [scope for choice in security for scope in choice.get("key", [])]
    if not scopes:
        return "<p>For anybody.</p>"
    return f"<p>Scope <code>{escape(', '.join(scopes))}</code>, where keys are asked for.</p>"


def _fields(schema: dict[str, Any]) -> dict[str, str]:
    return {
        name: str(field.get("description") or field.get("type") or field.get("enum") or "...")
        for name, field in schema.get("properties", {}).items()
    }


def _problems() -> str:
    rows = [
        (
            f"<code id='{escape(kind.code)}'>{escape(kind.code)}</code>",
            str(kind.status),
            escape(kind.title),
            _text(kind.advice),
        )
        for kind in TABLE.values()
    ]
    return "<h2>Problems</h2>" + _table(("code", "status", "", "what to do"), rows)


def _table(header: tuple[str, ...], rows: Sequence[tuple[str, ...]]) -> str:
    head = "".join(f"<th>{escape(name)}</th>" for name in header)
    body = "".join("<tr>" + "".join(f"<td>{c}</td>" for c in row) + "</tr>" for row in rows)
    return f"<table><tr>{head}</tr>{body}</table>"


def _text(text: str) -> str:
    """Escaped text with `code` spans."""
    pieces = escape(text).split("`")
    return "".join(f"<code>{p}</code>" if i % 2 else p for i, p in enumerate(pieces))
