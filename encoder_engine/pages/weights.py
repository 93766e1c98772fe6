"""A page of attention weights: thumbnails of all heads, and lines between the words of one head.

How it works: the page contains the strongest weights of each word as bytes, and one script, which
the content security policy allows by its hash, so that no other script runs. Words are escaped
text.
"""

from __future__ import annotations

import base64
import hashlib
from html import escape
from pathlib import Path
from typing import TYPE_CHECKING, NamedTuple

if TYPE_CHECKING:
    from collections.abc import Sequence

    import numpy as np
    import numpy.typing as npt

    Bytes = npt.NDArray[np.uint8]

__all__ = ["HeadWeights", "weights_page"]

_SCRIPT = Path(__file__).with_name("weights.js")
_STYLE = """
body { font: 15px/1.5 sans-serif; color: #222; margin: 24px auto; max-width: 1000px;
 padding: 0 16px; overflow-wrap: anywhere; }
h1 { font-size: 22px; } h2 { font-size: 17px; margin-top: 28px; }
.heads { overflow-x: auto; } .heads table { border-collapse: collapse; font-size: 12px; }
.heads th { font-weight: normal; padding: 2px 6px; text-align: right; white-space: nowrap; }
.heads thead th { text-align: center; } .heads td { padding: 2px; }
button { display: block; padding: 0; border: 2px solid #ddd; background: #fff; cursor: pointer; }
button[aria-pressed=true] { border-color: #d55e00; }
canvas { display: block; width: 44px; height: 44px; image-rendering: pixelated; }
#said { position: sticky; top: 0; background: #fff; padding: 6px 0; min-height: 45px; margin: 0;
 border-bottom: 1px solid #ccc; }
.lines { display: grid; grid-template-columns: 1fr 2fr 1fr; }
.lines ol { list-style: none; margin: 0; padding: 0; font-size: 13px; }
.lines li { height: 20px; line-height: 20px; overflow: hidden; white-space: pre;
 text-overflow: ellipsis; cursor: pointer; }
#queries li { text-align: right; padding-right: 6px; } #keys li { padding-left: 6px; }
li.on { background: #ffe8cc; } svg { display: block; width: 100%; }
line { stroke: #0050a0; stroke-width: 2; } svg.one line { visibility: hidden; }
svg.one line.on { visibility: visible; stroke: #d55e00; }
"""


class HeadWeights(NamedTuple):
    """The strongest weights of A heads between W words.

    ``heads``: the layer and the index of each head.
    ``thumbnails``: uint8 [A, S, S], a map of each head's weights in S x S cells, from 0 to 255.
    ``keys``: int64 [A, W, k], the k words that a word attends to most.
    ``shares``: uint8 [A, W, k], the weights of these words; 255 is a weight of 1.
    """

    heads: Sequence[tuple[int, int]]
    thumbnails: Bytes
    keys: npt.NDArray[np.int64]
    shares: Bytes

    def key_bytes(self) -> bytes:
        """Return the keys as bytes: one byte each for up to 256 words, else two, low byte first."""
        return self.keys.astype("u1" if self.keys.shape[1] <= 256 else "<u2").tobytes()


def weights_page(title: str, summary: str, words: Sequence[str], weights: HeadWeights) -> str:
    """Return a page of attention weights as HTML; texts are escaped: their markup is shown."""
    script = _SCRIPT.read_text(encoding="utf-8")
    digest = base64.b64encode(hashlib.sha256(script.encode()).digest()).decode()
    sizes = {
        "words": len(words),
        "top": weights.keys.shape[2],
        "side": weights.thumbnails.shape[1],
        "names": " ".join(f"{layer}.{head}" for layer, head in weights.heads),
    }
    facts = " ".join(f'data-{name}="{value}"' for name, value in sizes.items())
    listed = "".join(f'<li dir="auto" title="{escape(w)}">{escape(w)}</li>' for w in words)
    stored = {
        "thumbnails": weights.thumbnails.tobytes(),
        "places": weights.key_bytes(),
        "shares": weights.shares.tobytes(),
    }
    data = "\n".join(
        f'<pre hidden id="{name}">{base64.b64encode(value).decode()}</pre>'
        for name, value in stored.items()
    )
    return (
        '<!DOCTYPE html>\n<html lang="en">\n<head>\n<meta charset="utf-8">\n'
        '<meta http-equiv="Content-Security-Policy"\n'
        f" content=\"default-src 'none'; style-src 'unsafe-inline'; script-src 'sha256-{digest}'\">"
        '\n<meta name="viewport" content="width=device-width">\n'
        f"<title>{escape(title)}</title>\n<style>{_STYLE}</style>\n</head>\n<body {facts}>\n"
        f"<h1>{escape(title)}</h1>\n<p>{escape(summary)}</p>\n"
        "<noscript><p>The page draws by a script of its own; it is switched off here.</p>"
        f'</noscript>\n<h2>Heads</h2>\n<div class="heads">{_grid(weights.heads)}</div>\n'
        '<h2>Words</h2>\n<p id="said" role="status"></p>\n'
        f'<div class="lines"><ol id="queries">{listed}</ol><svg id="drawn"></svg>'
        f'<ol id="keys">{listed}</ol></div>\n{data}\n<script>{script}</script>\n</body>\n</html>\n'
    )


def _grid(heads: Sequence[tuple[int, int]]) -> str:
    """Return an HTML table of buttons, one for each head; a layer's are in a row."""
    most = max((head for _, head in heads), default=-1) + 1
    rows: dict[int, list[str]] = {}
    for number, (layer, head) in enumerate(heads):
        rows.setdefault(layer, []).append(
            f'<td><button data-head="{number}" aria-pressed="false" '
            f'title="layer {layer} head {head}"><canvas></canvas></button></td>'
        )
    top = "".join(f"<th>{n}</th>" for n in range(most))
    body = "\n".join(f"<tr><th>layer {layer}</th>{''.join(c)}</tr>" for layer, c in rows.items())
    return f"<table><thead><tr><th></th>{top}</tr></thead>\n<tbody>{body}</tbody></table>"
