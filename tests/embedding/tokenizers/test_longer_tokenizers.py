"""A tokenizer with more tokens than the model's table encodes all texts that do not use them."""

from __future__ import annotations

import json
import pickle
from typing import TYPE_CHECKING, Any

import numpy as np
import pytest

import encoder_engine as ee
from encoder_engine.embedding import Embedder, Ranker, SparseEmbedder, StaticEmbedder
from encoder_engine.errors import ConfigError, MissingRowsWarning, TextError
from encoder_engine.models import MaskedLM, SequenceClassification
from encoder_engine.text import Tokenizer
from tests.embedding.static.static_models import write_model2vec
from tests.embedding.tiny_model import write_head_directory, write_transformers_directory

if TYPE_CHECKING:
    from pathlib import Path

TEXTS = ["the text", "a row"] * 3000  # more than a window
BAD = 5001
pytestmark = pytest.mark.filterwarnings(
    "ignore::encoder_engine.errors.MissingPoolerWarning",
    "ignore::encoder_engine.errors.DefaultPoolingWarning",
)


def lengthen(folder: Path) -> Path:
    """Add two tokens to a tokenizer."""
    Tokenizer.from_pretrained(folder).save(folder)
    (folder / "SHA256SUMS").unlink(missing_ok=True)
    path = folder / "tokenizer.json"
    top = json.loads(path.read_text("utf-8"))
    first = max(top["model"]["vocab"].values()) + 1
    flags = dict.fromkeys(("single_word", "lstrip", "rstrip", "normalized", "special"), False)
    more = [{"id": first + i, "content": f"[X{i}]"} | flags for i in range(2)]
    top["added_tokens"] += more
    path.write_text(json.dumps(top), encoding="utf-8")
    (folder / "tokenizer_config.json").unlink()
    (folder / "vocab.txt").unlink(missing_ok=True)
    return folder


@pytest.mark.slow
@pytest.mark.parametrize(
    ("kind", "engine"),
    [
        *((StaticEmbedder, None), (SparseEmbedder, None), (ee.MaskFiller, None)),
        *((Embedder, "compiled"), (Embedder, "torch"), (Ranker, "compiled"), (Ranker, "torch")),
    ],
)
def test_only_texts_with_tokens_beyond_the_table_are_refused(
    kind: Any, engine: str | None, tmp_path: Path
) -> None:
    if kind is StaticEmbedder:
        folder = write_model2vec(tmp_path / "model")
    elif kind is Embedder:
        folder = write_transformers_directory(tmp_path / "model")
    elif kind is Ranker:
        folder = write_head_directory(tmp_path / "model", SequenceClassification, num_labels=1)
    else:
        folder = write_head_directory(tmp_path / "model", MaskedLM)
    options = {} if kind is StaticEmbedder else {"device": "cpu"}
    options |= {} if engine is None else {"engine": engine}

    def results(model: Any, texts: list[str]) -> Any:
        if kind is Ranker:
            return model.score([("query", text) for text in texts])
        return (model.fill if kind is ee.MaskFiller else model.encode)(texts)

    texts = [f"{text} [MASK]" for text in TEXTS[:8]] if kind is ee.MaskFiller else TEXTS
    bad = 5 if kind is ee.MaskFiller else BAD
    expected = results(kind.from_pretrained(folder, **options), texts)
    lengthen(folder)
    with pytest.warns(
        MissingRowsWarning, match=r"texts with '\[X0\]', '\[X1\]' are refused"
    ) as seen:
        model = kind.from_pretrained(folder, **options)
    assert sum(isinstance(one.message, MissingRowsWarning) for one in seen) == 1
    found = results(model, texts)
    if isinstance(expected, np.ndarray):
        np.testing.assert_array_equal(found, expected)
    texts = [*texts]
    texts[bad] = f"{texts[bad]} [X1]"
    with pytest.raises(TextError, match=rf"row {bad} has the token '\[X1\]', whose id") as error:
        results(model, texts)
    assert error.value.row == bad
    again = pickle.loads(pickle.dumps(model.tokenizer))
    with pytest.raises(TextError, match="beyond the model's table"):
        again.encode("a [X1]")


def test_a_template_beyond_the_table_is_refused_at_once(tmp_path: Path) -> None:
    folder = write_transformers_directory(tmp_path)
    tokenizer = Tokenizer.from_pretrained(folder)
    with pytest.raises(ConfigError, match="every row has a token beyond it"):
        tokenizer.fitted_to(3)
    assert tokenizer.fitted_to(tokenizer.vocab_size) is tokenizer
