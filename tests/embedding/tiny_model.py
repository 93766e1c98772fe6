"""A small model directory with random weights, made in milliseconds, for tests of all around it."""

from __future__ import annotations

import json
import string
from typing import TYPE_CHECKING, Any

import torch

from encoder_engine.models import (
    AttentionSpec,
    BlockSpec,
    EmbeddingSpec,
    Encoder,
    EncoderSpec,
    FeedForwardSpec,
)

if TYPE_CHECKING:
    from pathlib import Path

    from encoder_engine.models.heads import HeadModel

WIDTH = 16
NUM_HEADS = 2
POSITIONS = 32
SPECIAL_TOKENS = ("[PAD]", "[UNK]", "[CLS]", "[SEP]", "[MASK]")
WORDS = ("query", "passage", "the", "text", "row", "long", "words")
PIECES = [*string.ascii_lowercase, *string.digits, *string.punctuation]
VOCABULARY = (
    *SPECIAL_TOKENS,
    *WORDS,
    *PIECES,
    *(f"##{piece}" for piece in string.ascii_lowercase + string.digits),
)


def write_transformers_directory(
    folder: Path, *, width: int = WIDTH, num_heads: int = NUM_HEADS
) -> Path:
    """Write config.json, weights and vocabulary: a plain transformers directory."""
    block = BlockSpec(
        attention=AttentionSpec(num_heads=num_heads, head_dim=width // num_heads),
        feed_forward=FeedForwardSpec(width=2 * width),
    )
    spec = EncoderSpec(
        model_type="bert",
        width=width,
        embedding=EmbeddingSpec(
            vocab_size=len(VOCABULARY),
            width=width,
            num_positions=POSITIONS,
            num_segments=2,
            padding_id=0,
        ),
        blocks=(block, block),
        pooler=True,
        initializer_range=0.5,
    )
    with torch.random.fork_rng():
        torch.manual_seed(0)
        Encoder(spec).save_pretrained(folder)
    (folder / "vocab.txt").write_text("".join(f"{token}\n" for token in VOCABULARY), "utf-8")
    write_json(folder / "tokenizer_config.json", {"do_lower_case": True, "model_max_length": 24})
    return folder


def write_head_directory(
    folder: Path, kind: type[HeadModel], *, num_labels: int | None = None
) -> Path:
    """Write a plain transformers directory with a head on the tiny model."""
    write_transformers_directory(folder)
    with torch.random.fork_rng():
        torch.manual_seed(1)
        model = kind(Encoder.from_pretrained(folder, device="cpu"), num_labels=num_labels)
        with torch.no_grad():
            for parameter in model.head.parameters():
                parameter.normal_(std=0.3)
    model.save_pretrained(folder)
    return folder


def write_sentence_directory(
    folder: Path,
    *,
    pooling: dict[str, Any] | None = None,
    transformer: dict[str, Any] | None = None,
    settings: dict[str, Any] | None = None,
    normalized: bool = True,
) -> Path:
    """Write a sentence-transformers directory in the older dialect around the tiny model."""
    write_transformers_directory(folder)
    kinds = ["Transformer", "Pooling", "Normalize"][: 3 if normalized else 2]
    modules = [
        {
            "idx": index,
            "name": str(index),
            "path": "" if index == 0 else f"{index}_{kind}",
            "type": f"sentence_transformers.models.{kind}",
        }
        for index, kind in enumerate(kinds)
    ]
    write_json(folder / "modules.json", modules)
    default = {"word_embedding_dimension": WIDTH, "pooling_mode_mean_tokens": True}
    write_json(folder / "1_Pooling" / "config.json", default if pooling is None else pooling)
    write_json(
        folder / "sentence_bert_config.json",
        {"max_seq_length": 16, "do_lower_case": False} if transformer is None else transformer,
    )
    if settings is not None:
        write_json(folder / "config_sentence_transformers.json", settings)
    return folder


def write_json(path: Path, value: object) -> None:
    """Write a JSON file, making its folder."""
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_text(json.dumps(value), encoding="utf-8")
