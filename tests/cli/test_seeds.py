"""Every command of docs/seeds.md runs, on small data and small models."""

from __future__ import annotations

import json
import re
import shlex
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from encoder_engine.cli import main
from encoder_engine.models import MaskedLM
from tests.analysis.test_senses import lexical
from tests.embedding.test_families import VOCAB_SIZE, save_tokenizer
from tests.embedding.tiny_model import write_head_directory, write_sentence_directory
from tests.models.all_cases import ALL_CASES
from tests.opening.test_late_interaction import pylate

pytestmark = [
    pytest.mark.slow,
    pytest.mark.filterwarnings("ignore::encoder_engine.errors.EncoderEngineWarning"),
    pytest.mark.filterwarnings("ignore::DeprecationWarning:transformers.*"),
]
PAGE = Path(__file__).parents[2] / "docs" / "seeds.md"
WORDS = ["the", "text", "row", "query", "passage", "long", "words", "a"]
SMALL = [
    *("model.config.hidden_size=16", "model.config.num_attention_heads=2"),
    *("model.config.num_hidden_layers=12", "model.config.intermediate_size=24"),
    *("data.max_length=32", "data.held_out=0.1", "data.workers=0"),
    *("batch.tokens=256", "batch.micro_tokens=256", "batch.first_tokens=null"),
    *("run.steps=2", "run.evaluate_every=2", "run.checkpoint_every=2", "run.precision=float32"),
]
SMALL_ELECTRA = ["model.config.embedding_size=16", "objectives.generator={hidden_size: 8}"]
# A page's larger numbers, and what the test has in their place.
SMALLER = {"30522": "120", "250002": "120", "8000": "30", "run.steps=250,500": "run.steps=1,2"}


def read_rows() -> dict[str, list[str]]:
    """Return the commands of each row of the page's tables, by the first words of the row."""
    rows = {}
    for line in PAGE.read_text("utf-8").splitlines():
        cells = [cell.strip() for cell in line.strip("|").split("|")]
        if line.startswith("| ") and len(cells) == 3 and cells[1].startswith("`"):
            rows[cells[0]] = re.findall(r"`([^`]+)`", cells[1])
    return rows


ROWS = read_rows()


def sentences(number: int, seed: int) -> list[str]:
    generator = np.random.default_rng(seed)
    return [" ".join(generator.choice(WORDS, 7)).capitalize() + "." for _ in range(number)]


def write_lines(path: Path, rows: list[object]) -> None:
    path.write_text("".join(json.dumps(row) + "\n" for row in rows), "utf-8")


def write_labelled(folder: Path) -> None:
    """Write the labelled files that the page names."""
    texts = sentences(24, 3)
    lines = [f'"{text}",{("good", "bad")[place % 2]}' for place, text in enumerate(texts)]
    (folder / "reviews.csv").write_text("text,label\n" + "\n".join(lines) + "\n", "utf-8")
    labels = ("entailment", "neutral", "contradiction")
    write_lines(
        folder / "nli.jsonl",
        [
            {"premise": text, "hypothesis": texts[-1 - place], "label": labels[place % 3]}
            for place, text in enumerate(texts)
        ],
    )
    write_lines(folder / "sts.jsonl", [{"text": text, "score": len(text) / 10} for text in texts])
    words = [text.lower().strip(".").split() for text in texts]
    write_lines(
        folder / "tags.jsonl",
        [
            {"words": row, "tags": ["B-X" if word == "text" else "O" for word in row]}
            for row in words
        ],
    )
    write_lines(
        folder / "choices.jsonl",
        [{"context": text, "endings": [texts[-1], text], "label": 1} for text in texts[:8]],
    )
    pairs = [{"query": text.split()[0], "positive": text} for text in texts]
    write_lines(folder / "pairs.jsonl", list(pairs))
    write_lines(folder / "documents.jsonl", [{"text": text} for text in dict.fromkeys(texts)])
    own = [{"own": text, "english_like": " ".join(text.split()[::-1])} for text in texts[:4]]
    write_lines(folder / "constructions.jsonl", list(own))
    both = [{"text": text, "english": text.upper()} for text in dict.fromkeys(texts)]
    write_lines(folder / "translations.jsonl", list(both))
    questions = [
        {
            "id": str(place),
            "question": "the query",
            "answers": [{"text": text.split()[1], "answer_start": len(text.split()[0]) + 1}],
        }
        for place, text in enumerate(texts)
    ]
    paragraphs = [
        {"context": text, "qas": [question]}
        for text, question in zip(texts, questions, strict=True)
    ]
    squad = {"version": "1.1", "data": [{"title": "t", "paragraphs": paragraphs}]}
    (folder / "squad.json").write_text(json.dumps(squad), "utf-8")
    write_lines(
        folder / "wic.jsonl",
        [
            {"word": word, "s1": f"the {word} {row}", "s2": f"a {word} {row}", "label": row % 2}
            for row in range(12)
            for word in ("text", "row")
        ],
    )
    for name in ("hard", "line", "serve"):
        lexical(folder / f"{name}.xml")
    trees = []
    for row in words * 2:
        for place, word in enumerate(row, start=1):
            tag = "DET" if word in ("the", "a") else "NOUN"
            relation = "root" if place == 1 else "det" if tag == "DET" else "dep"
            trees.append(f"{place}\t{word}\t{word}\t{tag}\t_\t_\t{place - 1}\t{relation}\t_\t_")
        trees.append("")
    (folder / "trees.conllu").write_text("\n".join(trees) + "\n", "utf-8")


def write_models(folder: Path) -> None:
    """Write the models that the page names."""
    write_sentence_directory(folder / "MODEL")
    for name in ("BERT", "SPLADE"):
        write_head_directory(folder / name, MaskedLM)
    pylate(folder / "COLBERT")
    for name in ("gpt2", "bart", "mbart", "longformer"):
        target = folder / name.upper()
        target.mkdir()
        case = next(case for case in ALL_CASES if case.model_type == name)
        tokenizer = save_tokenizer(name, target)
        case.save(target, vocab_size=VOCAB_SIZE, pad_token_id=tokenizer.pad_token_id)


@pytest.fixture(scope="module")
def folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Write the files that the page's commands name."""
    target = tmp_path_factory.mktemp("seeds")
    lines = [" ".join(sentences(3, seed)) for seed in range(150)]
    for name, part in (("texts", lines), ("en", lines[:60]), ("de", lines[60:100])):
        (target / f"{name}.txt").write_text("\n".join(part) + "\n", "utf-8")
    write_lines(target / "texts.jsonl", [{"text": text} for text in sentences(4, 7)])
    (target / "books").mkdir()
    book = ["*** START OF THE PROJECT GUTENBERG EBOOK ***", "", *lines, "", "CHAPTER II", ""]
    (target / "books" / "a.txt").write_text("\n".join(book) + "\n", "utf-8")
    rows = np.random.default_rng(0).normal(size=(len(WORDS), 4))
    table = [f"{word} {' '.join(map(str, row))}" for word, row in zip(WORDS, rows, strict=True)]
    (target / "glove.txt").write_text("\n".join(table) + "\n", "utf-8")
    write_labelled(target)
    write_models(target)
    prepared = ["prepare", str(target / "texts.txt"), "--vocab-size", "120", "-q"]
    assert main([*prepared, "-o", str(target / "corpus")]) == 0
    return target


@pytest.fixture
def at_work(folder: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    monkeypatch.chdir(folder)
    return folder


def made_small(command: str) -> list[str]:
    """Return a command's arguments with small models, few steps and no network."""
    for number, smaller in SMALLER.items():
        command = command.replace(number, smaller)
    verb, *rest = shlex.split(command)[1:]
    if verb == "pretrain":
        settings = SMALL if rest[0] != "electra_small" else [*SMALL, *SMALL_ELECTRA]
        small = [part for setting in settings for part in ("--set", setting)]
        return [verb, rest[0], *small, *rest[1:]]
    if verb == "finetune":
        options = ["data.max_length=20", "run.steps=2", "batch.examples=8"]
        return [verb, *rest, *(part for option in options for part in ("--set", option))]
    return [verb, *rest]


def marked(row: str) -> Any:
    """Leave rows that train to the tests before a release, but for the dual encoder's."""
    trains = any("pretrain" in command or "finetune" in command for command in ROWS[row])
    late = trains and "dual encoder" not in row and "RetroMAE" not in row
    return pytest.param(row, marks=pytest.mark.exhaustive if late else ())


@pytest.mark.parametrize("row", [marked(row) for row in ROWS])
def test_a_row_of_the_page_runs(
    row: str, at_work: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    for command in ROWS[row]:
        if command.startswith("python -c "):
            exec(compile(shlex.split(command)[2], command, "exec"), {})
            assert capsys.readouterr().out
            continue
        assert command.startswith("encoder-engine "), command
        code = main(made_small(command))
        assert code == 0, f"{command}: {capsys.readouterr().err}"


def test_the_page_has_all_rows() -> None:
    assert len(ROWS) > 40
