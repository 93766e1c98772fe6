"""The page at ``/``: one file without outside assets, under a policy that allows its own parts."""

from __future__ import annotations

import base64
import hashlib
import re
from functools import cache
from pathlib import Path
from typing import TYPE_CHECKING

from encoder_engine.serving.http.replies import Reply

if TYPE_CHECKING:
    from encoder_engine.serving.http.context import Context

__all__ = ["page_reply"]


async def page_reply(_: bytes, context: Context) -> Reply:
    """Return the page for a browser, and TEI's health for any other client."""
    if b"text/html" in context.accept:
        return _page()
    return Reply(b"", media_type=b"text/plain", status=200 if context.service.ready else 503)


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
    headers = (
        (b"content-security-policy", policy.encode()),
        (b"x-content-type-options", b"nosniff"),
        (b"referrer-policy", b"no-referrer"),
    )
    return Reply(body, headers, media_type=b"text/html; charset=utf-8")


def _hash(body: bytes, tag: str) -> str:
    """Return the source expression of an inline element."""
    found = re.search(rb"<%b>(.*?)</%b>" % (tag.encode(), tag.encode()), body, re.DOTALL)
    assert found is not None
    digest = hashlib.sha256(found[1]).digest()
    return f"'sha256-{base64.b64encode(digest).decode()}'"
