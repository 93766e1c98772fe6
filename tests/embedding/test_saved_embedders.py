"""Rankers, sparse, late-interaction and hybrid embedders are saved so that all load them again."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import numpy as np
import pytest
from safetensors.numpy import load

from encoder_engine.embedding import (
    Embedder,
    HybridEmbedder,
    MultiVectorEmbedder,
    Ranker,
    SparseEmbedder,
)
from encoder_engine.errors import OutputError, UnsupportedFeatureError
from encoder_engine.models import MaskedLM, SequenceClassification
from tests.embedding.hybrid_model import HIDDEN, write_hybrid_directory
from tests.embedding.hybrid_model import TEXTS as HYBRID_TEXTS
from tests.embedding.library_models import assert_agree, library_models
from tests.embedding.tiny_model import (
    write_head_directory,
    write_json,
    write_sentence_directory,
)
from tests.opening.test_late_interaction import native, pylate, stanford
from tests.opening.test_sparse_layouts import routed

if TYPE_CHECKING:
    from collections.abc import Callable
    from pathlib import Path

TEXTS = ["the text", "a row, of words", "query 7", "long words " * 20]
PAIRS = [("the query", text) for text in TEXTS]
ENGINES = ("compiled", "torch")
PROMPTS = {"prompts": {"query": "row ", "document": "the "}, "default_prompt_name": "query"}
pytestmark = pytest.mark.filterwarnings(
    "ignore::encoder_engine.errors.MissingPoolerWarning",
    "ignore::encoder_engine.errors.TruncationWarning",
)


@pytest.mark.slow
@pytest.mark.parametrize("engine", ENGINES)
@pytest.mark.parametrize(("labels", "activation"), [(1, None), (1, "identity"), (3, "sigmoid")])
def test_a_saved_ranker_scores_as_before(
    labels: int, activation: Any, engine: Any, tmp_path: Path
) -> None:
    path = write_head_directory(tmp_path / "plain", SequenceClassification, num_labels=labels)
    write_json(path / "config_sentence_transformers.json", PROMPTS)
    options: dict[str, Any] = {"device": "cpu", "engine": engine}
    ranker = Ranker.from_pretrained(path, activation=activation, max_seq_length=11, **options)
    ranker.save_pretrained(tmp_path / "saved")
    again = Ranker.from_pretrained(tmp_path / "saved", **options)
    assert again.engine.fingerprint() == ranker.engine.fingerprint()
    assert (again.activation, again.max_seq_length) == (ranker.activation, 11)
    libraries = library_models("CrossEncoder", tmp_path / "saved")
    calls: list[dict[str, Any]] = [{}, {"prompt_name": "document"}, {"prompt": ""}]
    for call in calls:
        scores = ranker.predict(PAIRS, **call)
        np.testing.assert_array_equal(again.predict(PAIRS, **call), scores)
        eager, truth = (m.predict(PAIRS, convert_to_tensor=True, **call) for m in libraries)
        assert_agree(scores, eager, truth)
    assert "Ranker.from_pretrained" in (tmp_path / "saved" / "README.md").read_text("utf-8")


def test_both_engines_save_the_same_tensors_of_a_head(tmp_path: Path) -> None:
    kinds: list[tuple[Any, Any, int | None]] = [
        (SequenceClassification, Ranker.from_pretrained, 3),
        (MaskedLM, SparseEmbedder.from_pretrained, None),
    ]
    for kind, loader, labels in kinds:
        path = write_head_directory(tmp_path / kind.__name__, kind, num_labels=labels)
        saved = []
        for engine in ENGINES:
            folder = tmp_path / f"{kind.__name__}-{engine}"
            loader(path, device="cpu", engine=engine).save_pretrained(folder)
            saved.append({one.name: one.read_bytes() for one in folder.iterdir() if one.is_file()})
        tensors = [load(files.pop("model.safetensors")) for files in saved]
        cards = [files.pop("README.md").decode("utf-8") for files in saved]
        for files in saved:
            del files["SHA256SUMS"]
        assert saved[0] == saved[1]
        assert cards[0].replace("-compiled", "-torch") == cards[1]
        assert tensors[0].keys() == tensors[1].keys()
        for name, tensor in tensors[0].items():
            np.testing.assert_array_equal(tensor, tensors[1][name], strict=True)


@pytest.mark.slow
@pytest.mark.parametrize("engine", ENGINES)
@pytest.mark.parametrize("pooling", ["max", "sum"])
def test_a_saved_sparse_embedder_embeds_as_before(
    pooling: Any, engine: Any, tmp_path: Path
) -> None:
    path = write_head_directory(tmp_path / "plain", MaskedLM)
    write_json(path / "config_sentence_transformers.json", PROMPTS | {"max_active_dims": 5})
    options: dict[str, Any] = {"device": "cpu", "engine": engine}
    embedder = SparseEmbedder.from_pretrained(path, pooling=pooling, max_seq_length=9, **options)
    embedder.activation = "log1p_relu"
    embedder.save_pretrained(tmp_path / "saved")
    again = SparseEmbedder.from_pretrained(tmp_path / "saved", **options)
    libraries = library_models("SparseEncoder", tmp_path / "saved")
    for method in ("encode", "encode_query", "encode_document"):
        expected = getattr(embedder, method)(TEXTS)
        assert np.diff(expected.indptr).max() <= 5
        found = getattr(again, method)(TEXTS)
        np.testing.assert_array_equal(found.dense(), expected.dense())
        eager, truth = (getattr(m, method)(TEXTS) for m in libraries)
        assert_agree(expected.dense(), eager, truth, method)


LAYOUTS: dict[str, Callable[[Path], Path]] = {
    "sentence-transformers": lambda folder: native(
        folder,
        {"skiplist_words": ["row", ","], "skiplist_tasks": ["query", "document"]},
        query_length=14,
        document_length=9,
    ),
    "expanded": lambda folder: native(
        folder,
        {"keep_only_token_ids": [2, 3, 7, 9]},
        query_expansion={"strategy": "min", "length": 8, "attend": True, "token": "[UNK]"},
    ),
    "PyLate": lambda folder: pylate(folder, query_prefix="[Q] ", document_prefix="[D] "),
    "ColBERT": lambda folder: stanford(folder, query_maxlen=10, doc_maxlen=12),
}


@pytest.mark.slow
@pytest.mark.parametrize("engine", ENGINES)
@pytest.mark.parametrize("layout", LAYOUTS)
def test_a_saved_multi_vector_embedder_embeds_as_before(
    layout: str, engine: Any, tmp_path: Path
) -> None:
    options: dict[str, Any] = {"device": "cpu", "engine": engine}
    embedder = MultiVectorEmbedder.from_pretrained(LAYOUTS[layout](tmp_path / "plain"), **options)
    embedder.save_pretrained(tmp_path / "saved")
    again = MultiVectorEmbedder.from_pretrained(tmp_path / "saved", **options)
    libraries = library_models("MultiVectorEncoder", tmp_path / "saved")
    for method in ("encode_query", "encode_document", "encode"):
        expected, found = (getattr(model, method)(TEXTS) for model in (embedder, again))
        np.testing.assert_array_equal(found.cu_seqlens, expected.cu_seqlens)
        np.testing.assert_array_equal(found.ids, expected.ids)
        np.testing.assert_array_equal(found.vectors, expected.vectors)
        theirs, truth = (getattr(model, method)(TEXTS) for model in libraries)
        for ours, eager, exact in zip(expected, theirs, truth, strict=True):
            assert_agree(ours, eager, exact, method)


@pytest.mark.slow
@pytest.mark.parametrize("engine", ENGINES)
def test_a_saved_hybrid_embedder_embeds_as_before(engine: Any, tmp_path: Path) -> None:
    options: dict[str, Any] = {"device": "cpu", "engine": engine}
    hybrid = HybridEmbedder.from_pretrained(write_hybrid_directory(tmp_path / "plain"), **options)
    hybrid.save_pretrained(tmp_path / "saved")
    again = HybridEmbedder.from_pretrained(tmp_path / "saved", **options)
    expected, found = hybrid.encode(HYBRID_TEXTS), again.encode(HYBRID_TEXTS)
    np.testing.assert_array_equal(found.dense, expected.dense)
    np.testing.assert_array_equal(found.sparse.dense(), expected.sparse.dense())  # type: ignore[union-attr]
    np.testing.assert_array_equal(found.tokens.vectors, expected.tokens.vectors)  # type: ignore[union-attr]
    libraries = library_models("SentenceTransformer", tmp_path / "saved")
    eager, truth = (model.encode(HYBRID_TEXTS) for model in libraries)
    assert_agree(expected.dense, eager, truth, terms=3 * HIDDEN + 50)


def test_layers_of_another_encoder_never_lie_beside_a_saved_one(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    hybrid = HybridEmbedder.from_pretrained(write_hybrid_directory(tmp_path / "plain"))
    target = tmp_path / "target"
    hybrid.save_pretrained(target)
    names = ("modules.json", "sparse_linear.pt", "colbert_linear.pt")
    before = [(target / name).read_bytes() for name in names]
    dense = Embedder.from_pretrained(write_sentence_directory(tmp_path / "dense"))
    with pytest.raises(OutputError, match=r"sparse_linear\.pt, the layer of another encoder"):
        dense.save_pretrained(target)
    assert [(target / name).read_bytes() for name in names] == before

    def stop(*_: Any) -> None:
        raise KeyboardInterrupt

    # Interrupted before the layers are written, the folder is no model.
    monkeypatch.setattr("encoder_engine.engine.module.save_tensors", stop)
    with pytest.raises(KeyboardInterrupt):
        hybrid.save_pretrained(target)
    assert not (target / "modules.json").exists()


def test_what_cannot_be_saved_is_refused(tmp_path: Path) -> None:
    ranking = write_head_directory(tmp_path / "ranking", SequenceClassification, num_labels=1)
    masked = write_head_directory(tmp_path / "masked", MaskedLM)
    for model, path in (
        (Ranker.from_pretrained(ranking), ranking),
        (SparseEmbedder.from_pretrained(masked), masked),
        (MultiVectorEmbedder.from_pretrained(pylate(tmp_path / "tokens")), tmp_path / "tokens"),
        (
            HybridEmbedder.from_pretrained(write_hybrid_directory(tmp_path / "hybrid")),
            tmp_path / "hybrid",
        ),
    ):
        before = {one.name: one.read_bytes() for one in path.iterdir() if one.is_file()}
        with pytest.raises(OutputError, match="files that this embedder reads"):
            model.save_pretrained(path)
        assert {one.name: one.read_bytes() for one in path.iterdir() if one.is_file()} == before
    for rounded in (
        Ranker.from_pretrained(ranking, quantization="int8"),
        SparseEmbedder.from_pretrained(masked, quantization="int8"),
    ):
        with pytest.raises(UnsupportedFeatureError, match="8-bit integers cannot be saved"):
            rounded.save_pretrained(tmp_path / "int8")


@pytest.mark.slow
@pytest.mark.parametrize("default", ["query", "document"])
def test_weights_of_queries_are_saved_beside_the_encoder(default: str, tmp_path: Path) -> None:
    path = routed(tmp_path / "plain", default_route=default)
    embedder = SparseEmbedder.from_pretrained(path, device="cpu")
    embedder.save_pretrained(tmp_path / "saved")
    again = SparseEmbedder.from_pretrained(tmp_path / "saved", device="cpu")
    libraries = library_models("SparseEncoder", tmp_path / "saved")
    for method in ("encode", "encode_query", "encode_document"):
        expected = getattr(embedder, method)(TEXTS)
        np.testing.assert_array_equal(getattr(again, method)(TEXTS).dense(), expected.dense())
        eager, truth = (getattr(m, method)(TEXTS) for m in libraries)
        assert_agree(expected.dense(), eager, truth, method)
