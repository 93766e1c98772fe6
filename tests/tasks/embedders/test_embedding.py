"""The embedding task: rows, tokens, losses, scores, and directories that others load."""

from __future__ import annotations

from dataclasses import replace
from typing import TYPE_CHECKING, Any

import numpy as np
import pytest
import torch

from encoder_engine.embedding.embedder import Embedder
from encoder_engine.errors import ConfigError, InputError, RowError
from encoder_engine.finetuning.evaluation import score_intervals
from encoder_engine.finetuning.model_builder import build_task_model
from encoder_engine.finetuning.recipe import ModelRecipe, TunedOptimizer
from encoder_engine.inputs.records import Record
from encoder_engine.metrics.intervals import paired_randomisation
from encoder_engine.models import Encoder
from encoder_engine.opening.recipe import encoder_directory
from encoder_engine.tasks.embedders.embedding import EmbeddingTask
from encoder_engine.tasks.embedders.retrieval_task import RetrievalPrediction
from encoder_engine.tasks.items import SavedModel
from encoder_engine.tasks.registry import task_from_values, task_values
from encoder_engine.tasks.task import Windows
from encoder_engine.text import Tokenizer
from tests.embedding.tiny_model import write_sentence_directory

if TYPE_CHECKING:
    from pathlib import Path

ROWS: list[dict[str, Any]] = [
    {"query": "the cat sat", "positive": "a cat", "negatives": ["the dog", "a dog ran"]},
    {"query": "the dog ran", "positive": ["a dog ran", "dog"], "negatives": "the cat"},
    {"query": "the cat sat", "positive": "the cat", "negative": "unread"},
]
SCORED: list[dict[str, Any]] = [
    {"query": "the cat", "positive": "a cat", "score": 4.5},
    {"query": "the dog", "positive": "a cat sat", "score": "1"},
    {"query": "a dog", "positive": "the dog", "score": 3},
]


@pytest.fixture(scope="module")
def directory(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return write_sentence_directory(tmp_path_factory.mktemp("embedding") / "model")


def read(task: EmbeddingTask, rows: list[dict[str, Any]]) -> list[Any]:
    return [task.read(Record(row, "f", n + 1, n)) for n, row in enumerate(rows)]


def prepare(directory: Path, rows: list[dict[str, Any]], **settings: Any) -> tuple[Any, ...]:
    task = EmbeddingTask(**settings).of_checkpoint(directory)
    examples = read(task, rows)
    task = task.fit(examples)
    items = task.encode(examples, Tokenizer.from_pretrained(directory), Windows(max_length=12))
    return task, examples, items


def test_prompts_that_no_text_gets_are_refused(directory: Path) -> None:
    # The prompt of "passage" was put before no document.
    for name in ("passage", "queries"):
        task = EmbeddingTask(prompts={name: "the "})
        with pytest.raises(ConfigError, match=f"task.prompts names '{name}'.* query and document"):
            task.of_checkpoint(directory)


@pytest.mark.parametrize("score", [10**400, [1, 10**400], [0.5, float("nan")]])
def test_scores_beyond_what_a_number_holds_are_refused(score: Any) -> None:
    row = {"query": "the", "positive": "a cat", "negatives": "dog", "score": score}
    with pytest.raises(RowError, match=r"score(\[1\])? must be (a )?finite"):
        read(EmbeddingTask(), [row])


def test_rows_make_items_of_their_texts(directory: Path) -> None:
    task, examples, items = prepare(directory, ROWS)
    assert task.loss == "in_batch"
    assert task.main_score == "ndcg"
    assert np.diff(items.offsets).tolist() == [4, 4, 2]
    tokenizer = Tokenizer.from_pretrained(directory)
    texts = [text for e in examples for text in (e.query, *e.documents)]
    for place, text in enumerate(texts):
        row = items.rows.take(np.array([place]))
        assert row.ids.tolist() == tokenizer.encode(text).tolist()
    ids = items.ragged("text_ids").values
    assert ids[0] == ids[8]
    assert len(set(ids.tolist())) == len(set(texts))
    taken = items.take(np.array([2, 0]))
    assert task.collate(taken).targets["num_positives"].tolist() == [1, 1]


@pytest.mark.parametrize(
    ("rows", "settings", "loss"),
    [
        (ROWS, {}, "in_batch"),
        (ROWS, {"symmetric": True, "matryoshka": (4, 2)}, "in_batch"),
        (ROWS[:2], {"loss": "triplet"}, "triplet"),
        (SCORED, {}, "cosent"),
        (SCORED, {"loss": "cosine"}, "cosine"),
        ([ROWS[0] | {"score": [1.0, 0.5, -1.0]}] * 2, {}, "divergence"),
        ([ROWS[0] | {"score": [1.0, 0.5, -1.0]}] * 2, {"loss": "margin"}, "margin"),
        ([{"query": "the cat", "vector": [0.5] * 4}] * 2, {"matryoshka": (4,)}, "vectors"),
    ],
)
def test_every_loss_is_learned(
    directory: Path, rows: list[dict[str, Any]], settings: dict[str, Any], loss: str
) -> None:
    task, examples, items = prepare(directory, rows, **settings)
    assert task.loss == loss
    assert task_from_values("embedding", task_values(task)) == task
    torch.manual_seed(0)
    model = task.make_model(Encoder.from_pretrained(directory)).eval()
    inputs = task.collate(items)
    optimizer = torch.optim.AdamW([p for p in model.parameters() if p.requires_grad], lr=1e-3)
    values = []
    for _ in range(8):
        found = model(inputs)[loss]
        assert found.num_terms == model.counts(inputs)[loss] > 0
        values.append(float(found.total.detach()))
        optimizer.zero_grad()
        found.total.backward()
        optimizer.step()
    assert values[-1] < values[0]
    predictions = task.decode(model.outputs(inputs), items, examples)
    assert task.main_score in task.score(examples, predictions)
    assert len(task.row_scores(examples, predictions)) == len(examples)


def test_a_teacher_of_another_width_is_refused(directory: Path) -> None:
    encoder = Encoder.from_pretrained(directory)
    for width in (encoder.spec.width - 1, encoder.spec.width + 1):
        rows = [{"query": "the cat", "vector": [0.5] * width}] * 2
        task, *_ = prepare(directory, rows)
        expected = f"have {width} features, the model's {encoder.spec.width}"
        with pytest.raises(InputError, match=expected):
            task.make_model(encoder)


@pytest.mark.parametrize("metric", ["cosine", "mse"])
def test_vectors_are_scored_beside_their_teachers(directory: Path, metric: str) -> None:
    rng = np.random.default_rng(0)
    teachers, vectors = rng.normal(size=(2, 12, 16))
    rows = [{"query": f"cat {n}", "vector": one.tolist()} for n, one in enumerate(teachers)]
    task, examples, _ = prepare(directory, rows, vector_metric=metric)
    predictions: list[Any] = [RetrievalPrediction(one, ()) for one in vectors]
    assert task.main_score == ("cosine" if metric == "cosine" else "negative_mse")
    scores = task.score(examples, predictions)
    error = torch.nn.functional.mse_loss(torch.from_numpy(vectors), torch.from_numpy(teachers))
    assert scores["negative_mse"] == pytest.approx(-100.0 * float(error))
    cosines = torch.cosine_similarity(torch.from_numpy(vectors), torch.from_numpy(teachers))
    assert scores["cosine"] == pytest.approx(100.0 * float(cosines.mean()))
    same: list[Any] = [RetrievalPrediction(one, ()) for one in teachers]
    assert task.score(examples, same) == pytest.approx({"cosine": 100.0, "negative_mse": 0.0})
    by_row = task.row_scores(examples, predictions)
    assert by_row.mean() == pytest.approx(scores[task.main_score])
    intervals = score_intervals(task, examples, predictions, samples=200, level=0.95)
    for name, interval in intervals.items():
        assert interval.low < scores[name] < interval.high
    # Vectors of Matryoshka are compared by the leading features, divided by their norm.
    short = task.fit(examples)
    prefixes = [RetrievalPrediction(np.r_[3.0 * one, 9.0], ()) for one in teachers]
    nested = replace(short, matryoshka=(17, 16))
    unit = [
        replace(e, vector=tuple(one / np.linalg.norm(one)))
        for e, one in zip(examples, teachers, strict=True)
    ]
    assert nested.score(unit, prefixes) == pytest.approx({"cosine": 100.0, "negative_mse": 0.0})


def test_dev_rows_that_cannot_be_scored_are_refused(directory: Path) -> None:
    rows = [{"query": "the cat", "vector": [0.5] * 16}, {"query": "a dog", "vector": [1.0] * 16}]
    task = prepare(directory, rows)[0]
    without = read(task, [SCORED[0]])
    assert task.unscored(without, "cosine") is not None
    with pytest.raises(RowError, match="vector has 4 features, those of the training rows have 16"):
        read(task, [{"query": "a", "vector": [1.0] * 4}])
    by_pairs = prepare(directory, rows, metric="spearman")[0]
    assert by_pairs.main_score == "spearman"
    assert by_pairs.unscored(read(task, SCORED[:2]), "spearman") is None
    assert by_pairs.unscored(read(by_pairs, [rows[0]]), "spearman") is not None
    retrieval = prepare(directory, ROWS)[0]
    assert retrieval.unscored(read(retrieval, [rows[0]])) is not None


def draw_retrieved(num_queries: int) -> tuple[EmbeddingTask, list[Any], list[Any]]:
    """Draw pairs of near vectors; every third query has two rows."""
    rng = np.random.default_rng(0)
    rows, predictions = [], []
    for number in range(num_queries):
        query = rng.normal(size=6)
        for copy in range(1 + (number % 3 == 0)):
            rows.append({"query": f"q{number}", "positive": f"d{number} {copy}"})
            near = query + rng.normal(size=6)
            predictions.append(RetrievalPrediction(query, (near,)))
    task = EmbeddingTask(loss="in_batch", similarity="cosine")
    return task, read(task, rows), predictions


def test_intervals_of_retrieval_hold_their_scores() -> None:
    task, examples, predictions = draw_retrieved(60)
    scores = task.score(examples, predictions)
    found = score_intervals(task, examples, predictions, samples=200, level=0.95)
    assert found.keys() == scores.keys()
    for name, interval in found.items():
        assert interval.low < scores[name] < interval.high
        assert interval.mean == pytest.approx(scores[name])


def test_paired_scores_tell_models_of_plain_pairs_apart() -> None:
    task, examples, predictions = draw_retrieved(60)
    rows = task.row_scores(examples, predictions)
    assert 100.0 * rows.mean() == pytest.approx(task.score(examples, predictions)["ndcg"])
    worse = [RetrievalPrediction(-one.query, one.documents) for one in predictions]
    others, groups = task.row_scores(examples, worse), task.groups(examples)
    assert paired_randomisation(rows, others, groups=groups, samples=200) == 1 / 201


def test_an_embedder_has_no_head_to_train_alone(directory: Path) -> None:
    recipe = ModelRecipe(train="head")
    with pytest.raises(ConfigError, match=r"model\.train is head, and no weight of the task emb"):
        build_task_model(
            *(directory, encoder_directory(directory), prepare(directory, ROWS)[0]),
            *(recipe, TunedOptimizer()),
            seed=0,
        )


def test_saved_models_embed_as_in_training(directory: Path, tmp_path: Path) -> None:
    task, examples, items = prepare(directory, ROWS, prompts={"query": "the "})
    model = task.make_model(Encoder.from_pretrained(directory)).eval()
    model.save_pretrained(tmp_path / "saved")
    tokenizer = Tokenizer.from_pretrained(directory)
    tokenizer.save(tmp_path / "saved")
    vectors = model.outputs(task.collate(items))["vectors"]
    embedder = Embedder.from_pretrained(tmp_path / "saved")
    queries = embedder.encode_query([example.query for example in examples])
    documents = embedder.encode_document([d for e in examples for d in e.documents])
    first = np.zeros(len(vectors), bool)
    first[items.offsets[:-1]] = True
    np.testing.assert_allclose(queries, vectors[first], atol=1e-6)
    np.testing.assert_allclose(documents, vectors[~first], atol=1e-6)
    again = task.load_model(SavedModel(tmp_path / "saved"))
    np.testing.assert_array_equal(again.outputs(task.collate(items))["vectors"], vectors)


@pytest.mark.slow
def test_sentence_transformers_loads_the_directory(directory: Path, tmp_path: Path) -> None:
    library = pytest.importorskip("sentence_transformers")
    task, examples, items = prepare(directory, ROWS, prompts={"query": "the "})
    model = task.make_model(Encoder.from_pretrained(directory)).eval()
    model.save_pretrained(tmp_path / "saved")
    Tokenizer.from_pretrained(directory).save(tmp_path / "saved")
    theirs = library.SentenceTransformer(str(tmp_path / "saved"), device="cpu")
    vectors = model.outputs(task.collate(items))["vectors"]
    expected = theirs.encode([e.query for e in examples], prompt_name="query")
    np.testing.assert_allclose(vectors[items.offsets[:-1]], expected, atol=1e-6)


def test_rankings_and_correlations_are_scored(directory: Path) -> None:
    task, examples, _ = prepare(directory, ROWS)
    vector = {"the cat sat": [1, 0], "the dog ran": [0, 1], "a cat": [1, 0.1]}
    vector |= {"the dog": [0, 1], "a dog ran": [0.1, 1], "dog": [0.2, 1], "the cat": [0.9, 0.5]}
    found: Any = task.decode(
        {"vectors": np.array([vector[t] for e in examples for t in (e.query, *e.documents)])},
        prepare(directory, ROWS)[2],
        examples,
    )
    scores = task.score(examples, found)
    # Both queries rank: "the dog" is no answer of the second, and comes first.
    assert scores["mrr"] == pytest.approx(75.0)
    assert scores["recall"] == 100.0
    assert scores["accuracy"] == 50.0


def test_bad_rows_are_refused(directory: Path) -> None:
    task = EmbeddingTask()
    for row, message in (
        ({"query": "a", "negatives": "b"}, "has none"),
        ({"query": "a", "positive": "b", "score": [1, 2]}, "2 numbers for 1"),
        ({"query": "a", "positive": 3}, "positive must be a list of texts"),
        ({"query": None}, "null"),
        ({"query": "a", "positive": "b", "score": float("nan")}, "finite"),
    ):
        with pytest.raises(RowError, match=message):
            read(task, [row])
    with pytest.raises(InputError, match="one score"):
        task.fit(read(task, [SCORED[0]] * 3))
    with pytest.raises(InputError, match="training row 2 has no negative"):
        EmbeddingTask(loss="triplet").fit(read(task, ROWS))
