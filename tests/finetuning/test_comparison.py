"""Models are scored on labelled rows of any kind, and compared by groups of rows."""

from __future__ import annotations

import json
from typing import TYPE_CHECKING, Any

import pytest

from encoder_engine.errors import InputError, RowError
from encoder_engine.finetuning.comparison import evaluate_files
from encoder_engine.tasks.embedders.embedding import EmbeddingTask
from encoder_engine.tasks.task import Windows
from encoder_engine.tasks.task_folder import SavedTask, save_task
from encoder_engine.text import Tokenizer
from tests.embedding.tiny_model import WIDTH, write_sentence_directory

if TYPE_CHECKING:
    from pathlib import Path

VECTORS: list[dict[str, Any]] = [{"query": "the", "vector": [1.0] * WIDTH}]
PAIRS: list[dict[str, Any]] = [
    {"query": query, "positive": f"{other} {number}"}
    for number in range(20)
    for query, other in (("query passage", "text"), ("long row", "words"))
]


def write_model(folder: Path, **settings: Any) -> Path:
    """Save an embedder with random weights as a run saves a model of these settings."""
    write_sentence_directory(folder)
    Tokenizer.from_pretrained(folder).save(folder)
    save_task(folder, SavedTask(EmbeddingTask(**settings), Windows(max_length=16)))
    return folder


def write_rows(folder: Path, rows: list[dict[str, Any]]) -> list[str]:
    path = folder / "rows.jsonl"
    path.write_text("".join(json.dumps(row) + "\n" for row in rows))
    return [str(path)]


def test_the_rows_of_a_query_are_swapped_together(tmp_path: Path) -> None:
    one = write_model(tmp_path / "one", loss="in_batch", prompts={})
    other = write_model(tmp_path / "other", loss="in_batch", prompts={"query": "z q "})
    files = write_rows(tmp_path, PAIRS)
    found = evaluate_files(one, files, against=other, samples=0, device="cpu")
    assert found.against is not None
    assert found.against["ndcg"] != found.scores["ndcg"]
    # Of the four ways to swap two queries' scores, two have the observed difference.
    assert found.p_value is not None
    assert found.p_value > 0.4


def test_a_model_of_a_teachers_vectors_is_scored_on_documents_too(tmp_path: Path) -> None:
    model = write_model(tmp_path / "model", loss="vectors", teacher_width=WIDTH)
    retriever = write_model(tmp_path / "retriever", loss="in_batch")
    found = evaluate_files(model, write_rows(tmp_path, PAIRS), samples=20, device="cpu")
    same = evaluate_files(retriever, write_rows(tmp_path, PAIRS), samples=20, device="cpu")
    assert found.scores == same.scores
    assert found.intervals == same.intervals
    beside = evaluate_files(model, write_rows(tmp_path, VECTORS), samples=20, device="cpu")
    assert beside.scores.keys() == {"cosine", "negative_mse"}
    with pytest.raises(RowError, match=r"rows\.jsonl, line 2: vector has no teacher's vector"):
        evaluate_files(model, write_rows(tmp_path, [*VECTORS, PAIRS[0]]), device="cpu")
    both = write_rows(tmp_path, [VECTORS[0] | PAIRS[0]])
    with pytest.raises(InputError, match="gives the scores cosine, negative_mse of these rows"):
        evaluate_files(model, both, against=retriever, device="cpu")
