"""Predictions of fine-tuned models, compared with transformers' pipelines at their best batch.

The models have MiniLM's encoder and a random head: the time does not depend on its weights. Texts
come as they are; the peer sorts them by length where it batches, as its users can. All candidates
give the dicts of the pipelines. The gate compares them with a pipeline's in float64: in float32 the
same labels and characters, and scores within 1e-5; otherwise the probabilities of a text's labels
as vectors, by the same classes of accuracy as embeddings.
"""

from __future__ import annotations

import importlib.util
import warnings
from dataclasses import dataclass
from functools import partial
from typing import TYPE_CHECKING, Any

import numpy as np

from benchmarks.cases.embedding import QUICK_SHARE, SEED, minilm_directory, why_not
from benchmarks.environments import made_once
from benchmarks.jobs.gates import CosineGate
from benchmarks.measuring.case import (
    Candidate,
    Case,
    CaseSpec,
    EmbeddingJob,
    Options,
    Verdict,
    ours,
)
from benchmarks.peers import candidate, embedding_ways, onnxruntime, openvino, torch_compile
from benchmarks.peers.transformers import PEER
from benchmarks.texts import corpus

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping
    from pathlib import Path

BATCHES = (1, 8, 32)
LABELS = {
    "text-classification": ("negative", "neutral", "positive"),
    "token-classification": ("O", "B-PER", "I-PER", "B-LOC", "I-LOC"),
    "zero-shot-classification": ("contradiction", "neutral", "entailment"),
}
CANDIDATES = ("politics", "sport", "art", "science", "law", "music", "food", "war", "tax", "love")
NUM_TEXTS = {
    "text-classification": 300,
    "token-classification": 300,
    "zero-shot-classification": 30,
}
PRECISIONS = ("float32", "bfloat16", "int8")
MAX_LENGTH = 512
# The precision that transformers' own tests ask of scores in float32.
CLOSE = 1e-5


@dataclass(frozen=True, kw_only=True)
class Job:
    """The texts whose ``task`` a candidate predicts, by the model in ``directory``."""

    task: str
    directory: str
    texts: tuple[str, ...]
    threads: int
    precision: str

    @property
    def options(self) -> dict[str, Any]:
        """Return the keyword arguments of a pipeline's call."""
        if self.task == "zero-shot-classification":
            return {"candidate_labels": list(CANDIDATES)}
        if self.task == "token-classification":
            return {"aggregation_strategy": "simple"}
        return {"top_k": None, "truncation": True}


def case_specs() -> list[CaseSpec]:
    """Return a case for each task and precision."""
    return [
        CaseSpec(
            name=f"prediction/{task}-{precision}",
            summary=f"{task} of single sentences, MiniLM's size in {precision}",
            make=partial(make_case, task, precision),
            unavailable=why_not,
        )
        for task in LABELS
        for precision in PRECISIONS
        # Entities begin and end elsewhere where a token's labels are close.
        if precision == "float32" or task != "token-classification"
    ]


def make_case(task: str, precision: str, options: Options) -> Case:
    """Make the case: every candidate predicts the same texts."""
    count = 6 if options.smoke else NUM_TEXTS[task] // (QUICK_SHARE if options.quick else 1)
    texts = corpus.short_sentences(corpus.read_documents("bundled"), count, seed=SEED)
    folder = made_once(f"minilm-{task}", partial(write_model, task))
    job = Job(
        task=task,
        directory=str(folder),
        texts=tuple(texts),
        threads=options.threads,
        precision=precision,
    )
    peers: tuple[Candidate, ...] = ()
    if precision != "int8":
        tune = None if options.quick else partial(best_batch, job)
        peers = (candidate(PEER, partial(build_pipeline, job), tune=tune),)
    if task == "text-classification":
        peers += tuple(padding_peers(job, options))
    return Case(
        candidates=(ours(partial(build_ours, job)), *peers),
        gate=SameLabels(job=job, truth=tuple(true_scores(job))),
        fingerprint=corpus.fingerprint(texts),
        seed=SEED,
        amounts={"texts": count},
        rounds=5,
    )


def padding_peers(job: Job, options: Options) -> list[Candidate]:
    """Return peers that compute arrays of class probabilities from padded batches, not dicts."""
    padded = EmbeddingJob(
        directory=job.directory,
        texts=job.texts,
        max_length=MAX_LENGTH,
        threads=job.threads,
        precision=job.precision,
        classified=True,
    )
    peers = (*onnxruntime.PEERS, *openvino.PEERS, *torch_compile.PEERS)
    return embedding_ways(peers, padded, options)


def write_model(task: str, folder: Path) -> None:
    """Write MiniLM's encoder with a random head for the task."""
    import torch
    import transformers

    names = LABELS[task]
    kind = "Token" if task == "token-classification" else "Sequence"
    torch.manual_seed(SEED)
    model = getattr(transformers, f"AutoModelFor{kind}Classification").from_pretrained(
        minilm_directory(),
        id2label=dict(enumerate(names)),
        label2id={name: number for number, name in enumerate(names)},
    )
    # A head that decides: of its own weights, all labels are nearly as probable.
    torch.nn.init.normal_(model.classifier.weight, std=1.0)
    model.save_pretrained(folder)
    transformers.AutoTokenizer.from_pretrained(minilm_directory()).save_pretrained(folder)


def build_ours(job: Job) -> Callable[[], Any]:
    """Load the engine's pipeline; a call predicts all texts."""
    import encoder_engine as ee

    precision: dict[str, Any] = {"dtype": job.precision}
    if job.precision == "int8":
        precision = {"quantization": "int8"}
    run = ee.pipeline(job.task, job.directory, device="cpu", num_threads=job.threads, **precision)
    return partial(run, list(job.texts), **job.options)


def build_pipeline(job: Job, batch_size: int = BATCHES[-1]) -> Callable[[], Any]:
    """Load transformers' pipeline; a call sorts the texts by length, and puts results back."""
    import torch
    import transformers

    torch.set_num_threads(job.threads)
    dtype = getattr(torch, job.precision)
    run = transformers.pipeline(  # type: ignore[call-overload]
        job.task, job.directory, device="cpu", batch_size=batch_size, dtype=dtype
    )

    def call() -> list[Any]:
        order = sorted(range(len(job.texts)), key=lambda row: -len(job.texts[row]))
        with warnings.catch_warnings(), torch.inference_mode():
            warnings.simplefilter("ignore")
            found = run([job.texts[row] for row in order], **job.options)
        results: list[Any] = [None] * len(order)
        for row, one in zip(order, found, strict=True):
            results[row] = one
        return results

    return call


def best_batch(job: Job) -> Mapping[str, Any]:
    """Return ``{"batch_size": N}`` with which transformers' pipeline takes the least time."""
    import time

    seconds = {}
    for batch_size in BATCHES:
        call = build_pipeline(job, batch_size)
        call()
        start = time.perf_counter()
        call()
        seconds[batch_size] = time.perf_counter() - start
    return {"batch_size": min(seconds, key=lambda size: seconds[size])}


def true_scores(job: Job) -> list[Any]:
    """Return the float64 results of transformers' pipeline, computed one text at a time."""
    if importlib.util.find_spec("transformers") is None:
        return []
    import torch
    import transformers

    run = transformers.pipeline(job.task, job.directory, device="cpu", dtype=torch.float64)  # type: ignore[call-overload]
    with torch.inference_mode():
        return [run(text, **job.options) for text in job.texts]


@dataclass(frozen=True, kw_only=True)
class SameLabels:
    """A gate: each text needs the labels of ``truth``, with scores within :data:`CLOSE` of theirs.

    In other precisions than float32 the scores are compared by the cosine of each text's vector.
    """

    job: Job
    truth: tuple[Any, ...]

    def __call__(self, output: Any) -> Verdict:
        if isinstance(output, np.ndarray):
            names = LABELS[self.job.task]
            output = [
                [{"label": name, "score": float(p)} for name, p in zip(names, row, strict=True)]
                for row in output
            ]
        if len(output) != len(self.truth):
            return Verdict(
                passed=False, reason=f"{len(output)} results, expected {len(self.truth)}"
            )
        if self.job.precision != "float32":
            return self._as_vectors(output)
        worst = 0.0
        for found, right in zip(
            map(self._scores, output), map(self._scores, self.truth), strict=True
        ):
            if found.keys() != right.keys():
                return Verdict(passed=False, reason=f"labels differ: {found}, not {right}")
            worst = max((worst, *(abs(found[key] - right[key]) for key in right)))
        reason = None if worst <= CLOSE else f"scores differ by {worst:.1e}"
        figures = {"largest_difference": worst}
        return Verdict(passed=reason is None, figures=figures, reason=reason)

    def _as_vectors(self, output: Any) -> Verdict:
        keys = sorted(self._scores(self.truth[0]))
        rows = [
            [[self._scores(one)[key] for key in keys] for one in r] for r in (output, self.truth)
        ]
        gate = CosineGate(
            truth=np.array(rows[1]),
            rows=range(len(self.truth)),
            num_rows=len(self.truth),
            precision=self.job.precision,
        )
        return gate(np.array(rows[0], np.float32))

    def _scores(self, result: Any) -> dict[Any, float]:
        if self.job.task == "zero-shot-classification":
            return dict(zip(result["labels"], result["scores"], strict=True))
        if self.job.task == "token-classification":
            return {(one["entity_group"], one["start"], one["end"]): one["score"] for one in result}
        return {one["label"]: one["score"] for one in result}
