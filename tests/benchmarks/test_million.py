"""The long run: sentences are cut from what is there, and both sides are measured in turns."""

from __future__ import annotations

import json
import lzma
import signal
import subprocess
import sys
from contextlib import closing
from types import ModuleType
from typing import TYPE_CHECKING
from xml.etree import ElementTree

import pytest
from click.testing import CliRunner

from benchmarks import million as long_run
from benchmarks import results as records
from benchmarks.case import EmbeddingJob
from benchmarks.figures import Axis, line_figure
from benchmarks.peers.sentence_transformers import load_parts
from benchmarks.sentences import read_sentences, write_sentences

if TYPE_CHECKING:
    from pathlib import Path

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


def test_a_figure_has_labelled_axes_and_every_point() -> None:
    x, y = Axis(label="seconds", values=[0, 1, 2.5]), Axis(label="MiB & more", values=[3, 40, 41])
    root = ElementTree.fromstring(line_figure("Memory", x, y))
    texts = [element.text for element in root.iter("{http://www.w3.org/2000/svg}text")]
    assert texts[:3] == ["Memory", "seconds", "MiB & more"]
    assert (x.end, y.end) == (2.5, 50)
    assert {"0", "2.5", "50"} <= set(texts)
    (line,) = root.iter("{http://www.w3.org/2000/svg}polyline")
    assert len(line.attrib["points"].split()) == 3


def test_the_peer_loads_its_model_once(monkeypatch: pytest.MonkeyPatch) -> None:
    loaded: list[FakeModel] = []

    class FakeModel:
        def __init__(self, *_arguments: object, **_options: object) -> None:
            loaded.append(self)

        def encode(self, texts: list[str], **_options: object) -> list[str]:
            return texts

    module = ModuleType("sentence_transformers")
    module.SentenceTransformer = FakeModel  # type: ignore[attr-defined]
    monkeypatch.setitem(sys.modules, "sentence_transformers", module)
    monkeypatch.setattr("torch.set_num_threads", lambda _number: None)
    job = EmbeddingJob(directory="", texts=("a", "b", "c", "d"), max_length=8, threads=1)
    call = load_parts(job, [range(0, 4, 2), range(1, 4, 2)])
    assert [call() for _ in range(3)] == [["a", "c"], ["b", "d"], ["a", "c"]]
    assert len(loaded) == 1


def test_nothing_stands_still_for_ever_after_an_error(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    program = "import time; time.sleep(600)"
    monkeypatch.setattr(long_run, "minilm_directory", lambda: tmp_path)
    begin = subprocess.Popen
    monkeypatch.setattr(
        subprocess, "Popen", lambda _command, **how: begin([sys.executable, "-c", program], **how)
    )
    run = long_run.Run(tmp_path, "float32", 1)
    child = run._child

    def fail() -> None:
        with closing(run):
            run.stop()
            raise RuntimeError("the peer failed")

    with pytest.raises(RuntimeError, match="the peer failed"):
        fail()
    assert child.returncode == -signal.SIGKILL


@pytest.mark.slow
def test_a_short_run_measures_both_sides(
    minilm: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    assert minilm.is_dir()
    pytest.importorskip("sentence_transformers")
    monkeypatch.setattr(records, "FOLDER", tmp_path)
    monkeypatch.setattr(long_run, "FIGURE", tmp_path / "memory.svg")
    kept: list[object] = []
    monkeypatch.setattr(records, "append", kept.extend)
    arguments = ["--rows", "160", "--sample", "80", "--slices", "2", "--dtype", "float32"]
    ran = CliRunner().invoke(long_run.million, arguments, catch_exceptions=False)
    assert ran.exit_code == 0
    assert [line.status for line in kept] == ["measured"] * 2  # type: ignore[attr-defined]
    assert "again: 160 rows compared" in ran.output
    (path,) = tmp_path.glob("*-resident.json")
    found = json.loads(path.read_text("utf-8"))
    assert len(found["seconds"]) == len(found["mib"]) > 0
    assert (tmp_path / "memory.svg").is_file()
    assert CliRunner().invoke(long_run.million, ["--rows", "161"]).exit_code == 2
