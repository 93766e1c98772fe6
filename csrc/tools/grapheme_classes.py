"""Grapheme cluster classes of Unicode 17.0, which tokenizers 0.23 goes by.

Most follow from the general category in Python's unicodedata (Unicode 14.0); the rest is listed.
"""

from __future__ import annotations

import unicodedata

__all__ = ["CLASSES", "grapheme_classes"]

# The order of csrc/text/unicode/grapheme.h.
CLASSES = (
    *("other", "control", "carriage_return", "line_feed", "extend", "joiner", "spacing", "prepend"),
    *("hangul_l", "hangul_v", "hangul_t", "regional", "pictograph", "consonant", "linker"),
    "non_joiner",
)

CONTROL_LESS = "600-605 6dd 70f 890-891 8e2 200c-200d 110bd 110cd e0020-e007f"
CONTROL_MORE = "2065 fff0-fff8 13439-1343f e0000 e0002-e001f e0080-e00ff e01f0-e0fff"
EXTEND_LESS = "1171e"
EXTEND_MORE = """
897 9be 9d7 b3e b57 bbe bd7 cc0 cc2 cc7-cc8 cca-ccb cd5-cd6 d3e d57 dcf ddf ece 1715 1734 1acf-1add
1ae0-1aeb 1b35 1b3b 1b3d 1b43-1b44 1baa 1bf2-1bf3 302e-302f a953 a9c0 ff9e-ff9f 10d69-10d6d
10efa-10eff 111c0 11235 11241 1133e 1134d 11357 113b8 113bb-113c0 113c2 113c5 113c7-113c9
113ce-113d0 113d2 113e1-113e2 114b0 114bd 115af 116b6 11930 1193d 11b60 11b62-11b64 11b66
11f00-11f01 11f36-11f3a 11f40-11f42 11f5a 13440 13447-13455 1611e-16129 1612d-1612f 16ff0-16ff1
1d165-1d166 1d16d-1d172 1e08f 1e4ec-1e4ef 1e5ee-1e5ef 1e6e3 1e6e6 1e6ee-1e6ef 1e6f5 1f3fb-1f3ff
e0020-e007f
"""
SPACING_LESS = """
9be 9d7 b3e b57 bbe bd7 cc0 cc2 cc7-cc8 cca-ccb cd5-cd6 d3e d57 dcf ddf 102b-102c 1038 1062-1064
1067-106d 1083 1087-108c 108f 109a-109c 1715 1734 1a61 1a63-1a64 1b35 1b3b 1b3d 1b43-1b44 1baa
1bf2-1bf3 302e-302f a953 a9c0 aa7b aa7d 111c0 11235 1133e 1134d 11357 114b0 114bd 115af 116b6
11720-11721 11930 1193d 16ff0-16ff1 1d165-1d166 1d16d-1d172
"""
SPACING_MORE = """
cf3 e33 eb3 113b9-113ba 113ca 113cc-113cd 1171e 11b61 11b65 11b67 11f03 11f34-11f35 11f3e-11f3f
1612a-1612c
"""
PREPEND = """
600-605 6dd 70f 890-891 8e2 d4e 110bd 110cd 111c2-111c3 113d1 1193f 11941 11a84-11a89 11d46 11f02
"""
HANGUL_L = "1100-115f a960-a97c"
HANGUL_V = "1160-11a7 d7b0-d7c6 16d63 16d67-16d6a"
HANGUL_T = "11a8-11ff d7cb-d7fb"
REGIONAL = "1f1e6-1f1ff"
PICTOGRAPH = """
a9 ae 203c 2049 2122 2139 2194-2199 21a9-21aa 231a-231b 2328 23cf 23e9-23f3 23f8-23fa 24c2
25aa-25ab 25b6 25c0 25fb-25fe 2600-2604 260e 2611 2614-2615 2618 261d 2620 2622-2623 2626 262a
262e-262f 2638-263a 2640 2642 2648-2653 265f-2660 2663 2665-2666 2668 267b 267e-267f 2692-2697 2699
269b-269c 26a0-26a1 26a7 26aa-26ab 26b0-26b1 26bd-26be 26c4-26c5 26c8 26ce-26cf 26d1 26d3-26d4
26e9-26ea 26f0-26f5 26f7-26fa 26fd 2702 2705 2708-270d 270f 2712 2714 2716 271d 2721 2728 2733-2734
2744 2747 274c 274e 2753-2755 2757 2763-2764 2795-2797 27a1 27b0 27bf 2934-2935 2b05-2b07 2b1b-2b1c
2b50 2b55 3030 303d 3297 3299 1f004 1f02c-1f02f 1f094-1f09f 1f0af-1f0b0 1f0c0 1f0cf-1f0d0
1f0f6-1f0ff 1f170-1f171 1f17e-1f17f 1f18e 1f191-1f19a 1f1ae-1f1e5 1f201-1f20f 1f21a 1f22f
1f232-1f23a 1f23c-1f23f 1f249-1f25f 1f266-1f321 1f324-1f393 1f396-1f397 1f399-1f39b 1f39e-1f3f0
1f3f3-1f3f5 1f3f7-1f3fa 1f400-1f4fd 1f4ff-1f53d 1f549-1f54e 1f550-1f567 1f56f-1f570 1f573-1f57a
1f587 1f58a-1f58d 1f590 1f595-1f596 1f5a4-1f5a5 1f5a8 1f5b1-1f5b2 1f5bc 1f5c2-1f5c4 1f5d1-1f5d3
1f5dc-1f5de 1f5e1 1f5e3 1f5e8 1f5ef 1f5f3 1f5fa-1f64f 1f680-1f6c5 1f6cb-1f6d2 1f6d5-1f6e5 1f6e9
1f6eb-1f6f0 1f6f3-1f6ff 1f7da-1f7ff 1f80c-1f80f 1f848-1f84f 1f85a-1f85f 1f888-1f88f 1f8ae-1f8af
1f8bc-1f8bf 1f8c2-1f8cf 1f8d9-1f8ff 1f90c-1f93a 1f93c-1f945 1f947-1f9ff 1fa58-1fa5f 1fa6e-1faff
1fc00-1fffd
"""
# Of four bytes there are more; next to such a one nothing can tell, as no rule of a charsmap is
# tried on a cluster of six bytes.
CONSONANT = """
915-939 958-95f 978-97f 995-9a8 9aa-9b0 9b2 9b6-9b9 9dc-9dd 9df 9f0-9f1 a95-aa8 aaa-ab0 ab2-ab3
ab5-ab9 af9 b15-b28 b2a-b30 b32-b33 b35-b39 b5c-b5d b5f b71 c15-c28 c2a-c39 c58-c5a d15-d3a
1000-102a 103f 1050-1055 105a-105d 1061 1065-1066 106e-1070 1075-1081 108e 1780-17b3 1a20-1a54
1b0b-1b0c 1b13-1b33 1b45-1b4c 1b83-1ba0 1bae-1baf 1bbb-1bbd a989-a98b a98f-a9b2 a9e0-a9e4 a9e7-a9ef
a9fa-a9fe aa60-aa6f aa71-aa73 aa7a aa7e-aa7f aae0-aaea abc0-abda
"""
LINKER = """
94d 9cd acd b4d c4d d4d 1039 17d2 1a60 1b44 1bab a9c0 aaf6 10a3f 11133 113d0 1193e 11a47 11a99 11f42
"""


def _parse(ranges: str) -> set[int]:
    out: set[int] = set()
    for item in ranges.split():
        first, _, last = item.partition("-")
        out.update(range(int(first, 16), int(last or first, 16) + 1))
    return out


def _with_category(*categories: str) -> set[int]:
    return {c for c in range(0x110000) if unicodedata.category(chr(c)) in categories}


def grapheme_classes() -> dict[int, int]:
    """Give each code point's class; a Hangul syllable's follows from its number."""
    control = _with_category("Cc", "Cf", "Zl", "Zp") - _parse(CONTROL_LESS)
    extend = _with_category("Mn", "Me") - _parse(EXTEND_LESS)
    sets = {
        "control": control | _parse(CONTROL_MORE),
        "carriage_return": {0xD},
        "line_feed": {0xA},
        "spacing": (_with_category("Mc") - _parse(SPACING_LESS)) | _parse(SPACING_MORE),
        "extend": extend | _parse(EXTEND_MORE),
        "linker": _parse(LINKER),
        "joiner": {0x200D},
        "non_joiner": {0x200C},
        "prepend": _parse(PREPEND),
        "hangul_l": _parse(HANGUL_L),
        "hangul_v": _parse(HANGUL_V),
        "hangul_t": _parse(HANGUL_T),
        "regional": _parse(REGIONAL),
        "pictograph": _parse(PICTOGRAPH),
        "consonant": _parse(CONSONANT),
    }
    out = dict.fromkeys(range(0x110000), 0)
    for name, members in sets.items():
        out.update(dict.fromkeys(members, CLASSES.index(name)))
    return out
