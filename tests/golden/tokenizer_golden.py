"""Makes tokenizer_golden.json: what Hugging Face tokenizers gives for a small vocabulary.

python tests/golden/tokenizer_golden.py
"""

# ruff: noqa: RUF001

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import tokenizers
from tokenizers import AddedToken, Tokenizer, decoders, models, normalizers, pre_tokenizers
from tokenizers.processors import TemplateProcessing

PIECES = (
    *("[PAD]", "[UNK]", "[CLS]", "[SEP]", "[MASK]", "want", "##want", "##ed", "wa", "un", "runn"),
    *("##ing", ",", "low", "lowest", "a", "b", "##b", "##c", "e", "##e", "中", "[", "]", "!", "'"),
    *("s", "t", "##s", "##t", "i", "ı", "ß", "ᄒ", "##ᅡ", "##ᆫ", "Want", "É", "é", ".", "do", "n"),
)
TEXTS = (
    "UNwantéd,running",
    "",
    " \t\n",
    "low lowest lowlow abc abbc abd",
    "[CLS]low[SEP] [MASK] [mask]",
    "中a中中b",
    "İstanbul ıst ßs ẞ",
    "Want Éa éa e\u0301",
    "한 a",
    "b\u0300\u302e\u0327c \u302e\u0301a",
    "a\x00b\u200dc\ufffd!\xad",
    "don't !!! ' s",
    "w" * 12 + " want",
    "\u2028a\u3000b\x85a\x0bb",
)
CUTS: tuple[dict[str, Any], ...] = (
    {"max_length": 6, "stride": 0, "strategy": "longest_first", "direction": "right"},
    {"max_length": 7, "stride": 1, "strategy": "longest_first", "direction": "left"},
)


def build(lowercase: bool) -> Tokenizer:
    """Build BERT's tokenizer on the small vocabulary; words may have 10 characters."""
    model = models.WordPiece(
        {piece: number for number, piece in enumerate(PIECES)},
        unk_token="[UNK]",
        max_input_chars_per_word=10,
    )
    tokenizer = Tokenizer(model)
    tokenizer.normalizer = normalizers.BertNormalizer(lowercase=lowercase)
    tokenizer.pre_tokenizer = pre_tokenizers.BertPreTokenizer()
    tokenizer.decoder = decoders.WordPiece()
    tokenizer.post_processor = TemplateProcessing(
        single="[CLS] $A [SEP]",
        pair="[CLS] $A [SEP] $B:1 [SEP]:1",
        special_tokens=[("[CLS]", 2), ("[SEP]", 3)],
    )
    special = [AddedToken(piece, special=True, normalized=False) for piece in PIECES[:5]]
    tokenizer.add_special_tokens(special)
    return tokenizer


def row(encoding: Any) -> dict[str, Any]:
    """Write down one row."""
    return {
        "ids": encoding.ids,
        "type_ids": encoding.type_ids,
        "offsets": encoding.offsets,
        "word_ids": [-1 if word is None else word for word in encoding.word_ids],
        "special_tokens_mask": encoding.special_tokens_mask,
    }


def record(tokenizer: Tokenizer) -> dict[str, Any]:
    """Write down what it gives for every text, alone, in pairs and cut."""
    pairs = list(zip(TEXTS, TEXTS[::-1], strict=True))
    out: dict[str, Any] = {
        "texts": [row(tokenizer.encode(text)) for text in TEXTS],
        "pairs": [row(tokenizer.encode(*pair)) for pair in pairs],
        "decoded": [tokenizer.decode(tokenizer.encode(text).ids) for text in TEXTS],
        "cuts": [],
    }
    for cut in CUTS:
        tokenizer.enable_truncation(**cut)
        encodings = [tokenizer.encode(text) for text in TEXTS]
        rows = [[row(e), *map(row, e.overflowing)] for e in encodings]
        out["cuts"].append({"cut": cut, "rows": rows})
    tokenizer.no_truncation()
    return out


def main() -> None:
    """Write the file."""
    golden: dict[str, Any] = {"made_with": f"tokenizers {tokenizers.__version__}"}
    golden["texts"] = TEXTS
    for name, lowercase in (("uncased", True), ("cased", False)):
        tokenizer = build(lowercase)
        golden[name] = {"tokenizer": json.loads(tokenizer.to_str()), "results": record(tokenizer)}
    path = Path(__file__).with_suffix(".json")
    path.write_text(json.dumps(golden, ensure_ascii=True, separators=(",", ":")) + "\n")


if __name__ == "__main__":
    main()
