"""Saving writes a whole model that says all of itself, or none."""

from __future__ import annotations

from dataclasses import replace
from typing import TYPE_CHECKING, Any

import pytest

import encoder_engine as ee
from encoder_engine.errors import CheckpointFileError, ConfigError, MissingPoolerWarning
from encoder_engine.models import NormSpec
from tests.models.cases import CASES

if TYPE_CHECKING:
    from pathlib import Path


@pytest.fixture
def model(tmp_path: Path) -> Path:
    """Save a small BERT with transformers."""
    CASES[0].save(tmp_path)
    return tmp_path


def load(directory: Path) -> ee.Encoder:
    return ee.Encoder.from_pretrained(directory, device="cpu")


def test_save_pretrained_reports_what_it_cannot_write(model: Path, tmp_path: Path) -> None:
    target = tmp_path / "file"
    target.write_text("in the way")
    with pytest.raises(ee.errors.OutputError, match="cannot save"):
        load(model).save_pretrained(target)


def test_an_interrupted_save_leaves_no_model_rather_than_a_mixed_one(
    model: Path, monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    from encoder_engine.files import write_atomically

    encoder = load(model)
    target = tmp_path / "out"
    encoder.save_pretrained(target)
    other = ee.Encoder(replace(encoder.spec, blocks=encoder.spec.blocks[:2]))

    def fail(path: Path, content: bytes) -> None:
        if path.name == "config.json":
            raise OSError("no space left on device")
        write_atomically(path, content)

    monkeypatch.setattr("encoder_engine.families.checkpoints.writing.write_atomically", fail)
    with pytest.raises(ee.errors.OutputError, match="no space left"):
        other.save_pretrained(target)
    with pytest.raises(CheckpointFileError, match=r"no config\.json"):
        load(target)
    monkeypatch.undo()
    other.save_pretrained(target)
    assert load(target).spec == other.spec


UNSAYABLE: list[dict[str, Any]] = [
    {"embedding": {"first_position": 2}},
    {"embedding": {"num_segments": 0}},
    {"embedding": {"width": 20}},
    {"embedding": {"norm": NormSpec(epsilon=1e-3)}},
    {"embedding": {"dropout": 0.5}},
    {"blocks": ()},
]


@pytest.mark.parametrize("change", UNSAYABLE, ids=str)
def test_a_spec_that_its_config_cannot_say_is_not_saved(
    model: Path, change: dict[str, Any], tmp_path: Path
) -> None:
    spec = load(model).spec
    if "embedding" in change:
        spec = replace(spec, embedding=replace(spec.embedding, **change["embedding"]))
    else:
        spec = replace(spec, **change)
    with pytest.raises(ConfigError):
        ee.Encoder(spec).save_pretrained(tmp_path / "out")
    assert not (tmp_path / "out" / "config.json").exists()


def test_an_encoder_without_pooler_saves_and_loads(model: Path, tmp_path: Path) -> None:
    encoder = ee.Encoder(replace(load(model).spec, pooler=False))
    encoder.save_pretrained(tmp_path / "out")
    with pytest.warns(MissingPoolerWarning):
        assert load(tmp_path / "out").pooler is None
