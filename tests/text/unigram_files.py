"""Writes tokenizer.json files with Unigram models: the published shapes, and odd ones."""

from __future__ import annotations

import base64
import json
import lzma
from typing import TYPE_CHECKING, Any

from tests.text.charsmaps import build_charsmap

if TYPE_CHECKING:
    from pathlib import Path

FLAGS = ("single_word", "lstrip", "rstrip", "normalized", "special")
WHITESPACE_SPLIT = {"type": "WhitespaceSplit"}
# Rules with what the published ones lack: keys that are others' beginnings, that begin with a space
# or a mark, that vanish, and that grow.
ODD_RULES = {
    "a": "á",
    "ab": "x",
    " \u0308": "_",
    "\u0301": "",
    "b\u0323": "",
    "c": "",
    "ﬁ": "fi",
    "e": "e e",
    "ﷺ": "one two three",
    "▁": " ",
    "q": "▁",
    "中": " ",
    "\u0e33": "\u0e4d\u0e32",
}


def unpack_unigram(data: Path, folder: Path) -> list[Path]:
    """Unpack tokenizer.json of XLM-R and XLNet out of the data folder."""
    out: list[Path] = []
    for name in ("uni_xlmr250k", "uni_xlnet32k"):
        out.append(folder / f"{name}.tokenizer.json")
        out[-1].write_bytes(
            lzma.decompress((data / f"vocab/{name}.tokenizer.json.xz").read_bytes())
        )
    return out


def odd_charsmap() -> str:
    """Compile the odd rules, as a file holds them."""
    return base64.b64encode(build_charsmap(ODD_RULES)).decode()


def added(content: str, **flags: bool) -> dict[str, Any]:
    """Make an added token, its id still open."""
    return {"id": None, "content": content} | {name: flags.get(name, False) for name in FLAGS}


def renumbered(tokens: list[dict[str, Any]], vocab: list[list[Any]]) -> list[dict[str, Any]]:
    """Give added tokens the ids that the library gives them."""
    ids = {piece[0]: index for index, piece in enumerate(vocab)}
    out: list[dict[str, Any]] = []
    following = len(vocab)
    for token in tokens:
        known = ids.get(token["content"])
        out.append({**token, "id": following if known is None else known})
        following += known is None
    return out


def metaspace(scheme: str = "always", *, split: bool = True, mark: str = "▁") -> dict[str, Any]:
    """Make a Metaspace."""
    return {"type": "Metaspace", "replacement": mark, "prepend_scheme": scheme, "split": split}


def sequence(kind: str, *parts: dict[str, Any]) -> dict[str, Any]:
    """Make a Sequence of normalizers, pretokenizers or decoders."""
    return {"type": "Sequence", kind: list(parts)}


def replace(pattern: str, content: str, *, regex: bool = False) -> dict[str, Any]:
    """Make a Replace."""
    kind = "Regex" if regex else "String"
    return {"type": "Replace", "pattern": {kind: pattern}, "content": content}


DECODERS: list[dict[str, Any] | None] = [
    metaspace(),
    sequence(
        "decoders",
        replace("▁", " "),
        {"type": "ByteFallback"},
        {"type": "Fuse"},
        {"type": "Strip", "content": " ", "start": 1, "stop": 0},
    ),
    metaspace("never"),
    sequence("decoders", {"type": "ByteFallback"}, metaspace("first")),
    {"type": "Strip", "content": "s", "start": 0, "stop": 1},
    None,
]


def unigram_variants(base: dict[str, Any], charsmap: str) -> dict[str, dict[str, Any]]:
    """Give tokenizer.json files with the vocabulary of ``base``, by name."""
    rules = {"type": "Precompiled", "precompiled_charsmap": charsmap}
    odd = {"type": "Precompiled", "precompiled_charsmap": odd_charsmap()}
    one_space = replace(" {2,}", " ", regex=True)
    kinds = {"albert": ("NFKD", "StripAccents", "Lowercase"), "nfd": ("NFD",), "nfc": ("NFC",)}
    kinds["nfkc"] = ("NFKC",)
    forms = {name: [{"type": kind} for kind in steps] for name, steps in kinds.items()}
    quotes = [replace("``", '"'), replace("''", '"')]
    strip = {"type": "Strip", "strip_left": True, "strip_right": True}
    rstrip = {"type": "Strip", "strip_left": False, "strip_right": True}
    both = sequence("pretokenizers", WHITESPACE_SPLIT, metaspace())
    shapes: dict[str, tuple[list[dict[str, Any]], dict[str, Any] | None]] = {
        "albert": ([*quotes, *forms["albert"], rules, one_space], metaspace()),
        "albert_split": ([*quotes, *forms["albert"], rules], both),
        "t5": ([rules, rstrip, replace(" {2,}", "▁", regex=True)], metaspace()),
        "t5_first": ([rules, one_space], metaspace("first")),
        "deberta": ([{"type": "Lowercase"}, strip, rules, one_space], metaspace()),
        "deberta_5": (
            [replace(r"\s{2,}|[\n\r\t]", " ", regex=True), *forms["nfc"], rstrip],
            sequence("pretokenizers", metaspace()),
        ),
        "whole": ([rules], metaspace(split=False)),
        "whole_never": ([rules, one_space], metaspace("never", split=False)),
        "never": ([{"type": "Prepend", "prepend": "▁"}, replace(" ", "▁")], None),
        "bare": ([], None),
        "split_only": ([rules], WHITESPACE_SPLIT),
        "nfkc": ([*forms["nfkc"], replace(r"\s+", " ", regex=True)], both),
        "nfd": ([*forms["nfd"], {"type": "Prepend", "prepend": "a "}], metaspace("first")),
        "odd": ([odd, one_space], metaspace()),
        "odd_lower": ([odd, {"type": "Lowercase"}, odd], metaspace("first")),
        "odd_strip": ([odd, strip, *forms["nfkc"], replace("x", "")], both),
        "marks": ([rules, replace("an", "n a"), one_space], metaspace(mark="a")),
        "early_spaces": ([one_space, rules], metaspace()),
    }
    out: dict[str, dict[str, Any]] = {}
    for name, (steps, splitter) in shapes.items():
        config = json.loads(json.dumps(base))
        normalizer = None if not steps else sequence("normalizers", *steps)
        config |= {"normalizer": normalizer, "pre_tokenizer": splitter}
        config["decoder"] = DECODERS[len(out) % len(DECODERS)]
        out[name] = config
    raw = [
        added("<extra>", lstrip=True, special=True),
        added("ab", single_word=True),
        added("[M]", rstrip=True, lstrip=True),
        added(" x"),
        added("\u0301"),
    ]
    normal = [
        added("NORM", normalized=True),
        added("É 中", normalized=True, lstrip=True, rstrip=True),
        added("Word", normalized=True, single_word=True),
        added("<Raw>", rstrip=True),
    ]
    for name, tokens in (("raw", raw), ("normal", normal)):
        for shape in ("albert", "t5_first", "odd", "whole"):
            config = json.loads(json.dumps(out[shape]))
            config["added_tokens"] += renumbered(tokens, config["model"]["vocab"])
            out[f"{shape}_{name}"] = config
    for shape in ("t5", "whole"):
        config = json.loads(json.dumps(out[shape]))
        config["model"]["byte_fallback"] = True
        pieces = [[f"<0x{byte:02X}>", 0.0] for byte in range(256)]
        config["model"]["vocab"] += [piece for piece in pieces if piece[0] != "<0x41>"]
        out[f"{shape}_bytes"] = config
        out[f"{shape}_all_bytes"] = json.loads(json.dumps(config))
        out[f"{shape}_all_bytes"]["model"]["vocab"] += [["<0x41>", -1.0]]
    return out


def small_vocabulary(pieces: list[list[Any]], every: int) -> list[list[Any]]:
    """Keep one piece in so many, all short ones, and some that are whole numbers apart in score."""
    kept = [p for i, p in enumerate(pieces) if i % every == 0 or len(p[0]) == 1 or i < 300]
    ties = ["xx", "xxx", "xxxx", "▁x", "▁▁", "a▁b", "中", "ab", "ba", "aba"]
    names = {piece[0] for piece in kept}
    return [*kept, *([name, -5.0 * len(name)] for name in ties if name not in names)]


def write_unigram_files(source: dict[str, Any], folder: Path) -> list[Path]:
    """Write the variants of a tokenizer.json with a small vocabulary, and give their paths."""
    base = json.loads(json.dumps(source))
    charsmap = base["normalizer"]["normalizers"][0]["precompiled_charsmap"]
    base["model"]["vocab"] = small_vocabulary(base["model"]["vocab"], 40)
    paths = []
    for name, config in unigram_variants(base, charsmap).items():
        paths.append(folder / f"unigram_{name}.json")
        paths[-1].write_text(json.dumps(config), encoding="utf-8")
    return paths
