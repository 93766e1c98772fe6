"""Distilled tables: each token through the encoder, its components, its weight."""

from __future__ import annotations

import shutil
from typing import TYPE_CHECKING

import numpy as np
import pytest

from encoder_engine import Embedder, StaticEmbedder
from encoder_engine.cli import main
from encoder_engine.embedding.static.distilling import principal_components, sif_weights
from encoder_engine.errors import InputError
from tests.embedding.tiny_model import VOCABULARY, write_sentence_directory

if TYPE_CHECKING:
    from pathlib import Path


@pytest.fixture(scope="module")
def directory(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return write_sentence_directory(tmp_path_factory.mktemp("encoder"))


@pytest.mark.parametrize("pooling", ["mean", "cls"])
def test_a_row_is_the_vector_of_its_token_alone(directory: Path, pooling: str) -> None:
    static = StaticEmbedder.distill(
        directory, dimension=None, sif_coefficient=None, pooling=pooling
    )
    encoder = Embedder.from_pretrained(directory, pooling=pooling)
    words = ["query", "the", "a", "7", "!"]
    expected = encoder.encode(words, normalize_embeddings=False)
    ids = [static.tokenizer.token_to_id(word) or 0 for word in words]
    np.testing.assert_allclose(static.model.table.rows_VD[ids], expected, atol=1e-5)
    assert static.model.table.num_ids == len(VOCABULARY)


def test_a_table_states_the_hubs_id_and_not_the_name_of_a_revision(
    directory: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    found = "encoder_engine.embedding.static.embedder.resolve_directory"
    monkeypatch.setattr(found, lambda _name, **_hub: directory)
    table = StaticEmbedder.distill("nobody/nothing", dimension=5)
    assert table.model.settings.base_model == "nobody/nothing"
    table.save_pretrained(tmp_path / "saved")
    assert "base_model: nobody/nothing\n" in (tmp_path / "saved" / "README.md").read_text()
    local = StaticEmbedder.distill(directory, dimension=5)
    assert local.model.settings.base_model == directory.name


def test_components_and_weights_are_those_of_the_papers(directory: Path) -> None:
    plain = StaticEmbedder.distill(directory, dimension=None, sif_coefficient=None)
    rows = np.asarray(plain.model.table.rows_VD, dtype=np.float64)
    found = StaticEmbedder.distill(directory, dimension=5, sif_coefficient=1e-3)
    centred = rows - rows.mean(axis=0)
    scores = np.linalg.svd(centred, full_matrices=False)
    expected = (scores[0] * scores[1])[:, :5]
    ranks = np.arange(2, len(rows) + 2)
    probability = (1 / ranks) / (1 / ranks).sum()
    expected = expected * (1e-3 / (1e-3 + probability))[:, None]
    signs = np.sign((expected * found.model.table.rows_VD).sum(axis=0))
    np.testing.assert_allclose(found.model.table.rows_VD, expected * signs, atol=1e-4)


def test_components_equal_those_of_scikit_learn() -> None:
    decomposition = pytest.importorskip("sklearn.decomposition")
    drawn = np.random.default_rng(0).normal(size=(200, 12)).astype(np.float32)
    expected = decomposition.PCA(4, svd_solver="full").fit_transform(drawn.astype(np.float64))
    found = principal_components(drawn, 4)
    # Both are computed in float64; ours is then rounded to float32.
    unit = float(np.finfo(np.float32).eps)
    np.testing.assert_allclose(
        np.abs(found), np.abs(expected), rtol=unit, atol=unit * np.abs(expected).max()
    )
    assert (found.max(axis=0) >= -found.min(axis=0)).all()


def test_weights_rise_with_the_rank() -> None:
    weights = sif_weights(1000, 1e-4)
    assert (np.diff(weights) > 0).all()
    assert 0 < weights[0] < weights[-1] < 1


def test_unused_tokens_are_left_out(directory: Path, tmp_path: Path) -> None:
    words = list(VOCABULARY)
    words[words.index("~")] = "[unused7]"
    shutil.copytree(directory, tmp_path / "m")
    (tmp_path / "m" / "vocab.txt").write_text("".join(f"{word}\n" for word in words), "utf-8")
    static = StaticEmbedder.distill(tmp_path / "m", dimension=None, sif_coefficient=None)
    assert static.model.table.num_ids == len(VOCABULARY) - 1
    assert static.tokenizer.token_to_id("[unused7]") is None
    whole = StaticEmbedder.distill(directory, dimension=None, sif_coefficient=None)
    # The ids after the removed token are one lower now, and so are their rows.
    texts = ["the query", "z9", "[CLS] a"]
    np.testing.assert_allclose(static.encode(texts), whole.encode(texts), atol=1e-6)
    with pytest.raises(InputError, match="not a regular expression"):
        StaticEmbedder.distill(directory, remove_tokens="(", dimension=4)


def test_a_command_writes_what_the_libraries_load(
    directory: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    out = str(tmp_path / "static")
    assert main(["distill", "--model", str(directory), "-o", out, "--dimension", "8"]) == 0
    assert "tokens" in capsys.readouterr().out
    texts = ["the query text", "row", ""]
    found = StaticEmbedder.from_pretrained(out).encode(texts)
    assert found.shape == (3, 8)
    np.testing.assert_allclose(np.linalg.norm(found[:2], axis=1), 1, atol=1e-6)
    for name in ("model2vec", "sentence_transformers"):
        library = pytest.importorskip(name, reason=f"{name} is not installed")
        if name == "model2vec":
            vectors = library.StaticModel.from_pretrained(out).encode(texts)
        else:
            vectors = library.SentenceTransformer(out, device="cpu").encode(texts)
        np.testing.assert_allclose(found, vectors, atol=1e-6)
    assert main(["distill", "--model", str(directory), "-o", out]) == 1
    assert "exists and is not empty" in capsys.readouterr().err


def test_impossible_dimensions_are_refused(directory: Path) -> None:
    with pytest.raises(InputError, match="the encoder's width"):
        StaticEmbedder.distill(directory, dimension=17)
    with pytest.raises(InputError, match="sif_coefficient"):
        StaticEmbedder.distill(directory, sif_coefficient=1.0, dimension=4)
    with pytest.raises(InputError, match="pooling"):
        StaticEmbedder.distill(directory, pooling="max", dimension=4)
