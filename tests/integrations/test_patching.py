"""Patched classes of transformers: models made from then on are accelerated, and no others."""

from __future__ import annotations

import doctest
from typing import TYPE_CHECKING

import pytest
import torch

from encoder_engine.errors import UnknownModelTypeError, UnsupportedFeatureError
from encoder_engine.integrations import transformers
from encoder_engine.integrations.acceleration import patching
from encoder_engine.integrations.acceleration.replaced_forward import ReplacedForward, restore
from tests.integrations.test_acceleration import hidden
from tests.models.cases import CASES, Case, case_id

if TYPE_CHECKING:
    from collections.abc import Iterator
    from pathlib import Path

pytestmark = pytest.mark.filterwarnings("ignore::DeprecationWarning:transformers.*")


@pytest.fixture(autouse=True)
def reverted() -> Iterator[None]:
    yield
    patching.revert_encoder_engine()


@pytest.mark.parametrize("case", CASES, ids=case_id)
def test_every_family_is_patched_by_its_own_name(case: Case, tmp_path: Path) -> None:
    plain = case.save(tmp_path)
    expected = hidden(plain)
    name = f"apply_encoder_engine_to_{case.model_type.replace('-', '_')}"
    getattr(transformers, name)()
    loaded = type(plain).from_pretrained(tmp_path)
    assert isinstance(loaded.forward, ReplacedForward)
    assert not torch.equal(hidden(loaded), expected)
    assert torch.equal(hidden(plain), expected)
    assert torch.equal(hidden(restore(loaded)), expected)


def test_all_types_are_patched_and_reverted() -> None:
    assert set(patching.patchable()) == {case.model_type for case in CASES}
    before = {kind: kind.__init__ for kind in patching.patchable().values()}  # type: ignore[misc]
    patching.apply_encoder_engine()
    patching.apply_encoder_engine(pack=True)
    assert isinstance(CASES[0].build().forward, ReplacedForward)
    patching.revert_encoder_engine()
    assert all(kind.__init__ is plain for kind, plain in before.items())  # type: ignore[misc]
    assert not isinstance(CASES[0].build().forward, ReplacedForward)


def test_what_cannot_be_accelerated_is_refused() -> None:
    with pytest.raises(UnknownModelTypeError, match="roberta"):
        patching.apply_encoder_engine("gpt2")
    with pytest.raises(AttributeError, match="gpt2"):
        patching.__getattr__("apply_encoder_engine_to_gpt2")
    patching.apply_encoder_engine("bert")
    with pytest.raises(UnsupportedFeatureError, match="is_decoder"):
        CASES[0].build(is_decoder=True)(input_ids=torch.tensor([[5]]))


def test_the_documented_example_runs() -> None:
    assert doctest.testmod(patching).failed == 0
