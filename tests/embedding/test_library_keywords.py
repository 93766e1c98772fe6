"""Keywords of sentence-transformers' other encoders: the same results, or a typed refusal."""

from __future__ import annotations

import json
from contextlib import contextmanager
from typing import TYPE_CHECKING, Any

import numpy as np
import pytest
import torch

from encoder_engine.embedding import (
    Embedder,
    HybridEmbedder,
    MultiVectorEmbedder,
    Ranker,
    SparseEmbedder,
    SparseVectors,
    max_similarity,
)
from encoder_engine.errors import InputError
from encoder_engine.models import MaskedLM, SequenceClassification
from encoder_engine.ops.testing import largest, max_error
from tests.embedding.hybrid_model import TEXTS as HYBRID_TEXTS
from tests.embedding.hybrid_model import write_hybrid_directory
from tests.embedding.library_models import (
    TERMS,
    assert_agree,
    dense,
    library_model,
    library_models,
)
from tests.embedding.tiny_model import (
    write_head_directory,
    write_json,
    write_sentence_directory,
)
from tests.opening.test_late_interaction import native

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator
    from pathlib import Path

TEXTS = ["the text", "a row of words", "query 7"]
PAIRS = [("the query", text) for text in TEXTS]
ENGINES = ("compiled", "torch")


@pytest.fixture(scope="module")
def paths(tmp_path_factory: pytest.TempPathFactory) -> dict[str, Path]:
    folder = tmp_path_factory.mktemp("keywords")
    ranking = SequenceClassification
    return {
        "dense": write_sentence_directory(folder / "dense"),
        "ranking": write_head_directory(folder / "ranking", ranking, num_labels=1),
        "labels": write_head_directory(folder / "labels", ranking, num_labels=3),
        "sparse": write_head_directory(folder / "sparse", MaskedLM),
        "tokens": native(folder / "tokens", {"skiplist_words": ["row", "words"]}, query_length=12),
        "hybrid": write_hybrid_directory(folder / "hybrid"),
    }


PREDICTIONS: dict[str, dict[str, Any]] = {
    "plain": {},
    "batch_size": {"batch_size": 1},
    "convert_to_tensor": {"convert_to_tensor": True},
    "convert_to_numpy": {"convert_to_numpy": True},
    "show_progress_bar": {"show_progress_bar": None},
    "identity": {"activation_fn": torch.nn.Identity()},
    "another activation": {"activation_fn": torch.tanh},
    "apply_softmax": {"apply_softmax": True},
    "softmax of tanh": {"activation_fn": torch.nn.Tanh(), "apply_softmax": True},
    "two columns": {"activation_fn": lambda logits: torch.cat([logits, -logits], dim=1)},
    "softmax of two columns": {
        "activation_fn": lambda logits: torch.cat([logits, -logits], dim=1),
        "apply_softmax": True,
    },
    "device": {"device": "cpu"},
    "prompt": {"prompt": "row "},
}


@pytest.mark.slow
@pytest.mark.parametrize("engine", ENGINES)
@pytest.mark.parametrize("model", ["ranking", "labels"])
def test_a_ranker_predicts_what_the_library_predicts(
    paths: dict[str, Path], model: str, engine: Any
) -> None:
    ranker = Ranker.from_pretrained(paths[model], device="cpu", engine=engine)
    library, exact = library_models("CrossEncoder", paths[model])
    for name, options in PREDICTIONS.items():
        # As a tensor: NumPy's arrays are always rounded to float32 there.
        wide = options | {"convert_to_tensor": True}
        # One score may be small by cancellation: its terms are as large as those of the others.
        size = largest(exact.predict(PAIRS, **wide))
        # One pair has one score, whether it is a tuple or a list.
        several: tuple[Any, ...] = (PAIRS, PAIRS[0], list(PAIRS[0]), PAIRS[:1])
        for pairs in several:
            expected = library.predict(pairs, **options)
            found = ranker.predict(pairs, **options)
            assert type(found) is type(expected), name
            assert_agree(found, expected, exact.predict(pairs, **wide), name, size=size)
    if model == "ranking":
        options = {"activation_fn": torch.tanh, "batch_size": 2, "show_progress_bar": False}
        expected = library.rank("the query", TEXTS, top_k=2, **options)
        found = ranker.rank("the query", TEXTS, top_k=2, **options)
        assert [one["corpus_id"] for one in found] == [one["corpus_id"] for one in expected]


def test_an_activation_in_bfloat16_is_widened_and_documents_have_one_score_each(
    paths: dict[str, Path],
) -> None:
    ranker = Ranker.from_pretrained(paths["ranking"], device="cpu")
    found = ranker.predict(PAIRS, activation_fn=lambda logits: logits.bfloat16())
    logits = torch.from_numpy(ranker.predict(PAIRS, activation="identity"))
    np.testing.assert_array_equal(found, logits.bfloat16().float().numpy())
    with pytest.raises(InputError, match="one score each, activation_fn made 2"):
        ranker.rank("the query", TEXTS, activation_fn=lambda x: torch.cat([x, -x], dim=1))


SPARSE: dict[str, dict[str, Any]] = {
    "plain": {},
    "convert_to_tensor": {"convert_to_tensor": True},
    "dense tensor": {"convert_to_sparse_tensor": False},
    "both": {"convert_to_tensor": True, "convert_to_sparse_tensor": True},
    "save_to_cpu": {"save_to_cpu": True, "convert_to_tensor": True},
    "max_active_dims": {"max_active_dims": 4},
    "batch_size": {"batch_size": 1},
    "task": {"task": "query"},
    "show_progress_bar": {"show_progress_bar": None, "device": "cpu"},
}


@pytest.mark.slow
@pytest.mark.parametrize("method", ["encode", "encode_query", "encode_document"])
def test_a_sparse_embedder_returns_what_the_library_returns(
    paths: dict[str, Path], method: str
) -> None:
    embedder = SparseEmbedder.from_pretrained(paths["sparse"], device="cpu")
    library, exact = library_models("SparseEncoder", paths["sparse"])
    for name, options in SPARSE.items():
        if method != "encode" and "task" in options:
            continue
        for texts in (TEXTS, TEXTS[0]):
            expected, truth = (getattr(m, method)(texts, **options) for m in (library, exact))
            found = getattr(embedder, method)(texts, **options)
            if isinstance(found, SparseVectors):
                assert not {"convert_to_tensor", "convert_to_sparse_tensor"} & options.keys()
                found = found.dense()[0] if isinstance(texts, str) else found.dense()
            else:
                assert found.layout == expected.layout
            assert_agree(found, expected, truth, name)


TOKENS: dict[str, dict[str, Any]] = {
    "plain": {},
    "convert_to_numpy": {"convert_to_numpy": True},
    "output_value": {"output_value": "token_embeddings"},
    "batch_size": {"batch_size": 1},
    "prompt": {"prompt": "text "},
    "prompt_name": {"prompt_name": "query"},
    "normalize_embeddings": {"normalize_embeddings": True, "token_pooling": None},
    "device": {"device": "cpu", "show_progress_bar": None},
}


@pytest.mark.slow
@pytest.mark.parametrize("engine", ENGINES)
def test_token_vectors_are_those_of_the_library(paths: dict[str, Path], engine: Any) -> None:
    embedder = MultiVectorEmbedder.from_pretrained(paths["tokens"], device="cpu", engine=engine)
    library, exact = library_models("MultiVectorEncoder", paths["tokens"])
    texts = [*TEXTS, "a long row of words " * 4]
    calls: list[tuple[str, dict[str, Any]]] = [
        ("encode", {}),
        ("encode", {"task": "query"}),
        ("encode", {"task": "document"}),
        ("encode_query", {}),
        ("encode_document", {}),
    ]
    compared: list[tuple[Any, Any, Any, str]] = []
    for method, task in calls:
        for name, options in TOKENS.items():
            call = task | options
            expected, truth = (getattr(m, method)(texts, **call) for m in (library, exact))
            found = getattr(embedder, method)(texts, **call, on_truncation="ignore")
            assert [len(one) for one in found] == [len(one) for one in expected], (method, name)
            what = [f"{method} {name}"] * len(texts)
            compared += zip(found, expected, truth, what, strict=True)
    # The error of a token that the norms magnify changes fourfold with the texts beside it.
    eager_error = max(max_error(dense(one[1]), dense(one[2])) for one in compared)
    assert np.isfinite(eager_error)
    for values in compared:
        assert_agree(*values, eager_error=eager_error)


SIMILARITIES = [
    ("sparse", "SparseEncoder", None),
    ("sparse", "SparseEncoder", "cosine"),
    ("sparse", "SparseEncoder", "euclidean"),
    ("sparse", "SparseEncoder", "manhattan"),
    ("sparse", "SparseEncoder", "maxsim"),
    ("tokens", "MultiVectorEncoder", None),
    ("tokens", "MultiVectorEncoder", "meanmaxsim"),
    ("tokens", "MultiVectorEncoder", "cosine"),
]


@pytest.mark.slow
@pytest.mark.parametrize(("model", "kind", "stated"), SIMILARITIES)
def test_the_similarity_is_the_directorys(
    paths: dict[str, Path], model: str, kind: str, stated: str | None, tmp_path: Path
) -> None:
    loader = LOADERS[model]
    # Saved first: the library reads the settings of a directory with modules alone.
    loader(paths[model], device="cpu").save_pretrained(tmp_path / "made")
    settings = tmp_path / "made" / "config_sentence_transformers.json"
    write_json(settings, json.loads(settings.read_text()) | {"similarity_fn_name": stated})
    embedder = loader(tmp_path / "made", device="cpu")
    queries, documents = embedder.encode_query(TEXTS[:2]), embedder.encode_document(TEXTS)
    found = embedder.similarity(queries, documents)
    given: list[Any]
    if model == "sparse":
        given = [torch.from_numpy(one.dense()) for one in (queries, documents)]
        terms = queries.dimension
    else:
        given = [[torch.from_numpy(rows) for rows in one] for one in (queries, documents)]
        terms = TERMS
    library = library_model(kind, tmp_path / "made")
    eager = library.similarity(*given)
    wide = [one.double() if model == "sparse" else [r.double() for r in one] for one in given]
    assert_agree(found, eager, library.similarity(*wide), str(stated), terms=terms)
    embedder.save_pretrained(tmp_path / "saved")
    again = loader(tmp_path / "saved", device="cpu")
    np.testing.assert_array_equal(again.similarity(queries, documents), found)
    with pytest.raises(InputError, match=r"similarity compares \w+Vectors, .*, got ndarray"):
        embedder.similarity(queries, found)


LOADERS: dict[str, Callable[..., Any]] = {
    "dense": Embedder.from_pretrained,
    "ranking": Ranker.from_pretrained,
    "sparse": SparseEmbedder.from_pretrained,
    "tokens": MultiVectorEmbedder.from_pretrained,
    "hybrid": HybridEmbedder.from_pretrained,
}
DEVICE, SEVERAL = r"from_pretrained\(\.\.\., device=\)", r"encode_dataset\(workers=\)"
REFUSED: list[tuple[str, str, dict[str, Any], str]] = [
    ("dense", "encode", {"task": "retrieval"}, r"from_pretrained\(\.\.\., task=\)"),
    ("dense", "encode", {"processing_kwargs": {"text": {}}}, "max_seq_length"),
    ("ranking", "predict", {"device": "cuda"}, DEVICE),
    ("ranking", "predict", {"pool": {}}, r"score_dataset\(workers=\)"),
    ("ranking", "predict", {"chunk_size": 4}, r"score_dataset\(workers=\)"),
    ("ranking", "predict", {"convert_to_numpy": False}, "convert_to_tensor=True"),
    ("ranking", "predict", {"processing_kwargs": {"text": {}}}, "max_seq_length"),
    (
        "ranking",
        "predict",
        {"activation_fn": torch.tanh, "activation": "sigmoid"},
        "activation or activation_fn",
    ),
    ("ranking", "predict", {"activation_fn": torch.sum}, "a row of scores for each of 3 pairs"),
    ("sparse", "encode", {"convert_to_tensor": False}, r"found\.row\(number\)"),
    ("sparse", "encode", {"device": "cuda"}, DEVICE),
    ("sparse", "encode_query", {"pool": {}}, SEVERAL),
    ("sparse", "encode", {"task": "retrieval"}, "task must be 'query' or 'document'"),
    ("tokens", "encode_query", {"convert_to_tensor": True}, r"found\.vectors, and found\[i\]"),
    ("tokens", "encode_document", {"convert_to_numpy": False}, r"torch\.from_numpy"),
    ("tokens", "encode", {"output_value": None}, "the vectors of the tokens and their ids"),
    ("tokens", "encode", {"token_pooling": object()}, "every token keeps its vector"),
    ("tokens", "encode", {"chunk_size": 4}, SEVERAL),
    ("tokens", "encode", {"task": "retrieval"}, "task must be 'query' or 'document'"),
    ("hybrid", "encode", {"convert_to_tensor": True}, r"found\.dense"),
    ("hybrid", "encode_query", {"pool": {}}, "one process uses all threads"),
    ("hybrid", "encode", {"device": "cuda"}, DEVICE),
]


@pytest.mark.parametrize(("kind", "method", "options", "message"), REFUSED)
def test_other_meanings_are_refused_by_name(
    paths: dict[str, Path], kind: str, method: str, options: dict[str, Any], message: str
) -> None:
    model = LOADERS[kind](paths[kind], device="cpu")
    with pytest.raises(InputError, match=message):
        getattr(model, method)(PAIRS if kind == "ranking" else TEXTS, **options)


METHODS: dict[str, tuple[str, ...]] = {
    "dense": ("encode", "encode_query", "encode_document", "encode_tokens", "encode_long"),
    "ranking": ("score", "predict"),
    "sparse": ("encode", "encode_query", "encode_document", "encode_queries", "encode_documents"),
    "tokens": ("encode", "encode_query", "encode_document", "encode_queries", "encode_documents"),
    "hybrid": ("encode", "encode_query", "encode_document"),
}


@pytest.mark.parametrize("kind", METHODS)
def test_the_first_argument_of_other_libraries_is_named(paths: dict[str, Path], kind: str) -> None:
    model = LOADERS[kind](paths[kind], device="cpu")
    ours = "pairs=" if kind == "ranking" else "texts="
    for method in METHODS[kind]:
        for theirs in ("sentences", "inputs"):
            with pytest.raises(InputError, match=f"{method}\\({theirs}=.*{ours}"):
                getattr(model, method)(**{theirs: TEXTS})
        with pytest.raises(TypeError, match="unexpected keyword argument 'batchsize'"):
            getattr(model, method)(TEXTS, batchsize=4)


def test_batches_of_a_hybrid_embedder_have_so_many_texts(
    paths: dict[str, Path], monkeypatch: pytest.MonkeyPatch
) -> None:
    hybrid, sizes = HybridEmbedder.from_pretrained(paths["hybrid"], device="cpu"), []
    run = type(hybrid.embedder.engine).run

    def counted(self: Any, rows: Any, *outputs: Any) -> Any:
        sizes.append(len(rows))
        return run(self, rows, *outputs)

    monkeypatch.setattr(type(hybrid.embedder.engine), "run", counted)
    whole: Any = hybrid.encode(HYBRID_TEXTS)
    parts: Any = hybrid.encode(HYBRID_TEXTS, batch_size=2)
    assert sizes == [3, 2, 1]
    np.testing.assert_array_equal(parts.dense, whole.dense)


def test_hybrid_queries_and_documents_have_their_prompts_and_are_compared(
    paths: dict[str, Path],
) -> None:
    hybrid = HybridEmbedder.from_pretrained(paths["hybrid"], device="cpu")
    hybrid.embedder.recipe.prompts.update(query="a ", document="b ")
    queries: Any = hybrid.encode_query(HYBRID_TEXTS[:2])
    documents: Any = hybrid.encode_document(HYBRID_TEXTS)
    for vectors, prompt in ((queries, "a "), (documents, "b ")):
        prompted: Any = hybrid.encode(HYBRID_TEXTS[: len(vectors.dense)], prompt=prompt)
        np.testing.assert_array_equal(vectors.dense, prompted.dense)
    lengths = np.diff(queries.tokens.cu_seqlens).astype(np.float32)[:, None]
    outputs: tuple[Any, ...] = ("dense", "sparse", "tokens")
    alone = {name: hybrid.similarity(queries, documents, weights={name: 2.0}) for name in outputs}
    np.testing.assert_array_equal(alone["dense"], queries.dense @ documents.dense.T)
    best = max_similarity(queries.tokens, documents.tokens)
    np.testing.assert_array_equal(alone["tokens"], best / lengths)
    rows = queries.sparse.dense(), documents.sparse.dense()
    eager, truth = (left @ right.T for left, right in (rows, [one.astype(float) for one in rows]))
    assert_agree(alone["sparse"], eager, truth, terms=rows[0].shape[1])
    several: tuple[Any, ...] = (None, {"dense": 0.4, "sparse": 0.2, "tokens": 0.4})
    for weights in several:
        found = hybrid.similarity(queries, documents, weights=weights)
        shares = weights or dict.fromkeys(alone, 1 / 3)
        eager, truth = (
            sum(share * alone[name].astype(dtype) for name, share in shares.items())
            for dtype in (np.float32, np.float64)
        )
        assert_agree(found, eager, truth, terms=len(shares))
    dense: Any = hybrid.encode(HYBRID_TEXTS, outputs=("dense",))
    np.testing.assert_array_equal(hybrid.similarity(dense, dense), dense.dense @ dense.dense.T)
    with pytest.raises(InputError, match=r"weights are of sparse, the outputs .* are dense"):
        hybrid.similarity(dense, documents, weights={"sparse": 1.0})
    with pytest.raises(InputError, match="finite numbers from 0"):
        hybrid.similarity(queries, documents, weights={"dense": -1.0})


@pytest.mark.parametrize("kind", ["ranking", "sparse", "tokens", "hybrid"])
def test_a_bar_counts_all_rows(
    paths: dict[str, Path], kind: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    counted: list[int] = []

    @contextmanager
    def bar(total: int | None, *, shown: bool, **_: Any) -> Iterator[Any]:
        assert total == len(TEXTS)
        yield counted.append if shown else lambda _done: None

    model = LOADERS[kind](paths[kind], device="cpu")
    monkeypatch.setattr("encoder_engine.kinds.kind.progress_bar", bar)
    method = model.predict if kind == "ranking" else model.encode
    method(PAIRS if kind == "ranking" else TEXTS)
    assert not counted
    method(PAIRS if kind == "ranking" else TEXTS, show_progress_bar=True)
    assert sum(counted) == len(TEXTS)
