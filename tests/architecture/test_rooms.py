"""Rooms stay small and arrows go one way, counted on every import there is."""

from __future__ import annotations

import ast
from collections import Counter
from typing import TYPE_CHECKING

import pytest

from tests.architecture.drawing import FOLDERS, draw, files_of
from tests.architecture.sources import ROOT, imports, module_name, sources

if TYPE_CHECKING:
    from pathlib import Path


MOST_FILES = 20
MOST_LINES = 500
MOST_HEADER_LINES = 200
# A family is a file.
ANY_NUMBER_OF_FILES = {"encoder_engine/families/data"}
# Templates, which a source file instantiates: a header is where their code has to be.
LONGER_HEADERS = {
    "csrc/cpu/simd/attention/amx_attention_kernel.h",
    "csrc/text/bpe/words.h",
    "csrc/text/unigram/lane.h",
    "csrc/text/normalizer/walk.h",
    "csrc/text/unigram/words.h",
    "csrc/text/wordpiece/word_sinks.h",
}
# What is imported at its first use: the extension, which may not be built, what is made of it,
# PyTorch, which a user of the tokenizer does not wait for, files, jobs over them, static tables.
LATE_IMPORTS = {
    ("encoder_engine.embedding.embedder", "encoder_engine.embedding.static.embedder"),
    ("encoder_engine.embedding.embedder", "encoder_engine.embedding.static.reading"),
    ("encoder_engine.jobs.keywords", "encoder_engine.jobs.job"),
    ("encoder_engine.jobs.keywords", "encoder_engine.jobs.run"),
    ("encoder_engine.kinds.dense", "encoder_engine.text.fingerprint"),
    ("encoder_engine.kinds.model", "encoder_engine.kinds.plan"),
    ("encoder_engine.engine.choosing", "encoder_engine.engine"),
    ("encoder_engine.integrations.acceleration.compiled_copy", "encoder_engine.ops.native.memory"),
    ("encoder_engine.inputs.text_rows", "encoder_engine"),
    ("encoder_engine.models.compiling", "encoder_engine.inference"),
    ("encoder_engine.ops.cpu", "encoder_engine"),
    ("encoder_engine.ops.split_heads", "encoder_engine.kernels.rotary.operator"),
    ("encoder_engine.text.calls.columns", "encoder_engine.packing.tensors"),
    ("encoder_engine.text.encoding", "encoder_engine.packing"),
    ("encoder_engine.text.extension", "encoder_engine"),
    ("encoder_engine.text.tokenizer", "encoder_engine.inputs.readers"),
    ("encoder_engine.text.tokenizer", "encoder_engine.inputs.text_rows"),
    ("encoder_engine.training.adamw", "encoder_engine.ops.native"),
    ("encoder_engine.training.adamw", "encoder_engine.ops.native.adamw"),
}


def test_no_arrow_goes_up() -> None:
    assert not {folder.name: folder.arrows_up for folder in draw() if folder.arrows_up}


@pytest.mark.parametrize("top", [*FOLDERS, "tests", "benchmarks/tests"])
def test_no_folder_has_too_many_files(top: str) -> None:
    found = [path for suffix in ("py", "h", "cpp") for path in (ROOT / top).rglob(f"*.{suffix}")]
    counts = Counter(path.parent.relative_to(ROOT).as_posix() for path in found)
    crowded = {name: n for name, n in counts.items() if n > MOST_FILES} | {}
    assert not crowded.keys() - ANY_NUMBER_OF_FILES, crowded


def test_files_are_short_enough_to_be_read_whole() -> None:
    too_long = {}
    for path in files_of(ROOT):
        name = path.as_posix()
        if path.suffix == ".pyi":
            # A list of the extension's names, which is looked up, and not read.
            continue
        most = MOST_HEADER_LINES if path.suffix == ".h" else MOST_LINES
        lines = len((ROOT / path).read_text(encoding="utf-8").splitlines())
        if lines > most and name not in LONGER_HEADERS:
            too_long[name] = lines
    assert not too_long


def late_imports(path: Path) -> set[str]:
    """Name the modules of the package that a file imports within functions."""
    found = set()
    for function in ast.walk(ast.parse(path.read_text(encoding="utf-8"))):
        if isinstance(function, (ast.FunctionDef, ast.AsyncFunctionDef)):
            for node in ast.walk(function):
                if isinstance(node, ast.ImportFrom):
                    relative = "encoder_engine." if node.level else ""
                    found.add(relative + (node.module or ""))
                if isinstance(node, ast.Import):
                    found |= {alias.name for alias in node.names}
    return {name for name in found if name.partition(".")[0] == "encoder_engine"}


def test_the_package_imports_itself_at_the_top_of_a_file() -> None:
    found = {
        (module_name(path), imported)
        for path in sources("encoder_engine")
        if path.relative_to(ROOT).parts[1] != "cli"
        for imported in late_imports(path)
    }
    assert found == LATE_IMPORTS


def test_nothing_below_imports_the_root() -> None:
    faces = {f"encoder_engine.{room}" for room in ("_native", "errors", "files", "kernels", "ops")}
    below = {path.stem for path in (ROOT / "encoder_engine").iterdir()} | {"kernels", "_native"}
    wrong = [
        found
        for path in sources("encoder_engine", "kernels", "benchmarks/measuring")
        for found in imports(path)
        if found.imported.partition(".")[0] == "encoder_engine"
        and found.importer != "encoder_engine"
        and found.imported not in faces
        and found.imported.split(".")[1:2] not in [[name] for name in below]
    ]
    assert not wrong


def test_benchmarks_and_tests_do_not_import_each_other() -> None:
    for folder, other in (("benchmarks", "tests"), ("tests", "benchmarks")):
        for path in sources(folder):
            for found in imports(path):
                assert found.imported.partition(".")[0] != other, found


def test_one_file_of_embedding_imports_pytorch() -> None:
    found = {
        found.importer
        for path in sources("encoder_engine/engine")
        for found in imports(path)
        if found.imported.partition(".")[0] == "torch" and not under_type_checking(path, found.line)
    }
    assert found == {"encoder_engine.engine.module"}


def under_type_checking(path: Path, line: int) -> bool:
    """Return whether a line is for type checkers alone."""
    blocks = [node for node in ast.parse(path.read_text("utf-8")).body if isinstance(node, ast.If)]
    return any(
        isinstance(block.test, ast.Name)
        and block.test.id == "TYPE_CHECKING"
        and block.lineno <= line <= (block.end_lineno or line)
        for block in blocks
    )
