"""The verbs train late interaction and sparse embedders, which the embedders then load."""

from __future__ import annotations

import json
from typing import TYPE_CHECKING, Any

import numpy as np
import pytest
import torch

import encoder_engine as ee
from encoder_engine.cli import main
from encoder_engine.embedding import MultiVectorEmbedder, SparseEmbedder
from encoder_engine.models.heads import MaskedLM
from encoder_engine.training.log import read_log
from tests.finetuning.tiny import WORDS

if TYPE_CHECKING:
    from pathlib import Path

pytestmark = [pytest.mark.slow, pytest.mark.filterwarnings("ignore")]
EMBEDDERS: dict[str, Any] = {"late-interaction": MultiVectorEmbedder, "sparse": SparseEmbedder}
SETTINGS = {
    "late-interaction": ["task.dimension=8", "task.query_length=12", "task.expand_queries=true"],
    "sparse": ["task.document_flops=1e-4"],
}


@pytest.fixture
def model(checkpoint: Path, tmp_path: Path) -> Path:
    """Save the tiny checkpoint as a masked language model."""
    torch.manual_seed(0)
    folder = tmp_path / "mlm"
    MaskedLM(ee.Encoder.from_pretrained(checkpoint, device="cpu")).save_pretrained(folder)
    ee.Tokenizer.from_pretrained(checkpoint).save(folder)
    return folder


def write_pairs(path: Path, num_rows: int, seed: int) -> Path:
    """Write queries of two words, and documents that hold them among others."""
    generator = np.random.default_rng(seed)
    lines = []
    for _ in range(num_rows):
        words = generator.choice(WORDS, size=2, replace=False).tolist()
        others = [word for word in WORDS if word not in words]
        positive = generator.permutation([*words, *generator.choice(others, 2)])
        lines.append(
            {
                "query": " ".join(words),
                "positive": " ".join(positive),
                "negatives": [" ".join(generator.choice(others, 4))],
            }
        )
    path.write_text("".join(json.dumps(line) + "\n" for line in lines))
    return path


@pytest.mark.parametrize("task", EMBEDDERS)
def test_a_run_lowers_the_loss_and_is_evaluated_as_it_was(
    task: str, model: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    train, dev = write_pairs(tmp_path / "t.jsonl", 64, 0), write_pairs(tmp_path / "d.jsonl", 24, 1)
    given = [*SETTINGS[task], "run.epochs=4", "batch.examples=16", "optimizer.learning_rate=3e-3"]
    # Several micro-batches a step: by GradCache.
    given += ["batch.micro_tokens=128", "run.device=cpu", "report.samples=20"]
    command = ["finetune", task, "--model", str(model), "--train", str(train)]
    command += [part for value in given for part in ("--set", value)]
    command += ["--dev", str(dev), "-o", str(tmp_path / "run"), "--json"]
    assert main(command) == 0
    scores = json.loads(capsys.readouterr().out)["scores"]
    losses = [entry["loss"] for entry in read_log(tmp_path / "run")]
    assert np.mean(losses[-4:]) < np.mean(losses[:4])
    assert main(["evaluate", "--model", str(tmp_path / "run"), str(dev), "--json"]) == 0
    assert json.loads(capsys.readouterr().out)["scores"] == scores
    output = tmp_path / "found.jsonl"
    assert (
        main(["predict", "--model", str(tmp_path / "run"), str(dev), "--output", str(output)]) == 0
    )
    rows = [json.loads(line) for line in output.read_text().splitlines()]
    embedder = EMBEDDERS[task].from_pretrained(tmp_path / "run" / "model", device="cpu")
    queries = embedder.encode_queries([row["query"] for row in rows])
    for number, row in enumerate(rows[:5]):
        documents = embedder.encode_documents(row["documents"])
        similar = embedder.similarity(queries, documents)[number]
        # Sums of up to 12 products of unit vectors, or of a vocabulary of 13 weights, in float32.
        size = np.abs(similar).max() * 16 * 32
        error = np.abs(similar - np.array(row["similarities"])).max()
        assert error <= size * np.finfo(np.float32).eps
