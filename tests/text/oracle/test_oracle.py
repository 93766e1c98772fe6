"""The fast encoder against its slow twin, on whatever Hypothesis thinks of."""

from __future__ import annotations

from typing import TYPE_CHECKING

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from encoder_engine.errors import InputError
from tests.text.oracle.reference import ReferenceTokenizer
from tests.text.parity.peers import Settings
from tests.text.strings import CASES, CONTROLS, MARKS, SPACES, SPECIALS, SURVIVORS

if TYPE_CHECKING:
    from tests.text.parity.peers import Peer

parts = st.one_of(
    st.text(max_size=12),
    st.sampled_from([*SPECIALS, "ab", "abab", "NORM", "norm", "é 中", "<extra>", "<Raw>", "##"]),
    st.text(alphabet=SPACES + CONTROLS + CASES, max_size=4),
    st.text(alphabet=[chr(code) for code in [*MARKS[:50], *SURVIVORS]], max_size=5),
    st.sampled_from(["unaffable", "word", "running", "çé", "東京", "a" * 99, "Word"]),
)
texts = st.lists(parts, max_size=8).map("".join)
quick = settings(
    max_examples=150, deadline=None, suppress_health_check=[HealthCheck.function_scoped_fixture]
)


def check(peer: Peer, text: str, pair: str | None, how: Settings) -> None:
    """Compare every field of every row with the oracle's."""
    oracle = ReferenceTokenizer(peer.ours.spec)
    try:
        rows = oracle.encode(
            text,
            pair,
            add_special_tokens=how.add_special_tokens,
            max_length=how.max_length,
            strategy=how.truncation,
            stride=how.stride,
            left=how.left,
        )
    except ValueError:
        rows = []
    try:
        ours = peer.encode([text], None if pair is None else [pair], how)
    except InputError:
        assert not rows or how.overflow
        return
    if not how.overflow:
        rows = rows[:1]
    words = [-1 if word is None else word for row in rows for word in row.word_ids]
    assert ours.tolist() == [row.ids for row in rows]
    assert ours.offsets.tolist() == [list(offset) for row in rows for offset in row.offsets]
    assert ours.word_ids.tolist() == words
    assert ours.type_ids.tolist() == [number for row in rows for number in row.type_ids]
    assert ours.special_tokens_mask.astype(int).tolist() == [s for row in rows for s in row.special]


@pytest.mark.slow
@quick
@given(text=texts, pair=st.none() | texts)
def test_whole_texts(minilm_peer: Peer, text: str, pair: str | None) -> None:
    check(minilm_peer, text, pair, Settings())


@pytest.mark.slow
@quick
@given(text=texts, which=st.integers(0, 6))
def test_added_tokens_and_switches(variant_peers: list[Peer], text: str, which: int) -> None:
    check(variant_peers[which], text, None, Settings(add_special_tokens=False))


@quick
@given(
    text=texts,
    pair=st.none() | texts,
    room=st.integers(2, 20),
    name=st.sampled_from(["longest_first", "only_first"]),
    left=st.booleans(),
    overflow=st.booleans(),
)
def test_cut_texts(
    minilm_peer: Peer,
    text: str,
    pair: str | None,
    room: int,
    name: str,
    left: bool,
    overflow: bool,
) -> None:
    how = Settings(max_length=room + 3, truncation=name, left=left, overflow=overflow)
    check(minilm_peer, text, pair, how)


@quick
@given(text=texts, pair=st.none() | texts)
def test_whole_texts_against_tokenizers(minilm_peer: Peer, text: str, pair: str | None) -> None:
    mismatch = minilm_peer.compare([text], None if pair is None else [pair], Settings())
    assert mismatch is None, str(mismatch)
