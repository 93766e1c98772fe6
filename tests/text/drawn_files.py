"""Draws tokenizer.json files with random options, and strings that provoke them, from a seed."""

# ruff: noqa: RUF001

from __future__ import annotations

import json
from typing import TYPE_CHECKING, Any

from encoder_engine.text.byte_level import BYTE_LETTERS
from tests.text.unigram_files import (
    FLAGS,
    added,
    metaspace,
    odd_charsmap,
    renumbered,
    replace,
    sequence,
)

if TYPE_CHECKING:
    import random

# Characters that normalizers, splitters and models treat by their neighbours.
NASTY = [
    *"abceqxAIİßnſ  \t\n\u00a0\u0085\u3000\u2028▁Ġ.,''``中文é½ﬁＡ",
    *("\u0301", "\u0308", "\u0323", "\u0327", "\u0344", "\u0340", "\u093c", "\u094d", "\u0e33"),
    *("\u0600", "\u200d", "\u200c", "\ufe0f", "\u3099", "\u0f71", "\u0f80", "\u0000", "\u0001"),
    *(
        "क",
        "ष",
        "क़",
        "ि",
        "ᄀ",
        "ᅡ",
        "ᆨ",
        "가",
        "각",
        "Å",
        "ｶ",
        "ﾞ",
        "ﷺ",
        "👩",
        "🇩",
        "🇪",
        "\U0001d15e",
    ),
    *("\u302e", "\u1dc0", "\u0b4d", "\u0903", "\u20dd", "a\u0327\u0301", "\r\n", "<mask>", "x y"),
]
PATTERNS = [
    "a",
    "ab",
    "x",
    " ",
    "''",
    "``",
    "▁",
    "\u0301",
    "e\u0301",
    "中",
    "\u0085",
    "\t",
    "é",
    "  ",
]
CONTENTS = ["", "", "a", " ", "b", "▁", "\u0301", "e\u0301", "ab", "x y", "中", '"', "é", "q", "  "]
REGEX = [" {2,}", " +", r"\s{2,}", r"\s+", r"\s{2,}|[\n\r\t]", "[ab]", "."]
ADDED = [
    *("<mask>", "[MASK]", "ab", "a", " x", "x ", "\u0301", "É 中", "Word", "<s>", "</s>", "<pad>"),
    *(
        "é",
        "▁",
        "Ġx",
        "[UNK]",
        "<unk>",
        "\u0085",
        " ",
        "B",
        "##",
        "a b",
        "ﬁ",
        "中",
        "İ",
        "[PAD]",
        "\n",
    ),
]
TEMPLATE_TOKENS = ("<s>", "</s>")
BYTE_PIECES = [f"<0x{byte:02X}>" for byte in range(256)]
KINDS = ("WordPiece", *["Unigram"] * 3, *["BPE"] * 4, "WordLevel")
MODERN = (
    r"(?i:'s|'t|'re|'ve|'m|'ll|'d)|[^\r\n\p{L}\p{N}]?\p{L}+|\p{N}%s| ?[^\s\p{L}\p{N}]+[\r\n]*"
    r"|\s*[\r\n]+|\s+(?!\S)|\s+"
)
CLIP = r"'s|'t|'re|'ve|'m|'ll|'d|[\p{L}]+|[\p{N}]|[^\s\p{L}\p{N}]+"


class FileMaker:
    """Draws files; the same generator state gives the same files."""

    def __init__(self, rng: random.Random) -> None:
        self.rng = rng
        self.byte_level = False
        self.odd = {"type": "Precompiled", "precompiled_charsmap": odd_charsmap()}

    def likely(self, chance: float) -> bool:
        """Draw a flag."""
        return self.rng.random() < chance

    def file(self) -> dict[str, Any]:
        """Draw a whole file."""
        kind = self.rng.choice(KINDS)
        self.byte_level = False
        model = getattr(self, kind.lower())()
        vocab = model["vocab"]
        pieces = [[p, 0.0] for p in vocab] if isinstance(vocab, dict) else vocab
        tokens = self.rng.sample(ADDED, self.rng.choice((0, 1, 2, 3, 5)))
        tokens = list(dict.fromkeys(self.rng.sample(TEMPLATE_TOKENS, 2) + tokens))
        listed = renumbered([self.added(token) for token in tokens], pieces)
        ids = {piece[0]: index for index, piece in enumerate(pieces)}
        ids |= {token["content"]: token["id"] for token in listed}
        return {
            "version": "1.0",
            "truncation": None,
            "padding": self.padding(ids),
            "added_tokens": listed,
            "normalizer": self.normalizer(kind),
            "pre_tokenizer": self.pre_tokenizer(kind),
            "post_processor": self.post_processor(ids),
            "decoder": self.decoder(kind),
            "model": model,
        }

    def padding(self, ids: dict[str, int]) -> dict[str, Any] | None:
        """Draw padding, whose token need not be an added one."""
        names = [name for name in ("<pad>", "[PAD]", "[UNK]", "a") if name in ids]
        if not names or self.likely(0.6):
            return None
        name = self.rng.choice(names)
        return {
            "strategy": "BatchLongest",
            "direction": self.rng.choice(("Right", "Left")),
            "pad_to_multiple_of": None,
            "pad_id": ids[name],
            "pad_type_id": 0,
            "pad_token": name,
        }

    def added(self, content: str) -> dict[str, Any]:
        """Draw an added token's flags."""
        chances = (0.15, 0.35, 0.25, 0.35, 0.4)
        flags = {flag: self.likely(c) for flag, c in zip(FLAGS, chances, strict=True)}
        return added(content, **flags)

    # Models.

    def pieces(self, prefix: str = "") -> list[str]:
        """Draw a vocabulary of short pieces."""
        letters = [c for c in NASTY if len(c) == 1]
        kept = [c for c in letters if self.likely(0.7)]
        if self.likely(0.5):
            kept = [c for c in kept if c == c.strip().strip("Ġ")]
        longer = ["".join(self.rng.choices(kept, k=self.rng.randrange(2, 4))) for _ in range(40)]
        longer += ["▁" + one for one in self.rng.sample(longer, 10)]
        longer += [self.rng.choice("abex") + self.rng.choice("abex") for _ in range(10)]
        if self.likely(0.5):
            longer = [one for one in longer if one == one.strip().strip("Ġ")]
        special = ["[PAD]", "[UNK]", "[MASK]", "<unk>", "<pad>", "<mask>"]
        out = [*special, *TEMPLATE_TOKENS, *kept, *longer, *(prefix + one for one in kept + longer)]
        return list(dict.fromkeys(one for one in out if one != "\n" or self.likely(0.3)))

    def wordpiece(self) -> dict[str, Any]:
        """Draw a WordPiece model."""
        prefix = self.rng.choice(("##", "##", "##", "", "▁"))
        return {
            "type": "WordPiece",
            "unk_token": self.rng.choice(("[UNK]", "[UNK]", "<unk>", "a")),
            "continuing_subword_prefix": prefix,
            "max_input_chars_per_word": self.rng.choice((100, 100, 3, 1, 20)),
            "vocab": {piece: index for index, piece in enumerate(self.pieces(prefix))},
        }

    def unigram(self) -> dict[str, Any]:
        """Draw a Unigram model, with scores that tie now and then."""
        pieces = self.pieces()
        scores = [round(-self.rng.uniform(1, 9), self.rng.choice((0, 1, 6))) for _ in pieces]
        if self.likely(0.3):
            pieces += [piece for piece in BYTE_PIECES if self.likely(0.99)]
            scores += [-10.0] * (len(pieces) - len(scores))
        unknown = self.rng.choice(("<unk>", "<unk>", "<unk>", "[UNK]", "a"))
        return {
            "type": "Unigram",
            "unk_id": pieces.index(unknown) if unknown in pieces else 0,
            "vocab": [list(pair) for pair in zip(pieces, scores, strict=True)],
            "byte_fallback": self.likely(0.3),
        }

    def bpe(self) -> dict[str, Any]:
        """Draw a BPE model, of bytes or of characters; some settings are the library's alone."""
        self.byte_level = self.likely(0.5)
        usual, fallback = self.likely(0.8), self.likely(0.4)
        letters = [piece for piece in self.pieces() if len(piece) == 1]
        if self.byte_level:
            letters = [BYTE_LETTERS[byte] for byte in "abeqx 中é'\n1".encode()]
        suffix = "</w>" if self.byte_level and self.likely(0.2) else ""
        merges = self.merges(letters, suffix)
        whole = [*letters, *["".join(pair) for pair in merges], "<unk>", "[UNK]", "<pad>", "<mask>"]
        if self.byte_level and usual:
            whole += [letter + end for end in {"", suffix} for letter in BYTE_LETTERS]
        elif suffix:
            whole += [letter + suffix for letter in letters]
        whole += BYTE_PIECES if fallback else []
        whole += ["▁"] if usual else []
        whole = list(dict.fromkeys([*whole, *TEMPLATE_TOKENS]))
        return {
            "type": "BPE",
            "dropout": self.rng.choice((None, None, None, 0.0)),
            "unk_token": "<unk>" if usual else self.rng.choice((None, "<unk>", "[UNK]")),
            "continuing_subword_prefix": None if usual else self.rng.choice((None, "")),
            "end_of_word_suffix": suffix or None,
            "fuse_unk": self.likely(0.5),
            "byte_fallback": (fallback and not self.byte_level) if usual else self.likely(0.3),
            "ignore_merges": self.likely(0.3 if self.byte_level else 0.1),
            "vocab": {piece: index for index, piece in enumerate(whole)},
            "merges": [" ".join(pair) for pair in merges] if self.likely(0.3) else merges,
        }

    def merges(self, letters: list[str], suffix: str) -> list[list[str]]:
        """Draw merges, some of which give a token that another gives as well."""
        merges: list[list[str]] = []
        inner, last = list(letters), [letter + suffix for letter in letters]
        for _ in range(self.rng.choice((5, 30, 60))):
            ends = bool(suffix) and self.likely(0.5)
            left, right = self.rng.choice(inner), self.rng.choice(last if ends else inner)
            if len(left + right) > 18 or " " in left + right:
                continue
            merges.append([left, right])
            known = last if ends else inner
            if left + right not in known:
                known.append(left + right)
        if self.likely(0.5):
            self.rng.shuffle(merges)
        return merges

    def wordlevel(self) -> dict[str, Any]:
        """Draw a WordLevel model."""
        vocab = {piece: index for index, piece in enumerate(self.pieces())}
        return {"type": "WordLevel", "vocab": vocab, "unk_token": "<unk>"}

    # Normalizers, splitters, post-processors and decoders.

    def normalizer(self, kind: str) -> dict[str, Any] | None:
        """Draw a Sequence of normalizers, or one, or none."""
        if kind == "WordPiece" and self.likely(0.9):
            return None if self.likely(0.1) else self.bert()
        steps = [self.step() for _ in range(self.rng.choice((0, 1, 2, 2, 3, 4)))]
        if not steps:
            return None
        if len(steps) > 2 and self.likely(0.2):
            steps = [steps[0], sequence("normalizers", *steps[1:])]
        return steps[0] if len(steps) == 1 else sequence("normalizers", *steps)

    def bert(self) -> dict[str, Any]:
        """Draw BERT's normalizer."""
        return {
            "type": "BertNormalizer",
            "clean_text": self.likely(0.7),
            "handle_chinese_chars": self.likely(0.7),
            "strip_accents": self.rng.choice((None, True, False)),
            "lowercase": self.likely(0.5),
        }

    def step(self) -> dict[str, Any]:
        """Draw one normalizer."""
        forms = ("NFC", "NFD", "NFKC", "NFKD")
        chosen = self.rng.randrange(24)
        if chosen < 5:
            return replace(self.rng.choice(PATTERNS), self.rng.choice(CONTENTS))
        if chosen < 8:
            return replace(self.rng.choice(REGEX[:5]), self.rng.choice(CONTENTS), regex=True)
        if chosen < 12:
            return {"type": self.rng.choice(forms)}
        if chosen < 16:
            return {"type": "StripAccents"}
        if chosen < 18:
            return {"type": "Lowercase"}
        if chosen < 20:
            return {
                "type": "Strip",
                "strip_left": self.likely(0.5),
                "strip_right": self.likely(0.5),
            }
        if chosen < 21:
            return {"type": "Prepend", "prepend": self.rng.choice(["▁", "a", "x y", "\u0301", "é"])}
        if chosen < 23:
            return self.odd
        return self.rng.choice(
            [
                {"type": "Nmt"},
                {"type": "ByteLevel"},
                self.bert(),
                replace(self.rng.choice(REGEX[5:]), "b", regex=True),
            ]
        )

    def byte_splitter(self) -> dict[str, Any]:
        """Draw how a byte-level model cuts text, mostly as published ones do."""
        regex = self.likely(0.5)
        level = {
            "type": "ByteLevel",
            "add_prefix_space": self.likely(0.4),
            "trim_offsets": self.likely(0.5),
            "use_regex": regex,
        }
        if self.likely(0.4):
            return level
        level["add_prefix_space"] = self.likely(0.05)
        expression = self.rng.choice((MODERN % "", MODERN % "{1,3}", CLIP, "[ab]+"))
        clip = expression == CLIP
        split = {
            "type": "Split",
            "pattern": {"Regex": expression},
            "behavior": "Removed" if clip else "Isolated",
            "invert": clip,
        }
        digits = {"type": "Digits", "individual_digits": self.likely(0.9)}
        level["use_regex"] = regex if clip else self.likely(0.05)
        if self.likely(0.3):
            return sequence("pretokenizers", digits, level | {"use_regex": self.likely(0.95)})
        return sequence("pretokenizers", split, level)

    def pre_tokenizer(self, kind: str) -> dict[str, Any] | None:
        """Draw how text is cut into words."""
        if kind == "WordPiece":
            return {"type": self.rng.choice(("BertPreTokenizer",) * 9 + ("Whitespace",))}
        if self.byte_level and self.likely(0.95):
            return self.byte_splitter()
        mark = self.rng.choice("▁▁▁▁a中")
        scheme = self.rng.choice(("always", "first", "never"))
        meta = metaspace(scheme, split=self.likely(0.7), mark=mark)
        split = {"type": "WhitespaceSplit"}
        known = [None, meta, meta, meta, split, sequence("pretokenizers", split, meta)]
        byte_level = {
            "type": "ByteLevel",
            "add_prefix_space": self.likely(0.5),
            "trim_offsets": self.likely(0.5),
            "use_regex": self.likely(0.8),
        }
        others: list[Any] = [
            {"type": "Whitespace"},
            {"type": "Punctuation", "behavior": self.rng.choice(("Isolated", "MergedWithNext"))},
            {"type": "Digits", "individual_digits": True},
            {"type": "CharDelimiterSplit", "delimiter": "x"},
            {"type": "UnicodeScripts"},
            {
                "type": "Split",
                "pattern": {"Regex": "[ab]+"},
                "behavior": "Removed",
                "invert": self.likely(0.5),
            },
        ]
        if kind == "Unigram":
            drawn: dict[str, Any] | None = self.rng.choice([*known * 5, *others])
        else:
            drawn = self.rng.choice([*known, *others, byte_level, byte_level])
        return drawn

    def post_processor(self, ids: dict[str, int]) -> dict[str, Any] | None:
        """Draw a post-processor, half of the time one that trims offsets."""
        first, last = ([token, ids[token]] for token in TEMPLATE_TOKENS)
        flags = {"trim_offsets": self.likely(0.8), "add_prefix_space": self.likely(0.5)}
        roberta = {"type": "RobertaProcessing", "sep": last, "cls": first, **flags}
        bert = {"type": "BertProcessing", "sep": last, "cls": first}
        byte_level = {"type": "ByteLevel", **flags, "use_regex": True}
        special = {t: {"id": t, "ids": [ids[t]], "tokens": [t]} for t in TEMPLATE_TOKENS}
        begin, end = ({"SpecialToken": {"id": t, "type_id": 0}} for t in TEMPLATE_TOKENS)
        one, two = ({"Sequence": {"id": name, "type_id": k}} for k, name in enumerate("AB"))
        template = {
            "type": "TemplateProcessing",
            "single": self.rng.choice([[begin, one, end], [one, end, begin], [one]]),
            "pair": self.rng.choice([[begin, one, end, two, end], [one, two], [begin, two, one]]),
            "special_tokens": special,
        }
        both = sequence("processors", byte_level, template)
        return self.rng.choice([None, roberta, roberta, bert, template, both, byte_level])

    def decoder(self, kind: str) -> dict[str, Any] | None:
        """Draw a decoder."""
        if kind == "WordPiece":
            known = {"type": "WordPiece", "prefix": "##", "cleanup": self.likely(0.5)}
            return None if self.likely(0.2) else known
        steps: list[dict[str, Any]] = [
            metaspace(self.rng.choice(("always", "first", "never"))),
            replace("▁", " "),
            {"type": "ByteFallback"},
            {"type": "Fuse"},
            {"type": "Strip", "content": " ", "start": 1, "stop": self.rng.randrange(2)},
        ]
        chosen = self.rng.sample(steps, self.rng.randrange(4))
        return None if not chosen else sequence("decoders", *chosen)


def alphabet(file: dict[str, Any]) -> list[str]:
    """List what a file's own options look at, and its neighbours."""
    strings: list[str] = []

    def collect(value: Any) -> None:
        if isinstance(value, dict):
            for key, item in value.items():
                if key != "precompiled_charsmap":
                    collect(item)
        elif isinstance(value, list):
            for item in value:
                collect(item)
        elif isinstance(value, str) and len(value) < 8:
            strings.append(value)

    collect(file["normalizer"])
    strings += [token["content"] for token in file["added_tokens"]] * 2
    known = [piece for piece in strings if piece]
    return [*known, *(c for piece in known for c in piece), *NASTY]


def provoking(rng: random.Random, letters: list[str]) -> str:
    """Draw a string of a file's alphabet."""
    few = rng.sample(letters, min(len(letters), rng.choice((2, 4, 8, 40))))
    text = "".join(rng.choices(few, k=rng.choice((1, 2, 3, 4, 5, 8, 12, 20))))
    return rng.choice((text, text, text, " " + text, text + " "))


def write_json(file: dict[str, Any]) -> str:
    """Write a file's text."""
    return json.dumps(file, ensure_ascii=False)
