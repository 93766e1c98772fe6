"""Models of sentence-transformers and transformers before and after they are accelerated."""

from __future__ import annotations

import contextlib
import csv
import importlib.util
import io
import lzma
import tempfile
from dataclasses import dataclass
from functools import cache, partial
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np

from benchmarks.cases.embedding import MAX_LENGTHS, SEED, make_texts, minilm_directory, why_not
from benchmarks.measuring.case import Candidate, Case, CaseSpec, Options, Verdict, Work
from benchmarks.texts import beside
from benchmarks.texts.corpus import fingerprint

if TYPE_CHECKING:
    from collections.abc import Callable, Sequence

    import numpy.typing as npt

    from benchmarks.jobs.training_step import LossesGate

LIBRARIES = ("sentence-transformers", "transformers")
# Texts to embed, and of the gate's texts one of so many: a run takes less than a minute.
NUM_TEXTS = {"short": 400, "skewed": 100}
EVERY = 4
# Reviews and steps of a fine-tuning run: twice every review at most.
COUNT, STEPS = 64, 4
NAMES = ("sts/stsb-en-dev.csv", "ir/trecqa_dev.csv.xz", "cls/sst2_dev.tsv")
STSB, TRECQA, SST2 = (beside.DATA / name for name in NAMES)
CUTOFF = 10
BATCH_SIZE = 16
# Figures are compared as leaderboards give them: in per cent, with two digits.
DIGITS = 2


def case_specs() -> list[CaseSpec]:
    """Embedding by a SentenceTransformer, and fine-tuning by transformers' Trainer."""
    return [
        CaseSpec(
            name=f"drop_in/encode-{shape}",
            summary=f"SentenceTransformer.encode, MiniLM, {shape} texts, before and after",
            make=partial(make_encode_case, shape),
            unavailable=_why_not,
        )
        for shape in ("short", "skewed")
    ] + [
        CaseSpec(
            name="drop_in/fine-tune",
            summary=f"{STEPS} steps of transformers' Trainer, MiniLM on SST-2, before and after",
            make=make_training_case,
            unavailable=lambda: _why_not() or _lacks("accelerate"),
        )
    ]


def _why_not() -> str | None:
    missing = [_lacks(name) for name in ("sentence_transformers", "scipy")]
    return why_not("bundled") or missing_data() or next(filter(None, missing), None)


def _lacks(module: str) -> str | None:
    missing = importlib.util.find_spec(module) is None
    return f"{module} not installed; pip install '.[dev]'" if missing else None


@dataclass(frozen=True, kw_only=True)
class FiguresGate:
    """Compare figures, in per cent, with the plain model's: equal when rounded to ``DIGITS``."""

    expected: dict[str, float]

    def __call__(self, output: dict[str, float]) -> Verdict:
        differing = [
            f"{name} is {output[name]:.4f}, was {value:.4f}"
            for name, value in self.expected.items()
            if round(output[name], DIGITS) != round(value, DIGITS)
        ]
        reason = "; ".join(differing) or None
        return Verdict(passed=reason is None, figures=output, reason=reason)


def make_encode_case(shape: str, options: Options) -> Case:
    """Embed texts; the gate is the similarity of STS-B's pairs and retrieval in TrecQA."""
    import torch

    torch.set_num_threads(options.threads)
    texts = make_texts(shape, "bundled", _count_words, smoke=options.smoke)[: NUM_TEXTS[shape]]
    judge = _no_figures if options.smoke else partial(figures, every=EVERY)
    expected = judge(_load_sentence_transformer(shape))

    def build(pack: bool | None) -> Work:
        model = _load_sentence_transformer(shape)
        if pack is not None:
            from encoder_engine.integrations.sentence_transformers import accelerate

            accelerate(model, pack=pack)
        encode = partial(model.encode, texts, show_progress_bar=False)
        return Work(call=encode, answer=partial(judge, model))

    return Case(
        candidates=_candidates(build),
        gate=FiguresGate(expected=expected),
        fingerprint=fingerprint(texts),
        seed=SEED,
        amounts={"documents": len(texts)},
        rounds=5,
    )


def _count_words(words: Sequence[str], *, special: bool = False) -> list[int]:
    from encoder_engine.text import Tokenizer

    tokenizer = Tokenizer.from_pretrained(minilm_directory())
    encoded = tokenizer.encode_batch(words, add_special_tokens=special)
    return [int(length) for length in encoded.lengths]


def _load_sentence_transformer(shape: str) -> Any:
    from sentence_transformers import SentenceTransformer

    model = SentenceTransformer(str(minilm_directory()), device="cpu")
    model.max_seq_length = MAX_LENGTHS[shape]
    return model


def figures(model: Any, every: int = 1) -> dict[str, float]:
    """Evaluate a model on every n-th text; figures in per cent."""
    return {
        "stsb_spearman": 100 * spearman(model, every),
        "trecqa_ndcg_at_10": 100 * ndcg(model, every),
    }


def _no_figures(model: Any) -> dict[str, float]:
    return {"dimension": float(model.get_embedding_dimension())}


def make_training_case(options: Options) -> Case:
    """Fine-tune a classifier without dropout; the gate is the loss of every step.

    The timed calls go on training one model; the gate trains a new one.
    """
    import torch

    torch.set_num_threads(options.threads)
    count, steps = (16, 1) if options.smoke else (COUNT, STEPS)
    run = partial(fine_tune, count=count, steps=steps)

    def build(pack: bool | None) -> Work:
        make = load_classifier if pack is None else load_accelerated_classifier
        return Work(call=partial(run, make()), answer=lambda: run(make()))

    gate = curve_gate(plain=run(load_classifier()), truth=run(load_classifier().double()))
    return Case(
        candidates=tuple(c for c in _candidates(build) if "packed" not in c.name),
        gate=gate,
        fingerprint=fingerprint(reviews(count)[0]),
        seed=SEED,
        amounts={"reviews": BATCH_SIZE * steps},
        rounds=5,
    )


def fine_tune(model: Any, *, count: int, steps: int) -> list[float]:
    """Run the Trainer in silence, on the first ``count`` reviews."""
    with tempfile.TemporaryDirectory() as folder, contextlib.redirect_stdout(io.StringIO()):
        return loss_curve(model, minilm_directory(), Path(folder), count=count, steps=steps)


def load_classifier() -> Any:
    """Load MiniLM with a new classifier head, seeded, with dropout 0."""
    import torch
    from transformers import AutoModelForSequenceClassification
    from transformers.utils import logging

    logging.set_verbosity_error()  # type: ignore[no-untyped-call]
    logging.disable_progress_bar()  # type: ignore[no-untyped-call]
    with torch.random.fork_rng([]):
        torch.manual_seed(SEED)
        return AutoModelForSequenceClassification.from_pretrained(
            minilm_directory(),
            num_labels=2,
            hidden_dropout_prob=0.0,
            attention_probs_dropout_prob=0.0,
        )


def load_accelerated_classifier() -> Any:
    """Load the same classifier, accelerated."""
    from encoder_engine.integrations.transformers import accelerate

    return accelerate(load_classifier())


def curve_gate(*, plain: list[float], truth: list[float]) -> LossesGate:
    """Allow the numeric budget: twice the plain model's error, plus rounding."""
    import torch

    from benchmarks.jobs.training_step import LossesGate
    from encoder_engine.ops.testing import floor

    error = max(abs(loss - true) for loss, true in zip(plain, truth, strict=True))
    exact = torch.tensor(truth, dtype=torch.float64)
    rounding = floor(exact, torch.float32, terms=4 * 384, size=1.0)
    return LossesGate(truth=truth, allowed=[2 * error + rounding] * len(truth))


def _candidates(build: Callable[[bool | None], Any]) -> tuple[Candidate, ...]:
    ways = {"encoder-engine": False, "encoder-engine, packed": True, "as it comes": None}
    return tuple(
        Candidate(
            name=name,
            role="peer" if pack is None else "ours",
            build=partial(build, pack),
            libraries=LIBRARIES,
        )
        for name, pack in ways.items()
    )


def missing_data() -> str | None:
    """Return the reason why the data cannot be read, or None."""
    return beside.missing(*NAMES)


@cache
def sentence_pairs() -> tuple[tuple[str, ...], tuple[str, ...], tuple[float, ...]]:
    """Read the development set of STS-B: first sentences, second sentences, and similarities."""
    with STSB.open(encoding="utf-8", newline="") as file:
        rows = list(csv.reader(file))
    first, second, scores = zip(*rows, strict=True)
    return first, second, tuple(map(float, scores))


@cache
def retrieval(every: int = 1) -> tuple[list[str], list[str], npt.NDArray[np.bool_]]:
    """Read TrecQA's questions, the sentences they are looked for in, and which of those answer.

    Each question searches all sentences. ``every``: one question of so many, and their sentences.
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
    return answered, sentences, answers_QN


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
    questions, sentences, answers_QN = retrieval(every)
    scores_QN = unit_vectors(model, questions) @ unit_vectors(model, sentences).T
    order_QN = np.argsort(-scores_QN, axis=1, kind="stable")[:, :CUTOFF]
    ranked_QN = np.take_along_axis(answers_QN, order_QN, axis=1)
    discounts = 1 / np.log2(np.arange(2, CUTOFF + 2))
    most = np.minimum(answers_QN.sum(1), CUTOFF)
    return float(((ranked_QN @ discounts) / np.cumsum(discounts)[most - 1]).mean())


def unit_vectors(model: Any, texts: Sequence[str]) -> npt.NDArray[np.float64]:
    """Embed texts by sentence-transformers as unit vectors in float64."""
    encoded = model.encode(list(texts), show_progress_bar=False)
    vectors: npt.NDArray[np.float64] = np.asarray(encoded, dtype=np.float64)
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
