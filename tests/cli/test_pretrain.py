"""From raw text to a trained model to vectors, by three commands."""

from __future__ import annotations

import json
from typing import TYPE_CHECKING

import numpy as np
import pytest

from encoder_engine.cli import main

if TYPE_CHECKING:
    from pathlib import Path

TINY = [
    "model.config.hidden_size=16",
    "model.config.intermediate_size=24",
    "batch.tokens=256",
    "batch.micro_tokens=256",
    "run.steps=6",
    "run.evaluate_every=3",
    "data.max_length=32",
]
SET = [part for setting in TINY for part in ("--set", setting)]


@pytest.fixture(scope="module")
def texts(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Write sentences of few words."""
    generator = np.random.default_rng(0)
    words = ["the", "cat", "dog", "sat", "ran", "on", "a", "mat", "rug", "house", "slept", "tree"]
    lines = [" ".join(generator.choice(words, 9)).capitalize() + "." for _ in range(400)]
    path = tmp_path_factory.mktemp("texts") / "texts.txt"
    path.write_text("\n".join(lines) + "\n", encoding="utf-8")
    return path


@pytest.fixture(scope="module")
def corpus(texts: Path) -> Path:
    directory = texts.parent / "corpus"
    assert main(["prepare", str(texts), "--vocab-size", "120", "-o", str(directory), "-q"]) == 0
    return directory


def test_three_commands_lead_from_text_to_vectors(
    corpus: Path, texts: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    run, vectors = tmp_path / "run", tmp_path / "vectors.npy"
    assert main(["pretrain", "tiny", "-c", str(corpus), "-o", str(run), *SET]) == 0
    told = capsys.readouterr()
    assert "step 3/6" in told.err
    assert "pseudo perplexity" in told.out
    assert main(["embed", str(texts), "-m", str(run / "model"), "-o", str(vectors), "-q"]) == 0
    assert np.load(vectors).shape == (400, 16)
    assert (run / "curves.svg").is_file()


def test_a_corpus_is_made_once_and_summed_up(
    corpus: Path, texts: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    again = ["prepare", str(texts), "--vocab-size", "120", "-o", str(corpus), "--json"]
    assert main(again) == 0
    summary = json.loads(capsys.readouterr().out)
    assert summary["texts"] == summary["resumed_texts"] == 400
    assert summary["tokens"] > 3600
    assert 0.0 < summary["padding_saved"] < 1.0
    assert main(again[:-1]) == 0
    told = capsys.readouterr().out
    assert "400 texts were there" in told
    # All tokens were divided by the seconds of this run.
    assert "tokens/s" not in told


def test_a_corpus_of_other_inputs_or_another_vocabulary_is_refused(
    texts: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    here, mine = tmp_path / "here", tmp_path / "mine.txt"
    here.mkdir()
    mine.write_bytes(texts.read_bytes())
    monkeypatch.chdir(here)
    begin = ["prepare", str(mine), "-o", ".", "-q", "--vocab-size"]
    assert main([*begin, "120"]) == 0
    assert main([*begin, "120"]) == 0
    assert main([*begin, "110"]) == 1
    words = tmp_path / "words.txt"
    words.write_text("catdog\n", encoding="utf-8")
    assert main([*begin, "120", "--add-tokens", str(words)]) == 1
    with mine.open("a", encoding="utf-8") as file:
        file.write("One more line.\n")
    assert main([*begin, "120"]) == 1
    errors = capsys.readouterr().err
    assert "was started with other settings: vocab_size was 120, is 110; name an empty" in errors
    assert "was started with other settings: add_tokens was None, is [" in errors
    assert (
        "was started with other settings: the inputs are others, or were changed; name an empty"
        in errors
    )
    assert [path.name for path in tmp_path.iterdir() if path.is_dir()] == ["here"]


def test_words_that_are_not_utf_8_are_refused_by_their_file(
    texts: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    """A UnicodeDecodeError named neither the file nor a mend."""
    words = tmp_path / "words.txt"
    words.write_bytes(b"caf\xe9\n")
    begin = ["prepare", str(texts), "-o", str(tmp_path / "out"), "-q", "--vocab-size", "120"]
    assert main([*begin, "--add-tokens", str(words)]) == 1
    assert f"error: {words} is not UTF-8: byte 3 is wrong" in capsys.readouterr().err


def test_a_vocabulary_grows_and_a_model_goes_on(
    corpus: Path, texts: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    first, second = tmp_path / "first", tmp_path / "second"
    assert main(["pretrain", "tiny", "-c", str(corpus), "-o", str(first), *SET, "-q"]) == 0
    words = tmp_path / "words.txt"
    words.write_text("gastroenterology\nelectrolyte\n", encoding="utf-8")
    domain = tmp_path / "domain"
    begin = ["prepare", str(texts), "--tokenizer", str(first / "model"), "-o", str(domain)]
    assert main([*begin, "--add-tokens", str(words), "-q"]) == 0
    go_on = ["pretrain", "tiny", "--model", str(first / "model"), "-c", str(domain)]
    settings = ["--set", "run.steps=3", "--set", "data.max_length=32", "--set", "batch.tokens=4096"]
    assert main([*go_on, "-o", str(second), *settings, "--json"]) == 0
    summary = json.loads(capsys.readouterr().out)
    assert summary["steps"] == 3
    # A file that names no model goes with --model, which does.
    yaml = tmp_path / "domain.yaml"
    yaml.write_text("run: {steps: 2}\ndata: {max_length: 32}\n", encoding="utf-8")
    go_on[1] = str(yaml)
    assert main([*go_on, "-o", str(tmp_path / "third"), "-q"]) == 0
    config = json.loads((second / "model/config.json").read_text())
    before = json.loads((first / "model/config.json").read_text())
    assert config["vocab_size"] == before["vocab_size"] + 2


@pytest.mark.parametrize(
    ("arguments", "code", "message"),
    [
        (["pretrain", "tinny", "-c", "CORPUS", "-o", "OUT"], 1, "did you mean 'tiny'"),
        (["pretrain", "tiny", "-o", "OUT"], 1, "data.corpus is not set"),
        (["pretrain", "tiny", "-c", "nowhere", "-o", "OUT"], 1, "nowhere"),
        (["pretrain", "tiny", "-c", "CORPUS", "-o", "OUT", "--set", "run.step=3"], 1, "'steps'"),
        (["prepare", "TEXTS", "-o", "OUT"], 2, "--vocab-size"),
        (["prepare", "-o", "OUT", "--vocab-size", "200"], 2, "name inputs"),
        # The vocabulary was trained, and then there were no texts.
        (
            ["prepare", "-", "-o", "OUT", "--vocab-size", "200"],
            2,
            "standard input can be read once",
        ),
        (
            [
                "prepare",
                "TEXTS",
                "-o",
                "OUT",
                "--tokenizer",
                "CORPUS/tokenizer",
                "--add-tokens",
                "LATIN",
            ],
            1,
            "latin.txt is not UTF-8: byte 3 is wrong",
        ),
    ],
)
def test_what_makes_no_sense_is_refused(
    corpus: Path,
    texts: Path,
    tmp_path: Path,
    arguments: list[str],
    code: int,
    message: str,
    capsys: pytest.CaptureFixture[str],
) -> None:
    (tmp_path / "latin.txt").write_bytes("caf\u00e9\n".encode("latin-1"))
    known = {"CORPUS": str(corpus), "TEXTS": str(texts), "OUT": str(tmp_path / "out")}
    known |= {"CORPUS/tokenizer": str(corpus / "tokenizer"), "LATIN": str(tmp_path / "latin.txt")}
    assert main([known.get(part, part) for part in arguments]) == code
    assert message in capsys.readouterr().err


@pytest.mark.parametrize("sweep", [[], ["--seeds", "2"]])
def test_an_interrupted_command_says_that_it_goes_on(
    sweep: list[str],
    corpus: Path,
    texts: Path,
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
    capsys: pytest.CaptureFixture[str],
) -> None:
    """It said that no partial output was left, beside its shards and checkpoints."""

    def stop(*_given: object) -> None:
        raise KeyboardInterrupt

    monkeypatch.setattr("encoder_engine.data.prepare.write_shard", stop)
    monkeypatch.setattr("encoder_engine.training.Trainer.run", stop)
    prepare = ["prepare", str(texts), "--vocab-size", "120", "-o", str(tmp_path / "corpus")]
    pretrain = ["pretrain", "tiny", "-c", str(corpus), "-o", str(tmp_path / "run"), *sweep]
    for command in (prepare, pretrain):
        assert main([*command, "-q"]) == 1
        assert "stopped; the same command goes on" in capsys.readouterr().err
