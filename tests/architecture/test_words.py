"""Names and docstrings use the field's words: private words and riddles do not come back."""

from __future__ import annotations

import ast
import io
import re
import tokenize
from typing import TYPE_CHECKING

import pytest

from tests.architecture.sources import ROOT, sources

if TYPE_CHECKING:
    from pathlib import Path

# Private words as names, and the words to use instead.
WORDS = {
    "Exercise": "CorruptedBatch",
    "Feed": "BatchStream",
    "Meal": "StepBatches",
    "Moment": "Progress",
    "Turn": "Slice",
    "_gradient_norm": "_clip_gradient",
    "_served": "_step_batches",
    "_walk": "_attend, or a verb for what is computed",
    "asked": "requested",
    "behind": "next_position, left, or after",
    "exercise": "corrupted",
    "meal": "batches",
    "meals": "steps",
    "on_its_own": "is_automatic",
    "rate_factor": "learning_rate_factor",
    "said": "message, settings, or the noun of the value",
    "set_rate": "set_learning_rate",
    "told": "explanation, message, or the noun of the value",
    "unasked": "automatic",
}
# A docstring begins with a verb, or says what the thing is.
RIDDLES = ("How", "What", "Which", "Who", "Whom")
FILES = list(sources("encoder_engine", "kernels"))
CPP_FILES = sorted(path for path in (ROOT / "csrc").rglob("*") if path.suffix in {".cpp", ".h"})
# Comments and strings of C++.
NO_CODE = re.compile(r"//[^\n]*|/\*.*?\*/|\"(?:\\.|[^\"\\\n])*\"", re.DOTALL)


def private_names(source: str) -> list[str]:
    """List the private words among the names of a Python source, with their lines."""
    tokens = tokenize.generate_tokens(io.StringIO(source).readline)
    return [
        f"line {token.start[0]}: {token.string} (use {WORDS[token.string]})"
        for token in tokens
        if token.type == tokenize.NAME and token.string in WORDS
    ]


def riddles(source: str) -> list[str]:
    """List the docstrings that begin with a question word."""
    documented = (ast.Module, ast.ClassDef, ast.FunctionDef, ast.AsyncFunctionDef)
    texts = [ast.get_docstring(n) for n in ast.walk(ast.parse(source)) if isinstance(n, documented)]
    return [text.partition("\n")[0] for text in texts if text and text.split()[0] in RIDDLES]


@pytest.mark.parametrize("path", FILES, ids=lambda path: str(path.relative_to(ROOT)))
def test_python_has_no_private_words(path: Path) -> None:
    source = path.read_text("utf-8")
    assert private_names(source) == []
    assert riddles(source) == []


@pytest.mark.parametrize("path", CPP_FILES, ids=lambda path: str(path.relative_to(ROOT)))
def test_cpp_has_no_private_words(path: Path) -> None:
    code = NO_CODE.sub("", path.read_text("utf-8"))
    assert [name for name in re.findall(r"[A-Za-z_]\w*", code) if name in WORDS] == []


def test_a_private_word_would_be_seen() -> None:
    source = 'def f(told):\n    """What it is."""\n    meal = "asked"\n'
    assert private_names(source) == [
        f"line 1: told (use {WORDS['told']})",
        f"line 3: meal (use {WORDS['meal']})",
    ]
    assert riddles(source) == ["What it is."]
    assert NO_CODE.sub("", 'int x;  // told\nf("said");') == "int x;  \nf();"
