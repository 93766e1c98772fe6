"""The long run: sentences are cut from what is there, and both sides are measured in turns."""

from __future__ import annotations

import lzma
import signal
import subprocess
import sys
from contextlib import closing
from dataclasses import replace
from typing import TYPE_CHECKING

import numpy as np
import pytest
from click.testing import CliRunner

from benchmarks.__main__ import main
from benchmarks.commands import million as long_run
from benchmarks.measuring.measure import Measurement
from benchmarks.measuring.timing import Sample
from benchmarks.records import results as records
from benchmarks.records.device_records import read_residents
from benchmarks.report.targets import hold
from benchmarks.targets.table import Target
from benchmarks.texts.sentences import read_sentences, write_sentences

if TYPE_CHECKING:
    from pathlib import Path

    from benchmarks.records.results import Result

TARGET = Target(
    group="g",
    what="w",
    wanted=">= 1.5x",
    at_least=1.5,
    case="dataset/minilm-bfloat16-sentences",
    answered_by="times_best",
)
NOVEL = (
    '### A title\n\n"Who is it?" he asked at last.\nNobody came to the\ndoor. No.\n\nWho is it? He'
)


def write(path: Path, text: str) -> None:
    path.write_bytes(lzma.compress(text.encode()))


@pytest.fixture
def corpora(tmp_path: Path) -> Path:
    write(tmp_path / "novels_00.txt.xz", NOVEL)
    write(tmp_path / "en_prose.txt.xz", "One paragraph here. Nobody came to the door.\n\n")
    write(tmp_path / "tatoeba112.tsv.xz", "deu\tDas ist es.\tThat is it.\n")
    return tmp_path


def test_sentences_are_cut_in_their_order(corpora: Path) -> None:
    assert list(read_sentences(corpora)) == [
        "### A title",
        '"Who is it?',
        "he asked at last.",
        "Nobody came to the door.",
        "Who is it?",
        "One paragraph here.",
        "Nobody came to the door.",
        "That is it.",
        "Das ist es.",
    ]


def test_none_is_written_again_before_all_were(corpora: Path) -> None:
    path = corpora / "out.txt"
    assert write_sentences(path, 5, corpora).num_repeated == 0
    written = write_sentences(path, 20, corpora)
    lines = path.read_text("utf-8").splitlines()
    assert (len(lines), len(set(lines)), written.num_repeated) == (20, 8, 12)
    assert lines[:8] == lines[8:16]
    assert lines[16:] == lines[:4]


def test_nothing_stands_still_for_ever_after_an_error(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    run = start(monkeypatch, tmp_path, "import time; time.sleep(600)")
    child = run._child

    def fail() -> None:
        with closing(run):
            run.stop()
            raise RuntimeError("the peer failed")

    with pytest.raises(RuntimeError, match="the peer failed"):
        fail()
    assert child.returncode == -signal.SIGKILL


def start(monkeypatch: pytest.MonkeyPatch, folder: Path, program: str) -> long_run.Run:
    """Let a program stand for the run."""
    monkeypatch.setattr(long_run, "minilm_directory", lambda: folder)
    begin = subprocess.Popen
    monkeypatch.setattr(
        subprocess, "Popen", lambda _command, **how: begin([sys.executable, "-c", program], **how)
    )
    return long_run.Run(folder, "float32", 1)


@pytest.mark.skipif(sys.platform != "linux", reason="reads /proc")
def test_memory_is_the_most_it_ever_held_to_the_end(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    program = (
        "import time; held = bytearray(b'x' * (64 << 20)); del held; time.sleep(0.7);"
        "print('{\"rows\": 1}')"
    )
    with closing(start(monkeypatch, tmp_path, program)) as run:
        assert run.finish() == {"rows": 1}
    assert run.peak is not None
    assert run.peak.mib > 64 + run.resident[-1][1] / 2
    seconds, mib = zip(*run.resident, strict=True)
    assert min(mib) > 0
    assert all(np.diff(seconds) >= long_run._WATCH_SECONDS)


@pytest.mark.parametrize("wrong", [True, False])
def test_a_wrong_result_of_ours_is_of_the_same_run_and_fails(
    wrong: bool, corpora: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    ours = Measurement(
        candidate=long_run.OURS,
        role="ours",
        status="gate failed" if wrong else "measured",
        reason="too far off" if wrong else None,
        samples=(Sample(wall_ms=1.0, cpu_ms=1.0),) * 5,
    )
    theirs = replace(ours, candidate=long_run.THEIRS, role="peer", status="measured", reason=None)
    found = long_run.Outcome(
        summary={"rows": 8, "tokens": 80, "seconds": {"total": 1.0}},
        again={"resumed_rows": 8, "seconds": {"total": 1.0}},
        measurements=(ours, theirs),
        resident=[(0.0, 1.0), (0.5, 2.0), (1.0, 2.0), (1.5, 2.0)],
    )
    monkeypatch.setattr(long_run, "compare", lambda *_arguments: found)
    monkeypatch.setattr("benchmarks.cases.embedding.minilm_directory", lambda: tmp_path)
    monkeypatch.setattr(
        long_run, "write_sentences", lambda path, rows: write_sentences(path, rows, corpora)
    )
    monkeypatch.setattr(records, "FOLDER", tmp_path)
    kept: list[Result] = []
    monkeypatch.setattr(records, "append", kept.extend)
    assert main(["million", "--rows", "8", "--sample", "4", "--slices", "2"]) == int(wrong)
    assert len({line.run for line in kept}) == 1
    assert [line.ratio_to_best_peer for line in kept] == ([None] * 2 if wrong else [2.0, 1.0])
    held = hold(TARGET, [kept])[0]
    assert held.state == ("missed" if wrong else "met"), held
    assert len(list(read_residents(tmp_path))) == int(not wrong)


@pytest.mark.exhaustive
@pytest.mark.slow
def test_a_short_run_measures_both_sides(
    minilm: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    assert minilm.is_dir()
    pytest.importorskip("sentence_transformers")
    monkeypatch.setattr(records, "FOLDER", tmp_path)
    kept: list[object] = []
    monkeypatch.setattr(records, "append", kept.extend)
    arguments = ["--rows", "160", "--sample", "80", "--slices", "2", "--dtype", "float32"]
    ran = CliRunner().invoke(long_run.million, arguments, catch_exceptions=False)
    assert ran.exit_code == 0
    assert [line.status for line in kept] == ["measured"] * 2  # type: ignore[attr-defined]
    assert "again: 160 rows compared" in ran.output
    (resident,) = read_residents(tmp_path)
    assert len(resident.seconds) == len(resident.mib) > 0
    assert kept[0].peak_mib >= max(resident.mib)  # type: ignore[attr-defined]
    assert CliRunner().invoke(long_run.million, ["--rows", "161"]).exit_code == 2
