"""The sparse task: SPLADE's vectors, its losses, and directories that others load."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import numpy as np
import pytest
import torch

from encoder_engine.embedding import SparseEmbedder
from encoder_engine.errors import ConfigError, InputError, UnsupportedFeatureError
from encoder_engine.models import MaskedLM
from encoder_engine.models.training_model import CoupledModel
from encoder_engine.ops.testing import assert_within_budget
from encoder_engine.tasks.embedders.sparse import SparseTask
from encoder_engine.tasks.items import SavedModel
from encoder_engine.tasks.registry import task_from_values, task_values
from tests.embedding.tiny_model import (
    VOCABULARY,
    WIDTH,
    write_head_directory,
    write_sentence_directory,
    write_transformers_directory,
)
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

TERMS = 4 * WIDTH * 2
PENALISED: dict[str, Any] = {"query_flops": 0.1, "document_flops": 0.1}


@pytest.fixture(scope="module")
def directory(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return write_head_directory(tmp_path_factory.mktemp("sparse") / "model", MaskedLM)


@pytest.mark.parametrize(
    ("rows", "settings", "loss"),
    [
        (ROWS, {}, "in_batch"),
        (ROWS, PENALISED, "in_batch"),
        (ROWS, {"query_flops": 0.0, "scale": 2.0}, "in_batch"),
        (SCORED_LISTS, {}, "divergence"),
        (SCORED_LISTS, {"loss": "margin"}, "margin"),
    ],
)
def test_every_loss_is_learned(
    directory: Path, rows: list[dict[str, Any]], settings: dict[str, Any], loss: str
) -> None:
    task, examples, items, _ = prepare(SparseTask(**settings), directory, rows)
    assert task.loss == loss
    assert task_from_values("sparse", task_values(task)) == task
    model = begin(task, directory)
    values = train(task, model, items)
    assert values[-1] < values[0]
    assert ("query_flops" in model.weights) == (task.query_flops > 0)
    predictions = task.decode(model.outputs(task.collate(items)), items, examples)
    assert task.main_score in task.score(examples, predictions)
    assert len(task.row_scores(examples, predictions)) == len(examples)


@pytest.mark.parametrize(
    ("rows", "loss"), [(ROWS, "in_batch"), (SCORED_LISTS, "divergence"), (SCORED_LISTS, "margin")]
)
def test_micro_batches_have_the_gradient_of_the_step(
    rows: list[dict[str, Any]], loss: Any, directory: Path
) -> None:
    task, _, items, _ = prepare(SparseTask(**PENALISED, loss=loss), directory, rows)
    assert_coupled_as_whole(task, begin(task, directory), items)


def test_the_penalty_is_that_of_the_whole_step(directory: Path) -> None:
    task, _, items, _ = prepare(SparseTask(), directory, ROWS)
    model = begin(task, directory)
    assert isinstance(model, CoupledModel)
    inputs = task.collate(items)
    vectors = model.embed(inputs).detach().double()
    first = np.zeros(len(vectors), bool)
    first[items.offsets[:-1]] = True
    for share, counted in (((0, 1), 1.0), ((1, 2), 0.0)):
        found = model.losses(vectors, inputs.targets, share)
        for name, rows in (("query_flops", first), ("document_flops", ~first)):
            expected = counted * vectors[torch.from_numpy(rows)].mean(0).square().sum()
            bound = len(vectors) * torch.finfo(torch.float64).eps * float(expected)
            assert abs(float(found[name].total) / found[name].num_terms - expected) <= bound


def test_saved_models_embed_as_in_training(directory: Path, tmp_path: Path) -> None:
    given = SparseTask(prompts={"query": "the "})
    task, examples, items, tokenizer = prepare(given, directory, ROWS)
    model = begin(task, directory)
    train(task, model, items, num_steps=2)
    model.save_pretrained(tmp_path / "saved")
    tokenizer.save(tmp_path / "saved")
    vectors = torch.from_numpy(model.outputs(task.collate(items))["vectors"])
    exact = model.double().outputs(task.collate(items))["vectors"]
    embedder = SparseEmbedder.from_pretrained(tmp_path / "saved", device="cpu")
    texts = [[e.query for e in examples], [d for e in examples for d in e.documents]]
    first = np.zeros(len(vectors), bool)
    first[items.offsets[:-1]] = True
    for rows, found in (
        (first, embedder.encode_queries(texts[0])),
        (~first, embedder.encode_documents(texts[1])),
    ):
        truth = torch.from_numpy(exact[rows])
        assert_within_budget(torch.from_numpy(found.dense()), vectors[rows], truth, terms=TERMS)
    again = task.load_model(SavedModel(tmp_path / "saved"))
    np.testing.assert_array_equal(again.outputs(task.collate(items))["vectors"], vectors)
    continued = SparseTask().of_checkpoint(tmp_path / "saved")
    assert continued.prompts["query"] == "the "


@pytest.mark.slow
def test_sentence_transformers_loads_the_directory(directory: Path, tmp_path: Path) -> None:
    library = pytest.importorskip("sentence_transformers")
    given = SparseTask(prompts={"query": "the "})
    task, examples, items, tokenizer = prepare(given, directory, ROWS)
    model = begin(task, directory)
    model.save_pretrained(tmp_path / "saved")
    tokenizer.save(tmp_path / "saved")
    theirs = library.SparseEncoder(str(tmp_path / "saved"), device="cpu")
    options = {"convert_to_sparse_tensor": False, "convert_to_tensor": True}
    texts = [example.query for example in examples]
    eager = theirs.encode_query(texts, **options)
    truth = theirs.double().encode_query(texts, **options)
    vectors = torch.from_numpy(model.outputs(task.collate(items))["vectors"])
    assert_within_budget(vectors[items.offsets[:-1]], eager, truth, terms=TERMS)


def test_what_is_not_trained_is_refused(directory: Path, tmp_path: Path) -> None:
    plain = write_transformers_directory(tmp_path / "plain")
    with pytest.raises(ConfigError, match="no head for masked tokens"):
        begin(SparseTask().of_checkpoint(plain), plain)
    dense = write_sentence_directory(tmp_path / "dense")
    with pytest.raises(UnsupportedFeatureError):
        SparseTask().of_checkpoint(dense)
    with pytest.raises(ConfigError, match=r"task\.query_flops must be at least 0"):
        SparseTask(query_flops=-1.0)
    with pytest.raises(ConfigError, match=r"task\.scale must be above 0"):
        SparseTask(scale=0.0)
    with pytest.raises(InputError, match="training row 0 has no document"):
        prepare(SparseTask(), directory, [{"query": "a", "vector": [1.0]}])
    task, examples, items, _ = prepare(SparseTask(), directory, ROWS)
    predictions = task.decode(begin(task, directory).outputs(task.collate(items)), items, examples)
    record = task.to_record(examples[0], predictions[0])
    assert len(record["similarities"]) == 3
    assert predictions[0].query.dimension == len(VOCABULARY)
