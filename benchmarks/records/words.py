"""Formats the names of cases, and figures, for readers."""

from __future__ import annotations

from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from collections.abc import Sequence

    from benchmarks.records.results import Result

_UNITS = {
    "bytes": (1e6, "MB"),
    "moved bytes": (1e9, "GB moved"),
    "operations": (1e9, "G operations"),
}
# Parts of the names of end-to-end cases; what is not here is named as it is.
WORDS = {
    "minilm": "MiniLM",
    "bert-base": "BERT-base",
    "bert-large": "BERT-large",
    "mpnet": "MPNet",
    "xlm-roberta": "XLM-RoBERTa",
    "modernbert": "ModernBERT",
    "nomic-bert": "NomicBERT",
    "deberta-v3": "DeBERTa-v3",
    "eurobert": "EuroBERT",
    "esm": "ESM-2",
    "llama": "Llama of BERT-base's size",
    "mistral": "Mistral of BERT-base's size",
    "gemma3": "EmbeddingGemma",
    "gpt2": "GPT-2",
    "qwen3-0.6b": "Qwen3 of 0.6 B",
    "wordpiece": "WordPiece",
    "xlmr": "Unigram (XLM-R)",
    "xlnet": "Unigram (XLNet)",
    "bpe": "BPE (8,192 tokens)",
    "short": "short sentences",
    "skewed": "passages of mixed length",
    "skewed-prose": "passages of prose, mixed lengths",
    "long": "documents of 512 tokens",
    "prompted": "short sentences after one instruction",
    "english": "long English text, arrays",
    "batch": "512 short texts, arrays",
    "load": "loading the vocabulary",
    "drop_in/encode-short": "SentenceTransformer, short sentences",
    "drop_in/encode-skewed": "SentenceTransformer, passages of mixed length",
    "prediction/text-classification-float32": "text classification in float32: single sentences",
    "pretraining/base-bfloat16": "a step of pretraining in bfloat16, BERT-base",
    "embedding_gpu/passages": "BERT-base in bfloat16: passages of mixed length",
    "embedding_gpu/text": "BERT-base in bfloat16: one sentence",
    "encoder_short/1-text": "BERT-base in bfloat16: one text's ids to hidden states",
    "encoder_short/8-texts": "BERT-base in bfloat16: ids of 8 short texts to hidden states",
}


def case_words(case: str) -> str:
    """Describe an end-to-end case in words; of another case, return the name."""
    group, _, name = case.partition("/")
    start = next((word for word in WORDS if name.startswith(f"{word}-")), None)
    if start is None or group not in ("embedding", "latency", "cold_start", "tokenizer"):
        return WORDS.get(case, case)
    rest = name.removeprefix(f"{start}-")
    if group == "tokenizer":
        return f"{WORDS[start]}: {WORDS.get(rest, rest)}"
    precision, _, shape = rest.partition("-")
    texts = {
        "embedding": WORDS.get(shape, shape),
        "latency": "one short text",
        "cold_start": f"first vector of a new process{', compiled' if shape else ''}",
    }[group]
    return f"{WORDS[start]} in {precision}: {texts}"


def device_words(result: Result) -> str:
    """Describe the machine and, for a CPU, the number of threads and the instruction sets."""
    if result.device.startswith("nvidia"):
        return machine_name(result)
    return f"{machine_name(result)}, {count(result.threads, 'thread')}{restricted(result)}"


def machine_name(result: Result) -> str:
    """Return the processor's name without trademark signs."""
    return result.device_name.replace("(R)", "").replace("(TM)", "").removesuffix(" Processor")


def day(result: Result) -> str:
    """Return the day of a measurement."""
    return result.time_utc[:10]


def restricted(result: Result) -> str:
    """Return words for the instruction set that the engine was restricted to, or ""."""
    return "" if result.isa is None else f"; the engine restricted to {result.isa}"


def count(value: int, what: str) -> str:
    """Format a number of things: ``1 case``, ``2 cases``."""
    return f"{value} {what}{'' if value == 1 else 's'}"


def listed(words: Sequence[str]) -> str:
    """Join words: ``a, b and c``."""
    return words[0] if len(words) == 1 else f"{', '.join(words[:-1])} and {words[-1]}"


def amount(what: str, value: float) -> str:
    """Format an amount: bytes in MB of 10^6, operations in units of 10^9."""
    if what in _UNITS:
        unit, name = _UNITS[what]
        return f"{number(value / unit)} {name}"
    return f"{number(value)} {what}"


def number(value: float | None) -> str:
    """Format a figure with three digits, or with all of its integer part."""
    if value is None:
        return ""
    return f"{value:,.0f}" if abs(value) >= 100 else f"{value:.3g}"


def times(ratio: float) -> str:
    """Format how many times as fast something is: ``0.77x``, ``11.0x``, ``177x``."""
    digits = 2 if ratio < 10 else 1 if ratio < 100 else 0
    return f"{ratio:.{digits}f}x"
