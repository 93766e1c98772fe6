"""The Unigram encoder against its slow twin, on whatever Hypothesis thinks of."""

from __future__ import annotations

from typing import TYPE_CHECKING

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from tests.text.oracle.test_oracle import check
from tests.text.parity.peers import Settings
from tests.text.strings import CASES, CONTROLS, MARKS, PIECES, SPACES

if TYPE_CHECKING:
    from tests.text.parity.peers import Peer

parts = st.one_of(
    st.text(max_size=12),
    st.sampled_from([*PIECES, "NORM", "Word", "<Raw>", "ab", "[M]", " x", "É 中", "<extra>"]),
    st.text(alphabet=SPACES + CONTROLS + CASES, max_size=4),
    st.text(alphabet=[chr(code) for code in MARKS[:80]], max_size=4),
    st.text(alphabet="abcexq ﬁﷺ中▁", max_size=9),
)
texts = st.lists(parts, max_size=8).map("".join)
quick = settings(
    max_examples=200, deadline=None, suppress_health_check=[HealthCheck.function_scoped_fixture]
)


@pytest.mark.exhaustive
@quick
@given(text=texts, which=st.integers(0, 29))
def test_every_variant(unigram_variant_peers: list[Peer], text: str, which: int) -> None:
    peer = unigram_variant_peers[which % len(unigram_variant_peers)]
    check(peer, text, None, Settings(add_special_tokens=False))


@pytest.mark.exhaustive
@quick
@given(text=texts, pair=st.none() | texts, which=st.integers(0, 29), room=st.integers(2, 12))
def test_cut_texts(
    unigram_variant_peers: list[Peer], text: str, pair: str | None, which: int, room: int
) -> None:
    peer = unigram_variant_peers[which % len(unigram_variant_peers)]
    check(peer, text, pair, Settings(max_length=room + 4))
