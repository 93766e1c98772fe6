"""``encoder-engine doctor``: true facts, every operation explained, every finding with a mend."""

from __future__ import annotations

import importlib.metadata
import json
import os
import shutil
import sys
from typing import TYPE_CHECKING, Any

import pytest

import encoder_engine
from encoder_engine import _native, ops
from encoder_engine.cli.checks import machine
from encoder_engine.cli.checks.accuracy_check import EXAMPLES
from encoder_engine.cli.checks.findings import installation_findings, machine_findings
from encoder_engine.cli.checks.machine import num_threads
from encoder_engine.embedding.accuracy import COSINE_CLASSES, CosineClass
from encoder_engine.ops.cpu import native_instruction_set
from encoder_engine.text import Tokenizer
from tests.embedding.static.static_models import write_model2vec
from tests.embedding.tiny_model import write_json

if TYPE_CHECKING:
    from pathlib import Path

    from tests.cli.conftest import Run


def report(run: Run, *arguments: object) -> dict[str, Any]:
    parsed: dict[str, Any] = json.loads(run("doctor", "--json", *arguments).output)
    return parsed


def test_machine_and_versions_are_this_ones(run: Run) -> None:
    facts = report(run)
    assert facts["machine"]["cores"] == os.cpu_count()
    assert facts["machine"]["memory_bytes"] > 2**28
    # The CUDA build of torch calls itself 2.13.0+cu130; the package is 2.13.0.
    assert facts["versions"]["torch"] == importlib.metadata.version("torch")
    assert facts["versions"]["encoder-engine"].startswith(encoder_engine.__version__)
    assert facts["native_extension"]["present"] is True
    assert facts["native_extension"]["instruction_set"]


def test_every_operation_says_what_runs_and_why_not_the_others(run: Run) -> None:
    facts = report(run)
    assert tuple(facts["operations"]) == ops.operations()
    for name, found in facts["operations"].items():
        explanation = dict(ops.explain(name, device=found["device"], dtype="float32"))
        assert explanation[found["chosen"]] is None
        assert {found["chosen"], *found["others"]} == set(explanation)
        assert all(found["others"].values())


def test_the_extras_are_those_of_the_project(run: Run) -> None:
    assert {"data", "hf", "minilm"} <= set(report(run)["extras"])


def test_the_report_for_people_names_every_section(run: Run, model: Path) -> None:
    result = run("doctor", "--model", model)
    assert result.code == 0
    for word in ("Machine", "Versions", "Operations", "Extras", "Model", "Findings", "attention"):
        assert word in result.output


def test_a_good_model_is_described_down_to_a_first_vector(run: Run, model: Path) -> None:
    facts = report(run, "--model", model)["model"]
    assert facts["dimension"] == 16
    assert facts["truncation"] == "at 16 tokens; the model has 32 positions"
    assert facts["first_vector"] == "16 features, length 1.000000"
    assert facts["pooling"] == "mean"
    assert "model.safetensors" in facts["files"]


def test_who_tokenizes_is_said_and_why(run: Run, model: Path, tmp_path: Path) -> None:
    assert report(run, "--model", model)["model"]["tokenizer"] == "WordPiece, lower-cased"
    folder = shutil.copytree(model, tmp_path / "model")
    for path in folder.rglob("SHA256SUMS"):
        path.unlink()
    Tokenizer.from_pretrained(folder).save(folder)
    top = json.loads((folder / "tokenizer.json").read_text("utf-8"))
    top["pre_tokenizer"] = {"type": "Whitespace"}
    (folder / "tokenizer.json").write_text(json.dumps(top), encoding="utf-8")
    found = report(run, "--model", folder)["model"]["tokenizer"]
    assert found.startswith("WordPiece by the library tokenizers, some 80 times as slow")
    assert "the pre-tokenizer Whitespace is not supported with WordPiece" in found


def test_a_static_table_is_described_as_embed_loads_it(run: Run, tmp_path: Path) -> None:
    """It was a problem, and the advice was to choose a model that is computed here."""
    result = run("doctor", "--json", "--model", write_model2vec(tmp_path))
    found = json.loads(result.output)
    assert result.code == 0
    assert found["model"]["first_vector"] == "37 features, length 1.000000"
    assert found["model"]["truncation"] == "at 512 tokens"
    assert any("records no checksums" in finding["what"] for finding in found["findings"])


@pytest.mark.parametrize(
    ("damage", "word"),
    [
        ("vocab.txt", "vocab"),
        ("model.safetensors", "safetensors"),
        ("config.json", "config.json"),
        ("1_Pooling/config.json", "1_Pooling"),
    ],
)
def test_a_damaged_model_is_a_problem_with_a_mend(
    run: Run, model: Path, tmp_path: Path, damage: str, word: str
) -> None:
    copy = tmp_path / "copy"
    shutil.copytree(model, copy)
    (copy / damage).unlink()
    result = run("doctor", "--json", "--model", copy)
    assert result.code == 1
    (problem,) = [f for f in json.loads(result.output)["findings"] if f["level"] == "problem"]
    assert word in problem["what"]
    assert problem["mend"]


def test_a_model_nobody_computes_is_a_problem_of_another_kind(
    run: Run, model: Path, tmp_path: Path
) -> None:
    copy = tmp_path / "copy"
    shutil.copytree(model, copy)
    write_json(copy / "config_sentence_transformers.json", {"model_type": "CrossEncoder"})
    result = run("doctor", "--model", copy)
    assert result.code == 1
    assert "CrossEncoder" in result.output
    assert "choose a model" in result.output


def test_a_model_whose_warnings_matter_gets_them_as_advice(
    run: Run, model: Path, tmp_path: Path
) -> None:
    copy = tmp_path / "copy"
    shutil.copytree(model, copy)
    (copy / "modules.json").unlink()
    findings = report(run, "--model", copy)["findings"]
    assert any("pooling=" in f["what"] for f in findings if f["level"] == "advice")


def test_the_precisions_of_a_model_are_compared_on_texts(
    run: Run, model: Path, tmp_path: Path
) -> None:
    facts = report(run, "--accuracy", "--model", model)["accuracy"]
    assert facts["texts"].endswith("examples")
    for precision in ("float32", "bfloat16", "int8"):
        found = facts[precision]
        assert found["min_cosine"] <= found["mean_cosine"] <= 1.0 + 1e-9
        assert found["worst_text"] in {text[:60] for text in EXAMPLES}
    assert facts["float32"]["accurate"]
    assert facts["int8"]["mean_cosine"] < facts["float32"]["mean_cosine"]
    texts = tmp_path / "texts.txt"
    texts.write_text("one text\nanother\n")
    result = run("doctor", "--accuracy", "--model", model, "--texts", texts)
    assert result.code == 0
    assert f"2 of {texts}" in result.output
    assert "accurate: cosine with float64 1.000000 on average" in result.output


def test_a_precision_too_far_off_is_advised_against(
    run: Run, model: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setitem(COSINE_CLASSES, "bfloat16", CosineClass(mean_cosine=1.1))
    result = run("doctor", "--json", "--accuracy", "--model", model)
    assert result.code == 0
    (finding,) = [f for f in json.loads(result.output)["findings"] if "too far" in f["what"]]
    assert finding["level"] == "advice"
    assert "below 1.1" in finding["what"]


def test_texts_that_cannot_be_compared_are_refused(run: Run, model: Path, tmp_path: Path) -> None:
    assert run("doctor", "--texts", "texts.txt").code == 2
    assert run("doctor", "--accuracy").code == 2
    assert run("doctor", "--accuracy", "--model", model, "--column", "body").code == 2
    (tmp_path / "table.csv").write_text("id,body\n1,a text\n", encoding="utf-8")
    table = ("doctor", "--accuracy", "--model", model, "--texts", tmp_path / "table.csv")
    assert "no column 'text'" in run(*table).errors
    assert "1 of" in run(*table, "--column", "body").output
    (tmp_path / "empty.txt").write_text("")
    result = run("doctor", "--accuracy", "--model", model, "--texts", tmp_path / "empty.txt")
    assert result.code == 1
    assert "no rows" in result.errors
    result = run("doctor", "--accuracy", "--model", tmp_path)
    assert result.code == 1
    assert "cannot be compared" in result.output


MACHINE: dict[str, Any] = {
    "usable_cores": 64,
    "cpu_quota_cores": None,
    "instruction_sets": ["avx2"],
    "gpus": [],
    "nvidia_driver": False,
}
VERSIONS: dict[str, str | None] = {"torch": "2.13.0", "triton": None}


@pytest.mark.parametrize(
    ("facts", "word"),
    [
        ({"cpu_quota_cores": 0.5}, "quota"),
        ({"usable_cores": 0}, "share 1 cores"),
        ({"instruction_sets": ["sse4_2"]}, "AVX2"),
        ({"nvidia_driver": True}, "sees no GPU"),
        ({"gpus": [{"name": "GPU"}]}, "triton is missing"),
    ],
)
def test_each_handicap_of_a_machine_is_found(
    facts: dict[str, Any], word: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("OMP_NUM_THREADS", "2")
    assert machine_findings(MACHINE, VERSIONS) == []
    (finding,) = machine_findings({**MACHINE, **facts}, VERSIONS)
    assert word in finding.what
    assert finding.mend


def test_advice_counts_the_threads_that_compute(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("torch.get_num_threads", lambda: 64)
    monkeypatch.delenv("OMP_NUM_THREADS", raising=False)
    assert num_threads() == _native.default_threads()
    monkeypatch.setenv("OMP_NUM_THREADS", "3")
    assert num_threads() == 3
    (finding,) = machine_findings({**MACHINE, "cpu_quota_cores": 2.5}, VERSIONS)
    assert finding.what == "3 threads share 2.5 cores, by the container's quota"


def test_a_missing_extension_is_a_problem_and_a_missing_extra_a_note() -> None:
    problem, note = installation_findings(None, (), {"data": {"pyarrow": None}, "hf": {"hub": "1"}})
    assert (problem.level, note.level) == ("problem", "note")
    assert "pip install '.[data]'" in note.mend
    assert installation_findings("avx2", (), {}) == []


def test_a_level_that_the_build_lacks_is_named(run: Run) -> None:
    (advice,) = installation_findings("portable", ("avx2", "avx512"), {})
    assert advice.level == "advice"
    assert "built without avx2, avx512" in advice.what
    assert report(run)["native_extension"]["missing_instruction_sets"] == []


def test_a_missing_extension_is_told_not_raised(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(sys.modules, "encoder_engine._native", None)
    monkeypatch.delattr(encoder_engine, "_native")
    assert native_instruction_set.__wrapped__() is None


def test_extras_are_read_from_a_checkout_that_is_not_installed(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(machine, "DISTRIBUTION", "no-such-distribution")
    assert "pyarrow" in machine.extra_facts()["data"]
    assert machine.version_facts()["no-such-distribution"] == (
        f"{encoder_engine.__version__} (not installed)"
    )
