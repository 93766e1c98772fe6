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
MODELS = {
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
}
SHAPES = {
    "short": "short sentences",
    "skewed": "passages of mixed length",
    "skewed-prose": "passages of prose, mixed lengths",
    "long": "documents of 512 tokens",
    "prompted": "short sentences after one instruction",
}
VOCABULARIES = {"wordpiece": "WordPiece", "xlmr": "Unigram (XLM-R)", "xlnet": "Unigram (XLNet)"}
TOKENIZER_KINDS = {
    "english": "long English text, arrays",
    "english-lists": "long English text, lists",
    "multilingual": "text of 15 languages",
    "code": "source code",
    "batch": "512 short texts, arrays",
    "batch-lists": "512 short texts, lists",
    "sentence": "one sentence a call",
    "matrix": "512 short texts, padded matrix",
    "offsets": "512 short texts with offsets",
    "cold": "each text seen once",
    "cold-end": "each text seen once, the last quarter",
    "cold-multilingual": "15 languages, each text seen once",
    "two-threads": "documents, several threads",
    "load": "loading the vocabulary",
}
ATTENTION = {
    "attention": "attention",
    "attention_2k": "attention at 2,048 tokens",
    "attention_8k": "attention at 8,192 tokens",
    "attention_8k_window": "attention at 8,192 tokens with a window",
    "attention_d128": "attention, heads of 128",
    "attention_deberta": "disentangled attention",
    "attention_dropout": "attention with dropout",
    "attention_half": "attention, half of it padding",
}
TRAINED = {"base": "BERT-base", "large": "BERT-large", "modernbert": "ModernBERT-base"}
CASES = {
    "drop_in/encode-short": "SentenceTransformer, short sentences",
    "drop_in/encode-skewed": "SentenceTransformer, passages of mixed length",
    "drop_in/fine-tune": "four steps of transformers' Trainer",
    "embedding_gpu/text": "BERT-base, one sentence to its vector",
    "embedding_gpu/sentences": "BERT-base, 1,000 sentences to vectors",
    "embedding_gpu/passages": "BERT-base, 500 passages to vectors",
    "encoder/equal": "BERT-base, texts of 128 tokens",
    "encoder/equal-512": "BERT-base, texts of 512 tokens",
    "encoder/mixed": "BERT-base, texts of mixed length",
    "encoder_large/equal": "BERT-large, texts of 128 tokens",
    "encoder_large/equal-512": "BERT-large, texts of 512 tokens",
    "encoder_short/1-text": "BERT-base, one text of 30 tokens",
    "encoder_short/8-texts": "BERT-base, eight texts of 30 tokens",
    "finetuning/sst2": "steps of fine-tuning, SST-2",
    "finetuning/mrpc": "steps of fine-tuning, MRPC",
    "finetuning/cola": "steps of fine-tuning, CoLA",
    "finetuning/stsb": "steps of fine-tuning, STS-B",
    "finetuning_gpu/base-32x128": "steps of fine-tuning, BERT-base, 32 texts of 128 tokens",
    "pretraining/tiny": "a step of pretraining, a tiny BERT",
    "pretraining/base": "a step of pretraining, BERT-base",
    "pretraining/loader": "masked batches for a tiny BERT",
}


def case_words(case: str) -> str:
    """Describe a case in words; without a description, by its name."""
    group, _, name = case.partition("/")
    if group in ("embedding", "latency", "cold_start", "dataset"):
        return _embedding_words(group, name) or case
    if group == "tokenizer":
        vocabulary, _, kind = name.partition("-")
        if vocabulary in VOCABULARIES and kind in TOKENIZER_KINDS:
            return f"{VOCABULARIES[vocabulary]}: {TOKENIZER_KINDS[kind]}"
    if group in ATTENTION:
        kind = name.removesuffix("-equal")
        return f"{ATTENTION[group]}: {kind}{', equal lengths' if kind != name else ''}"
    if group == "pretraining_gpu":
        model, lengths, tokens = name.split("-")
        return f"steps of pretraining, {TRAINED[model]}, {lengths} lengths, {tokens} tokens a step"
    return CASES.get(case, case)


def _embedding_words(group: str, name: str) -> str | None:
    model = next((model for model in MODELS if name.startswith(f"{model}-")), None)
    if model is None:
        return None
    precision, _, shape = name.removeprefix(f"{model}-").partition("-")
    texts = {
        "embedding": SHAPES.get(shape),
        "latency": "one short text",
        "cold_start": f"first vector of a new process{', compiled' if shape else ''}",
        "dataset": "a million sentences",
    }[group]
    return None if texts is None else f"{MODELS[model]} in {precision}: {texts}"


def device_words(result: Result) -> str:
    """Describe the machine and the number of cores or threads used."""
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
    """Name the instruction set to which the engine was restricted, if any."""
    return "" if result.isa is None else f"; the engine restricted to {result.isa}"


def count(value: int, what: str) -> str:
    """Count things: ``1 case``, ``2 cases``."""
    return f"{value} {what}{'' if value == 1 else 's'}"


def listed(words: Sequence[str]) -> str:
    """List words: ``a, b and c``."""
    return words[0] if len(words) == 1 else f"{', '.join(words[:-1])} and {words[-1]}"


def amount(what: str, value: float) -> str:
    """Format an amount per second: bytes in MB of 10^6, operations in units of 10^9."""
    if what in _UNITS:
        unit, name = _UNITS[what]
        return f"{number(value / unit)} {name}"
    return f"{number(value)} {what}"


def number(value: float | None) -> str:
    """Write a figure with three digits, or all of its whole part."""
    if value is None:
        return ""
    return f"{value:,.0f}" if abs(value) >= 100 else f"{value:.3g}"


def times(ratio: float) -> str:
    """Write how many times as fast something is: ``0.77x``, ``11.0x``, ``177x``."""
    digits = 2 if ratio < 10 else 1 if ratio < 100 else 0
    return f"{ratio:.{digits}f}x"
