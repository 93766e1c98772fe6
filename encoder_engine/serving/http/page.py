"""The pages at ``/`` and ``/docs``, whose content security policy allows no outside assets."""

from __future__ import annotations

import base64
import hashlib
import re
from functools import cache
from html import escape
from pathlib import Path
from typing import TYPE_CHECKING, Any

from encoder_engine.serving.http.replies import Reply, dump

if TYPE_CHECKING:
    from encoder_engine.serving.http.context import Context

__all__ = ["docs_reply", "page_reply"]


async def page_reply(_: bytes, context: Context) -> Reply:
    """Return the page to browsers, and to other clients an empty health answer, as TEI does."""
    if b"text/html" in context.accept:
        return _page()
    return Reply(b"", media_type=b"text/plain", status=200 if context.service.ready else 503)


def docs_reply(description: dict[str, Any]) -> Reply:
    """Return the OpenAPI description as a page."""
    title = escape(description["info"]["title"])
    parts = [f"<!doctype html><meta charset=utf-8><title>{title}</title>", f"<h1>{title}</h1>"]
    parts.append('<p><a href="openapi.json">openapi.json</a> has the whole description.</p>')
    schemas = description["components"]["schemas"]
    for path, methods in description["paths"].items():
        for method, operation in methods.items():
            parts.append(f"<h2><code>{method.upper()} {escape(path)}</code></h2>")
            content = operation.get("requestBody", {}).get("content", {})
            for name in re.findall(r"schemas/(\w+)", str(content)):
                schema = schemas[name]
                parts.append(f"<p>{escape(schema.get('description', name))}</p><ul>")
                for field, kind in schema["properties"].items():
                    needed = " (required)" if field in schema.get("required", ()) else ""
                    shown = escape(dump(kind).decode())
                    parts.append(f"<li><b>{field}</b>{needed}: <code>{shown}</code></li>")
                parts.append("</ul>")
            parts.append(f"<p>Answers: {', '.join(sorted(operation['responses']))}</p>")
    return _html("".join(parts).encode(), "default-src 'none'")


@cache
def _page() -> Reply:
    body = Path(__file__).with_name("page.html").read_bytes()
    policy = "; ".join(
        (
            "default-src 'none'",
            f"script-src {_hash(body, 'script')}",
            f"style-src {_hash(body, 'style')}",
            "connect-src 'self'",
            "base-uri 'none'",
            "form-action 'none'",
            "frame-ancestors 'none'",
        )
    )
    return _html(body, policy)


def _html(body: bytes, policy: str) -> Reply:
    headers = (
        (b"content-security-policy", policy.encode()),
        (b"x-content-type-options", b"nosniff"),
        (b"referrer-policy", b"no-referrer"),
    )
    return Reply(body, headers, media_type=b"text/html; charset=utf-8")


def _hash(body: bytes, tag: str) -> str:
    """Return the hash of an inline script or style of the page, for its content security policy."""
    found = re.search(rb"<%b>(.*?)</%b>" % (tag.encode(), tag.encode()), body, re.DOTALL)
    assert found is not None
    digest = hashlib.sha256(found[1]).digest()
    return f"'sha256-{base64.b64encode(digest).decode()}'"
