"""Accent: preferences are differences of pseudo-log-likelihoods; the verb compares two models."""

from __future__ import annotations

import json
from typing import TYPE_CHECKING

import numpy as np
import pytest
import torch

import encoder_engine as ee
from encoder_engine.analysis import accent
from encoder_engine.analysis.accent import (
    compare_preferences,
    measure_preferences,
    read_constructions,
    summarise_preferences,
)
from encoder_engine.errors import InputError, RowError
from encoder_engine.models.heads import MaskedLM

if TYPE_CHECKING:
    from pathlib import Path

    from tests.analysis.conftest import Run

PAIRS = [("a good film", "the film not good"), ("bad plot", "the plot very bad")]


@pytest.fixture(scope="module")
def models(tiny: Path, tmp_path_factory: pytest.TempPathFactory) -> list[Path]:
    """Save two masked language models with different random weights."""
    folders = []
    for seed in (1, 2):
        torch.manual_seed(seed)
        model = MaskedLM(ee.Encoder.from_pretrained(tiny, device="cpu"))
        with torch.no_grad():
            for parameter in model.parameters():
                parameter.add_(0.2 * torch.randn_like(parameter))
        folders.append(tmp_path_factory.mktemp("mlm") / "model")
        model.save_pretrained(folders[-1])
        ee.Tokenizer.from_pretrained(tiny).save(folders[-1])
    return folders


def write(path: Path, rows: list[tuple[str, str]] = PAIRS) -> Path:
    lines = ["own\tenglish_like", *("\t".join(row) for row in rows)]
    path.write_text("\n".join(lines) + "\n")
    return path


def test_a_preference_is_a_difference_of_log_likelihoods(
    models: list[Path], tmp_path: Path
) -> None:
    filler = ee.MaskFiller.from_pretrained(models[0], "cpu")
    found = measure_preferences(filler, read_constructions([str(write(tmp_path / "pairs.tsv"))]))
    scores = filler.score([text for pair in PAIRS for text in pair])
    for row, (one, other) in enumerate(zip(scores[::2], scores[1::2], strict=True)):
        means = [part.log_likelihood / len(part.tokens) for part in (one, other)]
        expected = [one.log_likelihood - other.log_likelihood, means[0] - means[1]]
        assert found[row].tolist() == expected


def test_intervals_hold_the_mean_and_an_accent_is_found() -> None:
    # Multiples of a power of two: their differences and sums are exact.
    drawn = np.round(np.random.default_rng(0).normal(size=(200, 2)) * 1024) / 1024
    own = summarise_preferences(drawn)
    assert own.difference.low < own.difference.mean < own.difference.high
    assert own.own_share.mean == 100 * int((drawn[:, 0] > 0).sum()) / 200
    shifted = compare_preferences(drawn - 0.5, drawn)
    assert shifted.difference.mean == -0.5
    assert shifted.difference.high < 0
    assert shifted.p_value < 0.01
    # Two models of one distribution: nothing to find.
    other = np.random.default_rng(1).normal(size=(200, 2))
    assert compare_preferences(drawn, other).p_value > 0.05
    with pytest.raises(InputError, match="give the same pairs"):
        compare_preferences(drawn, drawn[:5])


def test_bad_pairs_are_refused_by_row(tmp_path: Path) -> None:
    equal = write(tmp_path / "equal.tsv", [*PAIRS, ("same", "same")])
    with pytest.raises(RowError, match=r"equal\.tsv, line 4: own and english_like are equal"):
        read_constructions([str(equal)])
    blank = write(tmp_path / "blank.tsv", [(" ", "film")])
    with pytest.raises(RowError, match="own is blank"):
        read_constructions([str(blank)])
    with pytest.raises(RowError, match="no column 'spanish'"):
        read_constructions([str(equal)], own="spanish")
    empty = tmp_path / "empty.jsonl"
    empty.touch()
    with pytest.raises(InputError, match="no row"):
        read_constructions([str(empty)])


def test_a_sentence_that_is_too_long_is_named_by_its_pair(
    models: list[Path], monkeypatch: pytest.MonkeyPatch
) -> None:
    # The row was that of a sentence in its window.
    monkeypatch.setattr(accent, "WINDOW_PAIRS", 2)
    filler = ee.MaskFiller.from_pretrained(models[0], "cpu")
    pairs = [accent.ConstructionPair(*pair) for pair in [*PAIRS, *PAIRS, ("film", "a " * 64)]]
    with pytest.raises(InputError, match="pair 4: the text has 66 tokens, the model takes 64"):
        measure_preferences(filler, pairs)


@pytest.mark.filterwarnings("ignore")
def test_the_verb_compares_two_models(models: list[Path], run: Run, tmp_path: Path) -> None:
    data, page = write(tmp_path / "pairs.tsv"), tmp_path / "page.html"
    first, second = map(str, models)
    arguments = ("accent", "--model", first, data, "--device", "cpu", "--json")
    result = run(*arguments, "--against", second, "--html", page)
    assert result.code == 0, result.errors
    found = json.loads(result.output)
    pairs = read_constructions([str(data)])
    differences = [
        measure_preferences(ee.MaskFiller.from_pretrained(model, "cpu"), pairs)[:, 0]
        for model in models
    ]
    for name, values in zip((first, second), differences, strict=True):
        assert found["models"][name]["difference"]["mean"] == values.mean()
    accent = found["accent"]["difference"]["mean"]
    assert accent == (differences[0] - differences[1]).mean() != 0
    assert "Accent" in page.read_text()
    assert json.loads(run(*arguments).output)["accent"] is None
    for same in (first, f"{first}/."):
        refused = run(*arguments, "--against", same)
        assert refused.code == 2
        assert "a model has no accent against itself" in refused.errors
