"""The same results on any number of threads, from many callers, and after a fork."""

from __future__ import annotations

import subprocess
import sys
import threading
from typing import TYPE_CHECKING, Any

import numpy as np
import pytest

from tests import ROOT
from tests.text.strings import StringMaker

if TYPE_CHECKING:
    from pathlib import Path

    from tests.text.parity.peers import Peer


@pytest.fixture(scope="module")
def texts(minilm_peer: Peer) -> list[str]:
    """Draw enough text for several chunks."""
    import random

    maker = StringMaker(random.Random(7), sorted(minilm_peer.ours.spec.model.vocab))
    return [maker.text() for _ in range(4000)]


@pytest.mark.parametrize("threads", [None, 2, 3, 4, 8])
def test_every_number_of_threads_gives_the_same(
    minilm_peer: Peer, texts: list[str], threads: int | None
) -> None:
    for pairs in (None, texts[::-1]):
        variants: list[dict[str, Any]] = [{}, {"max_length": 24}, {"max_length": 24, "stride": 2}]
        for options in variants:
            one = minilm_peer.ours.encode_batch(
                texts, pairs, return_offsets=True, num_threads=1, **options
            )
            many = minilm_peer.ours.encode_batch(
                texts, pairs, return_offsets=True, num_threads=threads, **options
            )
            for name in ("ids", "cu_seqlens", "offsets", "word_ids", "overflow_to_sample"):
                assert np.array_equal(getattr(one, name), getattr(many, name)), name
            assert np.array_equal(one.truncated, many.truncated)


def test_many_callers_at_once_get_their_own_results(minilm_peer: Peer, texts: list[str]) -> None:
    tokenizer = minilm_peer.ours
    shares = [texts[i::8] for i in range(8)]
    expected = [tokenizer.encode_batch(share).ids for share in shares]
    wrong: list[int] = []

    def hammer(index: int) -> None:
        for round_number in range(25):
            share = shares[index]
            threads = 1 + (index + round_number) % 3
            result = tokenizer.encode_batch(
                share, num_threads=threads, return_offsets=index % 2 > 0
            )
            if not np.array_equal(result.ids, expected[index]):
                wrong.append(index)

    callers = [threading.Thread(target=hammer, args=(index,)) for index in range(8)]
    for caller in callers:
        caller.start()
    for caller in callers:
        caller.join()
    assert not wrong


FORK = """
import os, sys
sys.path.insert(0, {root!r})
from encoder_engine.text import Tokenizer
tokenizer = Tokenizer.from_pretrained({folder!r})
texts = ["low a wanted running " * 40] * 400
expected = tokenizer.encode_batch(texts, num_threads=4).tolist()
for _ in range(3):
    pid = os.fork()
    if pid == 0:
        same = all(
            tokenizer.encode_batch(texts, num_threads=n).tolist() == expected for n in (1, 4, 2)
        )
        os._exit(0 if same else 1)
    assert os.waitstatus_to_exitcode(os.waitpid(pid, 0)[1]) == 0
assert tokenizer.encode_batch(texts, num_threads=4).tolist() == expected
"""


@pytest.mark.slow
def test_a_forked_child_goes_on_encoding(toy_folder: Path) -> None:
    script = FORK.format(root=str(ROOT), folder=str(toy_folder))
    done = subprocess.run(
        [sys.executable, "-c", script], timeout=60, capture_output=True, check=False
    )
    assert done.returncode == 0, done.stderr.decode()


@pytest.mark.slow
@pytest.mark.parametrize(
    ("name", "expected"), [("portable", "portable"), ("", None), ("sse9", "sse9")]
)
def test_the_environment_masks_instruction_sets(name: str, expected: str | None) -> None:
    script = (
        f"import sys; sys.path.insert(0, {str(ROOT)!r})\n"
        "from encoder_engine import _native\n"
        "print(_native.instruction_set(), *_native.supported_instruction_sets())"
    )
    done = subprocess.run(
        [sys.executable, "-c", script],
        env={"ENCODER_ENGINE_ISA": name, "PATH": ""},
        capture_output=True,
        text=True,
        check=False,
    )
    if name == "sse9":
        assert "ENCODER_ENGINE_ISA is 'sse9'; this processor runs: portable" in done.stderr
        return
    chosen, *supported = done.stdout.split()
    assert supported[0] == "portable"
    # Products of bfloat16 are not faster on every processor that has them.
    fastest = {supported[-1]} | ({"avx512"} if supported[-1] == "avx512_bf16" else set())
    assert chosen in (fastest if expected is None else {expected})
