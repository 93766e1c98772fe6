"""Texts to vectors on a GPU, tokenization included: BERT-base with random weights in bfloat16."""

from __future__ import annotations

from dataclasses import replace
from functools import partial

from benchmarks.cases.embedding import (
    SEED,
    Kind,
    build_ours,
    count_operations,
    make_gate,
    make_job,
    why_not,
)
from benchmarks.measuring.case import Case, CaseSpec, Options, ours
from benchmarks.peers import candidate, sentence_transformers, transformers
from benchmarks.texts.corpus import fingerprint

# Of a case: the distribution of its texts, how many there are (None: all), and what they are.
CASES: dict[str, tuple[str, int | None, str]] = {
    "text": ("short", 1, "one sentence"),
    "sentences": ("short", None, "1,000 single sentences"),
    "passages": ("skewed", None, "500 passages of 16 to 256 tokens, most of them short"),
}
# The batch sizes of the peers: sentence-transformers' default, and what fills a GPU.
BATCH_SIZES = (32, 256)
SINGLE_ROUNDS = 50


def case_specs() -> list[CaseSpec]:
    """Return the cases: a single text, many short ones, and passages."""
    return [
        CaseSpec(
            name=f"embedding_gpu/{name}",
            summary=f"BERT-base in bfloat16: {summary}",
            make=partial(make_case, name),
            devices=("cuda",),
            unavailable=why_not,
        )
        for name, (_, _, summary) in CASES.items()
    ]


def make_case(name: str, options: Options) -> Case:
    """Make the case: its texts, its candidates, and float64 vectors of a sample for the gate."""
    shape, count, _ = CASES[name]
    kind = Kind(model="bert-base", precision="bfloat16", shape=shape)
    job, lengths = make_job(kind, options, share=1)
    job = replace(job, texts=job.texts[:count], device=options.device)
    candidates = [ours(partial(build_ours, job))]
    for peer in (sentence_transformers.PEER, transformers.PEER):
        candidates += [
            candidate(
                peer,
                partial(peer.embedding[0].build, job, batch_size=size),
                name=f"{peer.name} (batch_size {size})",
            )
            for size in BATCH_SIZES
            if count is None or size == 32
        ]
    return Case(
        candidates=tuple(candidates),
        gate=make_gate(job, smoke=options.smoke),
        fingerprint=fingerprint(job.texts),
        seed=SEED,
        amounts={
            "documents": len(job.texts),
            "tokens": sum(lengths[:count]),
            "operations": count_operations(job, lengths[:count]),
        },
        device=options.device,
        host_time=True,
        single=count == 1,
        rounds=SINGLE_ROUNDS if count == 1 else 7,
    )
