"""Models from text to vectors, tokenization included, compared with the usual tools.

Candidates' processes import this module before a cold start is timed, so it must not import
anything that the engine or a peer needs.
"""

from __future__ import annotations

import importlib.util
import json
import shutil
from dataclasses import dataclass, replace
from functools import partial
from itertools import product
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np

from benchmarks.environments import made_once
from benchmarks.jobs.gates import CosineGate
from benchmarks.measuring.case import Call, Case, CaseSpec, EmbeddingJob, Options, ours
from benchmarks.measuring.measure import MIN_ROUNDS
from benchmarks.measuring.worker import run_in_worker
from benchmarks.peers import embedding_candidates
from benchmarks.peers import transformers as truth_peer
from benchmarks.texts import corpus
from benchmarks.texts.vocabularies import MODEL_PACKAGE, minilm_missing

if TYPE_CHECKING:
    from collections.abc import Iterator, Sequence

    from encoder_engine import Embedder
    from encoder_engine.engine.protocol import EngineChoice

SEED = 20_240_229
# The directory says 256. Documents of 512 tokens need more, and the model can place 512: every
# candidate is given the same limit.
MAX_LENGTHS = {"short": 256, "skewed": 256, "long": 512, "prompted": 256}
SUMMARIES = {
    ("short", "bundled"): "single sentences",
    ("skewed", "bundled"): "passages of 16 to 256 tokens, most of them short",
    ("long", "bundled"): "documents of 512 tokens",
    ("prompted", "bundled"): "single sentences, the same instruction before each",
    ("skewed", "prose"): "passages of English prose",
}
PRECISIONS = ("float32", "bfloat16", "int8")
# The larger ones have random weights: their time does not depend on them. Of the texts only every
# n-th is embedded, n being what stands here for the model times that for the precision, or a call
# would take minutes.
MODELS = {"minilm": 1, "bert-base": 6, "bert-large": 20}
# Decoders, on such passages, and on sentences after an instruction, which a batch computes once.
DECODERS = {"qwen3-0.6b": 15}
# That of Qwen3-Embedding's card.
INSTRUCTION = (
    "Instruct: Given a web search query, retrieve relevant passages that answer the query\nQuery:"
)
SHARES = {"float32": 3, "bfloat16": 1, "int8": 1}
QUICK_SHARE = 10
LEAST_TEXTS = 4
SPECIAL = {"bos_token_id": 101, "eos_token_id": 102}
DECODER = {
    "hidden_size": 768,
    "num_hidden_layers": 12,
    "num_attention_heads": 12,
    "num_key_value_heads": 4,
    "intermediate_size": 2048,
}
# What a config says beside the family's defaults. The vocabulary is MiniLM's: its padding is 0, and
# MPNet, whose padding is 1 by definition, never meets that id in a text.
SIZES: dict[str, dict[str, Any]] = {
    "bert-base": {"model_type": "bert"},
    "bert-large": {
        "model_type": "bert",
        "hidden_size": 1024,
        "num_hidden_layers": 24,
        "num_attention_heads": 16,
        "intermediate_size": 4096,
    },
    "mpnet": {"model_type": "mpnet", "pad_token_id": 1},
    "xlm-roberta": {"model_type": "xlm-roberta"},
    "modernbert": {"model_type": "modernbert"},
    "nomic-bert": {"model_type": "nomic_bert"},
    "eurobert": {"model_type": "eurobert", **SPECIAL, "mask_token_id": 103},
    # ESM-2.
    "esm": {"model_type": "esm", "pad_token_id": 1, "position_embedding_type": "rotary"},
    "llama": {"model_type": "llama", **DECODER},
    "mistral": {"model_type": "mistral", **DECODER},
    # EmbeddingGemma's.
    "gemma3": {
        "model_type": "gemma3_text",
        "hidden_size": 768,
        "num_hidden_layers": 24,
        "num_attention_heads": 3,
        "num_key_value_heads": 1,
        "head_dim": 256,
        "intermediate_size": 1152,
        "sliding_window": 512,
        "use_bidirectional_attention": True,
    },
    "gpt2": {"model_type": "gpt2", **SPECIAL},
    "qwen3-0.6b": {
        "model_type": "qwen3",
        "hidden_size": 1024,
        "num_hidden_layers": 28,
        "num_attention_heads": 16,
        "num_key_value_heads": 8,
        "head_dim": 128,
        "intermediate_size": 3072,
    },
    "deberta-v3": {
        "model_type": "deberta-v2",
        "hidden_size": 768,
        "num_hidden_layers": 12,
        "num_attention_heads": 12,
        "intermediate_size": 3072,
        "type_vocab_size": 0,
        "relative_attention": True,
        "position_buckets": 256,
        "norm_rel_ebd": "layer_norm",
        "share_att_key": True,
        "pos_att_type": ["p2c", "c2p"],
        "max_relative_positions": -1,
        "position_biased_input": False,
    },
}
# Other families in the size of BERT-base, on passages of mixed length alone. Not Qwen2, Llama with
# biases: transformers gives it a tokenizer of its own, whatever the directory says.
FAMILIES = {name: 6 for name in SIZES if name not in {**MODELS, **DECODERS}}
NUM_JUDGED = 48


@dataclass(frozen=True, kw_only=True)
class Kind:
    """A case: which model, in which precision, on which texts."""

    model: str
    precision: str
    shape: str
    source: str = "bundled"

    @property
    def name(self) -> str:
        """Return the name of the case; texts are named only if they are not the bundled ones."""
        texts = self.shape if self.source == "bundled" else f"{self.shape}-{self.source}"
        return f"embedding/{self.model}-{self.precision}-{texts}"


def kinds() -> Iterator[Kind]:
    """Yield all cases: BERTs on three length distributions, MiniLM also on prose, others on few."""
    for model, precision in product(MODELS, PRECISIONS):
        for shape, source in SUMMARIES:
            if shape != "prompted" and (source == "bundled" or model == "minilm"):
                yield Kind(model=model, precision=precision, shape=shape, source=source)
    for model, precision in product(FAMILIES, PRECISIONS):
        yield Kind(model=model, precision=precision, shape="skewed")
    for model, precision in product(DECODERS, PRECISIONS):
        for shape in ("skewed", "prompted"):
            yield Kind(model=model, precision=precision, shape=shape)


def case_specs() -> list[CaseSpec]:
    """Return the case of each :class:`Kind`."""
    return [
        CaseSpec(
            name=kind.name,
            summary=f"{kind.model} in {kind.precision}: {SUMMARIES[kind.shape, kind.source]}",
            make=partial(make_case, kind),
            unavailable=why_not,
        )
        for kind in kinds()
    ]


def why_not() -> str | None:
    """Return the reason why these cases cannot run here, or None."""
    absent = minilm_missing()
    if absent is not None:
        return absent
    reason = truth_peer.PEER.available()
    return None if reason is None else f"the gate's float64 truth cannot be computed: {reason}"


def minilm_directory() -> Path:
    """Find MiniLM in its package, without importing it."""
    spec = importlib.util.find_spec(MODEL_PACKAGE)
    assert spec is not None
    assert spec.origin is not None
    return Path(spec.origin).parent / "model"


def minilm_job(
    texts: Sequence[str], *, threads: int, precision: str = "float32", max_length: int = 256
) -> EmbeddingJob:
    """Describe embedding texts with MiniLM; they are cut after ``max_length`` tokens."""
    return EmbeddingJob(
        directory=str(minilm_directory()),
        texts=tuple(texts),
        max_length=max_length,
        threads=threads,
        precision=precision,
    )


def _write_model(model: str, folder: Path) -> None:
    """Write a larger model with random weights and MiniLM's tokenizer."""
    import torch
    from transformers import AutoConfig, AutoModel

    minilm, sizes = minilm_directory(), SIZES[model]
    unlike = shutil.ignore_patterns("README.md", "*.safetensors")
    shutil.copytree(minilm, folder, ignore=unlike, dirs_exist_ok=True)
    torch.manual_seed(SEED)
    vocabulary = json.loads((minilm / "config.json").read_text("utf-8"))["vocab_size"]
    config = AutoConfig.for_model(**{"vocab_size": vocabulary, "pad_token_id": 0, **sizes})
    written = AutoModel.from_config(config)  # type: ignore[no-untyped-call]
    written.save_pretrained(folder)
    width = written.config.hidden_size
    _update(folder / "1_Pooling" / "config.json", word_embedding_dimension=width)
    if model == "gpt2":
        # It looks token types up as if they were tokens.
        names = ["input_ids", "attention_mask"]
        _update(folder / "tokenizer_config.json", model_input_names=names)


def _update(path: Path, **settings: Any) -> None:
    """Change settings of a JSON file."""
    found = json.loads(path.read_text("utf-8"))
    path.write_text(json.dumps({**found, **settings}), "utf-8")


def make_job(
    kind: Kind, options: Options, share: int | None = None
) -> tuple[EmbeddingJob, list[int]]:
    """Return the texts with the model that embeds them, and the number of tokens of each text.

    ``share``: n embeds every n-th text only; None: as set for the model and the precision.
    """
    from encoder_engine.text import Tokenizer

    limit = MAX_LENGTHS[kind.shape]
    tokenizer = Tokenizer.from_pretrained(minilm_directory())

    def count(texts: Sequence[str], *, special: bool) -> list[int]:
        encoded = tokenizer.encode_batch(texts, add_special_tokens=special, max_length=limit)
        return [int(n) for n in np.diff(encoded.cu_seqlens)]

    texts = make_texts(kind.shape, kind.source, partial(count, special=False), smoke=options.smoke)
    if not options.smoke:
        if share is None:
            share = {**MODELS, **FAMILIES, **DECODERS}[kind.model] * SHARES[kind.precision]
        share *= QUICK_SHARE if options.quick else 1
        texts = texts[:: min(share, len(texts) // LEAST_TEXTS)]
    job = minilm_job(texts, threads=options.threads, precision=kind.precision, max_length=limit)
    if not options.smoke and kind.model != "minilm":
        folder = made_once(kind.model, partial(_write_model, kind.model))
        job = replace(job, directory=str(folder))
    return job, count(texts, special=True)


def make_case(kind: Kind, options: Options) -> Case:
    """Make the case: its texts, its candidates, and float64 vectors of a sample for the gate."""
    # Not above: it imports torch.
    from benchmarks.measuring.ceilings import product_ceiling

    job, lengths = make_job(kind, options)
    ceiling = product_ceiling("cpu", kind.precision, options.threads)
    return Case(
        candidates=(ours(partial(build_ours, job)), *embedding_candidates(job, options)),
        gate=make_gate(job, smoke=options.smoke),
        fingerprint=corpus.fingerprint(job.texts),
        seed=SEED,
        amounts={
            "documents": len(job.texts),
            "tokens": sum(lengths),
            "operations": count_operations(job, lengths),
        },
        ceilings={} if options.smoke else {"operations": ceiling},
        isolated=True,
        rounds=MIN_ROUNDS,
    )


def count_operations(job: EmbeddingJob, lengths: Sequence[int]) -> int:
    """Count the multiplications and additions of the model's matrix products, without padding.

    ``lengths``: the number of tokens of each text.
    """
    from benchmarks.measuring.ceilings import encoder_operations

    config = json.loads(Path(job.directory, "config.json").read_text("utf-8"))
    return encoder_operations(config, lengths)


def make_texts(
    shape: str, source: str, count_tokens: corpus.CountTokens, *, smoke: bool
) -> list[str]:
    """Build texts of one length distribution: "short", "prompted", "skewed" or "long".

    ``source``: "bundled" or "prose".
    """
    sizes = corpus.SMOKE if smoke else corpus.FULL
    documents = corpus.read_documents(source)
    if shape == "short":
        return corpus.short_sentences(documents, sizes.num_short, seed=SEED)
    if shape == "prompted":
        sentences = corpus.short_sentences(documents, sizes.num_short, seed=SEED)
        return [f"{INSTRUCTION}{sentence}" for sentence in sentences]
    if shape == "skewed":
        lengths = corpus.skewed_lengths(sizes.num_skewed, seed=SEED)
    else:
        lengths = [sizes.long_tokens] * sizes.num_long
    return corpus.passages(documents, lengths, count_tokens, seed=SEED)


def judged_rows(texts: Sequence[str]) -> list[int]:
    """Return the indices of texts spaced evenly in the order by length, both ends included."""
    by_length = np.argsort([len(text) for text in texts], kind="stable")
    places = np.unique(np.linspace(0, len(by_length) - 1, NUM_JUDGED).round().astype(int))
    return [int(row) for row in by_length[places]]


def make_gate(job: EmbeddingJob, *, smoke: bool) -> CosineGate:
    """Compute float64 vectors of a sample of the texts, with which the gate compares the output's.

    Outside smoke runs they are computed in a process of their own, which frees its memory.
    """
    rows = judged_rows(job.texts)
    judged = replace(job, texts=tuple(job.texts[row] for row in rows))
    compute = partial(truth_peer.float64_vectors, judged)
    truth = compute() if smoke else run_in_worker(compute, job.threads)
    return CosineGate(truth=truth, rows=rows, num_rows=len(job.texts), precision=job.precision)


def build_ours(job: EmbeddingJob) -> Call:
    """Load the engine's embedder; a call embeds all texts."""
    embedder = load_ours(job)
    texts = list(job.texts)
    return lambda: embedder.encode(texts, on_truncation="ignore")


def load_ours(job: EmbeddingJob, engine: EngineChoice = "auto") -> Embedder:
    """Load the embedder in the job's precision, device, length limit and number of threads."""
    from encoder_engine import Embedder

    quantized = job.precision == "int8"
    return Embedder.from_pretrained(
        job.directory,
        device=job.device,
        dtype="auto" if quantized else job.precision,
        quantization="int8" if quantized else None,
        max_seq_length=job.max_length,
        num_threads=job.threads,
        engine=engine,
    )
