"""Writes the Unicode tables of the tokenizer, for C++ and for the Python oracle, from unicodedata.

Hugging Face tokenizers 0.23 mixes Unicode versions: character categories are those of Unicode 8.0,
canonical decompositions and combining classes of 9.0, lower-casing of 17.0, and what its regular
expressions call a word character, a letter and a number of 16.0. The normalization forms and what
StripAccents drops are of 9.0, grapheme clusters of 17.0. Python 3.11's unicodedata is Unicode 14.0,
so each table is that one plus the corrections listed below.
tests/text/oracle/test_unicode_tables.py compares every code point with the installed library.

Run from anywhere: python csrc/tools/make_unicode_tables.py
"""

from __future__ import annotations

import sys
import unicodedata
from pathlib import Path
from typing import TYPE_CHECKING

from grapheme_classes import CLASSES, grapheme_classes

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable, Iterator

ROOT = Path(__file__).resolve().parents[2]
SOURCE_VERSION = "14.0.0"
LAST = 0x10FFFF
SURROGATES = range(0xD800, 0xE000)
HANGUL = range(0xAC00, 0xD7A4)

WHITESPACE, REMOVED, PUNCTUATION, MARK, WORD, ANY_MARK = 1, 2, 4, 8, 16, 32

# Corrections to Unicode 14.0; "less" leaves the set, "more" joins it.
REMOVED_LESS = "890-891 8e2 110cd 13430-13438"
PUNCTUATION_LESS = """
61d 9fd a76 c77 c84 1b7d-1b7e 2e43-2e4f 2e52-2e5d 10ead 10f55-10f59 10f86-10f89 1144b-1144f
1145a-1145b 1145d 11660-1166c 116b9 1183b 11944-11946 119e2 11a3f-11a46 11a9a-11a9c 11a9e-11aa2
11c41-11c45 11c70-11c71 11ef7-11ef8 11fff 12ff1-12ff2 16e97-16e9a 16fe2 1e95e-1e95f
"""
PUNCTUATION_MORE = "166d 111c9"
MARK_LESS = """
7fd 898-89f 8ca-8e1 9fe afa-aff b55 c04 c3c d00 d3b-d3c d81 eba 180f 1885-1886 1abf-1ace 1df6-1dfb
a82c a8c5 a8ff a9bd 10d24-10d27 10eab-10eac 10f46-10f50 10f82-10f85 11070 11073-11074 110c2 111c9
111cf 1123e 1133b 11438-1143f 11442-11444 11446 1145e 1182f-11837 11839-1183a 1193b-1193c 1193e
11943 119d4-119d7 119da-119db 119e0 11a01-11a0a 11a33-11a38 11a3b-11a3e 11a47 11a51-11a56
11a59-11a5b 11a8a-11a96 11a98-11a99 11c30-11c36 11c38-11c3d 11c3f 11c92-11ca7 11caa-11cb0
11cb2-11cb3 11cb5-11cb6 11d31-11d36 11d3a 11d3c-11d3d 11d3f-11d45 11d47 11d90-11d91 11d95 11d97
11ef3-11ef4 16f4f 16fe4 1cf00-1cf2d 1cf30-1cf46 1e000-1e006 1e008-1e018 1e01b-1e021 1e023-1e024
1e026-1e02a 1e130-1e136 1e2ae 1e2ec-1e2ef 1e944-1e94a
"""
MARK_MORE = "1734"
WORD_MORE = """
897 cf3 ece 1c89-1c8a 24b6-24e9 a7cb-a7cd a7da-a7dc 105c0-105f3 10d40-10d65 10d69-10d6d 10d6f-10d85
10ec2-10ec4 10efc-10eff 1123f-11241 11380-11389 1138b 1138e 11390-113b5 113b7-113c0 113c2 113c5
113c7-113ca 113cc-113d3 113e1-113e2 116d0-116e3 11bc0-11be0 11bf0-11bf9 11f00-11f10 11f12-11f3a
11f3e-11f42 11f50-11f5a 1342f 13440-13455 13460-143fa 16100-16139 16d40-16d6c 16d70-16d79 18cff
1b132 1b155 1ccf0-1ccf9 1df25-1df2a 1e030-1e06d 1e08f 1e4d0-1e4f9 1e5d0-1e5fa 1f130-1f149
1f150-1f169 1f170-1f189 2b739 2ebf0-2ee5d 31350-323af
"""
COMBINING_LESS = """
7fd 898-89f 8ca-8d3 9fe c3c d3b-d3c eba 1715 1abf-1ace 1df6-1dfa a82c 10d24-10d27 10eab-10eac
10f46-10f50 10f82-10f85 11070 1133b 1145e 11839-1183a 1193d-1193e 11943 119e0 11a34 11a47 11a99
11d42 11d44-11d45 11d97 16ff0-16ff1 1e130-1e136 1e2ae 1e2ec-1e2ef
"""
DECOMPOSITION_LESS = "11938"
COMPATIBILITY_LESS = """
32ff a7f2-a7f4 ab69 10781-10785 10787-107b0 107b2-107ba 11938 1f16c 1fbf0-1fbf9
"""
ANY_MARK_LESS = """
7fd 898-89f 8ca-8d3 9fe afa-aff b55 c04 c3c d00 d3b-d3c d81 eba 1715 180f 1abf-1ace 1cf7 1df6-1dfa
a82c a8ff 10d24-10d27 10eab-10eac 10f46-10f50 10f82-10f85 11070 11073-11074 110c2 11145-11146 111c9
111ce-111cf 1133b 1145e 1182c-1183a 11930-11935 11937-11938 1193b-1193e 11940 11942-11943
119d1-119d7 119da-119e0 119e4 11a01-11a0a 11a33-11a39 11a3b-11a3e 11a47 11a51-11a5b 11a8a-11a99
11d31-11d36 11d3a 11d3c-11d3d 11d3f-11d45 11d47 11d8a-11d8e 11d90-11d91 11d93-11d97 11ef3-11ef6
16f4f 16f7f-16f87 16fe4 16ff0-16ff1 1cf00-1cf2d 1cf30-1cf46 1e130-1e136 1e2ae 1e2ec-1e2ef
"""
ANY_MARK_MORE = "1cf2-1cf3"
LETTER_MORE = """
1c89-1c8a a7cb-a7cd a7da-a7dc 105c0-105f3 10d4a-10d65 10d6f-10d85 10ec2-10ec4 1123f-11240
11380-11389 1138b 1138e 11390-113b5 113b7 113d1 113d3 11bc0-11be0 11f02 11f04-11f10 11f12-11f33
1342f 13441-13446 13460-143fa 16100-1611d 16d40-16d6c 18cff 1b132 1b155 1df25-1df2a 1e030-1e06d
1e4d0-1e4eb 1e5d0-1e5ed 1e5f0 2b739 2ebf0-2ee5d 31350-323af
"""
NUMBER_MORE = """
10d40-10d49 116d0-116e3 11bf0-11bf9 11f50-11f59 16130-16139 16d70-16d79 1ccf0-1ccf9 1d2c0-1d2d3
1e4f0-1e4f9 1e5f1-1e5fa
"""
# Numbers of Unicode 17.0, which the library takes for digits outside of regular expressions.
LATER_NUMBERS = "11de0-11de9 16ff4-16ff6"
# first-last:first of the lower-case run, a step of 1
LOWERCASE_MORE = """
1c89:1c8a a7cb:264 a7cc:a7cd a7ce:a7cf a7d2:a7d3 a7d4:a7d5 a7da:a7db a7dc:19b 10d50-10d65:10d70
16ea0-16eb8:16ebb
"""


def code_points() -> Iterator[int]:
    """Yield every scalar value."""
    for code in range(LAST + 1):
        if code not in SURROGATES:
            yield code


def parse(ranges: str) -> set[int]:
    """Read ``"61d 9fd-9ff"`` as a set of code points."""
    out: set[int] = set()
    for item in ranges.split():
        first, _, last = item.partition("-")
        out.update(range(int(first, 16), int(last or first, 16) + 1))
    return out


def corrected(base: Iterable[int], less: str = "", more: str = "") -> frozenset[int]:
    """Apply a table's corrections to the set that unicodedata gives."""
    return frozenset((set(base) - parse(less)) | parse(more))


def with_category(test: Callable[[str], bool]) -> set[int]:
    """Collect the code points whose general category passes ``test``."""
    return {code for code in code_points() if test(unicodedata.category(chr(code)))}


def properties() -> dict[int, int]:
    """Give each code point its flags."""
    whitespace = parse("9-d 20 85 a0 1680 2000-200a 2028-2029 202f 205f 3000")
    # Tab, line feed and carriage return become spaces; U+FFFD goes as the control characters do.
    removed = with_category(lambda c: c in {"Cc", "Cf", "Co"}) - {0x9, 0xA, 0xD} | {0xFFFD}
    ascii_symbols = parse("21-2f 3a-40 5b-60 7b-7e")
    punctuation = with_category(lambda c: c.startswith("P")) | ascii_symbols
    marks = with_category(lambda c: c == "Mn")
    any_mark = with_category(lambda c: c[0] == "M")
    word = with_category(lambda c: c[0] in "LM" or c in {"Nd", "Nl", "Pc"}) | {0x200C, 0x200D}
    sets = [
        (WHITESPACE, frozenset(whitespace)),
        (REMOVED, corrected(removed, REMOVED_LESS)),
        (PUNCTUATION, corrected(punctuation, PUNCTUATION_LESS, PUNCTUATION_MORE)),
        (MARK, corrected(marks, MARK_LESS, MARK_MORE)),
        (WORD, corrected(word, more=WORD_MORE)),
        (ANY_MARK, corrected(any_mark, ANY_MARK_LESS, ANY_MARK_MORE)),
    ]
    return {
        code: sum(flag for flag, members in sets if code in members) for code in range(LAST + 1)
    }


def categories() -> dict[int, int]:
    """Map the letters and the numbers of regular expressions to the values of the C++ table."""
    letters = corrected(with_category(lambda name: name[0] == "L"), more=LETTER_MORE)
    numbers = corrected(with_category(lambda name: name[0] == "N"), more=NUMBER_MORE)
    others = dict.fromkeys(range(LAST + 1), 0)
    later = dict.fromkeys(parse(LATER_NUMBERS), 3)
    return others | dict.fromkeys(letters, 1) | dict.fromkeys(numbers, 2) | later


def combining_classes() -> dict[int, int]:
    """Give each code point its canonical combining class."""
    starters = parse(COMBINING_LESS)
    return {
        code: 0 if code in starters else unicodedata.combining(chr(code))
        for code in range(LAST + 1)
    }


def decompositions() -> dict[int, str]:
    """Give the full canonical decomposition of each code point that has one, Hangul apart."""
    out: dict[int, str] = {}
    for code in code_points():
        if code in HANGUL or code in parse(DECOMPOSITION_LESS):
            continue
        decomposed = unicodedata.normalize("NFD", chr(code))
        if decomposed != chr(code):
            out[code] = decomposed
    return out


def compatibility() -> dict[int, str]:
    """Give the full compatibility decomposition where it is not the canonical one."""
    out: dict[int, str] = {}
    for code in set(code_points()) - parse(COMPATIBILITY_LESS):
        decomposed = unicodedata.normalize("NFKD", chr(code))
        if decomposed != unicodedata.normalize("NFD", chr(code)):
            out[code] = decomposed
    return out


def compositions() -> dict[tuple[int, int], int]:
    """Give the pairs that compose to one character, Hangul apart."""
    out: dict[tuple[int, int], int] = {}
    for code in set(code_points()) - parse(DECOMPOSITION_LESS):
        parts = unicodedata.decomposition(chr(code)).split()
        if len(parts) != 2 or parts[0].startswith("<"):
            continue
        first, second = (int(part, 16) for part in parts)
        if unicodedata.normalize("NFC", chr(first) + chr(second)) == chr(code):
            out[first, second] = code
    return out


def lowercase() -> dict[int, int]:
    """Give the lower-case letter of each code point that has one; U+0130 alone has two."""
    out: dict[int, int] = {}
    for code in code_points():
        lower = chr(code).lower()
        if len(lower) == 1 and lower != chr(code):
            out[code] = ord(lower)
        assert len(lower) == 1 or code == 0x130, hex(code)
    for item in LOWERCASE_MORE.split():
        source, _, target = item.partition(":")
        first, _, last = source.partition("-")
        for code in range(int(first, 16), int(last or first, 16) + 1):
            out[code] = int(target, 16) + code - int(first, 16)
    return out


def check_runs(classes: dict[int, int], decomposed: dict[int, str]) -> None:
    """Check what the normalizer relies on to reorder combining characters in place."""
    for code, text in decomposed.items():
        kinds = [classes[ord(c)] for c in text]
        assert all(kinds) or kinds[0] == 0, f"U+{code:04X} starts with a non-starter"
        assert len(text) <= 4, f"U+{code:04X} decomposes to {len(text)} code points"


def value_runs(values: dict[int, int]) -> list[tuple[int, int]]:
    """Compress code point -> value into (first code point, value) where the value changes."""
    runs: list[tuple[int, int]] = []
    for code in range(LAST + 1):
        if not runs or runs[-1][1] != values[code]:
            runs.append((code, values[code]))
    return runs


def lowercase_runs(lower: dict[int, int]) -> list[tuple[int, int, int, int]]:
    """Compress the mapping into (first, last, step, distance)."""
    runs: list[tuple[int, int, int, int]] = []
    for code in sorted(lower):
        distance = lower[code] - code
        if runs:
            first, last, step, previous = runs[-1]
            gap = code - last
            if distance == previous and (gap == step or (first == last and gap <= 2)):
                runs[-1] = (first, code, gap, distance)
                continue
        runs.append((code, code, 1, distance))
    return runs


def wrap(items: Iterable[str], *, indent: str, separator: str) -> str:
    """Join items into lines of at most 100 columns."""
    lines: list[str] = []
    line = indent
    for item in items:
        if len(line) + len(item) + len(separator.rstrip()) > 100:
            lines.append(line.rstrip())
            line = indent
        line += item + separator
    lines.append(line.rstrip())
    return "\n".join(lines)


def array(name: str, kind: str, items: list[str]) -> str:
    """Write one constant C++ array and its length."""
    body = wrap(items, indent="    ", separator=", ")
    return (
        f"extern const {kind} {name}[] = {{\n{body}\n}};\n"
        f"extern const int {name}_count = {len(items)};\n"
    )


def cpp(summary: str, arrays: list[str]) -> str:
    """Write a generated C++ file, which csrc/text/unicode/lookup.cpp includes."""
    head = (
        f"// {summary}\n"
        "// Generated by csrc/tools/make_unicode_tables.py from Unicode 14.0.0 and corrections.\n"
    )
    body = "\n".join(arrays)
    return f"{head}\n{body}"


def ranges_of(members: Iterable[int]) -> list[str]:
    """Write a set of code points as ``first-last`` items."""
    out: list[list[int]] = []
    for code in sorted(members):
        if out and out[-1][1] == code - 1:
            out[-1][1] = code
        else:
            out.append([code, code])
    return [f"{a:x}" if a == b else f"{a:x}-{b:x}" for a, b in out]


def python(text: dict[str, tuple[str, list[str]]]) -> str:
    """Write the generated Python module of the oracle."""
    parts = [
        '"""Unicode facts of Hugging Face tokenizers 0.23, as text, for the Python oracle.\n\n'
        "Generated by csrc/tools/make_unicode_tables.py from Unicode 14.0.0 and its corrections;\n"
        'do not edit.\n"""\n\nfrom typing import Final\n'
    ]
    for name, (comment, items) in text.items():
        body = wrap(items, indent="", separator=" ")
        parts.append(f'\n# {comment}\n{name}: Final = """\n{body}\n"""\n')
    return "".join(parts)


def write_cpp(
    flags: dict[int, int], classes: dict[int, int], lower: dict[int, int], nfd: dict[int, str]
) -> None:
    """Write the C++ files of properties and of canonical decompositions."""
    text = ROOT / "csrc/text/unicode"
    runs = [f"0x{code << 8 | value:x}" for code, value in value_runs(flags)]
    class_runs = [f"0x{code << 8 | value:x}" for code, value in value_runs(classes)]
    lower_runs = [f"{{0x{a:x}, 0x{b:x}, {s}, {d}}}" for a, b, s, d in lowercase_runs(lower)]
    (text / "properties.inc").write_text(
        cpp(
            "Character properties, combining classes and lower-case letters as runs.",
            [
                array("unicode_property_runs", "uint32_t", runs),
                array("unicode_combining_runs", "uint32_t", class_runs),
                array("unicode_lowercase_runs", "lowercase_run", lower_runs),
            ],
        )
    )
    category_runs = [f"0x{code << 8 | value:x}" for code, value in value_runs(categories())]
    (text / "categories.inc").write_text(
        cpp(
            "Letters and numbers of regular expressions, as runs.",
            [array("unicode_category_runs", "uint32_t", category_runs)],
        )
    )
    singles = [f"0x{c << 24 | ord(t):x}" for c, t in sorted(nfd.items()) if len(t) == 1]
    longer = [
        f"0x{number:x}"
        for code, text in sorted(nfd.items())
        if len(text) > 1
        for number in (len(text) << 24 | code, *map(ord, text))
    ]
    (text / "decompositions.inc").write_text(
        cpp(
            "Full canonical decompositions, Hangul syllables apart.",
            [
                array("unicode_singletons", "uint64_t", singles),
                array("unicode_decompositions", "uint32_t", longer),
            ],
        )
    )


def write_forms(compatible: dict[int, str], composed: dict[tuple[int, int], int]) -> None:
    """Write the C++ files of the normalization forms and of grapheme clusters."""
    text = ROOT / "csrc/text/unicode"
    parts = [
        f"0x{number:x}"
        for code, form in sorted(compatible.items())
        for number in (len(form) << 24 | code, *map(ord, form))
    ]
    pairs = [f"{{0x{a:x}, 0x{b:x}, 0x{c:x}}}" for (a, b), c in sorted(composed.items())]
    (text / "forms.inc").write_text(
        cpp(
            "Compatibility decompositions, and the pairs that compose.",
            [
                array("unicode_compatibility", "uint32_t", parts),
                array("unicode_compositions", "composition", pairs),
            ],
        )
    )
    runs = [f"0x{code << 8 | value:x}" for code, value in value_runs(grapheme_classes())]
    (text / "graphemes.inc").write_text(
        cpp(
            "Classes of characters that decide where grapheme clusters end, as runs.",
            [array("unicode_grapheme_runs", "uint32_t", runs)],
        )
    )


def write_python(
    flags: dict[int, int], classes: dict[int, int], lower: dict[int, int], nfd: dict[int, str]
) -> None:
    """Write the generated module of the Python oracle."""
    flag_names = (
        "1 white space, 2 removed by cleaning, 4 punctuation, 8 mark of Unicode 8.0 (Mn),\n"
        "# 16 word character, 32 mark of Unicode 9.0 (M)"
    )
    grapheme_names = ", ".join(CLASSES[:8]) + ",\n# " + ", ".join(CLASSES[8:])
    tables = {
        "PROPERTIES": (
            f"first code point and flags of each run:\n# {flag_names}",
            [f"{code:x}:{value:x}" for code, value in value_runs(flags)],
        ),
        "COMBINING": (
            "first code point and canonical combining class of each run",
            [f"{code:x}:{value}" for code, value in value_runs(classes)],
        ),
        "LOWERCASE": (
            "first, last, step and distance to the lower-case letter",
            [f"{a:x}:{b:x}:{s}:{d}" for a, b, s, d in lowercase_runs(lower)],
        ),
        "DECOMPOSABLE": (
            "code points with a canonical decomposition, Hangul syllables apart",
            ranges_of(nfd),
        ),
        "COMPATIBLE": (
            "code points whose compatibility decomposition is another",
            ranges_of(compatibility()),
        ),
        "GRAPHEME": (
            f"first code point and grapheme class of each run, from 0 on:\n# {grapheme_names}",
            [f"{code:x}:{value}" for code, value in value_runs(grapheme_classes())],
        ),
    }
    (ROOT / "tests/text/oracle/unicode_ranges.py").write_text(python(tables))


def main() -> int:
    """Write the generated files."""
    found = unicodedata.unidata_version
    if found != SOURCE_VERSION:
        print(f"needs unicodedata {SOURCE_VERSION} (Python 3.11), found {found}")
        return 1
    tables = properties(), combining_classes(), lowercase(), decompositions()
    check_runs(tables[1], tables[3])
    write_cpp(*tables)
    write_forms(compatibility(), compositions())
    write_python(*tables)
    return 0


if __name__ == "__main__":
    sys.exit(main())
