"""Dense, sparse and token vectors of one pass: those of their heads, computed plainly."""

from __future__ import annotations

import json
from typing import TYPE_CHECKING, Any

import numpy as np
import pytest
import torch

from encoder_engine.embedding import Embedder, HybridEmbedder, max_similarity
from encoder_engine.errors import (
    CheckpointFileError,
    ConfigError,
    InputError,
    NonFiniteVectorError,
    TruncationWarning,
)
from encoder_engine.models import Encoder
from encoder_engine.opening.compiling import compile_directory
from encoder_engine.ops.testing import assert_within_budget
from tests import ROOT
from tests.embedding.hybrid_model import HIDDEN, write_hybrid_directory
from tests.embedding.hybrid_model import TEXTS as LIBRARY_TEXTS
from tests.embedding.test_breadth import TERMS, tensor
from tests.embedding.tiny_model import VOCABULARY, WIDTH, write_sentence_directory

if TYPE_CHECKING:
    from pathlib import Path

TEXTS = ["the long query", "a row of the text row", "", "words " * 4]
ENGINES = ("compiled", "torch")


@pytest.fixture
def directory(tmp_path: Path) -> Path:
    """Write a directory as BGE-M3's: an embedder's, and two files of linear layers."""
    pooling = {"word_embedding_dimension": WIDTH, "pooling_mode_cls_token": True}
    folder = write_sentence_directory(tmp_path, pooling=pooling)
    torch.manual_seed(7)
    for name, rows in (("sparse_linear", 1), ("colbert_linear", WIDTH)):
        torch.save(torch.nn.Linear(WIDTH, rows).state_dict(), folder / f"{name}.pt")
    return folder


def plainly(folder: Path, embedder: HybridEmbedder, dtype: torch.dtype) -> Any:
    """Compute all three outputs of each text, as FlagEmbedding's BGEM3 model does."""
    encoder = Encoder.from_pretrained(folder, device="cpu", dtype=dtype)
    tokenizer = embedder.embedder.tokenizer
    heads = {
        name: {k: v.to(dtype) for k, v in torch.load(folder / f"{name}_linear.pt").items()}
        for name in ("sparse", "colbert")
    }
    special = [tokenizer.token_to_id(name) for name in ("[CLS]", "[SEP]", "[PAD]", "[UNK]")]
    dense, sparse, tokens = [], [], []
    for text in TEXTS:
        batch = tokenizer.encode_batch([text]).to_packed("cpu")
        with torch.no_grad():
            rows = encoder(batch).last_hidden_state
        dense.append(torch.nn.functional.normalize(rows[0], dim=-1))
        head = heads["sparse"]
        weights = torch.nn.functional.linear(rows, head["weight"], head["bias"]).relu()[:, 0]
        row = torch.zeros(len(VOCABULARY), dtype=dtype)
        for number, weight in zip(batch.input_ids.tolist(), weights, strict=True):
            if number not in special and weight > row[number]:
                row[number] = weight
        sparse.append(row)
        head = heads["colbert"]
        projected = torch.nn.functional.linear(rows[1:], head["weight"], head["bias"])
        tokens.append(torch.nn.functional.normalize(projected, dim=-1))
    return torch.stack(dense), torch.stack(sparse), torch.cat(tokens)


@pytest.mark.parametrize("engine", ENGINES)
def test_all_outputs_are_those_of_their_heads(directory: Path, engine: Any) -> None:
    embedder = HybridEmbedder.from_pretrained(directory, device="cpu", engine=engine)
    found = embedder.encode(TEXTS, batch_tokens=16)
    assert found.dense is not None
    assert found.sparse is not None
    assert found.tokens is not None
    ours = found.dense, found.sparse.dense(), found.tokens.vectors
    eager, truth = (plainly(directory, embedder, d) for d in (torch.float32, torch.float64))
    for name, one, plain, true in zip(
        ("dense", "sparse", "tokens"), ours, eager, truth, strict=True
    ):
        assert_within_budget(tensor(one), plain, true, name, terms=TERMS)
    assert [len(rows) for rows in found.tokens] == [
        len(embedder.embedder.tokenizer.encode(text)) - 1 for text in TEXTS
    ]
    assert max_similarity(found.tokens, found.tokens).shape == (4, 4)
    assert found.sparse.similarity(found.sparse).shape == (4, 4)
    alone = Embedder.from_pretrained(directory, device="cpu", engine=engine).encode(TEXTS)
    assert_within_budget(tensor(found.dense), tensor(alone), truth[0], terms=TERMS)


@pytest.mark.parametrize("engine", ENGINES)
@pytest.mark.parametrize("output", ["dense", "sparse", "tokens"])
def test_one_output_has_the_bits_of_all(directory: Path, output: Any, engine: Any) -> None:
    embedder = HybridEmbedder.from_pretrained(directory, device="cpu", engine=engine)
    every: Any = embedder.encode(TEXTS)
    one = embedder.encode(TEXTS, outputs=(output,))
    for name in ("dense", "sparse", "tokens"):
        found = getattr(one, name)
        if name != output:
            assert found is None
        elif name == "dense":
            assert found.tobytes() == every.dense.tobytes()
        elif name == "sparse":
            assert found.dense().tobytes() == every.sparse.dense().tobytes()
        else:
            assert found.vectors.tobytes() == every.tokens.vectors.tobytes()
    nothing = embedder.encode([], outputs=(output,))
    assert len(getattr(nothing, output)) == 0


def test_what_is_no_output_is_refused(directory: Path) -> None:
    embedder = HybridEmbedder.from_pretrained(directory, device="cpu")
    for outputs in ("dense", (), ("dense", "colbert")):
        with pytest.raises(InputError, match="outputs must list"):
            embedder.encode(TEXTS, outputs=outputs)  # type: ignore[arg-type]
    with pytest.warns(TruncationWarning):
        embedder.encode("long row " * 20)


def test_heads_that_are_missing_or_of_another_width_are_refused(directory: Path) -> None:
    torch.save(torch.nn.Linear(WIDTH + 1, 1).state_dict(), directory / "sparse_linear.pt")
    with pytest.raises(ConfigError, match="takes 17 features"):
        HybridEmbedder.from_pretrained(directory, device="cpu")
    torch.save(torch.nn.Linear(WIDTH, 2).state_dict(), directory / "sparse_linear.pt")
    with pytest.raises(ConfigError, match="one weight"):
        HybridEmbedder.from_pretrained(directory, device="cpu")
    torch.save({"weight": torch.ones(1, WIDTH)}, directory / "sparse_linear.pt")
    with pytest.raises(CheckpointFileError, match="not a linear layer"):
        HybridEmbedder.from_pretrained(directory, device="cpu")
    (directory / "sparse_linear.pt").unlink()
    with pytest.raises(CheckpointFileError, match=r"no sparse_linear\.pt"):
        HybridEmbedder.from_pretrained(directory, device="cpu")


def test_numbers_that_overflow_name_the_text(directory: Path) -> None:
    embedder = HybridEmbedder.from_pretrained(directory, engine="torch")
    encoder = embedder.embedder.encoder
    assert isinstance(encoder, Encoder)
    assert encoder.embedding.positions is not None
    with torch.no_grad():
        encoder.embedding.positions.weight[6:] = float("nan")
    with pytest.raises(NonFiniteVectorError) as error:
        embedder.encode(["a", "words " * 9, "b"])
    assert error.value.rows == (1,)
    assert np.isfinite(embedder.encode(["a", "b"]).dense).all()  # type: ignore[arg-type]


@pytest.mark.parametrize("engine", ENGINES)
def test_the_outputs_are_those_of_flagembedding(engine: Any, tmp_path: Path) -> None:
    folder = write_hybrid_directory(tmp_path)
    embedder = HybridEmbedder.from_pretrained(folder, device="cpu", engine=engine)
    found: Any = embedder.encode(LIBRARY_TEXTS)
    golden = json.loads((ROOT / "tests" / "golden" / "flag_golden.json").read_text("utf-8"))

    def sparse(rows: list[dict[str, float]], dtype: torch.dtype) -> torch.Tensor:
        dense = torch.zeros(len(rows), found.sparse.dimension, dtype=dtype)
        for place, row in enumerate(rows):
            for number, weight in row.items():
                dense[place, int(number)] = weight
        return dense

    def theirs(name: str, dtype: torch.dtype) -> dict[str, torch.Tensor]:
        of = golden[name]
        tokens = [torch.tensor(rows, dtype=dtype) for rows in of["tokens"]]
        return {
            "dense": torch.tensor(of["dense"], dtype=dtype),
            "sparse": sparse(of["sparse"], dtype),
            "tokens": torch.cat(tokens),
        }

    ours = {
        "dense": tensor(found.dense),
        "sparse": tensor(found.sparse.dense()),
        "tokens": tensor(found.tokens.vectors),
    }
    eager, truth = theirs("float32", torch.float32), theirs("float64", torch.float64)
    for name, values in ours.items():
        assert_within_budget(values, eager[name], truth[name], name, terms=3 * HIDDEN + 50)


@pytest.mark.parametrize("engine", ENGINES)
def test_without_modules_the_dense_vector_is_the_first_tokens(engine: Any, tmp_path: Path) -> None:
    folder = write_hybrid_directory(tmp_path)
    expected = HybridEmbedder.from_pretrained(folder, device="cpu", engine=engine).encode("a b")
    (folder / "modules.json").unlink()
    found = HybridEmbedder.from_pretrained(folder, device="cpu", engine=engine).encode("a b")
    np.testing.assert_array_equal(found.dense, expected.dense)
    alone = Embedder.from_pretrained(folder, device="cpu", engine=engine)
    np.testing.assert_array_equal(alone.encode(["a b"]), expected.dense)
    # Another process reads the directory again.
    reload = alone.reload()
    assert reload is not None
    assert reload("cpu", 1).recipe.normalized


def test_a_compiled_directory_keeps_the_small_heads(tmp_path: Path) -> None:
    (tmp_path / "source").mkdir()
    folder = write_hybrid_directory(tmp_path / "source")
    compile_directory(folder, tmp_path / "compiled")
    found, expected = (
        HybridEmbedder.from_pretrained(tmp_path / name, device="cpu").encode(["a b", "b"])
        for name in ("compiled", "source")
    )
    assert found.tokens is not None
    assert expected.tokens is not None
    np.testing.assert_array_equal(found.tokens.vectors, expected.tokens.vectors)
