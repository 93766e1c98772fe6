"""Static embeddings from text to vectors, against model2vec."""

from __future__ import annotations

import json
import shutil
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np

from benchmarks.cases.embedding import NUM_JUDGED, SEED, minilm_directory, why_not
from benchmarks.environments import peers_folder
from benchmarks.jobs.gates import CosineGate
from benchmarks.measuring.case import Case, CaseSpec, Options, ours
from benchmarks.measuring.measure import MIN_ROUNDS
from benchmarks.peers import candidate
from benchmarks.peers import model2vec as peer
from benchmarks.texts import corpus

if TYPE_CHECKING:
    from collections.abc import Callable, Sequence

    import numpy.typing as npt

    from benchmarks.measuring.case import Call

WIDTH = 256
# Each sentence once would be done in 2 ms.
REPEATS = 10
DTYPES = ("float32", "int8")
SUMMARY = "single sentences through a static table of 30,522 tokens and 256 features in {}"


def case_specs() -> list[CaseSpec]:
    """Return a case for each dtype of the table."""
    return [
        CaseSpec(
            name=f"static/sentences-{dtype}",
            summary=SUMMARY.format(dtype),
            make=partial(make_case, dtype),
            unavailable=partial(why_not, "bundled"),
        )
        for dtype in DTYPES
    ]


def make_case(dtype: str, options: Options) -> Case:
    """Draw the table, read the sentences, and compute the vectors of some in float64."""
    directory = static_directory(dtype)
    documents = corpus.read_documents("bundled")
    size = corpus.SMOKE if options.smoke else corpus.FULL
    texts = corpus.short_sentences(documents, size.num_short, seed=SEED)
    texts = texts * (1 if options.smoke else REPEATS)
    rows = sorted({int(row) for row in np.linspace(0, len(texts) - 1, NUM_JUDGED).round()})
    return Case(
        candidates=(
            ours(partial(build_ours, directory, texts, options.threads)),
            candidate(
                peer.PEER, partial(peer.build, directory, texts, options.threads), keep_slow=True
            ),
        ),
        gate=CosineGate(
            truth=float64_means(directory, [texts[row] for row in rows]),
            rows=rows,
            num_rows=len(texts),
        ),
        fingerprint=corpus.fingerprint(texts),
        seed=SEED,
        amounts={"documents": len(texts)},
        isolated=True,
        rounds=MIN_ROUNDS,
    )


def build_ours(directory: str, texts: Sequence[str], threads: int) -> Call:
    """Load the table; a call embeds all texts."""
    from encoder_engine import StaticEmbedder

    embedder, every = StaticEmbedder.from_pretrained(directory, num_threads=threads), list(texts)
    return lambda: embedder.encode(every)


def static_directory(dtype: str) -> str:
    """Write a table with random rows and MiniLM's tokenizer, once; the time depends on neither."""
    from encoder_engine.families.checkpoints.writing import write_tensors

    folder = peers_folder() / "models" / f"static-{dtype}"
    if not folder.is_dir():
        unfinished = folder.with_name(f"{folder.name}.unfinished")
        shutil.rmtree(unfinished, ignore_errors=True)
        unfinished.mkdir(parents=True)
        shutil.copyfile(minilm_directory() / "tokenizer.json", unfinished / "tokenizer.json")
        config = {"model_type": "model2vec", "architectures": ["StaticModel"], "normalize": True}
        (unfinished / "config.json").write_text(json.dumps(config), "utf-8")
        vocabulary = json.loads((minilm_directory() / "config.json").read_text("utf-8"))
        drawn = np.random.default_rng(SEED).normal(size=(vocabulary["vocab_size"], WIDTH))
        rows = np.rint(40 * drawn).clip(-127, 127) if dtype == "int8" else drawn
        write_tensors(unfinished / "model.safetensors", {"embeddings": rows.astype(dtype)})
        unfinished.replace(folder)
    return str(folder)


def float64_means(directory: str, texts: Sequence[str]) -> npt.NDArray[np.float64]:
    """Compute vectors by definition, with the tokens of Hugging Face tokenizers."""
    from safetensors import safe_open
    from tokenizers import Tokenizer

    tokenizer = Tokenizer.from_file(str(Path(directory, "tokenizer.json")))
    tokenizer.no_padding()
    tokenizer.no_truncation()
    unknown = tokenizer.token_to_id("[UNK]")
    opened: Callable[..., Any] = safe_open
    with opened(Path(directory, "model.safetensors"), framework="np") as file:
        table = file.get_tensor("embeddings").astype(np.float64)
    means = []
    for text in texts:
        ids = tokenizer.encode(text, add_special_tokens=False).ids
        means.append(table[[number for number in ids if number != unknown]].mean(axis=0))
    found: npt.NDArray[np.float64] = np.stack(means)
    found /= np.linalg.norm(found, axis=1, keepdims=True)
    return found
