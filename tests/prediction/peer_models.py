"""Small random models as transformers saves them, with tokenizers of several kinds and heads."""

from __future__ import annotations

import lzma
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

import torch

from tests.embedding.test_families import ANGLES, BRACKETS, byte_bpe
from tests.models.all_cases import ALL_CASES
from tests.models.cases import Case, one_per_family

if TYPE_CHECKING:
    from collections.abc import Sequence
    from pathlib import Path

__all__ = ["FAMILIES", "TEXTS", "real_texts", "write_model"]

# Punctuation, scripts without spaces, other spaces, accents of two forms, emoji, an unknown letter.
TEXTS = [
    "Jean-Luc's café in New York, U.S.A.",
    "Anna lebt in Köln;\nsie mag Straßen.",
    "東京 Tokyo は大きい。",
    "Москва и Санкт-Петербург",
    "القاهرة مدينة كبيرة",
    "  two  spaces\tand\u00a0others ",
    "un e\u0301t\u00e9 à İstanbul",
    "😀 ok 🤖🤖",
    "x",
    "",
    "what ꙮ is",
]
FAMILIES = ("bert", "distilbert", "roberta", "modernbert", "xlm-roberta", "deberta-v2")
# Rows of this many tokens are read whole; sentences of a hundred characters are longer in part.
MAX_LENGTH = 64
_WORDS = ("in", "the", "and", "New", "York", "Tokyo", "good", "bad", "film", "who", "is", "an")


def _wordpiece(*special: str, lower: bool) -> dict[str, Any]:
    texts = [text.lower() if lower else text for text in (*TEXTS, *_WORDS)]
    letters = sorted({letter for text in texts for letter in text if not letter.isspace()} - {"ꙮ"})
    words = sorted({word.lower() if lower else word for word in _WORDS})
    pieces = [*special, *letters, *(f"##{letter}" for letter in letters), *words]
    return {
        "vocab": {piece: number for number, piece in enumerate(dict.fromkeys(pieces))},
        "do_lower_case": lower,
    }


def _unigram(*special: str) -> dict[str, Any]:
    letters = sorted({letter for text in TEXTS for letter in text if not letter.isspace()} - {"ꙮ"})
    pieces = [*(f"\u2581{word}" for word in _WORDS), "\u2581", *letters]
    scores = [(piece, -1.0 - place / 8) for place, piece in enumerate(pieces)]
    return {"vocab": [*((token, 0.0) for token in special), *scores]}


_TOKENIZERS: dict[str, tuple[str, dict[str, Any]]] = {
    "bert": ("BertTokenizer", _wordpiece(*BRACKETS, lower=False)),
    "distilbert": ("BertTokenizer", _wordpiece(*BRACKETS, lower=True)),
    "roberta": ("RobertaTokenizer", byte_bpe(*ANGLES)),
    "modernbert": ("RobertaTokenizer", byte_bpe(*ANGLES)),
    "xlm-roberta": ("XLMRobertaTokenizer", _unigram(*ANGLES)),
    "deberta-v2": ("DebertaV2Tokenizer", _unigram("[PAD]", "[CLS]", "[SEP]", "[UNK]", "[MASK]")),
}
_CASES = {case.model_type: case for case in one_per_family(ALL_CASES)}


@dataclass(frozen=True)
class _Head:
    """The end of transformers' class, and how wide its weights are drawn."""

    ending: str
    scale: float = 0.3


_HEADS = {
    "sequence": _Head("ForSequenceClassification"),
    "token": _Head("ForTokenClassification"),
    "question": _Head("ForQuestionAnswering", 0.4),
    "masked": _Head("ForMaskedLM"),
    "encoder": _Head("Model", 0.1),
}


def write_model(
    folder: Path,
    family: str,
    head: str,
    labels: Sequence[str] = (),
    *,
    max_length: int = MAX_LENGTH,
    seed: int = 0,
    **config: Any,
) -> Path:
    """Save a model with a head for these labels, and a tokenizer, and return the folder."""
    import transformers

    name, arguments = _TOKENIZERS[family]
    tokenizer = getattr(transformers, name)(**arguments, model_max_length=max_length)
    tokenizer.save_pretrained(folder)
    case, kind = _CASES[family], _HEADS[head]
    if labels:
        config["id2label"] = dict(enumerate(labels))
        config["label2id"] = {label: number for number, label in enumerate(labels)}
    architecture = case.model_class.removesuffix("Model") + kind.ending
    sizes = case.sizes | {"vocab_size": len(tokenizer), "pad_token_id": tokenizer.pad_token_id}
    model = Case(family, case.config_class, architecture, sizes).build(seed, **config)
    torch.manual_seed(seed)
    with torch.no_grad():
        for title, parameter in model.named_parameters():
            if "orm" not in title:
                parameter.normal_(0, kind.scale if parameter.ndim > 1 else 0.1)
    model.save_pretrained(folder)
    return folder


def real_texts(shared_data: Path, number: int) -> list[str]:
    """Return so many sentences of several languages, and lines of scripts without spaces."""
    found = []
    for name in ("en_sent100", "multi_sent100", "ml_zh", "ml_th", "ml_hi", "ml_emoji"):
        packed = (shared_data / "corpus" / f"{name}.txt.xz").read_bytes()
        lines = [one for one in lzma.decompress(packed).decode().splitlines() if one.strip()]
        step = max(len(lines) // number, 1)
        found += [line[:200] for line in lines[::step][: number // 4]]
    return found
