"""Sparse encoders as sentence-transformers 5 saved them, and inference-free queries."""

from __future__ import annotations

import copy
import json
from typing import TYPE_CHECKING, Any

import numpy as np
import pytest
import torch

from encoder_engine.embedding import SparseEmbedder
from encoder_engine.errors import (
    CheckpointFileError,
    ConfigError,
    EncoderEngineError,
    SequenceLengthError,
    TruncationWarning,
    UnsupportedFeatureError,
)
from encoder_engine.ops.testing import assert_within_budget
from tests.embedding.test_breadth import TERMS, save_with_head, tensor
from tests.embedding.tiny_model import VOCABULARY, write_json

if TYPE_CHECKING:
    from collections.abc import Callable
    from pathlib import Path

library = pytest.importorskip("sentence_transformers")
pytestmark = pytest.mark.filterwarnings("ignore::DeprecationWarning", "ignore::FutureWarning")
TEXTS = ["the long query", "", "a row of text the row", "words " * 9]
ENGINES = ("compiled", "torch")
OPTIONS = {"convert_to_sparse_tensor": False, "convert_to_tensor": True}
FORMER = "sentence_transformers.sparse_encoder.models."


def former(folder: Path) -> Path:
    """Write a SPLADE as sentence-transformers 5.0 to 5.3 saved it."""
    save_with_head(folder, "BertForMaskedLM")
    listed = [
        {"idx": 0, "name": "0", "path": "", "type": f"{FORMER}MLMTransformer"},
        {"idx": 1, "name": "1", "path": "1_SpladePooling", "type": f"{FORMER}SpladePooling"},
    ]
    write_json(folder / "modules.json", listed)
    pooling = {
        "pooling_strategy": "max",
        "activation_function": "relu",
        "word_embedding_dimension": len(VOCABULARY),
    }
    write_json(folder / "1_SpladePooling" / "config.json", pooling)
    write_json(folder / "sentence_bert_config.json", {"max_seq_length": 20, "do_lower_case": False})
    settings = {"model_type": "SparseEncoder", "prompts": {"query": "", "document": ""}}
    write_json(folder / "config_sentence_transformers.json", settings)
    return folder


def routed(folder: Path, **options: Any) -> Path:
    """Write a sparse encoder whose queries need no model."""
    from sentence_transformers.base.modules import Router, Transformer
    from sentence_transformers.sparse_encoder.modules import SparseStaticEmbedding, SpladePooling

    plain = save_with_head(folder / "plain", "BertForMaskedLM")
    document: list[Any] = [
        Transformer(str(plain), transformer_task="fill-mask", max_seq_length=22),
        SpladePooling(activation_function="log1p_relu"),
    ]
    generator = torch.Generator().manual_seed(4)
    weights = torch.rand(len(VOCABULARY), generator=generator).sub(0.2).relu()
    query: list[Any] = [SparseStaticEmbedding(tokenizer=document[0].tokenizer, weight=weights)]
    router = Router.for_query_document(query, document, **options)
    library.SparseEncoder(modules=[router], device="cpu").save(str(folder / "saved"))
    return folder / "saved"


@pytest.mark.parametrize("engine", ENGINES)
def test_a_splade_of_version_5_gives_the_vectors_of_version_6(engine: Any, tmp_path: Path) -> None:
    folder = former(tmp_path)
    model = library.SparseEncoder(str(folder), device="cpu")
    eager, truth = (m.encode(TEXTS, **OPTIONS) for m in (model, copy.deepcopy(model).double()))
    ours = SparseEmbedder.from_pretrained(folder, device="cpu", engine=engine)
    assert ours.max_seq_length == 20
    assert_within_budget(tensor(ours.encode(TEXTS).dense()), eager, truth, terms=TERMS)


@pytest.mark.parametrize("engine", ENGINES)
@pytest.mark.parametrize("default", ["query", "document", None])
def test_inference_free_queries_are_those_of_sentence_transformers(
    default: str | None, engine: Any, tmp_path: Path
) -> None:
    folder = routed(tmp_path, default_route=default)
    model = library.SparseEncoder(str(folder), device="cpu")
    exact = copy.deepcopy(model).double()
    ours = SparseEmbedder.from_pretrained(folder, device="cpu", engine=engine)
    for name, encode in (
        ("encode", ours.encode),
        ("encode_query", ours.encode_queries),
        ("encode_document", ours.encode_documents),
    ):
        eager, truth = (getattr(m, name)(TEXTS, **OPTIONS) for m in (model, exact))
        assert_within_budget(tensor(encode(TEXTS).dense()), eager, truth, name, terms=TERMS)
    few = ours.encode_queries(TEXTS, max_active_dims=2)
    eager, truth = (m.encode_query(TEXTS, max_active_dims=2, **OPTIONS) for m in (model, exact))
    assert_within_budget(tensor(few.dense()), eager, truth, terms=TERMS)
    assert np.diff(few.indptr).max() == 2
    assert len(ours.encode_queries([])) == 0


def test_a_query_is_cut_at_the_limit_of_its_own_tokenizer(tmp_path: Path) -> None:
    folder = routed(tmp_path)
    (place,) = folder.glob("query_0*")
    settings = json.loads((place / "tokenizer_config.json").read_text("utf-8"))
    write_json(place / "tokenizer_config.json", settings | {"model_max_length": 3})
    ours = SparseEmbedder.from_pretrained(folder, device="cpu")
    with pytest.warns(TruncationWarning, match="1 of 2 texts"):
        found = ours.encode_queries(["the row", "the row of long text"])
    assert np.array_equal(
        found.dense()[1], ours.encode_queries("the row o", on_truncation="ignore").dense()[0]
    )
    with pytest.raises(SequenceLengthError, match="text 0"):
        ours.encode_queries("the row of long text", on_truncation="error")


def settings(**values: Any) -> Callable[[Path], None]:
    def change(folder: Path) -> None:
        path = folder / "router_config.json"
        write_json(path, json.loads(path.read_text("utf-8")) | values)

    return change


def with_types(kind: str) -> Callable[[Path], None]:
    def change(folder: Path) -> None:
        path = folder / "router_config.json"
        config = json.loads(path.read_text("utf-8"))
        first = next(name for name in config["types"] if name.startswith("query"))
        config["types"][first] = kind
        write_json(path, config)

    return change


def with_a_path(folder: Path) -> None:
    (place,) = folder.glob("query_0*")
    write_json(place / "config.json", {"frozen": False, "path": "idf.json"})


@pytest.mark.parametrize(
    ("damage", "error", "words"),
    [
        (settings(structure={"image": []}), UnsupportedFeatureError, "image"),
        (settings(structure={}), UnsupportedFeatureError, "routes none"),
        (
            settings(parameters={"route_mappings": {"('query', 'text')": "query"}}),
            UnsupportedFeatureError,
            "route_mappings",
        ),
        (settings(parameters={"default_route": "image"}), ConfigError, "image"),
        (with_types("custom.Code"), UnsupportedFeatureError, "never runs"),
        (with_types("sentence_transformers.models.BoW"), UnsupportedFeatureError, "BoW"),
        (with_a_path, UnsupportedFeatureError, "idf.json"),
        (
            lambda folder: (folder / "router_config.json").unlink(),
            CheckpointFileError,
            "router_config",
        ),
    ],
)
def test_a_router_that_is_not_followed_is_refused(
    damage: Callable[[Path], None], error: type[EncoderEngineError], words: str, tmp_path: Path
) -> None:
    folder = routed(tmp_path)
    damage(folder)
    with pytest.raises(error, match=words):
        SparseEmbedder.from_pretrained(folder, device="cpu")
