"""All verbs name the same thing by the same option, and the help lists them by section."""

from __future__ import annotations

import re
from itertools import chain
from pathlib import Path
from typing import TYPE_CHECKING

import click
import pytest

from encoder_engine.cli import SECTIONS, cli, in_options, main, option

if TYPE_CHECKING:
    from tests.cli.conftest import Run

VERBS = {verb.name or "": verb for verb in chain.from_iterable(SECTIONS.values())}
# Models beside the one that a verb is about, by the part they have in it.
OTHER_MODELS = {"--against", "--semantic", "--static", "--tokenizer"}
# What a verb writes beside its output.
OTHER_OUTPUTS = {"--html", "--dropped", "--staging"}
SHORT = {"--model": "-m", "--output": "-o", "--quiet": "-q", "--corpus": "-c", "--tokenizer": "-t"}


def options_of(verb: str) -> list[click.Option]:
    return [one for one in VERBS[verb].params if isinstance(one, click.Option)]


@pytest.mark.parametrize("verb", VERBS)
def test_options_have_one_style(verb: str) -> None:
    for one in options_of(verb):
        name, help_text = one.opts[0], one.help or ""
        assert re.fullmatch(r"--[a-z][a-z0-9-]*", name), name
        # A short form belongs to one option, in every verb that has it, but for --corpus NAME=FILE.
        short = None if one.multiple and name == "--corpus" else SHORT.get(name)
        assert one.opts[1:] == ([] if short is None else [short]), name
        if re.match(r"(A|The) model\b|A model|The folder of a run", help_text):
            assert name in {"--model", *OTHER_MODELS}, name
        if re.match(r"(The|That|A) .*\bcolumn\b", help_text) and not one.is_flag:
            assert name == "--column" or name.endswith("-column"), name
        if re.match(r"Write |The .* to write|A new folder", help_text) and one.metavar != "KEY=A,B":
            assert name in {"--output", "--tokenizer", *OTHER_OUTPUTS}, name
        if re.match(r"(Show )?[Nn]o progress", help_text):
            assert name == "--quiet", name


@pytest.mark.parametrize("verb", VERBS)
def test_arguments_are_neither_models_nor_outputs(verb: str) -> None:
    arguments = [one for one in VERBS[verb].params if isinstance(one, click.Argument)]
    for one in arguments:
        assert one.name not in {"model", "run", "output", "checkpoint"}
    names = {one.opts[0] for one in options_of(verb)}
    assert "--checkpoint" not in names
    assert "--debug" in names


def test_the_help_lists_every_verb_once_in_80_columns(run: Run) -> None:
    shown = run("--help").output
    assert max(map(len, shown.splitlines())) <= 80
    assert "..." not in shown.partition("Options:")[2]
    listed = re.findall(r"^  ([a-z][a-z-]+)  +[A-Z]", shown, re.MULTILINE)
    assert sorted(listed) == sorted(cli.commands)
    headings = re.findall(r"^([A-Z][a-z ]+):$", shown, re.MULTILINE)
    assert headings == ["Options", *SECTIONS]


def test_the_documentation_uses_options_that_exist() -> None:
    root = Path(__file__).parents[2]
    pages = [root / "README.md", *sorted((root / "docs").glob("*.md"))]
    found = 0
    for page in pages:
        text = page.read_text("utf-8").replace("\\\n", " ")
        for verb, rest in re.findall(r"encoder-engine ([a-z-]+)( [^`\n|#&;()']*)", text):
            if verb not in VERBS or verb == "bench":
                continue
            known = {name for one in options_of(verb) for name in one.opts + one.secondary_opts}
            for name in re.findall(r"(?<= )--?[a-z][a-z0-9-]*", rest):
                found += 1
                assert name in {*known, "--help"}, f"{page.name}: {verb} has no {name}"
    assert found > 100


@pytest.mark.parametrize(
    ("verb", "message", "shown"),
    [
        ("embed", "name one with id_column=", "name one with --id-column"),
        ("embed", "or with on_error='skip'", "or with --on-error skip"),
        ("embed", "pass overwrite=True", "pass --overwrite"),
        ("embed", "pass normalize_embeddings=False", "pass --no-normalize"),
        ("embed", "dtype= was 'float32', is 'bfloat16'", "--dtype was 'float32', is 'bfloat16'"),
        ("embed", "pass links=3", "pass links=3"),
        ("search", "embed them with on_error='fail'", "embed them with --on-error fail"),
        ("recall", "name one with pair_column=", "name one with --positive-column"),
        ("retrieval", "name one with label=", "name one with --label-column"),
        ("embed", "/runs/overwrite=False/x.npy is a file", "/runs/overwrite=False/x.npy is a file"),
        ("embed", "row 3: 'call it with append=False'", "row 3: 'call it with append=False'"),
        ("embed", "keep=/x does not exist", "keep=/x does not exist"),
        ("embed", "the model's row needs append=False", "the model's row needs append=False"),
        ("train-tokenizer", "needs model='unigram'", "needs --kind unigram"),
        ("pretrain", "set run.seeds=3", "set run.seeds=3"),
    ],
)
def test_errors_name_the_options_of_the_verb(
    verb: str, message: str, shown: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(option.CommandLine, "verb", VERBS[verb])
    assert in_options(message) == shown


def test_messages_of_the_package_name_keywords_alone() -> None:
    package = Path(__file__).parents[2] / "encoder_engine"
    for path in package.rglob("*.py"):
        if path.relative_to(package).parts[0] != "cli":
            assert not re.search(r"\(--[a-z]", path.read_text("utf-8")), path


@pytest.mark.parametrize(
    ("command", "option_named", "columns"),
    [
        ("score {file} -m {model} -o {folder}/out.jsonl --column body", "--column", "id, title"),
        ("clean {file} -o {folder}/out.jsonl --column body", "--column", "2"),
        ("accent {file} -m {model} --own-column body", "--own-column", "id, title"),
        ("retrieval {file} -m {model} --document-column body --query-column title",
         "--document-column", "id, title"),
        ("retrieval {file} -m {model} --translations title,body", "--translations", "id, title"),
        ("embed {file} -m {model} -o {folder}/out.npy --column body", "--column", "id, title"),
        ("embed {file} -m {model} -o {folder}/out.npy --column title --id-column key",
         "--id-column", "id, title"),
        ("prepare {file} -t {model} -o {folder}/out --column body", "--column", "id, title"),
        ("prepare {file} -t {model} -o {folder}/out --column title --salient-column body",
         "--salient-column", "id, title"),
        ("mine-negatives {store} {file} -o {folder}/out.jsonl --query-column title",
         "--positive-column", "id, title"),
        ("finetune sequence-classification -m {model} --train {file} -o {folder}/run",
         "the setting task.text, or rename it", "id, title"),
    ],
)  # fmt: skip
def test_an_error_about_a_column_names_the_option_and_the_columns(
    run: Run, masked: Path, tmp_path: Path, command: str, option_named: str, columns: str
) -> None:
    file, store = tmp_path / "rows.jsonl", tmp_path / "store"
    file.write_text('{"id": "1", "title": "a text"}\n', "utf-8")
    if "{store}" in command:
        assert run("embed", file, "-m", masked, "-o", f"{store}/", "--column", "title").code == 0
    names = {"file": file, "folder": tmp_path, "model": masked, "store": store}
    result = run(*command.format(**names).split())
    assert result.code == 1, result.errors
    assert re.search(rf"no column '\w+'.* (there are|among) {columns}", result.errors)
    assert re.search(rf"name one with {option_named}(; or |$)", result.errors.rstrip())


@pytest.fixture
def masked(tmp_path: Path) -> Path:
    from encoder_engine.models import MaskedLM
    from tests.embedding.tiny_model import write_head_directory

    return write_head_directory(tmp_path / "masked", MaskedLM)


def test_a_model_by_position_is_refused_with_the_option(run: Run) -> None:
    result = run("fill-mask", "model", "the [MASK] sat")
    assert result.code == 2
    assert main(["evaluate", "run", "rows.csv"]) == 2
    assert "Missing option '--model' / '-m'" in run("evaluate", "rows.csv").errors
