"""Masks are filled, and texts scored, as sums of a masked language model's log softmax."""

from __future__ import annotations

import copy
import json
import math
from typing import TYPE_CHECKING, Any, NamedTuple

import numpy as np
import pyarrow.parquet
import pytest
import torch

import encoder_engine as ee
from encoder_engine.cli import main
from encoder_engine.cli.tuning import fill_mask
from encoder_engine.engine.compiled import CompiledEngine
from encoder_engine.engine.protocol import OutOfDeviceMemoryError
from encoder_engine.errors import InputError, NonFiniteVectorError, TextError
from encoder_engine.models.heads import MaskedLM
from encoder_engine.ops.testing import assert_within_budget
from encoder_engine.prediction import mask_filler

if TYPE_CHECKING:
    from collections.abc import Sequence
    from pathlib import Path

    from torch import Tensor

# Most terms of a sum: the inputs of the feed-forward layer's second matrix.
TERMS = 64
TEXTS = ["a good film", "the plot", "goodbad not veryvery"]


@pytest.fixture
def directory(checkpoint: Path) -> Path:
    """Add a head for masked tokens, and pieces of words to the vocabulary's end."""
    path = checkpoint / "vocab.txt"
    lines = path.read_text().splitlines()
    lines[lines.index("plot")] = "##bad"
    lines[lines.index("not")] = "##very"
    path.write_text("\n".join(lines) + "\n")
    torch.manual_seed(1)
    encoder = ee.Encoder.from_pretrained(checkpoint, device="cpu")
    model = MaskedLM(encoder)
    with torch.no_grad():
        for parameter in model.parameters():
            parameter.add_(0.1 * torch.randn_like(parameter))
    target = checkpoint.parent / "mlm"
    model.save_pretrained(target)
    ee.Tokenizer.from_pretrained(path, lowercase=True).save(target)
    return target


class LogShares(NamedTuple):
    """Log softmax [V] at one position by transformers' model, in float32 and in float64."""

    eager: Tensor
    exact: Tensor

    def of(self, token: int) -> LogShares:
        return LogShares(self.eager[token], self.exact[token])

    def plus(self, other: LogShares) -> LogShares:
        return LogShares(self.eager + other.eager, self.exact + other.exact)


@pytest.fixture
def log_shares(directory: Path) -> Any:
    """Return the function from ids and a position to its :class:`LogShares`."""
    library = pytest.importorskip("transformers")
    model = library.AutoModelForMaskedLM.from_pretrained(directory).eval()
    exact = copy.deepcopy(model).double()

    @torch.no_grad()
    def compute(ids: list[int], place: int) -> LogShares:
        logits = (one(torch.tensor([ids])).logits[0, place] for one in (model, exact))
        return LogShares(*(row.log_softmax(0) for row in logits))

    return compute


def assert_as_theirs(found: Sequence[float], expected: Sequence[LogShares]) -> None:
    """Assert that logarithms of probabilities are within the budget."""
    eager = torch.stack([one.eager for one in expected])
    truth = torch.stack([one.exact for one in expected])
    assert_within_budget(torch.tensor(found), eager, truth, terms=TERMS)


def test_arguments_that_ask_for_nothing_are_refused(directory: Path) -> None:
    filler = ee.MaskFiller.from_pretrained(directory, "cpu")
    text = "a [MASK] film"
    for wrong in (0, -1):
        with pytest.raises(InputError, match=f"top_k is {wrong}, expected at least 1"):
            filler.fill([text], top_k=wrong)
        with pytest.raises(InputError, match=f"top_k is {wrong}, expected at least 1"):
            filler.fill_jointly([text], top_k=wrong)
    with pytest.raises(InputError, match="targets is empty"):
        filler.rank(text, [])


def test_one_text_gives_one_result_and_arrow_is_taken(directory: Path) -> None:
    """It was refused, though ``encode`` takes one text."""
    filler = ee.MaskFiller.from_pretrained(directory, "cpu")
    text = "a [MASK] film"
    assert filler.fill(text) == filler.fill([text])[0] == filler.fill(pyarrow.array([text]))[0]
    assert filler.fill_jointly(text) == filler.fill_jointly(pyarrow.array([text]))[0]
    assert filler.rank(text, "good") == filler.rank(text, pyarrow.array(["good"]))
    one, listed = filler.score("a good film"), filler.score(pyarrow.array(["a good film"]))[0]
    assert one.tokens == listed.tokens
    np.testing.assert_array_equal(one.log_probabilities, listed.log_probabilities)
    with pytest.raises(TextError, match="text 1 must be a str, got int"):
        filler.score(["a", 5])  # type: ignore[list-item]


@pytest.mark.slow
def test_masks_are_filled_as_by_transformers(directory: Path, log_shares: Any) -> None:
    filler = ee.MaskFiller.from_pretrained(directory, "cpu")
    ids = filler.tokenizer.encode("a [MASK] the [MASK]").tolist()
    [found] = filler.fill(["a [MASK] the [MASK]"], top_k=3)
    for mask, place in enumerate((2, 4)):
        shares = log_shares(ids, place)
        best = shares.exact.argsort(descending=True)[:3].tolist()
        assert [one.token_id for one in found[mask]] == best
        logs = [math.log(one.probability) for one in found[mask]]
        assert_as_theirs(logs, [shares.of(token) for token in best])
    # With a beam as wide as the vocabulary the best filling is that of all of them.
    size = filler.tokenizer.vocab_size
    [joint] = filler.fill_jointly(["a [MASK] the [MASK]"], top_k=size)
    scores = {}
    firsts = log_shares(ids, 2)
    for one in range(size):
        seconds = log_shares([*ids[:2], one, *ids[3:]], 4)
        for two in range(size):
            scores[one, two] = firsts.of(one).plus(seconds.of(two))
    best_pair = max(scores, key=lambda pair: float(scores[pair].exact))
    assert joint[0].tokens == tuple(filler.tokenizer.id_to_token(n) for n in best_pair)
    assert_as_theirs([joint[0].log_probability], [scores[best_pair]])


def test_a_model_with_nan_is_refused(directory: Path) -> None:
    filler = ee.MaskFiller.from_pretrained(directory, "cpu", engine="torch")
    with torch.no_grad():
        next(filler.model.head.parameters()).fill_(torch.nan)
    for predict in (filler.fill, filler.fill_jointly, filler.score):
        with pytest.raises(NonFiniteVectorError, match="computed NaN or infinity for text 0"):
            predict(["a [MASK] film"])


@pytest.mark.slow
@pytest.mark.parametrize("within_words", [True, False])
def test_texts_are_scored_token_by_token(
    directory: Path, log_shares: Any, within_words: bool
) -> None:
    filler = ee.MaskFiller.from_pretrained(directory, "cpu")
    mask = filler.tokenizer.mask_token_id
    for text, found in zip(TEXTS, filler.score(TEXTS, within_words=within_words), strict=True):
        ids = filler.tokenizer.encode(text).tolist()
        expected = []
        for place in range(1, len(ids) - 1):
            masked = list(ids)
            masked[place] = mask
            later = place + 1
            while within_words and (filler.tokenizer.id_to_token(ids[later]) or "")[:2] == "##":
                masked[later] = mask
                later += 1
            expected.append(log_shares(masked, place).of(ids[place]))
        assert_as_theirs(found.log_probabilities.tolist(), expected)
        mean = found.log_probabilities.sum() / len(found.tokens)
        assert found.pseudo_perplexity == math.exp(-mean)
    assert filler.score([""])[0].tokens == ()


def test_copies_of_texts_are_made_batch_by_batch(
    directory: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    # All copies were made at once: 8,192 tokens took 500 MB, and the texts of a window 100 GB.
    filler = ee.MaskFiller.from_pretrained(directory, "cpu")
    expected = filler.score(TEXTS)
    made, computed = 0, 0
    ahead: list[int] = []
    copied = mask_filler._Copy

    def counted(*values: Any) -> Any:
        nonlocal made
        made += 1
        return copied(*values)

    def watched(rows: Any, *outputs: Any) -> Any:
        nonlocal computed
        ahead.append(made - computed)
        computed += len(rows)
        return run(rows, *outputs)

    run = filler.engine.run
    monkeypatch.setattr(mask_filler, "_Copy", counted)
    monkeypatch.setattr(filler.engine, "run", watched)
    monkeypatch.setattr(mask_filler, "BATCH_TOKENS", 1)
    found = filler.score(TEXTS)
    assert [one.tokens for one in found] == [one.tokens for one in expected]
    assert made == computed == sum(len(one.tokens) for one in found)
    # The one of the batch, and the first of the next.
    assert max(ahead) == 2


@pytest.mark.slow
def test_a_target_takes_as_many_masks_as_pieces(directory: Path, log_shares: Any) -> None:
    filler = ee.MaskFiller.from_pretrained(directory, "cpu")
    found = {one.target: one for one in filler.rank("a [MASK] film", ["good", "goodbad"])}
    assert found["goodbad"].pieces == ("good", "##bad")
    mask = filler.tokenizer.mask_token_id
    head, *_ = ids = filler.tokenizer.encode("a goodbad film").tolist()
    first = log_shares([head, ids[1], mask, mask, *ids[4:]], 2).of(ids[2])
    second = log_shares([head, ids[1], ids[2], mask, *ids[4:]], 3).of(ids[3])
    assert_as_theirs([found["goodbad"].log_probability], [first.plus(second)])
    with pytest.raises(InputError, match="has 2 masks"):
        filler.rank("[MASK] [MASK]", ["good"])
    with pytest.raises(InputError, match=r"text 0 has no \[MASK\]"):
        filler.fill(["a film"])
    with pytest.raises(InputError, match="text 1 has 66 tokens, the model takes 64"):
        filler.score(["a", "a " * 64])


def test_the_line_of_a_text_that_is_too_long_is_named(
    directory: Path,
    tmp_path: Path,
    capsys: pytest.CaptureFixture[str],
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    # The error named the text's place in its window.
    monkeypatch.setattr(fill_mask, "WINDOW_TEXTS", 2)
    texts = tmp_path / "texts.jsonl"
    long = [*TEXTS, "a " * 64]
    texts.write_text("".join(json.dumps({"text": text}) + "\n" for text in long))
    score = ["score", "--model", str(directory), str(texts), "-o", str(tmp_path / "scores.jsonl")]
    assert main([*score, "--device", "cpu"]) == 1
    assert "texts.jsonl, line 4: the text has 66 tokens" in capsys.readouterr().err


@pytest.mark.parametrize("error", [None, OutOfDeviceMemoryError])
def test_the_line_of_a_text_that_cannot_be_scored_is_named(
    error: type[Exception] | None,
    directory: Path,
    tmp_path: Path,
    capsys: pytest.CaptureFixture[str],
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(fill_mask, "WINDOW_TEXTS", 2)
    compute = CompiledEngine.run

    def damaged(engine: Any, rows: Any, *outputs: Any) -> Any:
        (found,), is_long = compute(engine, rows, *outputs), rows.lengths > 8
        if error is not None and is_long.any():
            raise error("a batch exceeds the memory")
        found[is_long] = np.nan
        return (found,)

    monkeypatch.setattr(CompiledEngine, "run", damaged)
    texts = tmp_path / "texts.jsonl"
    rows = ["a", "a film", "good", "a " * 9]
    texts.write_text("".join(json.dumps({"text": text}) + "\n" for text in rows))
    score = ["score", "--model", str(directory), str(texts), "-o", str(tmp_path / "scores.jsonl")]
    assert main([*score, "--device", "cpu"]) == 1
    reason = "the text alone exceeds the memory" if error else "the model computes NaN"
    assert f"texts.jsonl, line 4: {reason}" in capsys.readouterr().err


def test_the_verbs_fill_and_score(
    directory: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    for more in ([], ["--joint"], ["--target", "good", "--target", "bad"]):
        command = [
            "fill-mask",
            "--model",
            str(directory),
            "a [MASK] film",
            "--device",
            "cpu",
            "--json",
        ]
        assert main([*command, *more]) == 0
        lines = capsys.readouterr().out.splitlines()
        assert len(lines) == (2 if "--target" in more else 5)
        assert all(json.loads(line) for line in lines)
    both = ["fill-mask", "--model", str(directory), "a [MASK] film", "--target", "good", "--joint"]
    assert main(both) == 2
    assert "leave --joint out" in capsys.readouterr().err
    texts, output = tmp_path / "texts.jsonl", tmp_path / "scores.jsonl"
    texts.write_text("".join(json.dumps({"text": text}) + "\n" for text in TEXTS))
    assert (
        main(["score", "--model", str(directory), str(texts), "-o", str(output), "--device", "cpu"])
        == 0
    )
    assert len(output.read_text().splitlines()) == 3
    assert "pseudo-perplexity" in capsys.readouterr().out
    score = ["score", "--model", str(directory), str(texts), "--device", "cpu"]
    assert main([*score, "-o", str(tmp_path / "scores.parquet")]) == 0
    table = pyarrow.parquet.read_table(tmp_path / "scores.parquet")
    assert table.to_pylist() == [json.loads(line) for line in output.read_text().splitlines()]
    capsys.readouterr()
    for name, message in (("scores.jsonl", "exists"), ("scores.csv", "must end in .jsonl")):
        assert main([*score, "-o", str(tmp_path / name)]) == 1
        assert message in capsys.readouterr().err
    assert main([*score, "-o", str(texts), "--overwrite"]) == 1
    assert "texts.jsonl is one of the inputs" in capsys.readouterr().err
    assert len(texts.read_text().splitlines()) == len(TEXTS)
