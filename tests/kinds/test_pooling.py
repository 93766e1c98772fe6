"""Pooling with prompts left out, and vectors in fewer bits, against sentence-transformers."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import numpy as np
import pytest
import torch

from encoder_engine.embedding import Embedder, quantize_vectors
from encoder_engine.errors import InputError, ShapeError
from encoder_engine.models.module_stack import normalize, pool
from encoder_engine.ops.pooling import POOLING_MODES, PoolingMode
from encoder_engine.ops.testing import assert_within_budget
from encoder_engine.packing import Sequences
from tests.embedding.tiny_model import WIDTH, write_sentence_directory

if TYPE_CHECKING:
    from pathlib import Path

LENGTHS = (4, 1 + 2, 9)


def _vectors(num_rows: int = 300) -> np.ndarray[Any, np.dtype[np.float32]]:
    return np.random.default_rng(0).standard_normal((num_rows, 20)).astype(np.float32)


@pytest.mark.parametrize("num_prompt_tokens", [0, 2])
@pytest.mark.parametrize("mode", POOLING_MODES)
def test_prompts_are_left_out_as_sentence_transformers_does(
    mode: Any, num_prompt_tokens: int
) -> None:
    modules = pytest.importorskip("sentence_transformers.sentence_transformer.modules")
    generator = torch.Generator().manual_seed(0)
    sequences = Sequences.from_lengths(LENGTHS)
    hidden_TD = torch.randn(sum(LENGTHS), 5, generator=generator)
    mask = torch.arange(max(LENGTHS))[None] < torch.tensor(LENGTHS)[:, None]
    padded = torch.zeros(*mask.shape, 5)
    padded[mask] = hidden_TD
    eager, truth = (
        modules.Pooling(5, mode, include_prompt=False)(
            {
                "token_embeddings": token_embeddings,
                "attention_mask": mask.long(),
                "prompt_length": num_prompt_tokens,
            }
        )["sentence_embedding"]
        for token_embeddings in (padded, padded.double())
    )
    ours = pool(hidden_TD, sequences, (mode,), num_prompt_tokens=num_prompt_tokens)
    assert_within_budget(ours, eager, truth, terms=max(LENGTHS))
    ours = pool(hidden_TD, sequences, (mode,), num_prompt_tokens=num_prompt_tokens, normalized=True)
    assert_within_budget(ours, normalize(eager), normalize(truth), terms=max(LENGTHS))


def test_modes_that_share_a_prompt_keep_their_order() -> None:
    sequences = Sequences.from_lengths(LENGTHS)
    hidden_TD = torch.randn(sum(LENGTHS), 5, generator=torch.Generator().manual_seed(0))
    together = pool(hidden_TD, sequences, ("weightedmean", "max"), num_prompt_tokens=1)
    alone = [pool(hidden_TD, sequences, (m,), num_prompt_tokens=1) for m in ("weightedmean", "max")]
    torch.testing.assert_close(together, torch.cat(alone, dim=1), rtol=0, atol=0)
    modes: tuple[PoolingMode, ...] = ("weightedmean", "max")
    normal = pool(hidden_TD, sequences, modes, num_prompt_tokens=1, normalized=True)
    assert torch.equal(normal, normalize(together))


@pytest.fixture(scope="module")
def leaving_prompts_out(tmp_path_factory: pytest.TempPathFactory) -> Embedder:
    """Load a directory that says ``include_prompt: false``."""
    pooling = {"embedding_dimension": WIDTH, "pooling_mode": "mean", "include_prompt": False}
    folder = write_sentence_directory(tmp_path_factory.mktemp("no_prompt"), pooling=pooling)
    return Embedder.from_pretrained(folder, device="cpu")


def test_a_prompt_that_fills_the_whole_limit_is_refused(leaving_prompts_out: Embedder) -> None:
    with pytest.raises(InputError, match="no room"):
        leaving_prompts_out.encode(["a"], prompt="long " * 20)
    changed = leaving_prompts_out.encode(["a row"], prompt="query: ")
    assert not np.array_equal(changed, leaving_prompts_out.encode(["query: a row"]))


@pytest.mark.parametrize(
    ("prompt", "text"), [("word", "s"), ("que", "ry"), ("abcdefgh", "x" * 120)]
)
def test_a_text_that_merges_into_a_prompt_left_out_is_refused_by_row(
    leaving_prompts_out: Embedder, prompt: str, text: str
) -> None:
    with pytest.raises(
        InputError, match=r"text 2 merges into the . tokens of its prompt"
    ) as caught:
        leaving_prompts_out.encode(["", " a", text], prompt=prompt)
    assert caught.value.row == 2
    assert leaving_prompts_out.encode([text], prompt=f"{prompt}: ").shape == (1, WIDTH)


@pytest.mark.parametrize("precision", ["float32", "int8", "uint8", "binary", "ubinary"])
def test_fewer_bits_are_the_bits_of_sentence_transformers(precision: Any) -> None:
    theirs = pytest.importorskip("sentence_transformers.util.quantization")
    vectors = _vectors()
    ranges = np.stack([vectors[:200].min(0), vectors[:200].max(0)])
    needed = ranges if precision in ("int8", "uint8") else None
    found = quantize_vectors(vectors, precision, ranges=needed)
    expected = theirs.quantize_embeddings(vectors, precision, ranges=needed)
    assert found.dtype == expected.dtype
    np.testing.assert_array_equal(found, expected)


def test_an_embedder_packs_bits_itself(tmp_path: Path) -> None:
    embedder = Embedder.from_pretrained(write_sentence_directory(tmp_path))
    texts = ["the text", "a row", ""]
    full = embedder.encode(texts)
    for precision in ("binary", "ubinary"):
        found = embedder.encode(texts, precision=precision)
        np.testing.assert_array_equal(found, quantize_vectors(full, precision))
    assert embedder.encode(texts[0], precision="ubinary", output="torch").dtype == torch.uint8


def test_quantizing_without_what_it_needs_is_refused() -> None:
    with pytest.raises(InputError, match="ranges"):
        quantize_vectors(_vectors(), "int8")
    with pytest.raises(ShapeError, match="20"):
        quantize_vectors(_vectors(), "uint8", ranges=np.zeros((2, 3)))
    precision: Any = "int4"
    with pytest.raises(InputError, match="int4"):
        quantize_vectors(_vectors(), precision)


@pytest.mark.parametrize(
    ("low", "high"),
    [(1, -1), (np.nan, 1), (0, np.nan), (-np.inf, 1), (0, np.inf), (-3e38, 3e38), (0, 1e300)],
)
def test_ranges_that_are_none_are_refused(low: float, high: float) -> None:
    ranges = np.stack([np.full(20, -1.0), np.full(20, 1.0)])
    ranges[:, 7] = low, high
    with pytest.raises(InputError, match="range of feature 7"):
        quantize_vectors(_vectors(), "int8", ranges=ranges)


def test_a_feature_that_never_changes_quantizes_to_one_level() -> None:
    vectors = np.ones((3, 2), np.float32)
    ranges = np.ones((2, 2), np.float32)
    np.testing.assert_array_equal(quantize_vectors(vectors, "uint8", ranges=ranges), 0)
