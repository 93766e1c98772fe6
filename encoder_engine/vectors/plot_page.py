"""An HTML page that plots points with their texts, in one file without network access."""

from __future__ import annotations

import json
from html import escape
from string import Template
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from collections.abc import Sequence

    from encoder_engine.vectors.projection import Projection

# A longer text would hide the points around it.
_MOST_CHARACTERS = 400


def plot_page(title: str, projection: Projection, texts: Sequence[str]) -> str:
    """Return an HTML page: one point per row, its text on hover; the wheel zooms, dragging pans.

    ``texts``: the texts of ``projection.rows``, in the same order.
    """
    shown = [
        text if len(text) <= _MOST_CHARACTERS else f"{text[:_MOST_CHARACTERS]} ..."
        for text in texts
    ]
    data = {
        "axes": projection.axes,
        "points": [[float(f"{x:.5g}"), float(f"{y:.5g}")] for x, y in projection.points],
        "rows": projection.rows.tolist(),
        "texts": shown,
    }
    # Within a script no text may end it: "<" is written as JSON's escape.
    encoded = json.dumps(data, separators=(",", ":")).replace("<", "\\u003c")
    return _PAGE.substitute(title=escape(title), data=encoded)


_PAGE = Template("""<!DOCTYPE html>
<html lang="en">
<head>
<meta charset="utf-8">
<meta http-equiv="Content-Security-Policy"
 content="default-src 'none'; style-src 'unsafe-inline'; script-src 'unsafe-inline'">
<title>$title</title>
<style>
body { margin: 0; font: 14px sans-serif; color: #222; }
h1 { font-size: 16px; margin: 10px 16px 0; }
p { margin: 2px 16px; color: #666; }
canvas { display: block; width: 100vw; height: calc(100vh - 60px); cursor: crosshair; }
#text { position: fixed; display: none; max-width: 420px; padding: 6px 9px; background: #222;
 color: white; border-radius: 4px; pointer-events: none; overflow-wrap: anywhere; }
</style>
</head>
<body>
<h1>$title</h1>
<p>Point at a dot to read its text; the wheel zooms, dragging moves, a double click goes back.</p>
<canvas id="map" role="img" aria-label="$title"></canvas>
<div id="text"></div>
<script id="data" type="application/json">$data</script>
<script>
"use strict";
const data = JSON.parse(document.getElementById("data").textContent);
const canvas = document.getElementById("map"), box = document.getElementById("text");
const pen = canvas.getContext("2d");
const edge = { left: 70, right: 20, top: 16, bottom: 48 };
const range = (n) => {
  const values = data.points.map((point) => point[n]);
  const low = values.reduce((a, b) => Math.min(a, b));
  const high = values.reduce((a, b) => Math.max(a, b));
  const margin = (high - low) * 0.04 || 1;
  return [low - margin, high + margin];
};
const whole = [range(0), range(1)];
let view = whole.map((ends) => [...ends]), width = 0, height = 0, dragged = null;

const across = (x) => edge.left + (x - view[0][0]) / (view[0][1] - view[0][0])
  * (width - edge.left - edge.right);
const down = (y) => height - edge.bottom - (y - view[1][0]) / (view[1][1] - view[1][0])
  * (height - edge.top - edge.bottom);

function ticks([low, high]) {
  const rough = (high - low) / 6, power = 10 ** Math.floor(Math.log10(rough));
  const step = [1, 2, 5, 10].map((n) => n * power).find((n) => n >= rough);
  const found = [];
  for (let n = Math.ceil(low / step); n * step <= high; n += 1) found.push(n * step);
  return found.map((value) => [value, String(Number(value.toPrecision(4)))]);
}

function draw() {
  const scale = window.devicePixelRatio || 1;
  width = canvas.clientWidth; height = canvas.clientHeight;
  canvas.width = width * scale; canvas.height = height * scale;
  pen.setTransform(scale, 0, 0, scale, 0, 0);
  pen.fillStyle = "white"; pen.fillRect(0, 0, width, height);
  pen.font = "12px sans-serif"; pen.strokeStyle = "#e4e4e4"; pen.fillStyle = "#444";
  pen.textAlign = "center";
  for (const [value, name] of ticks(view[0])) {
    line(across(value), edge.top, across(value), height - edge.bottom);
    pen.fillText(name, across(value), height - edge.bottom + 16);
  }
  pen.textAlign = "right";
  for (const [value, name] of ticks(view[1])) {
    line(edge.left, down(value), width - edge.right, down(value));
    pen.fillText(name, edge.left - 6, down(value) + 4);
  }
  pen.textAlign = "center";
  pen.fillText(data.axes[0], (edge.left + width - edge.right) / 2, height - 10);
  pen.save();
  pen.translate(16, (edge.top + height - edge.bottom) / 2); pen.rotate(-Math.PI / 2);
  pen.fillText(data.axes[1], 0, 0);
  pen.restore();
  pen.save();
  pen.beginPath();
  pen.rect(edge.left, edge.top, width - edge.left - edge.right, height - edge.top - edge.bottom);
  pen.clip();
  pen.fillStyle = "rgba(26, 86, 176, 0.55)";
  for (const [x, y] of data.points) {
    pen.beginPath(); pen.arc(across(x), down(y), 3, 0, 2 * Math.PI); pen.fill();
  }
  pen.restore();
}

function line(x0, y0, x1, y1) {
  pen.beginPath(); pen.moveTo(x0, y0); pen.lineTo(x1, y1); pen.stroke();
}

function nearest(x, y) {
  let found = -1, least = 144;
  data.points.forEach((point, n) => {
    const distance = (across(point[0]) - x) ** 2 + (down(point[1]) - y) ** 2;
    if (distance < least) { found = n; least = distance; }
  });
  return found;
}

function show(event) {
  const frame = canvas.getBoundingClientRect();
  const n = nearest(event.clientX - frame.left, event.clientY - frame.top);
  box.style.display = n < 0 ? "none" : "block";
  if (n < 0) return;
  box.textContent = "row " + data.rows[n] + ": " + data.texts[n];
  const left = event.clientX + 14 + box.offsetWidth > innerWidth;
  box.style.left = event.clientX + (left ? -14 - box.offsetWidth : 14) + "px";
  box.style.top = Math.min(event.clientY + 14, innerHeight - box.offsetHeight - 4) + "px";
}

function moveBy(dx, dy) {
  const perX = (view[0][1] - view[0][0]) / (width - edge.left - edge.right);
  const perY = (view[1][1] - view[1][0]) / (height - edge.top - edge.bottom);
  view = [view[0].map((x) => x - dx * perX), view[1].map((y) => y + dy * perY)];
  draw();
}

canvas.addEventListener("mousemove", (event) => {
  if (dragged === null) { show(event); return; }
  moveBy(event.clientX - dragged[0], event.clientY - dragged[1]);
  dragged = [event.clientX, event.clientY];
});
canvas.addEventListener("mousedown", (event) => {
  dragged = [event.clientX, event.clientY]; box.style.display = "none";
});
window.addEventListener("mouseup", () => { dragged = null; });
canvas.addEventListener("mouseleave", () => { box.style.display = "none"; });
canvas.addEventListener("dblclick", () => { view = whole.map((ends) => [...ends]); draw(); });
canvas.addEventListener("wheel", (event) => {
  event.preventDefault();
  const frame = canvas.getBoundingClientRect(), factor = Math.exp(event.deltaY / 500);
  const part = [
    (event.clientX - frame.left - edge.left) / (width - edge.left - edge.right),
    (frame.bottom - edge.bottom - event.clientY) / (height - edge.top - edge.bottom),
  ];
  view = view.map(([low, high], n) => {
    const fixed = low + part[n] * (high - low);
    return [fixed + (low - fixed) * factor, fixed + (high - fixed) * factor];
  });
  draw();
}, { passive: false });
window.addEventListener("resize", draw);
draw();
</script>
</body>
</html>
""")
