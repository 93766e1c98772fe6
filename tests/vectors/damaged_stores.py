"""Damage stores by chance and use them: the results are those of the whole store, or an error.

``python -m tests.vectors.damaged_stores --cases 2000 --seed 1`` prints what was done and what it
came to, and fails where a result differs silently, an error has no type of the engine's, or a file
of others was changed.
"""

from __future__ import annotations

import argparse
import contextlib
import copy
import hashlib
import importlib.util
import io
import json
import random
import shutil
import tempfile
import warnings
from collections import Counter
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np

from encoder_engine.embedding import Embedder
from encoder_engine.errors import EncoderEngineError
from encoder_engine.locks import LOCK_NAME
from encoder_engine.vectors.faiss_index import IndexSettings, search_index, write_index
from encoder_engine.vectors.manifest import JOURNAL_NAME, MANIFEST_NAME
from encoder_engine.vectors.projection import project
from encoder_engine.vectors.search import search_vectors
from encoder_engine.vectors.stored_vectors import load_vectors
from tests.embedding.tiny_model import write_sentence_directory

if TYPE_CHECKING:
    from collections.abc import Callable

MEMORY = Path("/dev/shm")
NUM_ROWS, SHARD_ROWS, NUM_HITS = 40, 12, 5
FORMATS = ("npy", "parquet", "arrow", "lance")
VALUES: tuple[Any, ...] = (
    None, True, False, 0, 1, -1, 7, 10**30, 0.5, float("nan"), "", "x", "npy", "../outside.npy",
    "/etc/passwd", "part-00000.npy", "0" * 64, [], [1], ["x"], {}, {"x": 1},
)  # fmt: skip


@dataclass(frozen=True)
class Case:
    """One store, what was done to it, and how it is used."""

    shard_format: str
    ids: bool
    begun: bool
    damage: str
    use: str
    seed: int


class Stores:
    """Whole stores of every format, to be copied, and what comes of using them."""

    def __init__(self, home: Path) -> None:
        self.home = home
        self.embedder = Embedder.from_pretrained(
            write_sentence_directory(home / "model"), device="cpu", num_threads=1
        )
        rows = [json.dumps({"id": f"row-{i}", "text": f"text {i}"}) for i in range(NUM_ROWS)]
        self.inputs = home / "texts.jsonl"
        self.inputs.write_text("\n".join(rows) + "\n", encoding="utf-8")
        self.queries = self.embedder.encode(["the row", "text 7", "long words"])
        self.formats = [name for name in FORMATS if _installed(name)]
        self.uses = ["search", "load", "plot", "resume", "overwrite"]
        if importlib.util.find_spec("faiss") is not None:
            self.uses += ["index", "search by index"]
        self.truth: dict[tuple[str, bool, str], Any] = {}
        for shard_format in self.formats:
            for ids in (False, True):
                self._make(shard_format, ids)

    def _make(self, shard_format: str, ids: bool) -> None:
        whole = self.home / f"{shard_format}-{ids}"
        self.embed(whole, shard_format, ids)
        begun = self.home / f"{shard_format}-{ids}-begun"
        shutil.copytree(whole, begun)
        _begin_again(begun)
        if "index" in self.uses:
            index = IndexSettings(kind="flat")
            write_index(load_vectors(whole), whole.with_suffix(".faiss"), index)
        for use in self.uses:
            folder = self.home / "used"
            shutil.copytree(whole, folder)
            self.truth[shard_format, ids, use] = self.use(folder, whole, shard_format, ids, use)
            shutil.rmtree(folder)

    def embed(self, folder: Path, shard_format: str, ids: bool, **options: Any) -> None:
        """Embed all rows into a folder."""
        self.embedder.encode_dataset(
            self.inputs,
            folder,
            id_column="id" if ids else None,
            shard_rows=SHARD_ROWS,
            shard_format=shard_format,  # type: ignore[arg-type]
            **options,
        )

    def use(self, folder: Path, whole: Path, shard_format: str, ids: bool, use: str) -> Any:
        """Use a store, and return all that comes of it."""
        if use == "resume":
            self.embed(folder, shard_format, ids)
            return _vectors(folder)
        if use == "overwrite":
            self.embed(folder, shard_format, ids, overwrite=True)
            return _vectors(folder)
        stored = load_vectors(folder)
        if use == "search":
            return search_vectors(stored, self.queries, NUM_HITS)
        if use == "load":
            return stored.vectors.tobytes(), stored.ids, stored.rows, dict(stored.manifest or {})
        if use == "plot":
            found = project(stored, "pca", most_rows=10)
            return found.points.tobytes(), stored.identifiers(set(found.rows.tolist()))
        if use == "index":
            target = self.home / "made.faiss"
            write_index(stored, target, IndexSettings(kind="flat"), overwrite=True)
            return search_index(stored, target, self.queries, NUM_HITS)
        index = whole.with_suffix(".faiss")
        damaged = folder / "damaged.faiss"
        return search_index(stored, damaged if damaged.exists() else index, self.queries, NUM_HITS)


def _installed(shard_format: str) -> bool:
    needed = {"npy": "numpy", "lance": "lance"}.get(shard_format, "pyarrow")
    return importlib.util.find_spec(needed) is not None


def _vectors(folder: Path) -> Any:
    stored = load_vectors(folder)
    return stored.vectors.tobytes(), stored.ids


def _begin_again(folder: Path) -> None:
    """Bring a finished folder back to where a kill after two shards would have left it."""
    from encoder_engine.jobs.journal import Journal
    from encoder_engine.vectors.manifest import ShardRecord

    manifest = json.loads((folder / MANIFEST_NAME).read_text("utf-8"))
    (folder / MANIFEST_NAME).unlink()
    records = [ShardRecord(**shard) for shard in manifest["shards"]]
    for record in records[2:]:
        for name in record.files:
            (folder / name).unlink()
    Journal(folder).begin(manifest["plan"], records[:2])


# Each damages a folder; the names it returns are files of others, which have to stay.
def flip(folder: Path, chance: random.Random) -> list[Path]:
    """Flip a bit of a file, or some."""
    path = chance.choice(_files(folder))
    content = bytearray(path.read_bytes())
    for _ in range(chance.choice([1, 1, 1, 3, 50])):
        if content:
            content[chance.randrange(len(content))] ^= 1 << chance.randrange(8)
    path.write_bytes(content)
    return []


def cut(folder: Path, chance: random.Random) -> list[Path]:
    """Cut a file short, or let it go on."""
    path = chance.choice(_files(folder))
    content = path.read_bytes()
    more = content[: chance.randrange(1, 99)] if chance.random() < 0.3 else None
    path.write_bytes(content + more if more else content[: chance.randrange(len(content))])
    return []


def swap(folder: Path, chance: random.Random) -> list[Path]:
    """Exchange two files."""
    one, other = chance.sample(_files(folder), 2)
    held = one.read_bytes()
    one.write_bytes(other.read_bytes())
    other.write_bytes(held)
    return []


def remove(folder: Path, chance: random.Random) -> list[Path]:
    """Remove a file."""
    chance.choice(_files(folder)).unlink()
    return []


def rename(folder: Path, chance: random.Random) -> list[Path]:
    """Give a file the name of another, a new one, or none of ours."""
    path = chance.choice(_files(folder))
    names = [other.name for other in _files(folder)]
    names += ["part-00009.npy", "part-00001.parquet", "manifest.json", "journal.jsonl", "x.txt"]
    names += [f"{path.name}.0123abcd.partial", MANIFEST_NAME, JOURNAL_NAME, "_skipped.jsonl"]
    path.replace(folder / chance.choice(names))
    return []


def foreign(folder: Path, chance: random.Random) -> list[Path]:
    """Put files of others beside those of the store."""
    names = ["notes.txt", "manifest.json", "journal.jsonl", "skipped.jsonl", ".lock", LOCK_NAME]
    names += ["_skipped.jsonl", "part-00009.npy", "part-00001.parquet", "part-00003.ids.txt"]
    names += [MANIFEST_NAME, JOURNAL_NAME, "part-1.npy", "x.partial", "damaged.faiss"]
    contents = [b"theirs", b"", b"{}", b'{"plan": {}}\n', b"[1]\n", b"\x93NUMPY", b"4711 theirs"]
    made = []
    for name in chance.sample(names, chance.choice([1, 1, 2])):
        # An empty file of the lock's name is what a killed run may leave.
        if not (folder / name).exists():
            content = chance.choice(contents)
            (folder / name).write_bytes(content or (b"theirs" if name == LOCK_NAME else b""))
            made.append(folder / name)
    return [path for path in made if path.name != "damaged.faiss"]


def link(folder: Path, chance: random.Random) -> list[Path]:
    """Put a symbolic link in the place of a file, or of a lock."""
    outside = folder.parent / "outside"
    outside.mkdir(exist_ok=True)
    path = chance.choice([*_files(folder), folder / LOCK_NAME, folder / ".lock"])
    target = outside / "precious"
    kind = chance.choice(["copy", "other", "nowhere", "folder", "itself"])
    target.write_bytes(path.read_bytes() if kind == "copy" and path.exists() else b"precious")
    path.unlink(missing_ok=True)
    path.symlink_to(
        {"nowhere": outside / "none", "folder": outside, "itself": path}.get(kind, target)
    )
    return [target]


def mutate(folder: Path, chance: random.Random) -> list[Path]:
    """Change a key of the manifest or of the journal, its value, or its type."""
    path = next(p for name in (MANIFEST_NAME, JOURNAL_NAME) if (p := folder / name).exists())
    lines = path.read_text("utf-8")
    whole = path.name == MANIFEST_NAME
    values = [json.loads(lines)] if whole else [json.loads(line) for line in lines.splitlines()]
    places = list(_places(values))
    holder, key = chance.choice(places)
    kind = chance.choice(["value", "value", "drop", "name", "twist"])
    if kind == "value" or isinstance(holder, list):
        holder[key] = copy.deepcopy(chance.choice(VALUES))
    elif kind == "twist":
        holder[key] = _twisted(holder[key], chance)
    else:
        value = holder.pop(key)
        if kind == "name":
            holder[f"{key}x"] = value
    text = "\n".join(json.dumps(value, indent=1 if whole else None) for value in values)
    path.write_text(text + "\n", encoding="utf-8")
    return []


def resign(folder: Path, chance: random.Random) -> list[Path]:
    """Change the manifest, and give it the digest of what it now says, as a hand would."""
    from encoder_engine.vectors.manifest import manifest_content

    path = folder / MANIFEST_NAME
    if not path.exists():
        return []
    manifest = json.loads(path.read_text("utf-8"))
    del manifest["sha256"]
    places = [
        (holder, key)
        for holder, key in _places([manifest["shards"]])
        if key not in ("tokens", "truncated_rows", "rows_sha256")
    ]
    holder, key = chance.choice(places)
    holder[key] = copy.deepcopy(chance.choice(VALUES))
    path.write_bytes(manifest_content(manifest))
    return []


def reorder(folder: Path, chance: random.Random) -> list[Path]:
    """Change the ids, or the order of the lines of a record."""
    paths = [p for p in _files(folder) if p.name.endswith((".ids.txt", ".jsonl"))] or _files(folder)
    path = chance.choice(paths)
    lines = path.read_bytes().splitlines(keepends=True)
    first = chance.randrange(len(lines))
    kind = chance.choice(["swap", "drop", "twice", "change"])
    if kind == "swap":
        second = chance.randrange(len(lines))
        lines[first], lines[second] = lines[second], lines[first]
    elif kind == "drop":
        del lines[first]
    elif kind == "twice":
        lines.insert(first, lines[first])
    else:
        lines[first] = b"row-x\n"
    path.write_bytes(b"".join(lines))
    return []


def break_index(folder: Path, chance: random.Random) -> list[Path]:
    """Damage a copy of the index."""
    name = folder.parent.name
    source = folder.parent / "index.faiss"
    if not source.exists() or not name:
        return []
    content = bytearray(source.read_bytes())
    if chance.random() < 0.3:
        content = content[: chance.randrange(len(content))]
    else:
        content[chance.randrange(len(content))] ^= 1 << chance.randrange(8)
    (folder / "damaged.faiss").write_bytes(content)
    return []


DAMAGES: dict[str, Callable[[Path, random.Random], list[Path]]] = {
    function.__name__: function
    for function in (
        *(flip, cut, swap, remove, rename, foreign, link, mutate, resign, reorder, break_index),
    )
}


def _files(folder: Path) -> list[Path]:
    # Digests of rows are read by runs that append alone.
    files = (path for path in folder.iterdir() if not path.name.endswith(".rows.npy"))
    return sorted(path for path in files if path.is_file())


def _places(value: Any) -> Any:
    """Yield every place of a JSON value: its holder and its key."""
    keys = value.keys() if isinstance(value, dict) else range(len(value))
    for key in list(keys):
        yield value, key
        if isinstance(value[key], (dict, list)):
            yield from _places(value[key])


def _twisted(value: Any, chance: random.Random) -> Any:
    """Change a value as little as may be."""
    if isinstance(value, bool):
        return not value
    if isinstance(value, (int, float)):
        return chance.choice([value + 1, value - 1, float(value), str(value)])
    if isinstance(value, str) and value:
        return chance.choice([value[:-1], value + "x", value.swapcase(), value[::-1]])
    if isinstance(value, list):
        return chance.choice([value[:-1], value[::-1], value + value])
    return [value]


def run_case(stores: Stores, case: Case) -> str:
    """Damage a copy and use it; say what came: equal, an error's name, or what is wrong."""
    chance = random.Random(case.seed)
    whole = stores.home / f"{case.shard_format}-{case.ids}"
    source = whole.with_name(f"{whole.name}-begun") if case.begun else whole
    with tempfile.TemporaryDirectory(dir=stores.home) as place:
        folder = Path(place) / "store"
        shutil.copytree(source, folder)
        if whole.with_suffix(".faiss").exists():
            shutil.copy(whole.with_suffix(".faiss"), Path(place) / "index.faiss")
        theirs = DAMAGES[case.damage](folder, chance)
        before = {path: path.read_bytes() for path in theirs if path.is_file()}
        state = _state(folder)
        try:
            with contextlib.redirect_stderr(io.StringIO()), warnings.catch_warnings():
                warnings.simplefilter("ignore")
                found = stores.use(folder, whole, case.shard_format, case.ids, case.use)
        except EncoderEngineError as error:
            outcome = type(error).__name__
        except Exception as error:  # what this looks for
            return f"UNTYPED {type(error).__name__}: {error}"
        else:
            truth = stores.truth[case.shard_format, case.ids, case.use]
            outcome = "equal" if _same(found, truth) else "DIFFERENT"
        for path, content in before.items():
            if not path.is_file() or path.read_bytes() != content:
                return f"TAKEN {path.name}"
        reading = case.use not in ("resume", "overwrite")
        if reading and _state(folder) != state:
            return "WRITTEN by a reader"
        return outcome


def _state(folder: Path) -> dict[str, Any]:
    return {
        path.name: hashlib.sha256(path.read_bytes()).hexdigest() if path.is_file() else None
        for path in folder.iterdir()
    }


def _same(found: Any, truth: Any) -> bool:
    """Compare results; scores of another order of sums may differ in the last bits."""
    if isinstance(found, list):
        pairs = [
            (a, b)
            for one, two in zip(found, truth, strict=True)
            for a, b in zip(one, two, strict=True)
        ]
        return all(
            (a.row, a.identifier) == (b.row, b.identifier) and np.isclose(a.score, b.score, 1e-5)
            for a, b in pairs
        )
    return bool(found == truth)


def draw(stores: Stores, num_cases: int, seed: int) -> list[Case]:
    """Draw cases by chance."""
    chance = random.Random(seed)
    cases = []
    for number in range(num_cases):
        use = chance.choice(stores.uses)
        begun = use in ("resume", "overwrite") and chance.random() < 0.5
        damages = [name for name in DAMAGES if name != "break_index" or use == "search by index"]
        cases.append(
            Case(
                shard_format=chance.choice(stores.formats),
                ids=chance.random() < 0.5,
                begun=begun,
                damage=chance.choice(damages),
                use=use,
                seed=seed * 1_000_003 + number,
            )
        )
    return cases


def run(num_cases: int, seed: int) -> tuple[Counter[str], list[tuple[Case, str]]]:
    """Run cases; return how often each came out, and those that are wrong."""
    outcomes: Counter[str] = Counter()
    wrong = []
    with tempfile.TemporaryDirectory(dir=MEMORY if MEMORY.is_dir() else None) as home:
        stores = Stores(Path(home))
        for case in draw(stores, num_cases, seed):
            outcome = run_case(stores, case)
            outcomes[outcome.partition(" ")[0]] += 1
            if outcome.partition(" ")[0].isupper():
                wrong.append((case, outcome))
    return outcomes, wrong


def main() -> int:
    """Do what the command line asks, and print a line of JSON."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--cases", type=int, default=2000)
    parser.add_argument("--seed", type=int, default=0)
    arguments = parser.parse_args()
    outcomes, wrong = run(arguments.cases, arguments.seed)
    for case, outcome in wrong:
        print(f"{case}: {outcome}")
    print(json.dumps({"cases": arguments.cases, "wrong": len(wrong), **outcomes}))
    return int(bool(wrong))


if __name__ == "__main__":
    raise SystemExit(main())
