"""Directories of static models with random tables, as model2vec and sentence-transformers write."""

from __future__ import annotations

import json
from typing import TYPE_CHECKING, Any

import numpy as np
from tokenizers import Tokenizer, models, normalizers, pre_tokenizers, processors

from encoder_engine.families.checkpoints.arrays import cast
from encoder_engine.families.checkpoints.writing import write_tensors
from tests.embedding.tiny_model import VOCABULARY, write_json

if TYPE_CHECKING:
    from pathlib import Path

WIDTH = 37  # no multiple of a vector
WORDS = [*"abcdefghijklmnopqrstuvwxyz0123456789", "query", "passage", "the", "text", "row", "long"]
TEXTS = [
    "the query text",
    "long words the row passage 12 , . !",
    "",
    "\u4e16\u754c \U0001f600",  # nothing that the vocabulary has
    " ".join(np.random.default_rng(8).choice(WORDS, 700)),
    "abc the\u4e16 xyz",
    "query " * 64,
    "row " * 65 + "text",
    "  THE  Text\t\n passage",
]


def wordpiece() -> Tokenizer:
    """Make BERT's tokenizer of the tiny vocabulary, with its template."""
    vocabulary = {token: number for number, token in enumerate(VOCABULARY)}
    tokenizer = Tokenizer(models.WordPiece(vocabulary, unk_token="[UNK]"))
    tokenizer.normalizer = normalizers.BertNormalizer(lowercase=True)
    tokenizer.pre_tokenizer = pre_tokenizers.BertPreTokenizer()
    tokenizer.post_processor = processors.BertProcessing(("[SEP]", 3), ("[CLS]", 2))
    return tokenizer


def word_level() -> Tokenizer:
    """Make a tokenizer of whole words, as model2vec does for a vocabulary of the caller's."""
    words = ["[PAD]", "[UNK]", "the", "query", "text", "row", "long", "words", "passage"]
    vocabulary = {word: number for number, word in enumerate(words)}
    tokenizer = Tokenizer(models.WordLevel(vocabulary, unk_token="[UNK]"))
    tokenizer.normalizer = normalizers.Lowercase()
    tokenizer.pre_tokenizer = pre_tokenizers.BertPreTokenizer()
    return tokenizer


def table(count: int, dtype: str = "float32", width: int = WIDTH) -> Any:
    """Draw a table of embeddings."""
    drawn = np.random.default_rng(3).normal(size=(count, width)).astype(np.float32)
    if dtype == "int8":
        return np.clip(np.rint(40 * drawn), -127, 127).astype(np.int8)
    return drawn.astype(np.float16) if dtype == "float16" else cast(drawn, dtype)


def write_model2vec(
    folder: Path,
    *,
    tokenizer: Tokenizer | None = None,
    dtype: str = "float32",
    normalize: bool = True,
    quantized_vocabulary: bool = False,
    **config: Any,
) -> Path:
    """Write the layout of model2vec."""
    folder.mkdir(parents=True, exist_ok=True)
    tokenizer = wordpiece() if tokenizer is None else tokenizer
    tokenizer.save(str(folder / "tokenizer.json"))
    count = tokenizer.get_vocab_size()
    tensors: dict[str, Any] = {"embeddings": table(count, dtype)}
    if quantized_vocabulary:
        draw = np.random.default_rng(5)
        tensors["embeddings"] = table(11, dtype)
        tensors["mapping"] = draw.integers(0, 11, count)
        tensors["weights"] = draw.uniform(0.1, 2.0, count)
    write_tensors(folder / "model.safetensors", tensors)
    stated = {"model_type": "model2vec", "architectures": ["StaticModel"], "normalize": normalize}
    write_json(folder / "config.json", stated | {"hidden_dim": WIDTH} | config)
    return folder


def write_library_directory(
    folder: Path,
    *,
    dtype: str = "float32",
    normalized: bool = True,
    max_length: int | None = None,
    path: str = "0_StaticEmbedding",
    settings: dict[str, Any] | None = None,
) -> Path:
    """Write the layout of sentence-transformers."""
    tokenizer = wordpiece()
    if max_length is not None:
        tokenizer.enable_truncation(max_length)
    inner = folder / path
    inner.mkdir(parents=True, exist_ok=True)
    tokenizer.save(str(inner / "tokenizer.json"))
    write_tensors(inner / "model.safetensors", {"embedding.weight": table(len(VOCABULARY), dtype)})
    kinds = [("StaticEmbedding", path), *([("Normalize", "1_Normalize")] if normalized else [])]
    modules = [
        {"idx": n, "name": str(n), "path": place, "type": f"sentence_transformers.models.{kind}"}
        for n, (kind, place) in enumerate(kinds)
    ]
    write_json(folder / "modules.json", modules)
    stated: dict[str, Any] = {
        "prompts": {},
        "default_prompt_name": None,
        "similarity_fn_name": "cosine",
    }
    (folder / "config_sentence_transformers.json").write_text(
        json.dumps(stated | (settings or {})), encoding="utf-8"
    )
    return folder
