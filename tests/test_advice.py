"""Whoever refuses names a way out, and the way out works at the same door.

An entry of ADVICE makes a refusal, names words of its advice, and follows it. To add one, write a
function that takes a folder and returns an :class:`Advice`, and list it in ADVICE.
"""

from __future__ import annotations

import json
from typing import TYPE_CHECKING, Any, NamedTuple

import pytest

from encoder_engine.embedding import Embedder, Ranker, SparseEmbedder, StaticEmbedder
from encoder_engine.errors import EncoderEngineError
from encoder_engine.models import SequenceClassification
from encoder_engine.text import Tokenizer
from tests.embedding.static.static_models import write_library_directory
from tests.embedding.tiny_model import (
    write_head_directory,
    write_json,
    write_sentence_directory,
    write_transformers_directory,
)

if TYPE_CHECKING:
    from collections.abc import Callable
    from pathlib import Path

pytestmark = pytest.mark.filterwarnings("ignore::encoder_engine.errors.EncoderEngineWarning")


class Advice(NamedTuple):
    """A call that is refused, words of its advice, and the call that the advice names."""

    refused: Callable[[], Any]
    words: str
    followed: Callable[[], Any]


def lower_casing(folder: Path) -> Advice:
    """Leave open whether a cased vocabulary lower-cases."""
    path = write_transformers_directory(folder)
    (path / "tokenizer_config.json").unlink()
    (path / "SHA256SUMS").unlink(missing_ok=True)
    with (path / "vocab.txt").open("a", encoding="utf-8") as file:
        file.write("Upper\n")

    def follow() -> Any:
        write_json(path / "tokenizer_config.json", {"do_lower_case": False})
        return Embedder.from_pretrained(path, device="cpu").encode(["a"])

    return Advice(lambda: Embedder.from_pretrained(path, device="cpu"), "do_lower_case", follow)


def activation_of_other_code(folder: Path) -> Advice:
    """State an activation that is a class of other code."""
    path = write_head_directory(folder, SequenceClassification, num_labels=1)
    (path / "SHA256SUMS").unlink(missing_ok=True)
    config = json.loads((path / "config.json").read_text("utf-8"))
    stated = {"sentence_transformers": {"activation_fn": "mine.Activation"}}
    write_json(path / "config.json", config | stated)

    def follow() -> Any:
        return Ranker.from_pretrained(path, device="cpu", activation="tanh").score([("a", "b")])

    return Advice(lambda: Ranker.from_pretrained(path, device="cpu"), "pass activation=", follow)


def encoder_as_a_table(folder: Path) -> Advice:
    """Load a model with an encoder as a static model."""
    path = write_transformers_directory(folder)
    return Advice(
        lambda: StaticEmbedder.from_pretrained(path),
        "Embedder",
        lambda: Embedder.from_pretrained(path, device="cpu").encode(["a"]),
    )


def table_as_an_encoder(folder: Path) -> Advice:
    """Load a static model as one with an encoder."""
    path = write_library_directory(folder)
    return Advice(
        lambda: Embedder.from_pretrained(path, device="cpu"),
        "StaticEmbedder",
        lambda: StaticEmbedder.from_pretrained(path).encode(["a"]),
    )


def dense_as_sparse(folder: Path) -> Advice:
    """Load a dense model as a sparse one."""
    path = write_sentence_directory(folder)
    return Advice(
        lambda: SparseEmbedder.from_pretrained(path, device="cpu"),
        "Embedder",
        lambda: Embedder.from_pretrained(path, device="cpu").encode(["a"]),
    )


def two_cased_files(folder: Path) -> Advice:
    """Say twice whether texts are lower-cased."""
    path = write_transformers_directory(folder)
    return Advice(
        lambda: Tokenizer.from_pretrained(path, lowercase=False),
        "do_lower_case|lowercase",
        lambda: Tokenizer.from_pretrained(path).encode("a"),
    )


@pytest.mark.parametrize(
    ("model_type", "kind"), [("CrossEncoder", Ranker), ("SentenceTransformer", Embedder)]
)
def test_a_module_of_another_class_names_none_that_would_refuse_the_model(
    model_type: str, kind: Any, tmp_path: Path
) -> None:
    """Ranker pointed to Embedder for a Pooling, and Embedder back to Ranker."""
    path = write_sentence_directory(tmp_path)
    (path / "SHA256SUMS").unlink(missing_ok=True)
    write_json(path / "config_sentence_transformers.json", {"model_type": model_type})
    if kind is Embedder:
        kind_of_others = "sentence_transformers.models.SpladePooling"
        module = {"idx": 0, "name": "0", "path": "", "type": kind_of_others}
        write_json(path / "modules.json", [module])
    words = {
        Embedder: "which is not implemented in a",
        Ranker: "and a Dense at the end, in this order$",
    }
    with pytest.raises(EncoderEngineError, match=words[kind]):
        kind.from_pretrained(path, device="cpu")


ADVICE = [
    lower_casing,
    activation_of_other_code,
    encoder_as_a_table,
    table_as_an_encoder,
    dense_as_sparse,
    two_cased_files,
]


@pytest.mark.parametrize("make", ADVICE, ids=lambda make: make.__name__)
def test_advice_can_be_followed(make: Callable[[Path], Advice], tmp_path: Path) -> None:
    advice = make(tmp_path / "model")
    with pytest.raises(EncoderEngineError, match=advice.words):
        advice.refused()
    advice.followed()
