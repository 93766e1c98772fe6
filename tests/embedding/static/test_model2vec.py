"""Static models beside model2vec and sentence-transformers, which own the layouts."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import numpy as np
import pytest

from encoder_engine import StaticEmbedder
from encoder_engine.errors import TokenizerFileError
from encoder_engine.families.checkpoints.arrays import widen
from encoder_engine.text import Tokenizer
from tests.embedding.static.static_models import (
    TEXTS,
    word_level,
    wordpiece,
    write_library_directory,
    write_model2vec,
)

if TYPE_CHECKING:
    from pathlib import Path

pytestmark = pytest.mark.slow
# Both libraries add float32 numbers in their own order.
TOLERANCE = 1e-6
LAYOUTS: dict[str, dict[str, Any]] = {
    "float32": {},
    "not-normalized": {"normalize": False},
    "float16": {"dtype": "float16"},
    "int8": {"dtype": "int8"},
    "vocabulary": {"quantized_vocabulary": True},
    "int8-vocabulary": {"quantized_vocabulary": True, "dtype": "int8"},
    "short": {"max_length": 5},
    "unlimited": {"max_length": None},
}


@pytest.mark.parametrize("name", LAYOUTS)
@pytest.mark.parametrize("kind", ["wordpiece", "word-level"])
def test_vectors_are_model2vecs(name: str, kind: str, tmp_path: Path) -> None:
    model2vec = pytest.importorskip("model2vec", reason="model2vec is not installed")
    tokenizer = wordpiece() if kind == "wordpiece" else word_level()
    folder = write_model2vec(tmp_path, tokenizer=tokenizer, **LAYOUTS[name])
    # model2vec rounds the mean of a float16 table to float16; in float32 it does not.
    wide = {"quantize_to": "float32"} if name == "float16" else {}
    expected = model2vec.StaticModel.from_pretrained(folder, **wide).encode(TEXTS)
    embedder = StaticEmbedder.from_pretrained(folder)
    found = embedder.encode(TEXTS)
    assert found.dtype == np.float32
    scale = max(1.0, float(np.abs(expected).max()))
    np.testing.assert_allclose(found, expected, rtol=0, atol=TOLERANCE * scale)
    np.testing.assert_array_equal(found[3], 0)


@pytest.mark.parametrize("dtype", ["float32", "float16", "bfloat16"])
@pytest.mark.parametrize("max_length", [None, 6])
@pytest.mark.parametrize("path", ["", "0_StaticEmbedding"])
def test_vectors_are_those_of_sentence_transformers(
    dtype: str, max_length: int | None, path: str, tmp_path: Path
) -> None:
    library = pytest.importorskip("sentence_transformers")
    folder = write_library_directory(tmp_path, dtype=dtype, max_length=max_length, path=path)
    model = library.SentenceTransformer(str(folder), device="cpu").float()
    found = StaticEmbedder.from_pretrained(folder).encode(TEXTS)
    np.testing.assert_allclose(found, model.encode(TEXTS), rtol=0, atol=TOLERANCE)


def test_one_directory_has_the_rules_of_either_library(tmp_path: Path) -> None:
    library = pytest.importorskip("sentence_transformers")
    folder = write_model2vec(tmp_path / "model", normalize=True)
    StaticEmbedder.from_pretrained(folder).save_pretrained(tmp_path / "saved")
    saved = tmp_path / "saved"
    own = StaticEmbedder.from_pretrained(saved)
    np.testing.assert_array_equal(
        own.encode(TEXTS), StaticEmbedder.from_pretrained(folder).encode(TEXTS)
    )
    as_library = StaticEmbedder.from_pretrained(saved, rules="sentence-transformers")
    model = library.SentenceTransformer(str(saved), device="cpu")
    np.testing.assert_allclose(as_library.encode(TEXTS), model.encode(TEXTS), atol=TOLERANCE)
    # Text 5 has an unknown token: the one library adds its row, the other leaves it out.
    assert np.abs(as_library.encode(TEXTS)[5] - own.encode(TEXTS)[5]).max() > 0.01


@pytest.mark.parametrize("rules", ["model2vec", "sentence-transformers"])
@pytest.mark.parametrize("dtype", ["float32", "float16", "bfloat16", "int8"])
def test_what_is_saved_is_loaded_by_the_library(rules: Any, dtype: str, tmp_path: Path) -> None:
    write_library_directory(tmp_path / "a", settings={"prompts": {"query": "query "}})
    embedder = StaticEmbedder.from_pretrained(tmp_path / "a", rules=rules)
    embedder.save_pretrained(tmp_path / "b", dtype=dtype)
    again = StaticEmbedder.from_pretrained(tmp_path / "b")
    assert again.model.table.dtype == dtype
    assert again.model.settings.rules == rules
    assert again.prompts["query"] == "query "
    rounding = {"float32": 0, "float16": 1e-3, "bfloat16": 1e-2, "int8": 3e-2}[dtype]
    np.testing.assert_allclose(again.encode(TEXTS), embedder.encode(TEXTS), atol=rounding)
    if rules == "model2vec" and dtype != "bfloat16":
        model2vec = pytest.importorskip("model2vec", reason="model2vec is not installed")
        wide = {"quantize_to": "float32"} if dtype == "float16" else {}
        expected = model2vec.StaticModel.from_pretrained(tmp_path / "b", **wide).encode(TEXTS)
        np.testing.assert_allclose(again.encode(TEXTS), expected, atol=TOLERANCE)
    if rules == "sentence-transformers" and dtype in ("float32", "bfloat16"):
        library = pytest.importorskip("sentence_transformers")
        model = library.SentenceTransformer(str(tmp_path / "b"), device="cpu").float()
        np.testing.assert_allclose(again.encode(TEXTS), model.encode(TEXTS), atol=TOLERANCE)


@pytest.mark.parametrize("dtype", ["float32", "float16", "bfloat16", "int8"])
def test_means_equal_float64(dtype: str, tmp_path: Path) -> None:
    folder = write_model2vec(tmp_path, dtype=dtype, normalize=False, max_length=None)
    embedder = StaticEmbedder.from_pretrained(folder)
    rows = widen(np.asarray(embedder.model.table.rows_VD)).astype(np.float64)
    for number, text in enumerate(TEXTS):
        ids = embedder.tokenizer.encode(text, add_special_tokens=False)
        ids = ids[ids != 1]
        found = embedder.encode([text])[0]
        if not len(ids):
            np.testing.assert_array_equal(found, 0)
            continue
        expected = rows[ids].mean(axis=0)
        # NumPy adds the rows in float32 one after the other.
        plain = np.abs(rows[ids].astype(np.float32).mean(axis=0) - expected).max()
        error, floor = np.abs(found - expected).max(), 2e-7 * np.abs(rows[ids]).max()
        assert error <= 2 * plain + floor, number


def test_a_template_with_the_ids_of_the_teacher_is_not_used(tmp_path: Path) -> None:
    """The layout of potion-base-8M: [CLS] is 101 in the template, 2 in the smaller vocabulary."""
    from model2vec import StaticModel
    from tokenizers import Tokenizer as Library
    from tokenizers import models, normalizers, pre_tokenizers, processors

    vocab = {"[PAD]": 0, "[UNK]": 1, "[CLS]": 2, "[SEP]": 3, "a": 4, "cat": 5}
    library = Library(models.WordPiece(vocab, unk_token="[UNK]"))
    library.normalizer = normalizers.BertNormalizer()
    library.pre_tokenizer = pre_tokenizers.BertPreTokenizer()
    library.post_processor = processors.TemplateProcessing(
        single="[CLS] $A [SEP]", special_tokens=[("[CLS]", 101), ("[SEP]", 102)]
    )
    weights = np.random.default_rng(0).normal(size=(6, 8)).astype(np.float32)
    theirs = StaticModel(vectors=weights, tokenizer=library, config={})
    theirs.save_pretrained(str(tmp_path / "theirs"))
    texts = ["a cat", "cat", "a", ""]
    ours = StaticEmbedder.from_pretrained(tmp_path / "theirs")
    np.testing.assert_allclose(ours.encode(texts), theirs.encode(texts), rtol=0, atol=TOLERANCE)
    ours.save_pretrained(tmp_path / "saved")
    again = StaticEmbedder.from_pretrained(tmp_path / "saved")
    np.testing.assert_array_equal(again.encode(texts), ours.encode(texts))
    for use in (
        lambda: ours.tokenizer.encode("a"),
        lambda: ours.tokenizer.encode_batch(["a"]),
        lambda: Tokenizer.from_pretrained(tmp_path / "theirs" / "tokenizer.json"),
    ):
        with pytest.raises(TokenizerFileError, match="has the id 101 here but 2 in the vocab"):
            use()
