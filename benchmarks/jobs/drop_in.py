"""Evaluates accelerated models: similarity of sentences, retrieval, and a loss curve."""

from __future__ import annotations

import csv
import lzma
from dataclasses import dataclass
from functools import cache
from typing import TYPE_CHECKING, Any

import numpy as np

from benchmarks.texts import beside

if TYPE_CHECKING:
    from pathlib import Path

    import numpy.typing as npt

NAMES = ("sts/stsb-en-dev.csv", "ir/trecqa_dev.csv.xz", "cls/sst2_dev.tsv")
STSB, TRECQA, SST2 = (beside.DATA / name for name in NAMES)
CUTOFF = 10
BATCH_SIZE = 16
Vectors = Any


def missing_data() -> str | None:
    """Return the reason why the data cannot be read, or None."""
    return beside.missing(*NAMES)


@dataclass(frozen=True, kw_only=True)
class Retrieval:
    """Questions, the sentences they are looked for in, and which of those answer: bool [Q, N]."""

    questions: tuple[str, ...]
    sentences: tuple[str, ...]
    answers_QN: npt.NDArray[np.bool_]


@cache
def sentence_pairs() -> tuple[tuple[str, ...], tuple[str, ...], tuple[float, ...]]:
    """Read the development set of STS-B: first sentences, second sentences, and similarities."""
    with STSB.open(encoding="utf-8", newline="") as file:
        rows = list(csv.reader(file))
    first, second, scores = zip(*rows, strict=True)
    return first, second, tuple(map(float, scores))


@cache
def retrieval(every: int = 1) -> Retrieval:
    """Read the development set of TrecQA; each question searches all sentences.

    ``every``: one question of so many, and their sentences.
    """
    with lzma.open(TRECQA, "rt", encoding="utf-8", newline="") as file:
        rows = list(csv.DictReader(file))
    chosen = set(sorted({row["qtext"] for row in rows})[::every])
    rows = [row for row in rows if row["qtext"] in chosen]
    answered = sorted({row["qtext"] for row in rows if row["label"] == "1"})
    sentences = sorted({row["atext"] for row in rows})
    answers_QN = np.zeros((len(answered), len(sentences)), dtype=bool)
    for row in rows:
        if row["label"] == "1":
            answers_QN[answered.index(row["qtext"]), sentences.index(row["atext"])] = True
    return Retrieval(questions=tuple(answered), sentences=tuple(sentences), answers_QN=answers_QN)


def spearman(model: Any, every: int = 1) -> float:
    """Return the rank correlation of cosines and scores on every n-th pair of STS-B."""
    from scipy.stats import spearmanr

    first, second, scores = sentence_pairs()
    first, second, scores = first[::every], second[::every], scores[::every]
    vectors = unit_vectors(model, first + second)
    cosines = (vectors[: len(first)] * vectors[len(first) :]).sum(1)
    return float(spearmanr(cosines, scores).statistic)


def ndcg(model: Any, every: int = 1) -> float:
    """Rank TrecQA's sentences for each question; the mean nDCG of the first ten."""
    data = retrieval(every)
    questions = unit_vectors(model, data.questions)
    scores_QN = questions @ unit_vectors(model, data.sentences).T
    order_QN = np.argsort(-scores_QN, axis=1, kind="stable")[:, :CUTOFF]
    found_QN = np.take_along_axis(data.answers_QN, order_QN, axis=1)
    discounts = 1 / np.log2(np.arange(2, CUTOFF + 2))
    most = np.minimum(data.answers_QN.sum(1), CUTOFF)
    return float(((found_QN @ discounts) / np.cumsum(discounts)[most - 1]).mean())


def unit_vectors(model: Any, texts: tuple[str, ...]) -> npt.NDArray[np.float64]:
    """Embed texts by sentence-transformers as unit vectors in float64."""
    found = model.encode(list(texts), show_progress_bar=False)
    vectors: npt.NDArray[np.float64] = np.asarray(found, dtype=np.float64)
    vectors /= np.linalg.norm(vectors, axis=1, keepdims=True)
    return vectors


def reviews(count: int) -> tuple[list[str], list[int]]:
    """Read the first reviews of SST-2's development set, and whether each is positive."""
    with SST2.open(encoding="utf-8", newline="") as file:
        rows = list(csv.DictReader(file, delimiter="\t", quoting=csv.QUOTE_NONE))[:count]
    return [row["sentence"] for row in rows], [int(row["label"]) for row in rows]


def loss_curve(model: Any, directory: Path, folder: Path, *, count: int, steps: int) -> list[float]:
    """Fine-tune a classifier by transformers' Trainer; return the loss of every step.

    ``directory`` holds the tokenizer; into ``folder`` the Trainer may write.
    """
    import torch
    from transformers import AutoTokenizer, DataCollatorWithPadding, Trainer, TrainingArguments

    texts, labels = reviews(count)
    tokenizer = AutoTokenizer.from_pretrained(directory)
    encoded = tokenizer(texts, truncation=True, max_length=64)
    rows = [
        {"input_ids": ids, "attention_mask": mask, "labels": label}
        for ids, mask, label in zip(
            encoded["input_ids"], encoded["attention_mask"], labels, strict=True
        )
    ]
    arguments = TrainingArguments(
        output_dir=str(folder),
        max_steps=steps,
        per_device_train_batch_size=BATCH_SIZE,
        learning_rate=5e-5,
        logging_steps=1,
        save_strategy="no",
        report_to=[],
        disable_tqdm=True,
        use_cpu=True,
        seed=7,
    )
    trainer = Trainer(
        model=model.train(),
        args=arguments,
        train_dataset=rows,
        data_collator=DataCollatorWithPadding(tokenizer),
    )
    with torch.random.fork_rng([]):
        trainer.train()
    return [entry["loss"] for entry in trainer.state.log_history if "loss" in entry]
