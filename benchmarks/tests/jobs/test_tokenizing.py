"""The tokenizer cases: what is timed, what is judged, fresh processes, environments, the table."""

from __future__ import annotations

import dataclasses
import sys
from typing import TYPE_CHECKING, Any

import numpy as np

from benchmarks import environments
from benchmarks.__main__ import main
from benchmarks.jobs import tokenizing
from benchmarks.jobs.gates import ParityGate
from benchmarks.jobs.tokenizing import TokenizerJob, Way, Ways, list_rows, one_row
from benchmarks.measuring.measure import measure
from benchmarks.peers import Peer
from benchmarks.tests import fakes

if TYPE_CHECKING:
    from pathlib import Path

    import pytest

    from benchmarks.measuring.case import Work

JOB = TokenizerJob(
    file="tokenizer.json",
    model="BPE",
    before=(),
    after=(),
    pieces=None,
    form="lists",
    task="batch",
    texts=("ab", "c"),
    judged=("d",),
    max_length=8,
    threads=1,
)
seen: list[str] = []


def load(job: TokenizerJob) -> Ways:
    """Load a tokenizer that maps characters to their codes."""

    def lists(texts: list[str]) -> list[list[int]]:
        seen.extend(texts)
        return [[ord(c) for c in text] for text in texts]

    def sentence(texts: list[str]) -> list[int]:
        return lists(texts)[-1]

    return {
        "lists": Way(call=lists, rows=list_rows),
        "arrays": Way(call=lists, rows=list_rows),
        "sentence": Way(call=sentence, rows=one_row),
    }


def built(**changes: Any) -> Work:
    seen.clear()
    return tokenizing.build(load, dataclasses.replace(JOB, **changes))


def test_what_is_judged_is_what_is_timed_and_more() -> None:
    work = built()
    work.call()
    assert seen == ["ab", "c"]
    assert [row.tolist() for row in work.answer()] == [[97, 98], [99], [100]]


def test_every_sentence_is_judged() -> None:
    work = built(form="sentence", texts=("ab", "ab"))
    work.call()
    assert seen == ["ab", "ab"]
    assert [row.tolist() for row in work.answer()] == [[97, 98], [100]]


def test_the_last_quarter_of_a_stream_comes_after_the_rest() -> None:
    texts = tuple(str(i) for i in range(1001))
    work = built(task="stream end", texts=texts, judged=())
    assert seen == list(texts[:750])
    seen.clear()
    work.call()
    assert seen == list(texts[750:])
    assert len(work.answer()) == 1001
    whole = tokenizing.truth(load, dataclasses.replace(JOB, task="stream end", texts=texts))
    assert len(whole) == 1001


def test_a_load_is_timed_to_the_first_ids_and_judged() -> None:
    work = built(task="load", form="sentence", texts=("ab",), judged=())
    assert seen == []
    assert work.call() == [97, 98]
    assert [row.tolist() for row in work.answer()] == [[97, 98]]


def test_one_wrong_token_fails_and_is_counted() -> None:
    truth = list_rows([[1, 2], [3], []])
    gate = ParityGate(truth=truth)
    assert gate(list_rows([[1, 2], [3], []])).passed
    verdict = gate(list_rows([[1, 2], [4], []]))
    assert verdict.reason == "fails parity: 1 of 3 rows differ"
    assert verdict.figures == {"rows": 3, "differing_rows": 1}
    assert not gate(list_rows([[1, 2], [3]])).passed
    assert not gate(list_rows([[1, 2], [3, 3], []])).passed


def test_rows_of_every_form() -> None:
    packed = tokenizing.packed_rows(np.array([1, 2, 3], np.uint32), np.array([0, 2, 2, 3]))
    assert [row.tolist() for row in packed] == [[1, 2], [], [3]]
    matrix = tokenizing.matrix_rows((np.array([[7, 0]]), np.array([[1, 0]])))
    assert [row.tolist() for row in matrix] == [[7, 0, 1, 0]]
    offsets = tokenizing.offset_rows([[7, 8], []], [[(0, 1), (1, 3)], []])
    assert [row.tolist() for row in offsets] == [[7, 0, 1, 8, 1, 3], []]
    job = dataclasses.replace(JOB, before=(1,), after=(2,))
    assert [row.tolist() for row in tokenizing.with_template(job, [[5]])] == [[1, 5, 2]]


def test_every_sample_of_a_fresh_case_is_a_first_call() -> None:
    counting = fakes.candidate("counting")
    counting = dataclasses.replace(counting, build=fakes.build_first_call_only)
    case = dataclasses.replace(fakes.case(counting, isolated=True), fresh=True)
    (found,) = measure(case, threads=1)
    assert (found.status, found.reason) == ("measured", None)
    assert len(found.samples) == 5
    assert found.peak is None or found.peak.of == "first call"


def test_a_candidate_may_run_in_another_interpreter() -> None:
    other = dataclasses.replace(
        fakes.candidate("other"), build=fakes.build_right, python=sys.executable
    )
    (found,) = measure(fakes.case(other), threads=1)
    assert found.status == "measured"
    assert found.peak is None or found.peak.of == "process"
    gone = dataclasses.replace(other, python="/no/such/python")
    (failed,) = measure(fakes.case(gone), threads=1)
    assert failed.status == "failed"
    assert failed.reason == "its interpreter does not start: No such file or directory"


def test_environments_have_pins_and_say_what_they_lack(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setenv(environments.VARIABLE, str(tmp_path))
    names = {environment.name for environment in environments.environments()}
    assert names == {"embedding", "jax", "serving", "tokenizers", "tokenizers-1"}
    assert environments.environment("tokenizers-1").wanted["tokenizers"].startswith("1.")
    serving = environments.environment("serving")
    assert "is not set up; python -m benchmarks peers --setup" in str(serving.unavailable())
    serving.python.parent.mkdir(parents=True)
    serving.python.touch()
    assert "lacks " in str(serving.unavailable())
    site = serving.folder / "lib" / "python3.x" / "site-packages"
    for name, version in serving.wanted.items():
        info = site / f"{name}-{version}.dist-info"
        info.mkdir(parents=True)
        # Names compare as pip's do.
        (info / "METADATA").write_text(f"Name: {name.replace('-', '_')}\nVersion: {version}\n")
    assert serving.wanted["infinity-emb"]
    assert serving.unavailable() is None
    assert serving.found == serving.wanted
    # The folder of the command line is where peers are looked for too.
    monkeypatch.setenv(environments.VARIABLE, str(tmp_path / "another"))
    assert main(["peers", str(tmp_path)]) == 0
    assert "\npeer infinity: ready" in capsys.readouterr().out


def test_a_peer_of_another_version_never_runs_here(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv(environments.VARIABLE, str(tmp_path))
    peer = Peer(name="p", modules={"json": "json"}, environment="tokenizers-1", only_there=True)
    assert "is not set up" in str(peer.available())
    assert dataclasses.replace(peer, only_there=False).available() is None
