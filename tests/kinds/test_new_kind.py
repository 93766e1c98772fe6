"""A new kind of results is a class: the loop, jobs over files and servers take it as it is."""

from __future__ import annotations

import ast
import asyncio
from typing import TYPE_CHECKING, Any

import numpy as np

from encoder_engine.embedding import Embedder, load_vectors
from encoder_engine.engine.outputs import Pooled
from encoder_engine.jobs.keywords import run_over_files
from encoder_engine.kinds.kind import Kind
from encoder_engine.kinds.options import Options
from encoder_engine.serving import Service
from tests.architecture.sources import sources

if TYPE_CHECKING:
    from pathlib import Path

    from encoder_engine.kinds.kind import Batches
    from encoder_engine.kinds.windows import TokenizedWindow

TEXTS = ["a text", "the title of a text", "rows of words"]
FACES = {
    "CausalRanker",
    "Embedder",
    "HybridEmbedder",
    "MultiVectorEmbedder",
    "Ranker",
    "Scorer",
    "SparseEmbedder",
    "StaticEmbedder",
}


class Ranges(Kind):
    """The least and the greatest feature of each text, [n, 2]."""

    name = "dense"

    def resolve(self, **keywords: Any) -> Options:
        """Take the options that all kinds have."""
        return Options(**self.common_options(**keywords), dimension=2)

    def wanted(self, options: Options) -> tuple[Pooled, ...]:
        """Ask for mean pooling."""
        del options
        return (Pooled(modes=("mean",)),)

    def finish(self, window: TokenizedWindow, batches: Batches, options: Options) -> Any:
        """Reduce the features."""
        del window, options
        found = np.empty((len(batches.rows), 2), dtype=np.float32)
        for batch, (vectors,) in batches:
            found[batch] = np.stack([vectors.min(axis=1), vectors.max(axis=1)], axis=1)
        return found

    def join(self, parts: list[Any], options: Options) -> Any:
        """Concatenate."""
        del options
        return np.concatenate([np.empty((0, 2), np.float32), *parts])


class RangeEmbedder(Embedder):
    """An embedder with another kind of results."""

    def kinds(self) -> dict[str, Kind]:
        """Return the ranges."""
        return {"dense": Ranges(self)}


def test_the_loop_a_job_and_a_server_give_the_same(tiny_directory: Path, tmp_path: Path) -> None:
    model = RangeEmbedder.from_pretrained(tiny_directory, device="cpu", pooling="mean")
    vectors = Embedder.from_pretrained(tiny_directory, device="cpu", pooling="mean").encode(
        TEXTS, prompt="", normalize_embeddings=False
    )
    expected = np.stack([vectors.min(axis=1), vectors.max(axis=1)], axis=1)
    kind = model.kind
    np.testing.assert_array_equal(kind.collect(iter(TEXTS), kind.resolve(prompt="")), expected)
    (tmp_path / "a.txt").write_text("\n".join(TEXTS), encoding="utf-8")
    run_over_files(kind, tmp_path / "a.txt", tmp_path / "a.npy", {"prompt": ""})
    np.testing.assert_array_equal(load_vectors(tmp_path / "a.npy").vectors, expected)

    async def serve() -> Any:
        async with Service({"ranges": model}) as service:
            return (await service.embed(TEXTS)).results

    np.testing.assert_array_equal(asyncio.run(serve()), kind.collect(iter(TEXTS), kind.resolve()))


def test_nothing_outside_of_embedding_asks_for_the_class_of_a_model() -> None:
    found = []
    for path in sources("encoder_engine"):
        if "embedding" in path.parts:
            continue
        for node in ast.walk(ast.parse(path.read_text(encoding="utf-8"))):
            if not isinstance(node, ast.Call) or not isinstance(node.func, ast.Name):
                continue
            if node.func.id in ("isinstance", "issubclass"):
                named = {n.id for n in ast.walk(node) if isinstance(n, ast.Name)}
                found += [f"{path.name}:{node.lineno}"] if named & FACES else []
    assert not found
