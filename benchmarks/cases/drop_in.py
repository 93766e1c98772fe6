"""Models of sentence-transformers and transformers before and after they are accelerated."""

from __future__ import annotations

import contextlib
import importlib.util
import io
import tempfile
from dataclasses import dataclass
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING, Any

from benchmarks.cases.embedding import MAX_LENGTHS, SEED, make_texts, minilm_directory, why_not
from benchmarks.jobs import drop_in
from benchmarks.measuring.case import Candidate, Case, CaseSpec, Options, Verdict, Work
from benchmarks.texts.corpus import fingerprint

if TYPE_CHECKING:
    from collections.abc import Callable, Sequence

    from benchmarks.jobs.training_step import LossesGate

LIBRARIES = ("sentence-transformers", "transformers")
# Texts to embed, and of the gate's texts one of so many: a run takes less than a minute.
NUM_TEXTS = {"short": 400, "skewed": 100}
EVERY = 4
# Reviews and steps of a fine-tuning run: twice every review at most.
COUNT, STEPS = 64, 4
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
    return why_not("bundled") or drop_in.missing_data() or next(filter(None, missing), None)


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
        name=f"drop_in/encode-{shape}",
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
        "stsb_spearman": 100 * drop_in.spearman(model, every),
        "trecqa_ndcg_at_10": 100 * drop_in.ndcg(model, every),
    }


def _no_figures(model: Any) -> dict[str, float]:
    return {"dimension": float(model.get_embedding_dimension())}


def make_training_case(options: Options) -> Case:
    """Fine-tune a classifier without dropout; the gate is the loss of every step.

    The timed calls go on training one model; the gate trains a new one.
    """
    import torch

    torch.set_num_threads(options.threads)
    run = FineTuning(count=16, steps=1) if options.smoke else FineTuning(count=COUNT, steps=STEPS)

    def build(pack: bool | None) -> Work:
        make = load_classifier if pack is None else load_accelerated_classifier
        return Work(call=partial(run, make()), answer=lambda: run(make()))

    gate = curve_gate(plain=run(load_classifier()), truth=run(load_classifier().double()))
    return Case(
        name="drop_in/fine-tune",
        candidates=tuple(c for c in _candidates(build) if "packed" not in c.name),
        gate=gate,
        fingerprint=fingerprint(drop_in.reviews(run.count)[0]),
        seed=SEED,
        amounts={"reviews": drop_in.BATCH_SIZE * run.steps},
        rounds=5,
    )


@dataclass(frozen=True, kw_only=True)
class FineTuning:
    """A short run of the Trainer, silent, on the first ``count`` reviews."""

    count: int
    steps: int

    def __call__(self, model: Any) -> list[float]:
        with tempfile.TemporaryDirectory() as folder, contextlib.redirect_stdout(io.StringIO()):
            return drop_in.loss_curve(
                model, minilm_directory(), Path(folder), count=self.count, steps=self.steps
            )


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

    error = max(abs(one - true) for one, true in zip(plain, truth, strict=True))
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
