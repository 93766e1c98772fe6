"""Cases of ``SentenceTransformer.encode`` as it comes, and after the engine has accelerated it."""

from __future__ import annotations

import importlib.util
from dataclasses import replace
from functools import partial
from typing import TYPE_CHECKING, Any

from benchmarks.cases.embedding import QUICK_SHARE, SEED, Kind, make_gate, make_job, why_not
from benchmarks.measuring.case import Call, Candidate, Case, CaseSpec, Options
from benchmarks.texts.corpus import fingerprint

if TYPE_CHECKING:
    from benchmarks.measuring.case import EmbeddingJob

LIBRARIES = ("sentence-transformers", "transformers")
# Texts to embed: a run takes less than a minute.
NUM_TEXTS = {"short": 400, "skewed": 100}


def case_specs() -> list[CaseSpec]:
    """Return a case for each length distribution of the texts."""
    return [
        CaseSpec(
            name=f"drop_in/encode-{shape}",
            summary=f"SentenceTransformer.encode, MiniLM, {shape} texts, before and after",
            make=partial(make_case, shape),
            unavailable=_why_not,
        )
        for shape in NUM_TEXTS
    ]


def _why_not() -> str | None:
    if importlib.util.find_spec("sentence_transformers") is None:
        return "sentence_transformers not installed; pip install '.[dev]'"
    return why_not()


def make_case(shape: str, options: Options) -> Case:
    """Make the case: ``SentenceTransformer.encode`` as it comes, accelerated, and packed too."""
    kind = Kind(model="minilm", precision="float32", shape=shape)
    job, _ = make_job(kind, options, share=1)
    count = NUM_TEXTS[shape] // (QUICK_SHARE if options.quick else 1)
    job = replace(job, texts=job.texts[:count])
    ways = {"encoder-engine": False, "encoder-engine, packed": True, "as it comes": None}
    return Case(
        candidates=tuple(
            Candidate(
                name=name,
                role="peer" if pack is None else "ours",
                build=partial(build, job, pack),
                libraries=LIBRARIES,
            )
            for name, pack in ways.items()
        ),
        gate=make_gate(job, smoke=options.smoke),
        fingerprint=fingerprint(job.texts),
        seed=SEED,
        amounts={"documents": len(job.texts)},
        rounds=5,
    )


def build(job: EmbeddingJob, pack: bool | None) -> Call:
    """Load the model, and return a call that embeds all texts.

    ``pack``: the argument of ``accelerate``; None: do not accelerate the model.
    """
    import torch
    from sentence_transformers import SentenceTransformer

    torch.set_num_threads(job.threads)
    model: Any = SentenceTransformer(job.directory, device="cpu")
    model.max_seq_length = job.max_length
    if pack is not None:
        from encoder_engine.integrations.sentence_transformers import accelerate

        accelerate(model, pack=pack)
    return partial(model.encode, list(job.texts), show_progress_bar=False)
