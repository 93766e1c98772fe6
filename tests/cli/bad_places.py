"""Inputs, outputs, models and options that cannot be what was meant, as steps to bring them about.

A case's ``prepare`` is given an empty folder with ``a.jsonl`` of 40 rows in it and ``run``, which
runs a command line; ``{folder}`` and ``{model}`` stand in the ``arguments`` of ``embed``, beside
which come ``-m {model}`` and, where no ``-o`` is among them, ``-o {folder}/out/``.
"""

from __future__ import annotations

import fcntl
import json
import resource
import shutil
from collections.abc import Callable
from contextlib import AbstractContextManager, contextmanager, nullcontext
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any

from encoder_engine.errors import (
    CheckpointFileError,
    ConfigError,
    InputError,
    LockedError,
    OutputError,
    ReadError,
    ResumeError,
    SequenceLengthError,
    TensorNamesError,
    TokenizerFileError,
)

if TYPE_CHECKING:
    from collections.abc import Iterator

    from encoder_engine.errors import EncoderEngineError

Embed = Callable[..., object]
Prepare = Callable[[Path, Embed], AbstractContextManager[Any]]


def nothing(_folder: Path, _embed: Embed) -> AbstractContextManager[Any]:
    """Leave the folder as it is."""
    return nullcontext()


@dataclass(frozen=True, kw_only=True)
class BadPlace:
    """A case of the catalogue."""

    arguments: str
    words: str
    error: type[EncoderEngineError]
    prepare: Prepare = nothing


def files(**content: bytes) -> Prepare:
    """Write files; an underscore in a name stands for its dot."""

    def prepare(folder: Path, _embed: Embed) -> AbstractContextManager[Any]:
        for name, value in content.items():
            (folder / name.replace("_", ".")).write_bytes(value)
        return nullcontext()

    return prepare


def folders(*names: str) -> Prepare:
    """Make folders."""

    def prepare(folder: Path, _embed: Embed) -> AbstractContextManager[Any]:
        for name in names:
            (folder / name).mkdir()
        return nullcontext()

    return prepare


def after(change: Callable[[Path], object], *options: object) -> Prepare:
    """Embed into ``out/`` with shards of 15 rows, then change something."""

    def prepare(folder: Path, embed: Embed) -> AbstractContextManager[Any]:
        embed(folder / "a.jsonl", "-o", f"{folder}/out/", "--shard-rows", 15, *options)
        change(folder)
        return nullcontext()

    return prepare


def link(to: str) -> Prepare:
    """Make ``link.txt`` a symbolic link."""

    def prepare(folder: Path, _embed: Embed) -> AbstractContextManager[Any]:
        (folder / "link.txt").symlink_to(to)
        return nullcontext()

    return prepare


def full_after(num_bytes: int) -> Prepare:
    """Let no file grow beyond so many bytes, as on a full disk."""

    @contextmanager
    def full() -> Iterator[None]:
        before = resource.getrlimit(resource.RLIMIT_FSIZE)
        resource.setrlimit(resource.RLIMIT_FSIZE, (num_bytes, before[1]))
        try:
            yield
        finally:
            resource.setrlimit(resource.RLIMIT_FSIZE, before)

    return lambda _folder, _embed: full()


@contextmanager
def _held(folder: Path) -> Iterator[None]:
    (folder / "out").mkdir()
    with (folder / "out" / ".encoder-engine.lock").open("w", encoding="ascii") as file:
        fcntl.flock(file, fcntl.LOCK_EX)
        yield


def model_with(change: Callable[[Path], object]) -> Prepare:
    """Copy the model to ``broken`` and change it."""

    def prepare(folder: Path, embed: Embed) -> AbstractContextManager[Any]:
        shutil.copytree(embed.model, folder / "broken")  # type: ignore[attr-defined]
        (folder / "broken" / "SHA256SUMS").unlink(missing_ok=True)
        change(folder / "broken")
        return nullcontext()

    return prepare


def write(name: str, content: bytes) -> Callable[[Path], object]:
    """Give a function that writes a file of a folder."""
    return lambda folder: (folder / name).write_bytes(content)


def remove(name: str) -> Callable[[Path], object]:
    """Give a function that removes a file of a folder."""
    return lambda folder: (folder / name).unlink()


def _row(text: str, number: int) -> bytes:
    return (json.dumps({"text": text, "id": number}) + "\n").encode()


def _more(folder: Path) -> None:
    with (folder / "a.jsonl").open("ab") as file:
        file.write(_row("one more", 40))


def _fewer(folder: Path) -> None:
    rows = (folder / "a.jsonl").read_bytes().splitlines(keepends=True)
    (folder / "a.jsonl").write_bytes(b"".join(rows[:15]))


def _layers(number: int) -> Callable[[Path], object]:
    def change(folder: Path) -> None:
        config = json.loads((folder / "config.json").read_text("utf-8"))
        config["num_hidden_layers"] = number
        (folder / "config.json").write_text(json.dumps(config), "utf-8")

    return change


def _cut_weights(folder: Path) -> None:
    path = folder / "model.safetensors"
    path.write_bytes(path.read_bytes()[:-100])


INPUTS: dict[str, BadPlace] = {
    name: BadPlace(arguments=arguments, words=words, error=error, prepare=prepare)
    for name, arguments, words, error, prepare in (
        ("a missing file", "{folder}/none.txt", "does not exist", ReadError, nothing),
        ("a name misspelt", "{folder}/a.json1", "did you mean .*a.jsonl", ReadError, nothing),
        ("a missing folder", "{folder}/no/a.txt", "does not exist", ReadError, nothing),
        ("an empty folder", "{folder}/b", "without files", ReadError, folders("b")),
        ("a glob of nothing", "{folder}/*.tsv", "matches no file", ReadError, nothing),
        ("an unknown ending", "{folder}/b.doc", "ending .doc", ReadError, files(b_doc=b"a")),
        ("no ending", "{folder}/b", r"ending \(none\)", ReadError, files(b=b"a")),
        ("an archive of what", "{folder}/b.gz", r"ending \(none\)", ReadError, files(b_gz=b"a")),
        ("a .json file", "{folder}/b.json", "ending .json", ReadError, files(b_json=b"[]")),
        ("a link to nothing", "{folder}/link.txt", "does not exist", ReadError, link("none.txt")),
        ("a link to itself", "{folder}/link.txt", "does not exist", ReadError, link("link.txt")),
        ("a name that is too long", "{folder}/" + "x" * 300, "too long", ReadError, nothing),
        ("standard input twice", "- -", "only once", InputError, nothing),
        ("Parquet by a pipe", "- --input-format parquet", "name the file", InputError, nothing),
        ("a column of lines", "{folder}/b.txt --column x", "no columns", InputError,
         files(b_txt=b"a\n")),
        ("one column for both", "{folder}/a.jsonl --column text --id-column text", "both 'text'",
         InputError, nothing),
        ("unique ids of none", "{folder}/a.jsonl --unique-ids", "id column", InputError, nothing),
    )
}  # fmt: skip
OUTPUTS: dict[str, BadPlace] = {
    name: BadPlace(arguments="{folder}/a.jsonl " + rest, words=words, error=error, prepare=prepare)
    for name, rest, words, error, prepare in (
        ("an output of another kind", "-o {folder}/x.csv", "must end in", OutputError, nothing),
        ("an output that exists", "-o {folder}/x.npy", "--overwrite", OutputError,
         files(x_npy=b"")),
        ("an output that is a folder", "-o {folder}/x.npy --overwrite", "file|folder", OutputError,
         folders("x.npy")),
        ("ids that exist", "-o {folder}/x.npy --id-column id", "x.ids.txt exists", OutputError,
         lambda folder, _: nullcontext((folder / "x.ids.txt").touch())),
        ("an output without a home", "-o {folder}/no/x.npy", "make it first", OutputError,
         nothing),
        ("a folder without a home", "-o {folder}/no/x/", "make it first", OutputError, nothing),
        ("an output over the input", "-o {folder}/b.npy --input-format jsonl --overwrite {folder}"
         "/b.npy", "one of the inputs", OutputError, files(b_npy=_row("a", 1))),
        ("a folder around the input", "-o {folder}", "holds inputs", OutputError, nothing),
        ("a folder that is a file", "-o {folder}/b --shard-rows 2", "is a file", OutputError,
         files(b=b"")),
        ("a folder called as a file", "-o {folder}/b.npy --shard-rows 2", "names a file",
         OutputError, nothing),
        ("a place nobody may write to", "-o /proc/x.npy", "written|writable", OutputError, nothing),
        ("a folder where none can be", "-o /proc/x/", "written|writable", OutputError, nothing),
        ("an output name too long", "-o {folder}/" + "x" * 300 + ".npy", "too long", OutputError,
         nothing),
        ("a folder name too long", "-o {folder}/" + "x" * 300 + "/", "too long", OutputError,
         nothing),
        ("ids under the vectors' name", "-o {folder}/x.parquet --id-column embedding",
         "may not be called", OutputError, nothing),
        ("a full disk", "-o {folder}/x.npy", "too large|No space", OutputError, full_after(1000)),
        ("a full disk under Parquet", "-o {folder}/x.parquet", "too large|No space", OutputError,
         full_after(1000)),
        ("a full disk under Arrow", "-o {folder}/x.arrow", "too large|No space", OutputError,
         full_after(1000)),
        ("a full disk under shards", "--shard-rows 15", "too large|No space", OutputError,
         full_after(2500)),
        ("a full disk from the start", "", "too large|No space", OutputError, full_after(600)),
        ("a folder of something else", "", "holds other files .*precious", OutputError,
         lambda folder, _: nullcontext([(folder / "out").mkdir(),
                                        (folder / "out" / "precious").touch()])),
        ("another run in the folder", "", "another run", LockedError,
         lambda folder, _: _held(folder)),
        ("a damaged manifest", "--shard-rows 15", "manifest.json is damaged", OutputError,
         after(write("out/_manifest.json", b"{"))),
        ("a damaged journal", "--shard-rows 15", "_journal.jsonl is damaged", OutputError,
         after(lambda folder: [remove("out/_manifest.json")(folder),
                               write("out/_journal.jsonl", b"nothing\n")(folder)])),
        ("a shard that was changed", "--shard-rows 15", "part-00001.npy is not as", OutputError,
         after(write("out/part-00001.npy", b"changed"))),
        ("rows that were changed", "--shard-rows 15", "rows 1 to 15 are not those", ResumeError,
         after(write("a.jsonl", _row("other", 0) * 40))),
        ("more rows than before", "--shard-rows 15", "inputs changed", ResumeError, after(_more)),
        ("fewer rows than before", "--shard-rows 15", "end after 15 rows", ResumeError,
         after(_fewer)),
        ("another option", "--shard-rows 15 --truncate-dim 4", r"truncate-dim was 16, is 4",
         ResumeError, after(lambda _: None)),
        ("another size of shards", "--shard-rows 16", r"rows was 15, is 16", ResumeError,
         after(lambda _: None)),
        ("another format", "--shard-rows 15 --shard-format arrow", "was 'npy', is 'arrow'",
         ResumeError, after(lambda _: None)),
        ("another column of ids", "--shard-rows 15 --id-column id", "was None, is 'id'",
         ResumeError, after(lambda _: None)),
    )
}  # fmt: skip
MODELS: dict[str, BadPlace] = {
    name: BadPlace(
        arguments="{folder}/a.jsonl -m {folder}/broken", words=words, error=error, prepare=prepare
    )
    for name, words, error, prepare in (
        ("a missing model", "broken", CheckpointFileError, nothing),
        ("a model that is a file", "directory", CheckpointFileError, files(broken=b"")),
        ("an empty model folder", "broken", TokenizerFileError, folders("broken")),
        ("a model without weights", "safetensors", CheckpointFileError,
         model_with(remove("model.safetensors"))),
        ("weights cut short", "model.safetensors", CheckpointFileError, model_with(_cut_weights)),
        ("weights that are none", "model.safetensors", CheckpointFileError,
         model_with(write("model.safetensors", b"weights"))),
        ("a model without its config", "config.json", CheckpointFileError,
         model_with(remove("config.json"))),
        ("a config that is no JSON", "config.json", ConfigError,
         model_with(write("config.json", b"{"))),
        ("a model without a vocabulary", "vocab", TokenizerFileError,
         model_with(remove("vocab.txt"))),
        ("a layer more than there is", "layer|missing", TensorNamesError, model_with(_layers(3))),
        ("a layer less than there is", "layer|unexpected", TensorNamesError,
         model_with(_layers(1))),
    )
}  # fmt: skip
OPTIONS: dict[str, BadPlace] = {
    name: BadPlace(arguments="{folder}/a.jsonl " + options, words=words, error=error)
    for name, options, words, error in (
        ("an unknown prompt", "--prompt-name web", "no prompt 'web'", InputError),
        ("two prompts", "--prompt-name query --prompt x", "not both", InputError),
        ("more features than there are", "--truncate-dim 99", "1..16", InputError),
        ("an unknown device", "--device nope", "nope", ConfigError),
        ("a device that is not there", "--device cuda:77", "cuda", ConfigError),
        ("a text beyond the limit", "--on-truncation error --prompt " + "x" * 40,
         "longer than 16 tokens", SequenceLengthError),
    )
}  # fmt: skip
PLACES = INPUTS | OUTPUTS | MODELS | OPTIONS
