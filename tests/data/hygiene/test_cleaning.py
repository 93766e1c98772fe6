"""Cleaning: steps in order, counts that add up, personal data by pattern, the verbs, the cards."""

from __future__ import annotations

import json
import re
from collections import Counter
from itertools import pairwise
from typing import TYPE_CHECKING, Any

import numpy as np
import pytest

from encoder_engine.data.hygiene import minhash
from encoder_engine.data.hygiene.cleaning import Cleaner, CleanSettings
from encoder_engine.data.hygiene.languages import LanguageLabeller
from encoder_engine.data.hygiene.personal import HOOKS, mask_personal
from encoder_engine.errors import InputError
from encoder_engine.pages.cards import datasheet
from tests.cli.conftest import run
from tests.data.hygiene.attempts import CountedSearch, TooManyAttemptsError
from tests.data.hygiene.cleaning_runs import draw_records

if TYPE_CHECKING:
    from pathlib import Path

    from tests.cli.conftest import Run

__all__ = ["run"]

LONG = "the quick brown fox jumps over the lazy dog while the cat sleeps on the warm mat at home"
SECRET = "maria@example.org"


PERSONAL: list[tuple[str, str | None]] = [
    ("write to a.b+c@mail.example.org.", "write to <email>."),
    ("call +49 30 123456 or (415) 555-2671", "call <phone> or <phone>"),
    ("030 1234567", "<phone>"),
    ("4111 1111 1111 1111, 378282246310005", "<card>, <card>"),
    # A wrong check digit.
    ("4111 1111 1111 1112", "4111 1111 1111 1112"),
    ("DE89 3704 0044 0532 0130 00", "<iban>"),
    # A word of four capitals has the form of a group.
    ("IBAN BE68 5390 0754 7034 EUR 10", "IBAN <iban> EUR 10"),
    ("BE68 5390 0754 7034 DATE 2021", "<iban> DATE 2021"),
    ("+33 1 23 45 67 89 or 0049 (0)30 1234567", "<phone> or <phone>"),
    ("+1(415)5552671, +14155552671", "<phone>, <phone>"),
    ("+" + "1" * 30, None),
    ("GB83WEST12345698765432", "GB83WEST12345698765432"),
    ("10.0.0.1 and 300.1.1.1", "<ip> and 300.1.1.1"),
    ("123-45-6789 and 000-12-3456", "<ssn> and 000-12-3456"),
    ("on 2021-07-25 20:43 it was 1,234,567 of 978-3-16-148410-0", None),
    ("Tel:+49 30 123456, Phone:(415) 555-2671", "Tel:<phone>, Phone:<phone>"),
    ("tel:415-555-2671 or 415-555-2671/72", "tel:<phone> or <phone>"),
    ("030 1234567/office", "<phone>/office"),
    # A time, and a date.
    ("at 20:030 1234567", None),
    ("page 0012 2021/07/25", None),
    ("de89 3704 0044 0532 0130 00", "<iban>"),
    # The remainder of a code and words may be 1.
    ("fm43 song that", None),
    ("3.14159265358979 /text/01/05250300.xhp", None),
]


@pytest.mark.parametrize(("text", "expected"), PERSONAL)
def test_personal_data_is_masked_by_kind(text: str, expected: str | None) -> None:
    masked, counts = mask_personal(text)
    assert masked == (text if expected is None else expected)
    assert counts.total() == masked.count("<")


def texts() -> list[str]:
    return [LONG, LONG.upper(), f"{LONG} now", "short", f"mail {SECRET}", "  ", "another text"]


def test_each_text_is_dropped_once_and_counted() -> None:
    cleaner = Cleaner(CleanSettings(least_characters=3))
    found = cleaner.clean(texts())
    assert [one.reason for one in found] == [
        *(None, "exact duplicate", "near duplicate"),
        *(None, None, "short", None),
    ]
    assert [one.original for one in found[1:3]] == [0, 0]
    assert found[4].text == "mail <email>"
    counts = cleaner.counts
    assert counts.read == counts.kept + counts.dropped.total() == 7
    assert counts.personal == Counter(email=1)
    assert counts.characters == sum(len(one.text) for one in found if one.text)


def test_windows_change_nothing() -> None:
    rows = [f"{text} {n % 5}" for n, text in enumerate(texts() * 6)]
    whole = Cleaner(CleanSettings()).clean(rows)
    cleaner = Cleaner(CleanSettings())
    assert [one for n in range(0, len(rows), 5) for one in cleaner.clean(rows[n : n + 5])] == whole


def test_meaning_is_compared_after_words() -> None:
    vectors = {"a cat": [1.0, 0.0], "one cat": [0.99, 0.05], "a dog": [0.0, 1.0]}
    vectors["A  cat"] = vectors["a cat"]
    cleaner = Cleaner(
        CleanSettings(semantic=0.95), encode=lambda given: np.array([vectors[t] for t in given])
    )
    found = cleaner.clean(["a cat", "A  cat", "one cat", "a dog"])
    assert [one.reason for one in found] == [None, "exact duplicate", "semantic duplicate", None]
    assert found[2].original == 0
    with pytest.raises(InputError, match="a model that embeds"):
        Cleaner(CleanSettings(semantic=0.9))
    with pytest.raises(InputError, match="labeller"):
        Cleaner(CleanSettings(languages=("en",)))


@pytest.mark.parametrize(
    ("settings", "message"),
    [
        # All texts had the one shingle of no word: every second one was a near duplicate.
        ({"shingle_size": 0}, "shingle_size must be at least 1, got 0"),
        ({"seed": -1}, "seed must be at least 0, got -1"),
        # Another word masked.
        ({"personal": "remove"}, "personal must be one of mask, drop, keep, got 'remove'"),
    ],
)
def test_settings_out_of_range_are_refused(settings: dict[str, Any], message: str) -> None:
    with pytest.raises(InputError, match=message):
        CleanSettings(**settings)


def drawn_vectors(texts: list[str]) -> Any:
    """Draw a direction for each text, by its characters, float64 [n, 3]."""
    return np.array([np.random.default_rng(list(text.encode())).normal(size=3) for text in texts])


def by_double_loop(texts: list[str]) -> list[tuple[str | None, int | None]]:
    """Compare every text with every kept one: normal forms, sets of pairs of words, cosines."""
    kept: list[int] = []
    found: list[tuple[str | None, int | None]] = []
    forms = [text.casefold() for text in texts]
    pairs = [set(pairwise(form.split())) for form in forms]
    unit = drawn_vectors(texts)
    unit /= np.linalg.norm(unit, axis=1, keepdims=True)
    for row, form in enumerate(forms):
        exact = [other for other in kept if forms[other] == form]
        near = [
            other
            for other in kept
            if len(pairs[row] & pairs[other]) >= 0.5 * len(pairs[row] | pairs[other])
        ]
        cosines = unit[kept] @ unit[row]
        if exact:
            found.append(("exact duplicate", exact[0]))
        elif near:
            found.append(("near duplicate", near[0]))
        elif kept and cosines.max() >= 0.99:
            found.append(("semantic duplicate", kept[int(cosines.argmax())]))
        else:
            found.append((None, None))
            kept.append(row)
    return found


@pytest.mark.parametrize("window", [1, 7, 300])
def test_all_steps_compare_with_kept_texts_alone(
    window: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    # A text that meant what a kept one means was dropped, and so were those near it: rows were
    # gone of which nothing was left. With bands of one number, no near pair is missed.
    monkeypatch.setattr(minhash, "choose_bands", lambda _: minhash.Bands(128, 1))
    texts = [str(record.values["text"]) for record in draw_records()]
    texts = [text.upper() if row % 3 else text for row, text in enumerate(texts)]
    settings = CleanSettings(near=0.5, shingle_size=2, semantic=0.99, personal="keep")
    cleaner = Cleaner(settings, encode=drawn_vectors)
    found = [
        one
        for start in range(0, len(texts), window)
        for one in cleaner.clean(texts[start : start + window])
    ]
    assert [(one.reason, one.original) for one in found] == by_double_loop(texts)
    for reason in ("exact", "near", "semantic"):
        assert cleaner.counts.dropped[f"{reason} duplicate"] > 10


def test_languages_are_labelled_and_chosen() -> None:
    pytest.importorskip("py3langid", reason="py3langid (extra clean) is not installed")
    label = LanguageLabeller().label
    rows = ["this is a sentence of english words", "dies ist ein Satz aus deutschen Wörtern"]
    cleaner = Cleaner(CleanSettings(languages=("de",)), label=label)
    assert [one.language for one in cleaner.clean(rows)] == ["en", "de"]
    assert cleaner.counts.dropped == Counter(language=1)
    assert cleaner.counts.languages == Counter(de=1)
    with pytest.raises(InputError, match="no language 'xx'"):
        LanguageLabeller(["xx"])
    with pytest.raises(InputError, match="no language 'english'"):
        LanguageLabeller().check(("de", "english"))


def number_texts(size: int) -> list[str]:
    """Return texts that begin like a number, an address or a code, and are none."""
    return [
        "+1" + "1" * size + "a",
        "+1" + " 1" * size + "a",
        "4" * size + "a",
        "DE11 " + "A1B2 " * (size // 4) + "-",
        "a." * (size // 2) + "b@" + "c." * (size // 2) + "1",
    ]


def test_patterns_try_a_number_once() -> None:
    # Every split of a run of digits was tried, as many as its length to the sixth power.
    for hook in HOOKS:
        for short, long in zip(number_texts(64), number_texts(128), strict=True):
            few = CountedSearch(hook.pattern, short, most=200_000)
            assert few.spans() == [m.span() for m in hook.pattern.finditer(short)]
            # Linear work doubles; quadratic work would become four times as much.
            many = CountedSearch(hook.pattern, long, most=3 * few.num_attempts)
            assert many.spans() == [m.span() for m in hook.pattern.finditer(long)]


@pytest.mark.parametrize("text", [text for text, _ in PERSONAL])
def test_attempts_are_counted_of_the_search_that_re_makes(text: str) -> None:
    for hook in HOOKS:
        found = CountedSearch(hook.pattern, text, most=200_000).spans()
        assert found == [match.span() for match in hook.pattern.finditer(text)]


def test_a_pattern_that_tries_every_split_is_found_out() -> None:
    every_split = re.compile(r"\+1(?:[ .-]?\d{1,14}){0,6}(?!\w)")
    few = CountedSearch(every_split, number_texts(8)[0], most=200_000)
    assert few.spans() == []
    with pytest.raises(TooManyAttemptsError):
        CountedSearch(every_split, number_texts(16)[0], most=3 * few.num_attempts).spans()


@pytest.mark.slow
def test_files_of_others_are_kept(run: Run, tmp_path: Path) -> None:
    source, output = tmp_path / "in.jsonl", tmp_path / "out.jsonl"
    content = '{"text": "a text", "title": "\\ud800"}\n{"text": "A text"}\n'
    source.write_text(content)
    for taken in (source, output):
        result = run("clean", source, "-o", output, "--dropped", taken, "--overwrite")
        assert result.code in (1, 2), result.output
    assert source.read_text() == content
    dropped = tmp_path / "dropped.jsonl"
    dropped.write_text("mine")
    assert run("clean", source, "-o", output, "--dropped", dropped).code == 1
    assert dropped.read_text() == "mine"
    (tmp_path / "more").mkdir()
    (tmp_path / "more" / "in.jsonl").write_text('{"text": "another text"}\n')
    both = tmp_path / "both.jsonl"
    assert run("clean", source, tmp_path / "more" / "in.jsonl", "-o", both).code == 0
    page = run("card", tmp_path / "both.jsonl.manifest.json").output
    assert page.count("in.jsonl") == 2
    # A lone surrogate of another column stays the escape that it was.
    assert run("clean", source, "-o", output).code == 0
    assert output.read_text() == content.splitlines(keepends=True)[0]
    assert not list(tmp_path.glob("*.partial"))


@pytest.mark.slow
def test_the_verbs_clean_and_describe_without_a_text(run: Run, tmp_path: Path) -> None:
    source = tmp_path / "in.jsonl"
    rows = [{"body": text, "number": n} for n, text in enumerate(texts())]
    source.write_text("\n".join(map(json.dumps, rows)) + "\n")
    output, dropped = tmp_path / "out.jsonl", tmp_path / "dropped.jsonl"
    result = run("clean", source, "-o", output, "--column", "body", "--dropped", dropped)
    assert result.code == 0, result.errors
    kept = [json.loads(line) for line in output.read_text().splitlines()]
    assert [row["number"] for row in kept] == [0, 3, 4, 6]
    reasons = [json.loads(line) for line in dropped.read_text().splitlines()]
    assert reasons[0] == {"row": 1, "reason": "exact duplicate", "original": 0}
    manifest = tmp_path / "out.jsonl.manifest.json"
    page = run("card", manifest).output
    for record in (result.output, result.errors, manifest.read_text(), dropped.read_text(), page):
        assert SECRET not in record
        assert "fox" not in record
        assert str(tmp_path) not in record.replace(f"texts in {output}", "")
    assert "## Harms" in page
    assert "| exact duplicate | 1 |" in page
    assert run("clean", source, "-o", output, "--column", "body").code == 1
    assert run("clean", source, "-o", source, "--column", "body", "--overwrite").code == 1
    assert run("card", tmp_path).code == 1
    assert run("clean", source, "-o", tmp_path / "a.jsonl", "--cosine", "0.9").code == 2
    tokens = tmp_path / "tokens"
    prepared = run("prepare", output, "-o", tokens, "--vocab-size", "100", "--column", "body")
    assert prepared.code == 0, prepared.errors
    assert "| documents | 4 |" in run("card", tokens).output


def test_cards_hold_no_markup_of_their_values() -> None:
    page = datasheet("<b>|x", {"Sources": {"a|b": "<script>"}, "Languages": {}})
    assert "<script>" not in page.replace("\\<script\\>", "")
    assert r"| a\|b | \<script\> |" in page
    assert "*not recorded: answer here*" in page
