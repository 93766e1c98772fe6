"""Every code point through each normalizer of Unigram, against the installed library."""

from __future__ import annotations

import pytest
from tokenizers import Regex, normalizers

from encoder_engine import _native
from encoder_engine.text.spec.unigram import (
    CharsmapStep,
    LowercaseStep,
    StripAccentsStep,
    StripStep,
    UnicodeFormStep,
)
from tests.text.charsmaps import build_charsmap
from tests.text.oracle.conftest import SAMPLE
from tests.text.oracle.test_unicode_tables import first_difference
from tests.text.oracle.text import Char
from tests.text.oracle.unigram import apply_step

# Every character has a rule: what is left of a text tells where its clusters end.
CLUSTERS = build_charsmap({chr(code): "q" for code in [*range(1, 0x3100), *range(0xA000, 0xAC10)]})
FORMS = ("NFC", "NFD", "NFKC", "NFKD")


@pytest.mark.parametrize("form", FORMS)
@pytest.mark.parametrize("shape", ["a?b", "?\u0323\u0301", "e\u0301?"])
def test_normalization_forms(form: str, shape: str, codes: list[int]) -> None:
    ours = _native.StepNormalizer([(form,)])
    theirs = getattr(normalizers, form)()
    assert first_difference(ours.normalize, theirs.normalize_str, shape, codes) is None


@pytest.mark.parametrize("form", ["NFC", "NFKC"])
def test_every_pair_that_may_compose(form: str) -> None:
    ours = _native.StepNormalizer([(form,)])
    theirs = getattr(normalizers, form)()
    for mark in "\u0300\u0308\u0327\u3099\u1161\u11a8\u0f72\u09be\U000110ba\U0001d165":
        assert first_difference(ours.normalize, theirs.normalize_str, f"?{mark}", SAMPLE) is None


def test_strip_accents_and_lowercase_and_strip(codes: list[int]) -> None:
    ours = _native.StepNormalizer([("StripAccents",)])
    theirs = normalizers.StripAccents()
    assert first_difference(ours.normalize, theirs.normalize_str, "a?b", codes) is None
    lower = _native.StepNormalizer([("Lowercase",)])
    assert (
        first_difference(lower.normalize, normalizers.Lowercase().normalize_str, "a?b", codes)
        is None
    )
    for left, right in ((True, True), (False, True), (True, False)):
        strip = _native.StepNormalizer([("Strip", left, right)])
        other = normalizers.Strip(left=left, right=right)
        for code in SAMPLE[::7]:
            text = f" \n{chr(code)}x{chr(code)}\u3000"
            assert strip.normalize(text) == other.normalize_str(text), hex(code)


@pytest.mark.parametrize(
    "pattern", [" {2,}", " +", r"\s{2,}", r"\s+", r"\s{2,}|[\n\r\t]"], ids=repr
)
def test_the_regular_expressions_that_files_have(pattern: str, codes: list[int]) -> None:
    from encoder_engine.text.spec.unigram import REGEXES

    ours = _native.StepNormalizer([("ReplaceRuns", *REGEXES[pattern], "_")])
    theirs = normalizers.Replace(Regex(pattern), "_")
    for shape in ("a?b", "a??b", " ? ", "?\n"):
        assert first_difference(ours.normalize, theirs.normalize_str, shape, codes) is None


# A text for each rule of Unicode Standard Annex 29, with ? in each role; 2-byte characters first,
# for a cluster of six bytes or more is taken apart.
SHAPES = (
    *("a?", "?\u0308\u0308", "?x\u0308", "\u0600\u1100?\u0308", "\u0600\u1161?\u0308"),
    *("\u0600\uac00?\u0308", "\u0600\uac01?\u0308", "©\u200d?\u0308", "©?\u200d©\u0308"),
    *("\u0915\u094d?\u0308", "\u0915?\u0915\u0308", "\u0915\u094d?\u0915\u0308", "?\u200d©\u0308"),
    *("\r?", "?\n", "\u0600?", "?\u0903", "\U0001f1e6?\u0308", "\u1100\u0308?\u0308"),
)


@pytest.mark.parametrize("shape", SHAPES, ids=ascii)
def test_grapheme_clusters(shape: str, codes: list[int]) -> None:
    ours = _native.StepNormalizer([("Precompiled", CLUSTERS)])
    theirs = normalizers.Precompiled(CLUSTERS)
    # A line feed ends every cluster.
    assert first_difference(ours.normalize, theirs.normalize_str, f"{shape}\n", codes) is None


@pytest.mark.parametrize(
    ("step", "native"),
    [
        *((UnicodeFormStep(form=form), (form,)) for form in FORMS),  # type: ignore[arg-type]
        (StripAccentsStep(), ("StripAccents",)),
        (LowercaseStep(), ("Lowercase",)),
        (StripStep(left=True, right=True), ("Strip", True, True)),
        (CharsmapStep(charsmap=CLUSTERS), ("Precompiled", CLUSTERS)),
    ],
    ids=lambda value: type(value).__name__,
)
def test_the_oracle_takes_every_step_as_the_encoder_does(
    step: object, native: tuple[object, ...]
) -> None:
    ours = _native.StepNormalizer([native])

    def slow(text: str) -> str:
        chars = [Char(code, index) for index, code in enumerate(text)]
        return "".join(char.code for char in apply_step(chars, step))  # type: ignore[arg-type]

    for shape in ("a?b", "e\u0301?\u0323"):
        assert first_difference(ours.normalize, slow, shape, SAMPLE[::51]) is None
