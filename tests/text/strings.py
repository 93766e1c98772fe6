"""Makes strings that provoke tokenizers, from a seed."""

# ruff: noqa: RUF001

from __future__ import annotations

from typing import TYPE_CHECKING

from tests.text.oracle import text as reference_text

if TYPE_CHECKING:
    import random
    from collections.abc import Callable, Sequence

SPECIALS = ("[PAD]", "[UNK]", "[CLS]", "[SEP]", "[MASK]")
SPACES = "\t\n\r\x0b\x0c \x85\xa0\u1680\u2000\u2003\u200a\u2028\u2029\u202f\u205f\u3000"
CONTROLS = "\x00\x01\x08\x1b\x7f\x80\x9f\xad\u061c\u180e\u200b\u200c\u200d\u200e\u2060\ufeff\ufffd"
CASES = "İIıiẞßſΣσςǄǅǆΩKÅÉéÑñŒœΐЙйЁёԱաᏣꭳỲἈᾈᾳΔ𐐀𝐀\u1e9e"
SYMBOLS = "!\"#$%&'()*+,-./:;<=>?@[\\]^_`{|}~¡¿«»‹›„“”‘’–—…·•§¶†‡€£¥©®™°±×÷"
EMOJI = ("👩‍👩‍👧", "🇩🇪", "👍🏽", "❤️", "☺︎", "🏴󠁧󠁢󠁥󠁮󠁧󠁿", "😀", "⌚", "5️⃣")
# What Unigram's normalizers look at: its own space, quotes, half-width kana, clusters of letters.
PIECES = (
    *("▁", "▁▁", " ▁ ", "``", "''", "''' ", "ｶﾞ", "ﾊﾟ", "ｱ", "ﾞ", "ﾌ\u3099", "क्\u200dष", "क़\u0301"),
    *("க்ஷ", "\u0600a", "\u0600ﬁ", "각", "ᄀ\u0308ᅡ", "\r\n", "\r\r\n\n", "\u3000\u0301", "①"),
    *("e\u0323\u0302", "a\u0327\u0301", "\u212b\u0323", "\u0344", "\u0fb2\u0f71\u0f80", "½", "ﬁ"),
    *("<s>", "</s>", "<unk>", "<pad>", "<mask>", "<0x41>", "©\u200d©\u0308", "ﷺ", "㌀", "\u0e33"),
    *("เ\u0e33", "\U0001d15e"),
)
CJK_EDGES = (
    *(0x33FF, 0x3400, 0x4DBF, 0x4DC0, 0x4DFF, 0x4E00, 0x9FFF, 0xA000, 0xF8FF, 0xF900, 0xFAFF),
    *(0xFB00, 0x1FFFF, 0x20000, 0x2A6DF, 0x2A6E0, 0x2A6FF, 0x2A700, 0x2B73F, 0x2B740, 0x2B81F),
    *(0x2B820, 0x2B91F, 0x2B920, 0x2CEAF, 0x2CEB0, 0x2F7FF, 0x2F800, 0x2FA1F, 0x2FA20, 0x30000),
)
SCALARS = [code for code in range(0x110000) if not 0xD800 <= code <= 0xDFFF]
MARKS = reference_text.combining_codes()
# Marks that outlive accent stripping, and so make canonical order visible.
SURVIVORS = [code for code in MARKS if not reference_text.flags(chr(code)) & reference_text.MARK]


class StringMaker:
    """Draws strings; the same generator state gives the same strings."""

    def __init__(self, rng: random.Random, pieces: Sequence[str]) -> None:
        self.rng = rng
        self.pieces = pieces
        self.makers: list[Callable[[], str]] = [
            self.word,
            self.word,
            self.letters,
            self.any_scalar,
            self.any_scalar,
            self.marks,
            self.cluster,
            self.cjk,
            self.special,
            self.long_word,
            lambda: rng.choice(SPACES),
            lambda: " ",
            lambda: rng.choice(SYMBOLS),
            lambda: rng.choice(CONTROLS),
            lambda: rng.choice(CASES),
            lambda: rng.choice(EMOJI),
            lambda: rng.choice(PIECES),
            lambda: chr(rng.randrange(0xAC00, 0xD7A4)),
        ]

    def text(self) -> str:
        """Draw a string of a few parts, often none."""
        count = self.rng.choice((0, 1, 1, 2, 3, 5, 8, 13, 30))
        join = self.rng.choice(("", "", " "))
        return join.join(self.rng.choice(self.makers)() for _ in range(count))

    def word(self) -> str:
        """Draw pieces of the vocabulary, in some case."""
        text = "".join(
            self.rng.choice(self.pieces).removeprefix("##")
            for _ in range(self.rng.choice((1, 1, 2, 3)))
        )
        return self.rng.choice((text, text.upper(), text.title()))

    def letters(self) -> str:
        """Draw a word of ASCII letters and digits."""
        alphabet = "abcdefghijklmnopqrstuvwxyzABCDEFGHIJKLMNOPQRSTUVWXYZ0123456789"
        return "".join(self.rng.choices(alphabet, k=self.rng.randrange(1, 12)))

    def any_scalar(self) -> str:
        """Draw characters of any plane; half of them from the first 12,000."""
        top = self.rng.choice((0x3000, 0x110000))
        codes = [self.rng.randrange(top) for _ in range(self.rng.choice((1, 1, 2, 5)))]
        return "".join(chr(code) for code in codes if not 0xD800 <= code <= 0xDFFF)

    def marks(self) -> str:
        """Draw a run of combining characters."""
        codes = self.rng.choices(MARKS, k=self.rng.choice((1, 2, 5, 9)))
        return "".join(map(chr, codes))

    def cluster(self) -> str:
        """Draw a base with marks, some of which survive accent stripping."""
        base = self.rng.choice(("a", "é", "à", "ệ", "Å", "한", "中", "\u0344", "\U0001d15e", ""))
        marks = self.rng.choices([*MARKS[:60], *SURVIVORS, 0x01, 0x344], k=self.rng.randrange(1, 6))
        return base + "".join(map(chr, marks)) + self.rng.choice(("", "b", "è"))

    def cjk(self) -> str:
        """Draw ideographs and the neighbours of their ranges."""
        common = [self.rng.randrange(0x4E00, 0x9FFF) for _ in range(3)]
        edges = self.rng.choices(CJK_EDGES, k=2)
        return "".join(map(chr, self.rng.sample([*common, *edges], k=self.rng.randrange(1, 5))))

    def special(self) -> str:
        """Draw special tokens as text, whole, broken or in other case."""
        token = self.rng.choice(SPECIALS)
        forms = (token, token, token.lower(), token[:-1], "[" + token, "x" + token + "y", token * 2)
        return self.rng.choice(forms)

    def long_word(self) -> str:
        """Draw a word around the limit of 100 characters."""
        base = self.rng.choice(("a", "é", "б", "à̂", "x1", "İ"))
        length = self.rng.choice((20, 98, 99, 100, 101, 102, 130, 250))
        return (base * length)[:length]
