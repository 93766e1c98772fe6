"""Every case of every bench file runs, at the smallest size and for one round."""

from __future__ import annotations

import re
from dataclasses import replace
from functools import partial
from typing import TYPE_CHECKING

import pytest

from benchmarks import peers, registry
from benchmarks.__main__ import main
from benchmarks.cases.embedding import build_ours
from benchmarks.measuring.case import CaseSpec, EmbeddingJob, Options
from benchmarks.measuring.machine import ROOT
from benchmarks.measuring.measure import measure
from benchmarks.measuring.worker import run_in_worker
from benchmarks.records import results as records
from benchmarks.registry import all_cases, choose_cases
from benchmarks.tests import fakes
from benchmarks.texts import corpus
from encoder_engine import ops

if TYPE_CHECKING:
    from collections.abc import Sequence
    from pathlib import Path

CASES = all_cases()
# Starting a process per candidate takes long; one such case shows that it works.
ISOLATED = "embedding/minilm-float32-short"
# Vocabularies of 250,000 pieces load slowly: of their cases those with a form of their own run.
FORMS = ("english", "batch-lists", "sentence", "matrix", "offsets", "load")
# At the smallest size all models are one, and a precision works on all texts or on none.
EMBEDDING = {
    "embedding/minilm-float32-short",
    "embedding/minilm-float32-skewed-prose",
    "embedding/minilm-bfloat16-skewed",
    "embedding/minilm-int8-long",
}
# Larger sizes of an operation, whose cases are made by the same code.
SIZES = re.compile(r"_(2k|8k|8k_window|d128|half|large|tiled)$")


# One operation stands for all, whose cases are made alike. A cold start, too, has a process for
# each candidate, in a third of the 26 seconds of the isolated case.
LEFT_OUT = {"embedding", "finetuning", "token_embedding", "packed_linear", "attention_dropout"}
# Steps on a GPU are made by the code of those on a CPU.
LEFT_OUT |= {"finetuning_gpu", "pretraining_gpu", "training_graphs"}
LEFT_OUT |= {"layer_norm_dropout", *ops.operations()} - {"attention"}


def marks(name: str) -> list[pytest.MarkDecorator]:
    """Mark all but the first case of each kind of work: the others run in ``make test-all``."""
    kind = SIZES.sub("", name.partition("/")[0])
    shown = next(n for n in CASES if n.startswith(f"{kind}/"))
    return [] if name == shown and kind not in LEFT_OUT else [pytest.mark.exhaustive]


PARAMETERS = [
    pytest.param(spec, id=name, marks=marks(name))
    for name, spec in CASES.items()
    if not name.startswith("tokenizer/xlmr-") or name.endswith(FORMS)
    if not name.startswith("embedding/") or name in EMBEDDING
]


# Cases of whole libraries.
BY_PEERS = ("tokenizer/", "embedding/", "latency/", "cold_start/")


@pytest.mark.parametrize("spec", PARAMETERS)
def test_a_case_runs_and_its_gate_passes_all_that_are_installed(spec: CaseSpec) -> None:
    reason = spec.unavailable()
    if reason is not None:
        pytest.skip(reason)
    case = spec.case(Options(threads=1, smoke=True))
    if spec.name != ISOLATED:
        case = replace(case, isolated=False)
    assert "encoder-engine" in case.candidates[0].name
    measured = measure(case, threads=1, rounds=1, smoke=True)
    for found, candidate in zip(measured, case.candidates, strict=True):
        if candidate.unavailable is None:
            expected = {"measured"}
            if candidate.role == "peer" and spec.name.startswith(BY_PEERS):
                expected.add("gate failed")  # not every peer is exact
            assert found.status in expected, f"{found.candidate}: {found.reason}"
            assert found.verdict is not None
            assert found.verdict.figures
        else:
            assert (found.status, found.reason) == ("skipped", candidate.unavailable)


def test_every_operation_an_encoder_runs_has_cases() -> None:
    measured = {name.partition("/")[0] for name in CASES}
    # The end-to-end case holds the name embedding; two operations are for analysis only.
    analysis = {"attention_probabilities", "attention_statistics"}
    needed = set(ops.operations()) - analysis - {"embedding"} | {"token_embedding"}
    assert needed <= measured


def test_cases_are_chosen_by_name_by_group_and_by_pattern() -> None:
    assert [spec.name for spec in choose_cases(["linear/forward"], "cpu")] == ["linear/forward"]
    assert {spec.name for spec in choose_cases(["encoder"], "cpu")} == {
        "encoder/equal",
        "encoder/mixed",
    }
    assert all("training" in spec.name for spec in choose_cases(["*/training"], "cpu"))
    assert not any(spec.name.startswith("embedding/") for spec in choose_cases([], "cuda"))
    with pytest.raises(LookupError, match="encoder/mixed"):
        choose_cases(["decoder"], "cpu")


def test_a_peer_that_is_not_installed_is_named_with_what_to_do() -> None:
    absent = peers.Peer(name="absent", modules={"json": "json", "no_such_module": "no-such-thing"})
    reason = absent.available()
    assert reason is not None
    assert reason.startswith("no-such-thing not installed; pip install")
    assert {peer.name for peer in peers.find_peers()} >= {"sentence-transformers", "transformers"}


def test_ways_to_embed_that_torch_compiles_are_left_out_on_request(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    ways = {way.name: way for peer in peers.find_peers() for way in peer.embedding}
    compiled = {name for name, way in ways.items() if way.compiled}
    assert compiled == {"torch.compile", "torchao, compiled", "zentorch"}
    installed = peers.Peer(name="here", modules={"json": "json"}, embedding=tuple(ways.values()))
    monkeypatch.setattr(peers, "find_peers", lambda: [installed])
    job = EmbeddingJob(directory="", texts=(), max_length=8, threads=1)
    here = compiled - {"torchao, compiled"}
    for options, left_out in (
        (Options(), set()),
        (Options(compiles=False), here),
        (Options(quick=True), here),
    ):
        found = peers.embedding_candidates(job, options)
        assert {c.name for c in found if c.unavailable is not None} == left_out


def test_passages_fill_their_length_and_never_exceed_it() -> None:
    documents = ["one two three", "four five six seven", "eight nine"]

    def count(texts: Sequence[str]) -> list[int]:
        return [len(text) for text in texts]

    texts = corpus.passages(documents, [12, 20, 9, 60], count, seed=1)
    for text, length in zip(texts, [12, 20, 9, 60], strict=True):
        tokens = sum(map(len, text.split()))
        assert length - 2 - 5 < tokens <= length - 2
    assert texts == corpus.passages(documents, [12, 20, 9, 60], count, seed=1)


def test_the_command_line_lists_refuses_and_reports(capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["run", "--list"]) == 0
    assert "embedding/minilm-float32-skewed" in capsys.readouterr().out
    assert main(["run", "no-such-case"]) == 2
    assert "no case 'no-such-case'" in capsys.readouterr().err
    assert main(["run", "linear", "--repeats", "2"]) == 2
    assert main(["run", "linear", "--threads", "0"]) == 2
    assert main(["run", "linear", "--threads", "4096"]) == 2
    assert main(["report"]) == 0
    assert capsys.readouterr().out.startswith("# Benchmark results")
    assert main(["compare", "no-such-commit", "nor-this"]) == 1


def test_every_bench_file_is_documented() -> None:
    text = (ROOT / "docs" / "benchmarks.md").read_text(encoding="utf-8")
    for group in {name.partition("/")[0] for name in CASES}:
        assert f"`{group}`" in text, group


def test_a_cold_start_finds_nothing_imported_that_it_is_about() -> None:
    job = EmbeddingJob(directory="a model", texts=("a text",), max_length=8, threads=1)
    builds = [peer.build for peer in peers.embedding_candidates(job, Options(threads=1))]
    builds.append(partial(build_ours, job))
    found = run_in_worker(partial(fakes.imported, builds), 1)
    assert {"benchmarks.cases.embedding", "benchmarks.peers.ctranslate2"} <= found
    assert not {"torch", "encoder_engine", "tokenizers", "transformers", "numpy"} & found
    # NumPy's import is no other than without the modules that imported its stand-in.
    assert run_in_worker(partial(fakes.times_run, "numpy.linalg", builds), 1) == 1


def test_a_quick_run_has_every_group_that_a_processor_runs() -> None:
    groups = {name.partition("/")[0] for name, spec in CASES.items() if "cpu" in spec.devices}
    assert {name.partition("/")[0] for name in registry.QUICK} == groups


def test_a_quick_run_writes_its_own_results_and_page(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    assert set(registry.QUICK) <= set(CASES)
    monkeypatch.setattr(registry, "QUICK", ("quantize_rows/forward",))
    assert main(["quick", "--output", str(tmp_path / "page")]) == 0
    printed = capsys.readouterr().out
    assert "report.md" in printed
    assert "[1 of 1, 0:00] quantize_rows/forward" in printed
    # What it left out is said at the end, and on the page.
    for text in (printed, (tmp_path / "page" / "report.md").read_text("utf-8")):
        _, _, left_out = text.partition("eft out")
        assert "on an NVIDIA GPU" in left_out
        assert "6 of `finetuning`" in left_out
    assert "quantize_rows/forward" in (tmp_path / "page" / "report.md").read_text("utf-8")
    assert main(["quick", "--output", str(tmp_path / "none"), "--minutes", "0"]) == 0
    assert "- `quantize_rows/forward`: 0 minutes were over" in capsys.readouterr().out
    found = list(records.read(tmp_path / "page"))
    assert {result.case for result in found} == {"quantize_rows/forward"}
    assert all(result.quick for result in found)
