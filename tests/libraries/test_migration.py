"""Every row of docs/migration.md, run: equal results, or a refusal that names ours."""

from __future__ import annotations

import importlib
import inspect
import re
import warnings
from dataclasses import dataclass
from functools import cache
from types import SimpleNamespace
from typing import TYPE_CHECKING, Any

import numpy as np
import pytest
import torch

from encoder_engine import Embedder, StaticEmbedder
from encoder_engine.embedding import (
    HybridEmbedder,
    MultiVectorEmbedder,
    Ranker,
    SparseEmbedder,
    SparseVectors,
    TokenVectors,
    max_similarity,
)
from encoder_engine.errors import InputError
from encoder_engine.models import MaskedLM, SequenceClassification
from tests import ROOT
from tests.embedding.hybrid_model import write_hybrid_directory
from tests.embedding.library_models import assert_agree
from tests.embedding.static.static_models import write_model2vec
from tests.embedding.tiny_model import (
    POSITIONS,
    write_head_directory,
    write_json,
    write_sentence_directory,
)
from tests.libraries.others import SETUP, run_theirs
from tests.opening.test_late_interaction import native, pylate, stanford

if TYPE_CHECKING:
    from collections.abc import Callable
    from pathlib import Path

pytestmark = pytest.mark.slow
PAGE = ROOT / "docs" / "migration.md"
MODULES = {"sentence-transformers": "sentence_transformers", "model2vec": "model2vec"}
# In an environment of their own, as is model2vec's distillation.
OTHERS = {"fastembed", "FlagEmbedding", "PyLate"}
DISTILL = "distill(encoder, pca_dims=8)"
TEXTS = ["the text", "a row of words", "query 7"]
ROW = re.compile(r"^\| `(.+?)` \| `(.+?)` \| (.+?) \|$")


@dataclass(frozen=True, kw_only=True)
class Call:
    """A row of the page."""

    library: str
    theirs: str
    ours: str
    result: str


def calls() -> list[Call]:
    """Read the rows of all tables."""
    found, library = [], ""
    for line in PAGE.read_text("utf-8").splitlines():
        if line.startswith("## "):
            library = line.removeprefix("## ")
        row = ROW.match(line)
        if row is not None:
            theirs, ours, result = row.groups()
            found.append(Call(library=library, theirs=theirs, ours=ours, result=result))
    return found


CALLS = calls()


def test_the_page_has_a_table_for_each_library() -> None:
    assert {call.library for call in CALLS} == MODULES.keys() | OTHERS
    assert len(CALLS) > 70


def test_the_page_says_where_libraries_run() -> None:
    words = " ".join(PAGE.read_text("utf-8").partition("\n## ")[0].split())
    here = re.search(r"The calls of ([^.]+?) run too", words)
    apart = re.search(r"The calls of ([^.]+?) run in an environment", words)
    assert here is not None
    assert apart is not None
    assert {name for name in MODULES.keys() | OTHERS if name in here[1]} == MODULES.keys()
    assert {name for name in MODULES.keys() | OTHERS if name in apart[1]} == OTHERS
    assert SETUP in words


@dataclass(frozen=True, kw_only=True)
class Models:
    """Directories of every kind of model."""

    sentences: Path
    static: Path
    ranking: Path
    masked: Path
    late: Path
    stanford: Path
    pylate: Path
    hybrid: Path

    def late_of(self, library: str) -> Path:
        """Return the late-interaction model in the library's own layout."""
        return {"fastembed": self.stanford, "PyLate": self.pylate}.get(library, self.late)


@pytest.fixture(scope="module")
def models(tmp_path_factory: pytest.TempPathFactory) -> Models:
    folder = tmp_path_factory.mktemp("models")
    return Models(
        sentences=write_sentence_directory(
            folder / "sentences", settings={"prompts": {"query": "query: "}}
        ),
        static=write_model2vec(folder / "static"),
        ranking=write_head_directory(folder / "ranking", SequenceClassification, num_labels=1),
        masked=write_head_directory(folder / "masked", MaskedLM),
        late=native(folder / "late"),
        stanford=stanford_of_fastembed(folder / "stanford"),
        pylate=pylate(
            folder / "pylate",
            query_prefix="[unused0]",
            document_prefix="[unused1]",
            query_length=12,
        ),
        hybrid=write_hybrid_directory(folder / "hybrid"),
    )


def stanford_of_fastembed(folder: Path) -> Path:
    """Write a directory of ColBERT whose markers have the ids 1 and 2, as fastembed takes them."""
    stanford(folder)
    markers = ["[unused0]", "[unused1]"]
    words = (folder / "vocab.txt").read_text("utf-8").split()
    words = [words[0], *markers, *(word for word in words[1:] if word not in markers)]
    (folder / "vocab.txt").write_text("".join(f"{word}\n" for word in words), "utf-8")
    write_json(
        folder / "tokenizer_config.json", {"do_lower_case": True, "model_max_length": POSITIONS}
    )
    return folder


VALUES = {
    "texts": TEXTS,
    "queries": TEXTS[:2],
    "documents": TEXTS,
    "pairs": [(TEXTS[0], text) for text in TEXTS],
}


def paths_of(library: str, models: Models) -> dict[str, str]:
    """Return the directories that the calls name."""
    return {
        "path": str(models.sentences),
        "ranking": str(models.ranking),
        "masked": str(models.masked),
        "late": str(models.late_of(library)),
        "m3_path": str(models.hybrid),
    }


def names(library: str, models: Models, folder: Path) -> dict[str, Any]:
    """Return the names that the calls of both sides use."""
    own = {"encoder": str(models.sentences), "folder": str(folder), "torch": torch}
    return VALUES | paths_of(library, models) | own


def ours_of(library: str, models: Models) -> dict[str, Any]:
    """Return the engine's names of a section."""
    pooling = "cls" if library == "FlagEmbedding" else None
    embedder: Any = Embedder.from_pretrained(models.sentences, device="cpu", pooling=pooling)
    path = str(models.sentences)
    if library == "model2vec":
        embedder, path = StaticEmbedder.from_pretrained(models.static), str(models.static)
    colbert = MultiVectorEmbedder.from_pretrained(models.late_of(library), device="cpu")
    if library == "PyLate":
        embedder = colbert
    return {
        "path": path,
        "embedder": embedder,
        "ranker": Ranker.from_pretrained(models.ranking, device="cpu"),
        "sparse": SparseEmbedder.from_pretrained(models.masked, device="cpu"),
        "colbert": colbert,
        "m3": HybridEmbedder.from_pretrained(models.hybrid, device="cpu"),
        "Embedder": Embedder,
        "StaticEmbedder": StaticEmbedder,
        "Ranker": Ranker,
        "SparseEmbedder": SparseEmbedder,
        "max_similarity": max_similarity,
        "upload_folder": upload_folder,
    }


def upload_folder(**keywords: Any) -> None:
    """Check a call of huggingface_hub's function, and that the folder is a model's."""
    hub = pytest.importorskip("huggingface_hub")
    inspect.signature(hub.upload_folder).bind(**keywords)
    assert len(Embedder.from_pretrained(keywords["folder_path"], device="cpu").encode(TEXTS))


def theirs_of(library: str, models: Models, *, exact: bool = False) -> dict[str, Any]:
    """Return the library's names of a section; ``exact``: its models compute in float64."""
    module = importlib.import_module(MODULES[library])

    def loads(load: Callable[..., Any]) -> Callable[..., Any]:
        return lambda path, **options: (
            in_float64(load(str(path), **options)) if exact else load(str(path), **options)
        )

    if library == "model2vec":
        load = loads(module.StaticModel.from_pretrained)
        static = SimpleNamespace(from_pretrained=load)
        return {"path": str(models.static), "model": load(models.static), "StaticModel": static}
    return {
        "SentenceTransformer": loads(module.SentenceTransformer),
        "model": loads(module.SentenceTransformer)(models.sentences, device="cpu"),
        "ranker": loads(module.CrossEncoder)(models.ranking, device="cpu"),
        "sparse": loads(module.SparseEncoder)(models.masked, device="cpu"),
        "colbert": loads(module.MultiVectorEncoder)(models.late, device="cpu"),
    }


def in_float64(model: Any) -> Any:
    """Make a library's model compute in float64, which tells the truth."""
    if hasattr(model, "double"):
        return model.double()
    model.embedding = model.embedding.astype(np.float64)
    return model


def comparable(value: Any) -> Any:
    """Return a result as an array: scores of documents, or vectors of tokens one below another."""
    if isinstance(value, SparseVectors):
        return value.dense()
    if isinstance(value, TokenVectors):
        return value.vectors
    if hasattr(value, "to_dense"):
        value = value.detach().to_dense()
    if isinstance(value, list) and value and isinstance(value[0], dict):
        return np.array([one["score"] for one in value])
    if isinstance(value, list):
        return np.concatenate([comparable(one) for one in value])
    return value.numpy() if hasattr(value, "numpy") else value


def as_ours(value: Any, found: Any) -> Any:
    """Bring a result of another process to the form of ours."""
    if isinstance(found, SparseVectors):
        rows = np.zeros((len(value), found.dimension))
        for row, weights in zip(rows, value, strict=True):
            for number, weight in weights.items():
                row[int(number)] = weight
        return rows
    if isinstance(found, TokenVectors):
        return value
    if isinstance(value, list) and isinstance(value[0], list) and isinstance(value[0][0], dict):
        # Ranked documents by their ids.
        value = [[one["score"] for one in sorted(row, key=lambda one: one["id"])] for row in value]
    return np.reshape(value, np.shape(found))


def assert_equal(found: Any, expected: Any, truth: Any) -> None:
    """Hold a result to the budget; ``truth``: the library's in float64."""
    if isinstance(expected, list) and isinstance(expected[0], dict):
        assert [one["corpus_id"] for one in found] == [one["corpus_id"] for one in expected]
    elif isinstance(found, TokenVectors):
        assert [len(one) for one in found] == [len(one) for one in expected]
    found, expected, truth = map(comparable, (found, expected, truth))
    if not isinstance(expected, (np.ndarray, np.floating)):
        assert found == expected
    elif expected.dtype.kind in "iu":
        np.testing.assert_array_equal(found, expected)
    else:
        ours, eager = (np.asarray(value, np.float32) for value in (found, expected))
        assert_agree(ours, eager, np.asarray(truth, np.float64))


@pytest.fixture(scope="module")
def answers(models: Models, tmp_path_factory: pytest.TempPathFactory) -> dict[str, Any]:
    """Run the calls of the other libraries: a process for all rows, started at the first."""
    run_there = {one: [c.theirs for c in CALLS if c.library == one] for one in sorted(OTHERS)}
    run_there["model2vec"] = [f"{DISTILL}.encode(texts)"]
    jobs = [
        {
            "library": library,
            "paths": paths_of(library, models),
            "values": VALUES | {"encoder": str(models.sentences)},
            "calls": calls,
        }
        for library, calls in run_there.items()
    ]
    found = run_theirs(jobs, tmp_path_factory.mktemp("others"))
    return dict(zip(run_there, found, strict=True))


@pytest.fixture(scope="module")
def loaded(models: Models) -> Callable[..., dict[str, Any]]:
    """Load the models of a section once for either side: no call of the page changes one."""

    @cache
    def load(side: Callable[..., dict[str, Any]], library: str, **exact: bool) -> dict[str, Any]:
        return side(library, models, **exact)

    return load


@pytest.mark.parametrize("call", CALLS, ids=lambda call: f"{call.library}: {call.theirs}")
def test_a_row_of_the_page_holds(
    call: Call,
    models: Models,
    loaded: Callable[..., dict[str, Any]],
    tmp_path: Path,
    request: pytest.FixtureRequest,
) -> None:
    scope = names(call.library, models, tmp_path / "ours")
    run: Callable[..., Any] = eval
    ours = scope | loaded(ours_of, call.library)
    if call.result.startswith("refused"):
        named = call.result.partition("`")[2].rpartition("`")[0]
        with pytest.raises(InputError, match=re.escape(named)):
            run(call.ours, ours)
    else:
        for part in call.ours.split("; "):
            found = run(part, ours)
    if call.library in OTHERS:
        values = request.getfixturevalue("answers")[call.library][call.theirs]
        if not call.result.startswith("refused"):
            assert call.result.startswith("equal")
            assert_equal(found, *(as_ours(value, found) for value in values))
        return
    if call.theirs == DISTILL:
        assert call.result == "the same method"
        (values,) = request.getfixturevalue("answers")["model2vec"].values()
        assert {np.shape(one) for one in values} == {(len(TEXTS), found.dimension)}
        return
    if "upload_folder" in call.result:
        return
    pytest.importorskip(MODULES[call.library], reason=f"{call.library} is not installed")
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        scope = names(call.library, models, tmp_path / "theirs")
        theirs = scope | loaded(theirs_of, call.library)
        expected = run(call.theirs, theirs)
        if call.result == "equal":
            truth = run(call.theirs, scope | loaded(theirs_of, call.library, exact=True))
            assert_equal(found, expected, truth)
    if call.result != "equal" and not call.result.startswith("refused"):
        assert call.result == "either library loads it"
        name = call.ours.partition(".")[0]
        assert_both_load(ours[name], theirs["model" if name == "embedder" else name], tmp_path)


def assert_both_load(ours: Any, theirs: Any, folder: Path) -> None:
    """Compare the model that either library saved, loaded by either library, with ours."""
    values: Any = TEXTS
    method = "encode"
    if isinstance(ours, Ranker):
        values, method = [(TEXTS[0], text) for text in TEXTS], "predict"
    expected = getattr(ours, method)(values)
    load = getattr(type(theirs), "from_pretrained", type(theirs))
    for saved in (folder / "ours", folder / "theirs"):
        again = getattr(type(ours).from_pretrained(saved), method)(values)
        np.testing.assert_array_equal(comparable(again), comparable(expected))
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        loaded = load(str(folder / "ours")), in_float64(load(str(folder / "ours")))
        eager, truth = (getattr(model, method)(values) for model in loaded)
    assert_equal(expected, eager, truth)
