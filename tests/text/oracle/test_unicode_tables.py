"""Every code point there is, against the installed tokenizers library and the oracle."""

from __future__ import annotations

import itertools
from typing import TYPE_CHECKING

import pytest
from tokenizers import normalizers

from encoder_engine import _native
from tests.text.oracle.conftest import SAMPLE
from tests.text.oracle.reference import ReferenceTokenizer
from tests.text.oracle.text import Char
from tests.text.parity.peers import Settings
from tests.text.strings import SCALARS

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator

    from tests.text.parity.peers import Peer

SWITCHES = list(itertools.product([False, True], repeat=4))


def blocks(form: str, codes: list[int] = SCALARS, size: int = 4096) -> Iterator[str]:
    """Set every code point into ``form``, many to a string."""
    for at in range(0, len(codes), size):
        yield "".join(form.replace("?", chr(code)) for code in codes[at : at + size])


def first_difference(
    ours: Callable[[str], object],
    theirs: Callable[[str], object],
    form: str,
    codes: list[int] = SCALARS,
) -> str | None:
    """Name the first code point on which two functions differ."""
    for block in blocks(form, codes):
        if ours(block) == theirs(block):
            continue
        step = len(form)
        for at in range(0, len(block), step):
            part = block[at : at + step]
            if ours(part) != theirs(part):
                return f"U+{ord(part[form.index('?')]):04X}"
        return "a block"
    return None


@pytest.mark.parametrize(("clean", "cjk", "accents", "lower"), SWITCHES)
def test_the_normalizer_agrees_with_tokenizers_on_every_code_point(
    clean: bool, cjk: bool, accents: bool, lower: bool, codes: list[int]
) -> None:
    options = _native.NormalizerOptions(
        clean_text=clean, handle_cjk=cjk, strip_accents=accents, lowercase=lower
    )
    theirs = normalizers.BertNormalizer(
        clean_text=clean, handle_chinese_chars=cjk, strip_accents=accents, lowercase=lower
    )
    ours = _native.Normalizer(options)
    assert first_difference(ours.normalize, theirs.normalize_str, "a?b", codes) is None


@pytest.mark.exhaustive
def test_the_oracle_normalizes_every_code_point_as_the_encoder_does(minilm_peer: Peer) -> None:
    oracle = ReferenceTokenizer(minilm_peer.ours.spec)
    native = _native.Normalizer(
        _native.NormalizerOptions(
            clean_text=True, handle_cjk=True, strip_accents=True, lowercase=True
        )
    )

    def slow(text: str) -> str:
        chars = [Char(code, index) for index, code in enumerate(text)]
        return "".join(char.code for char in oracle.model.normalize(chars))

    assert first_difference(native.normalize, slow, "a?b", SAMPLE) is None


@pytest.mark.parametrize("reference_mark", ["\u0334", "\u0300", "\u0345", "\u093c", "\u302e"])
def test_combining_classes_order_every_code_point_as_tokenizers_does(reference_mark: str) -> None:
    options = _native.NormalizerOptions(
        clean_text=False, handle_cjk=False, strip_accents=True, lowercase=False
    )
    ours = _native.Normalizer(options)
    theirs = normalizers.BertNormalizer(
        clean_text=False, handle_chinese_chars=False, strip_accents=True, lowercase=False
    )
    for form in (f"a?{reference_mark}\u302eb", f"a{reference_mark}?\U0001d165b"):
        assert first_difference(ours.normalize, theirs.normalize_str, form, SAMPLE) is None


def test_every_code_point_splits_words_as_in_tokenizers(
    variant_peers: list[Peer], codes: list[int]
) -> None:
    bare = next(peer for peer in variant_peers if peer.name.endswith("_bare"))
    # One block at a time: theirs takes a kilobyte a token.
    for text in blocks("x?y ", codes, size=1024):
        mismatch = bare.compare([text], None, Settings())
        assert mismatch is None, str(mismatch)


def test_every_code_point_bounds_single_words_as_in_tokenizers(variant_peers: list[Peer]) -> None:
    # "ab" is a single-word added token, so ? meets it on both sides.
    single = next(peer for peer in variant_peers if peer.name.endswith("_raw_added"))
    for text in blocks("ab? ?ab ", SAMPLE, size=256):
        mismatch = single.compare([text], None, Settings())
        assert mismatch is None, str(mismatch)
