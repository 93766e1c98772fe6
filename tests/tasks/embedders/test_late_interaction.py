"""The late-interaction task: token vectors, MaxSim's losses, and directories that others load."""

from __future__ import annotations

import json
import string
from dataclasses import replace
from typing import TYPE_CHECKING, Any

import numpy as np
import pytest
import torch

from encoder_engine.embedding import MultiVectorEmbedder
from encoder_engine.errors import ConfigError, InputError
from encoder_engine.finetuning.frozen import with_features
from encoder_engine.models.training_model import CoupledModel
from encoder_engine.ops.testing import assert_within_budget
from encoder_engine.tasks.embedders.late_interaction import LateInteractionTask
from encoder_engine.tasks.embedders.late_interaction_model import LateInteractionModel
from encoder_engine.tasks.items import FEATURES, SavedModel
from encoder_engine.tasks.registry import task_from_values, task_values
from encoder_engine.tasks.task import Windows
from tests.embedding.tiny_model import WIDTH, write_sentence_directory, write_transformers_directory
from tests.tasks.embedders.retrieval_rows import (
    ROWS,
    SCORED_LISTS,
    assert_coupled_as_whole,
    begin,
    prepare,
    train,
)

if TYPE_CHECKING:
    from pathlib import Path

    from encoder_engine.vectors.token_vectors import TokenVectors

TERMS = 4 * WIDTH * 2
SMALL: dict[str, Any] = {"dimension": 6, "query_length": 20}
PADDED: dict[str, Any] = SMALL | {"expand_queries": True}


@pytest.fixture(scope="module")
def directory(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return write_transformers_directory(tmp_path_factory.mktemp("late") / "model")


@pytest.mark.parametrize(
    ("rows", "settings", "loss"),
    [
        (ROWS, SMALL, "in_batch"),
        (ROWS, PADDED, "in_batch"),
        (ROWS, PADDED | {"attend_expansion": True, "scale": 2.0}, "in_batch"),
        (SCORED_LISTS, SMALL, "divergence"),
        (SCORED_LISTS, SMALL | {"loss": "margin"}, "margin"),
    ],
)
def test_every_loss_is_learned(
    directory: Path, rows: list[dict[str, Any]], settings: dict[str, Any], loss: str
) -> None:
    task, examples, items, _ = prepare(LateInteractionTask(**settings), directory, rows)
    assert task.loss == loss
    assert task_from_values("late-interaction", task_values(task)) == task
    model = begin(task, directory)
    values = train(task, model, items)
    assert values[-1] < values[0]
    predictions = task.decode(model.outputs(task.collate(items)), items, examples)
    assert task.main_score in task.score(examples, predictions)
    assert len(task.row_scores(examples, predictions)) == len(examples)


@pytest.mark.parametrize(
    ("rows", "loss"), [(ROWS, "in_batch"), (SCORED_LISTS, "divergence"), (SCORED_LISTS, "margin")]
)
def test_micro_batches_have_the_gradient_of_the_step(
    rows: list[dict[str, Any]], loss: Any, directory: Path
) -> None:
    task, _, items, _ = prepare(LateInteractionTask(**PADDED, loss=loss), directory, rows)
    assert_coupled_as_whole(task, begin(task, directory), items)


def test_cached_rows_stay_with_their_micro_batch(
    directory: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    task, _, items, _ = prepare(LateInteractionTask(**PADDED), directory, ROWS)
    model = begin(task, directory).double()
    model.encoder.requires_grad_(False)
    items = with_features(items, task, model, batch_tokens=1000)
    targets: list[set[str]] = []
    losses = LateInteractionModel.losses

    def seen(self: LateInteractionModel, vectors: Any, found: Any, *share: Any) -> Any:
        targets.append(set(found))
        return losses(self, vectors, found, *share)

    monkeypatch.setattr(LateInteractionModel, "losses", seen)
    assert_coupled_as_whole(task, model, items)
    whole, coupled = targets
    assert whole - coupled == {FEATURES, "counted", "unattended"}


def test_the_loss_is_that_of_a_double_loop(directory: Path) -> None:
    task, examples, items, _ = prepare(LateInteractionTask(**PADDED), directory, ROWS)
    model = begin(task, directory).double()
    assert isinstance(model, CoupledModel)
    inputs = task.collate(items)
    vectors = model.embed(inputs).detach()
    texts = torch.split(vectors, inputs.targets["num_vectors"].tolist())
    named = [text for e in examples for text in (e.query, *e.documents)]
    vectors_of = dict(zip(named, texts, strict=True))
    pairs = [(e.query, positive) for e in examples for positive in e.positives]
    negatives = [text for e in examples for text in e.negatives]
    terms = []
    for query, positive in pairs:
        # Equal texts, and the positives of an equal query, leave the denominator.
        others = [text for other, text in pairs if other != query]
        candidates = [text for text in others + negatives if text not in (positive, query)]
        scores = torch.stack(
            [
                (vectors_of[query] @ vectors_of[text].T).amax(1).sum()
                for text in (positive, *candidates)
            ]
        )
        terms.append(scores.logsumexp(0) - scores[0])
    expected = torch.stack(terms).sum()
    found = model.losses(vectors, inputs.targets)["in_batch"]
    assert found.num_terms == len(pairs)
    # Sums of at most 20 maxima of products of 6 features, over the documents, in float64.
    bound = len(pairs) * 20 * 6 * len(named) * torch.finfo(torch.float64).eps
    assert abs(float(found.total - expected)) <= bound * float(expected)
    shares = [model.losses(vectors, inputs.targets, (rank, 2))["in_batch"].total for rank in (0, 1)]
    assert abs(float(sum(shares) - expected)) <= bound * float(expected)


def embedded(embedder: MultiVectorEmbedder, examples: list[Any]) -> list[TokenVectors]:
    queries = embedder.encode_queries([example.query for example in examples])
    documents = embedder.encode_documents([d for e in examples for d in e.documents])
    return [queries, documents]


def split(vectors: Any, items: Any) -> list[torch.Tensor]:
    """Return the vectors of all queries, then those of all documents."""
    texts = torch.split(torch.from_numpy(vectors), items.ragged("num_vectors").values.tolist())
    firsts = set(items.offsets[:-1].tolist())
    return [
        torch.cat([text for place, text in enumerate(texts) if (place in firsts) is query])
        for query in (True, False)
    ]


@pytest.mark.parametrize("settings", [SMALL, PADDED, PADDED | {"attend_expansion": True}], ids=str)
def test_saved_models_embed_as_in_training(
    settings: dict[str, Any], directory: Path, tmp_path: Path
) -> None:
    given = LateInteractionTask(
        **settings, prompts={"query": "the "}, skipped_words=(".", "the"), document_length=22
    )
    task, examples, items, tokenizer = prepare(given, directory, ROWS)
    model = begin(task, directory)
    train(task, model, items, num_steps=2)
    model.save_pretrained(tmp_path / "saved")
    tokenizer.save(tmp_path / "saved")
    outputs = model.outputs(task.collate(items))["vectors"]
    eager = split(outputs, items)
    truth = split(model.double().outputs(task.collate(items))["vectors"], items)
    embedder = MultiVectorEmbedder.from_pretrained(tmp_path / "saved", device="cpu")
    for found, ours, exact in zip(embedded(embedder, examples), eager, truth, strict=True):
        assert_within_budget(torch.from_numpy(found.vectors), ours, exact, terms=TERMS)
    again = task.load_model(SavedModel(tmp_path / "saved"))
    np.testing.assert_array_equal(again.outputs(task.collate(items))["vectors"], outputs)
    # Training goes on from the saved directory with its settings and its projection.
    continued, _, same, _ = prepare(LateInteractionTask(), tmp_path / "saved", ROWS)
    assert replace(continued, skipped_words=(".", "the"), max_seq_length=None) == task
    assert set(continued.skipped_words) == {".", "the"}
    more = begin(continued, tmp_path / "saved")
    np.testing.assert_array_equal(more.outputs(continued.collate(same))["vectors"], outputs)
    if task.expand_queries:
        assert np.diff(embedded(embedder, examples)[0].cu_seqlens).tolist() == [20] * len(examples)


@pytest.mark.slow
@pytest.mark.parametrize("settings", [SMALL, PADDED], ids=str)
def test_sentence_transformers_loads_the_directory(
    settings: dict[str, Any], directory: Path, tmp_path: Path
) -> None:
    library = pytest.importorskip("sentence_transformers")
    given = LateInteractionTask(**settings, prompts={"query": "the "}, skipped_words=("the",))
    task, examples, items, tokenizer = prepare(given, directory, ROWS)
    model = begin(task, directory)
    model.save_pretrained(tmp_path / "saved")
    tokenizer.save(tmp_path / "saved")
    ours = split(model.outputs(task.collate(items))["vectors"], items)
    theirs = library.MultiVectorEncoder(str(tmp_path / "saved"), device="cpu")
    texts = {
        "encode_query": [example.query for example in examples],
        "encode_document": [d for e in examples for d in e.documents],
    }
    eager = [np.concatenate(list(getattr(theirs, name)(given))) for name, given in texts.items()]
    exact = theirs.double()
    truth = [np.concatenate(list(getattr(exact, name)(given))) for name, given in texts.items()]
    for found, plain, true in zip(ours, eager, truth, strict=True):
        values = torch.from_numpy(plain), torch.from_numpy(true).double()
        assert_within_budget(found, *values, terms=TERMS)


@pytest.mark.slow
@pytest.mark.parametrize("layout", ["ColBERT", "PyLate", "sentence-transformers"])
def test_models_of_other_libraries_are_trained_further(layout: str, tmp_path: Path) -> None:
    pytest.importorskip("sentence_transformers")
    from tests.opening.test_late_interaction import dense, native, pylate, stanford

    if layout == "ColBERT":
        folder = stanford(tmp_path / "model", query_maxlen=13, doc_maxlen=12)
    elif layout == "PyLate":
        folder = pylate(tmp_path / "model", query_prefix="[unused0] ", query_length=13)
        dense(folder / "1_Dense", 6, WIDTH)
        listed = json.loads((folder / "modules.json").read_text())
        (folder / "modules.json").write_text(json.dumps(listed[:2]))
    else:
        expansion = {"strategy": "fixed", "length": 14, "attend": False}
        folder = native(tmp_path / "model", {"skiplist_words": ["the"]}, query_expansion=expansion)
        dense(folder / "1_Dense", 6, WIDTH)
    task, examples, items, tokenizer = prepare(LateInteractionTask(), folder, ROWS)
    assert task.dimension == 6
    assert task.expand_queries
    model = begin(task, folder)
    before = MultiVectorEmbedder.from_pretrained(folder, device="cpu")
    eager = split(model.outputs(task.collate(items))["vectors"], items)
    exact = split(model.double().outputs(task.collate(items))["vectors"], items)
    model.float()
    for found, ours, truth in zip(embedded(before, examples), eager, exact, strict=True):
        assert_within_budget(torch.from_numpy(found.vectors), ours, truth, terms=TERMS)
    values = train(task, model, items)
    assert values[-1] < values[0]
    model.save_pretrained(tmp_path / "saved")
    tokenizer.save(tmp_path / "saved")
    after = MultiVectorEmbedder.from_pretrained(tmp_path / "saved", device="cpu")
    trained = split(model.outputs(task.collate(items))["vectors"], items)
    exact = split(model.double().outputs(task.collate(items))["vectors"], items)
    for found, ours, truth in zip(embedded(after, examples), trained, exact, strict=True):
        assert_within_budget(torch.from_numpy(found.vectors), ours, truth, terms=TERMS)


def test_settings_have_defaults_and_limits(directory: Path, tmp_path: Path) -> None:
    task = LateInteractionTask().of_checkpoint(directory)
    assert (task.dimension, task.query_length, task.expand_queries) == (128, 32, False)
    assert task.skipped_words == tuple(string.punctuation)
    sentence = write_sentence_directory(tmp_path / "sentence")
    assert LateInteractionTask().of_checkpoint(sentence).dimension == 128
    model = begin(task, directory)
    assert isinstance(model, LateInteractionModel)
    assert model.projection.weight.shape == (128, WIDTH)
    with pytest.raises(ConfigError, match=r"task\.dimension must be at least 1"):
        LateInteractionTask(dimension=-1)
    with pytest.raises(ConfigError, match=r"task\.temperature must be above 0"):
        LateInteractionTask(temperature=0.0)
    row = {"query": "a", "positive": "b", "score": 1}
    with pytest.raises(InputError, match="training row 0 has no negative"):
        prepare(LateInteractionTask(loss="margin"), directory, [row])
    padded, examples, _, tokenizer = prepare(LateInteractionTask(**PADDED), directory, ROWS)
    with pytest.raises(ConfigError, match=r"data\.max_length is 8"):
        padded.encode(examples, tokenizer, Windows(max_length=8))
