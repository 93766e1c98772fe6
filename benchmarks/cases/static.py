"""Static embeddings from text to vectors, against model2vec."""

from __future__ import annotations

import json
import os
from dataclasses import replace
from functools import partial
from typing import TYPE_CHECKING, Any

import numpy as np

from benchmarks.cases.embedding import SEED, judged_rows, minilm_directory, minilm_job, why_not
from benchmarks.environments import made_once
from benchmarks.jobs.gates import CosineGate
from benchmarks.measuring.case import Case, CaseSpec, EmbeddingJob, Options, ours
from benchmarks.measuring.measure import MIN_ROUNDS
from benchmarks.peers import candidate
from benchmarks.peers.model2vec import PEER
from benchmarks.texts import corpus

if TYPE_CHECKING:
    from collections.abc import Callable, Sequence
    from pathlib import Path

    import numpy.typing as npt

    from benchmarks.measuring.case import Call

WIDTH = 256
# Each sentence once would be done in 2 ms.
REPEATS = 10
SUMMARY = "single sentences through a static table of 30,522 tokens and 256 features in {}"


def case_specs() -> list[CaseSpec]:
    """Return a case for each dtype of the embedding table."""
    return [
        CaseSpec(
            name=f"static/sentences-{dtype}",
            summary=SUMMARY.format(dtype),
            make=partial(make_case, dtype),
            unavailable=why_not,
        )
        for dtype in ("float32", "int8")
    ]


def make_case(dtype: str, options: Options) -> Case:
    """Make the case: a random table, sentences, and the float64 vectors of some of them."""
    # Random rows and MiniLM's tokenizer: the time depends on neither.
    directory = made_once(f"static-{dtype}", partial(_write_table, dtype))
    size = corpus.SMOKE if options.smoke else corpus.FULL
    texts = corpus.short_sentences(corpus.read_documents("bundled"), size.num_short, seed=SEED)
    texts = texts * (1 if options.smoke else REPEATS)
    job = replace(minilm_job(texts, threads=options.threads), directory=str(directory))
    rows = judged_rows(texts)
    truth = float64_means(directory, [texts[row] for row in rows])
    return Case(
        candidates=(
            ours(partial(build_ours, job)),
            candidate(PEER, partial(build_theirs, job), keep_slow=True),
        ),
        gate=CosineGate(truth=truth, rows=rows, num_rows=len(texts)),
        fingerprint=corpus.fingerprint(texts),
        seed=SEED,
        amounts={"documents": len(texts)},
        isolated=True,
        rounds=MIN_ROUNDS,
    )


def build_ours(job: EmbeddingJob) -> Call:
    """Load the table by the engine; a call embeds all texts."""
    from encoder_engine import StaticEmbedder

    embedder = StaticEmbedder.from_pretrained(job.directory, num_threads=job.threads)
    return partial(embedder.encode, list(job.texts))


def build_theirs(job: EmbeddingJob) -> Call:
    """Load the table by model2vec; a call embeds all texts. Its tokenizer gets ``job.threads``."""
    # Read when the tokenizer's pool is made, at its first batch.
    os.environ["RAYON_NUM_THREADS"] = str(job.threads)
    os.environ["TOKENIZERS_PARALLELISM"] = "true" if job.threads > 1 else "false"
    from model2vec import StaticModel

    model = StaticModel.from_pretrained(job.directory)
    return partial(model.encode, list(job.texts), use_multiprocessing=False)


def _write_table(dtype: str, folder: Path) -> None:
    from encoder_engine.families.checkpoints.writing import write_tensors

    minilm = minilm_directory()
    (folder / "tokenizer.json").write_bytes((minilm / "tokenizer.json").read_bytes())
    config = {"model_type": "model2vec", "architectures": ["StaticModel"], "normalize": True}
    (folder / "config.json").write_text(json.dumps(config), "utf-8")
    vocab_size = json.loads((minilm / "config.json").read_text("utf-8"))["vocab_size"]
    drawn = np.random.default_rng(SEED).normal(size=(vocab_size, WIDTH))
    rows = np.rint(40 * drawn).clip(-127, 127) if dtype == "int8" else drawn
    write_tensors(folder / "model.safetensors", {"embeddings": rows.astype(dtype)})


def float64_means(directory: Path, texts: Sequence[str]) -> npt.NDArray[np.float64]:
    """Compute vectors [N, D] by definition: normalised means of the table's rows of the tokens."""
    from safetensors import safe_open
    from tokenizers import Tokenizer

    tokenizer = Tokenizer.from_file(str(directory / "tokenizer.json"))
    tokenizer.no_padding()
    tokenizer.no_truncation()
    unknown = tokenizer.token_to_id("[UNK]")
    opened: Callable[..., Any] = safe_open
    with opened(directory / "model.safetensors", framework="np") as file:
        table = file.get_tensor("embeddings").astype(np.float64)
    means = []
    for text in texts:
        ids = tokenizer.encode(text, add_special_tokens=False).ids
        means.append(table[[number for number in ids if number != unknown]].mean(axis=0))
    found: npt.NDArray[np.float64] = np.stack(means)
    found /= np.linalg.norm(found, axis=1, keepdims=True)
    return found
