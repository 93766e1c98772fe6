"""Models that FlagEmbedding and PyLate make and save give the results of these libraries."""

from __future__ import annotations

from itertools import product
from typing import TYPE_CHECKING, Any

import numpy as np
import pytest

from encoder_engine.embedding import HybridEmbedder, MultiVectorEmbedder, Ranker, max_similarity
from tests.embedding.hybrid_model import write_hybrid_directory
from tests.embedding.library_models import assert_agree
from tests.embedding.test_families import save_tokenizer
from tests.libraries.others import run_theirs, unavailable
from tests.libraries.test_migration import as_ours, assert_equal
from tests.models.cases import VOCAB_SIZE, Case
from tests.opening.test_late_interaction import plain, pylate, stanford

if TYPE_CHECKING:
    from collections.abc import Callable
    from pathlib import Path

REASON = unavailable()
if REASON is not None:
    pytest.skip(REASON, allow_module_level=True)
pytestmark = pytest.mark.filterwarnings("ignore::encoder_engine.errors.TruncationWarning")
ENGINES = ("compiled", "torch")
SIZES = {
    "hidden_size": 24,
    "num_attention_heads": 3,
    "num_hidden_layers": 3,
    "intermediate_size": 50,
    "max_position_embeddings": 64,
}
# The longest sum of these models, as in the other tests of BGE-M3's layout.
TERMS = 3 * 24 + 50


def save(case: Case, folder: Path, vocab_size: int) -> Path:
    """Write a model of random weights with a tokenizer of its family."""
    folder.mkdir()
    padding = save_tokenizer(case.model_type, folder).pad_token_id
    case.save(folder, vocab_size=vocab_size, pad_token_id=padding)
    return folder


def modernbert(folder: Path) -> Path:
    """Write a ModernBERT whose windows are as wide as an expanded query."""
    sizes = SIZES | {"local_attention": 32}
    return save(Case("modernbert", "ModernBertConfig", "ModernBertModel", sizes), folder, 300)


def xlm_roberta(folder: Path) -> Path:
    """Write an XLM-R, which numbers its positions by what is no padding."""
    return save(Case("xlm-roberta", "XLMRobertaConfig", "XLMRobertaModel", SIZES), folder, 120)


BODIES: dict[str, Callable[[Path], Path]] = {
    "bert": plain,
    "modernbert": modernbert,
    "xlm-roberta": xlm_roberta,
}
QUERIES: dict[str, dict[str, Any]] = {
    "expanded": {"query_length": 14, "document_length": 15},
    "attended": {"query_length": 14, "attend_to_expansion_tokens": True},
    "not expanded": {"query_length": 9, "do_query_expansion": False, "query_prefix": ""},
}
TEXTS = ["the long query", "a row, of (text).", "a", "text of words in a long, long row of text"]
# Unknown tokens would be left out: PyLate takes punctuation that is no token for one.
WORDS = ["the text", "a", "model of a text the text of a model of text"]
MADE = list(product(BODIES, QUERIES, (False, True)))
MARKERS = {"query_prefix": "[unused0]", "document_prefix": "[unused1]"}
WRITTEN: dict[str, Callable[[Path], Path]] = {
    "Stanford": lambda folder: stanford(folder, query_maxlen=13, doc_maxlen=12),
    "prompts": lambda folder: pylate(
        folder, query_length=12, prompts={"query": "the ", "document": "row "}, **MARKERS
    ),
}


def late_job(folder: Path, texts: list[str], named: str = "") -> dict[str, Any]:
    """Return the job that encodes texts as queries and as documents, and scores them."""
    queries = f"model.encode(texts, is_query=True{named.format('query')})"
    documents = f"model.encode(texts, is_query=False{named.format('document')})"
    return {
        "library": "PyLate",
        "paths": {"late": str(folder)},
        "values": {"texts": texts},
        "calls": [
            queries,
            documents,
            f"scores.colbert_scores_pairwise({queries}, {documents})",
        ],
    }


@pytest.fixture(scope="module")
def late(tmp_path_factory: pytest.TempPathFactory) -> dict[Any, tuple[dict[str, Any], Any]]:
    """Let PyLate make, save and load every model; each one's job, and the results."""
    folder = tmp_path_factory.mktemp("late")
    sources = {name: write(folder / name) for name, write in BODIES.items()}
    jobs: dict[Any, dict[str, Any]] = {}
    for number, (body, query, bias) in enumerate(MADE):
        saved = folder / f"saved-{number}"
        make = {"source": str(sources[body]), "folder": str(saved), "bias": bias, **QUERIES[query]}
        job = late_job(saved, WORDS if body == "xlm-roberta" else TEXTS)
        jobs[body, query, bias] = job | {"make": make}
    for name, write in WRITTEN.items():
        named = ", prompt_name={!r}" if name == "prompts" else ""
        jobs[name] = late_job(write(folder / name), TEXTS, named)
    found = run_theirs(list(jobs.values()), folder / "others")
    return {case: (jobs[case], results) for case, results in zip(jobs, found, strict=True)}


def assert_late(job: dict[str, Any], results: dict[str, Any], engine: Any) -> None:
    """Compare vectors and scores with those of PyLate."""
    ours = MultiVectorEmbedder.from_pretrained(job["paths"]["late"], device="cpu", engine=engine)
    texts, (queries, documents, scores) = job["values"]["texts"], job["calls"]
    found = ours.encode_queries(texts), ours.encode_documents(texts)
    assert_equal(found[0], *results[queries])
    assert_equal(found[1], *results[documents])
    assert_agree(max_similarity(*found).diagonal(), *results[scores])


@pytest.mark.parametrize("engine", ENGINES)
@pytest.mark.parametrize("bias", [False, True])
@pytest.mark.parametrize("query", QUERIES)
@pytest.mark.parametrize("body", BODIES)
def test_a_model_of_pylate_gives_its_vectors_and_scores(
    body: str, query: str, bias: bool, engine: Any, late: dict[Any, Any]
) -> None:
    job, results = late[body, query, bias]
    assert_late(job, results, engine)


@pytest.mark.parametrize("engine", ENGINES)
@pytest.mark.parametrize("name", WRITTEN)
def test_a_directory_that_pylate_reads_gives_its_vectors_and_scores(
    name: str, engine: Any, late: dict[Any, Any]
) -> None:
    job, results = late[name]
    assert_late(job, results, engine)


LONG = "b a b a b a b a b a b a"
HYBRID_TEXTS = ["a b a", "b", "", "unknown Z b", LONG]
LENGTH = 9
OUTPUTS = {
    "dense": "m3.encode(texts, max_length=9)['dense_vecs']",
    "sparse": "m3.encode(texts, max_length=9, return_sparse=True)['lexical_weights']",
    "tokens": "m3.encode(texts, max_length=9, return_colbert_vecs=True)['colbert_vecs']",
}
WEIGHTS = {
    "colbert": {"tokens": 1.0},
    "sparse": {"sparse": 1.0},
    "dense": {"dense": 1.0},
    "sparse+dense": {"dense": 0.4, "sparse": 0.2},
    "colbert+sparse+dense": {"dense": 0.4, "sparse": 0.2, "tokens": 0.5},
}
# A pair at a time: beside a longer document FlagEmbedding compares with padding as well.
SCORES = {
    mode: "[m3.compute_score((texts[0], text), weights_for_different_modes=[0.4, 0.2, 0.5])"
    f"[{mode!r}] for text in texts[:4]]"
    for mode in WEIGHTS
}
RANKING = {
    activation: f"FlagReranker(ranking, use_fp16=False).compute_score(pairs, normalize={norm})"
    for activation, norm in (("identity", False), ("sigmoid", True))
}
# FlagEmbedding's ranker tokenizes what it has decoded: unknown and empty texts have other tokens.
PAIRS = [("a b", text) for text in HYBRID_TEXTS if text and "Z" not in text]


@pytest.fixture(scope="module")
def hybrid(tmp_path_factory: pytest.TempPathFactory) -> dict[str, Any]:
    """Let FlagEmbedding make and save a model as BGE-M3, and rank by a cross-encoder."""
    folder = tmp_path_factory.mktemp("hybrid")
    (folder / "source").mkdir()
    write_hybrid_directory(folder / "source")
    for name in ("sparse_linear.pt", "colbert_linear.pt", "modules.json"):
        (folder / "source" / name).unlink()
    kinds = "XLMRobertaConfig", "XLMRobertaForSequenceClassification"
    ranking = Case("xlm-roberta", *kinds, SIZES | {"num_labels": 1})
    save(ranking, folder / "ranking", VOCAB_SIZE)
    paths = {"m3_path": str(folder / "saved"), "ranking": str(folder / "ranking")}
    job = {
        "library": "FlagEmbedding",
        "make": {"source": str(folder / "source"), "folder": str(folder / "saved")},
        "paths": paths,
        "values": {"texts": HYBRID_TEXTS, "pairs": PAIRS},
        "calls": [*OUTPUTS.values(), *SCORES.values(), *RANKING.values()],
    }
    return paths | run_theirs([job], folder / "others")[0]


@pytest.mark.parametrize("engine", ENGINES)
def test_a_model_of_flagembedding_gives_its_outputs_and_scores(
    engine: Any, hybrid: dict[str, Any]
) -> None:
    ours = HybridEmbedder.from_pretrained(hybrid["m3_path"], device="cpu", engine=engine)
    ours.embedder.max_seq_length = LENGTH
    found = ours.encode(HYBRID_TEXTS)
    for name, call in OUTPUTS.items():
        one = getattr(found, name)
        assert_equal(one, *(as_ours(value, one) for value in hybrid[call]))
    query, documents = ours.encode(HYBRID_TEXTS[0]), ours.encode(HYBRID_TEXTS[:4])
    for mode, weights in WEIGHTS.items():
        scores = ours.similarity(query, documents, weights)  # type: ignore[arg-type]
        eager, truth = (np.array([value]) for value in hybrid[SCORES[mode]])
        assert_agree(scores, np.float32(eager), truth, mode, terms=TERMS)


@pytest.mark.parametrize("engine", ENGINES)
def test_scores_of_pairs_are_those_of_flagembedding(engine: Any, hybrid: dict[str, Any]) -> None:
    ranker = Ranker.from_pretrained(hybrid["ranking"], device="cpu", engine=engine)
    for activation, call in RANKING.items():
        scores = ranker.score(PAIRS, activation=activation)  # type: ignore[arg-type]
        eager, truth = (np.array(value) for value in hybrid[call])
        assert_agree(scores, np.float32(eager), truth, activation, terms=TERMS)
