"""Readers whose weights and vocabularies are the same with every version of transformers."""

from __future__ import annotations

import json
import zlib
from typing import TYPE_CHECKING, Any

import numpy as np
import torch

if TYPE_CHECKING:
    from pathlib import Path

__all__ = ["KINDS", "QUESTIONS", "SETTINGS", "write_reader"]

_LONG = (
    "The old library of the town was built by two sisters. It burned down in 1874, and nobody was "
    "hurt. The sisters sold their farm and built it again, larger than before. "
)
QUESTIONS = [
    ("Who built the library?", _LONG),
    ("When did it burn down?", _LONG * 3 + "It has not burned since."),
    ("Where does she live?", "John lives in New York since 1990. Mary lives in Berlin since 1990."),
    ("a?", "Paris paris PARIS, Paris"),
    ("café?", "Le café\nde Paris — 東京 é, l'e\u0301te\u0301"),
    ("東京?", "東京は日本の首都です。大阪は大きい。"),
    ("кто?", "Анна живёт в Москве\u00a0😀, Пётр в Твери."),
    ("x", "x"),
]
# Keywords of the pipeline.
SETTINGS: list[dict[str, Any]] = [
    {},
    {"top_k": 5},
    {"top_k": 3, "align_to_words": False},
    {"top_k": 3, "handle_impossible_answer": True},
    {"max_answer_len": 3, "max_seq_len": 40, "doc_stride": 9, "top_k": 4},
]
_LETTERS = sorted({x for pair in QUESTIONS for text in pair for x in text if not x.isspace()})
_WORDS = ["the", "The", "in", "was", "lives", "library", "sisters", "Paris", "built", "and", "1990"]
_MAX_LENGTH = 100
_SIZES = {
    "hidden_size": 32,
    "num_hidden_layers": 2,
    "num_attention_heads": 4,
    "intermediate_size": 48,
    "max_position_embeddings": _MAX_LENGTH + 4,
}
KINDS = ("bert", "roberta", "xlm-roberta")
_BRACKETS = ["[PAD]", "[UNK]", "[CLS]", "[SEP]", "[MASK]"]
_ANGLES = ["<s>", "<pad>", "</s>", "<unk>", "<mask>"]


def _wordpiece() -> Any:
    from tokenizers import BertWordPieceTokenizer

    pieces = [*_BRACKETS, *_LETTERS, *(f"##{letter}" for letter in _LETTERS), *_WORDS]
    vocab = {piece: number for number, piece in enumerate(dict.fromkeys(pieces))}
    return BertWordPieceTokenizer(vocab, lowercase=False)._tokenizer


def _byte_bpe() -> Any:
    from tokenizers import ByteLevelBPETokenizer
    from tokenizers.pre_tokenizers import ByteLevel
    from tokenizers.processors import RobertaProcessing

    pieces = [*_ANGLES, *sorted(ByteLevel.alphabet()), "th", "the", "Ġthe"]
    merges = [("t", "h"), ("th", "e"), ("Ġ", "the")]
    vocab = {piece: number for number, piece in enumerate(pieces)}
    found = ByteLevelBPETokenizer(vocab, merges, trim_offsets=True)._tokenizer
    found.post_processor = RobertaProcessing(("</s>", 2), ("<s>", 0), add_prefix_space=False)
    return found


def _unigram() -> Any:
    from tokenizers import Tokenizer, decoders, models, pre_tokenizers, processors

    pieces = [*(f"\u2581{word}" for word in _WORDS), "\u2581", *_LETTERS]
    scores = [*((one, 0.0) for one in _ANGLES)]
    scores += [(piece, -1.0 - place / 8) for place, piece in enumerate(pieces)]
    found = Tokenizer(models.Unigram(scores, unk_id=3))
    split, marks = pre_tokenizers.WhitespaceSplit(), pre_tokenizers.Metaspace()
    found.pre_tokenizer = pre_tokenizers.Sequence([split, marks])
    found.decoder = decoders.Metaspace()
    found.post_processor = processors.TemplateProcessing(
        single="<s> $A </s>",
        pair="<s> $A </s> </s> $B </s>",
        special_tokens=[("<s>", 0), ("</s>", 2)],
    )
    return found


def write_reader(folder: Path, kind: str) -> Path:
    """Save a reader of a family, and return the folder."""
    import transformers

    bert = kind == "bert"
    tokenizer = {"bert": _wordpiece, "roberta": _byte_bpe, "xlm-roberta": _unigram}[kind]()
    folder.mkdir(parents=True, exist_ok=True)
    tokenizer.save(str(folder / "tokenizer.json"))
    names = ["pad", "unk", "cls", "sep", "mask"] if bert else ["cls", "pad", "sep", "unk", "mask"]
    special = dict(zip(names, _BRACKETS if bert else _ANGLES, strict=True))
    types = ["token_type_ids"] if bert else []
    settings = {
        "tokenizer_class": "PreTrainedTokenizerFast",
        "model_max_length": _MAX_LENGTH,
        "model_input_names": ["input_ids", *types, "attention_mask"],
        **{f"{name}_token": token for name, token in special.items()},
    }
    (folder / "tokenizer_config.json").write_text(json.dumps(settings))
    pad = tokenizer.token_to_id(special["pad"])
    config = transformers.AutoConfig.for_model(
        kind, vocab_size=tokenizer.get_vocab_size(), pad_token_id=pad, **_SIZES
    )
    kinds: Any = transformers.AutoModelForQuestionAnswering
    model = kinds.from_config(config).eval()
    with torch.no_grad():
        for name, parameter in model.named_parameters():
            if "orm" not in name:
                # NumPy keeps the numbers of this generator for ever.
                draw = np.random.RandomState(zlib.crc32(name.encode()))
                drawn = draw.standard_normal(tuple(parameter.shape))
                parameter.copy_(torch.from_numpy((0.4 * drawn).astype(np.float32)))
    model.save_pretrained(folder)
    return folder
