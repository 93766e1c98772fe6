"""Names and shapes of parameters, computed from the spec alone, are those of the modules."""

from __future__ import annotations

from typing import TYPE_CHECKING

import pytest

import encoder_engine as ee
from encoder_engine.families.checkpoints.parameters import (
    encoder_shapes,
    head_shapes,
    quantized_shapes,
)
from encoder_engine.families.config import spec_from_config
from encoder_engine.families.heads import count_outputs
from tests.models.all_cases import ALL_CASES
from tests.models.cases import Case, case_id
from tests.models.test_heads import MODELS, PAIRS, pair_id

if TYPE_CHECKING:
    import torch

    from encoder_engine.families.facts.head_layout import HeadLayout
    from encoder_engine.families.facts.spec import EncoderSpec


def spec_of(case: Case) -> EncoderSpec:
    return spec_from_config(case.build().config.to_dict())


def shapes_of(module: torch.nn.Module) -> dict[str, tuple[int, ...]]:
    return {name: tuple(tensor.shape) for name, tensor in module.state_dict().items()}


@pytest.mark.parametrize("case", ALL_CASES, ids=case_id)
def test_an_encoders_parameters(case: Case) -> None:
    spec = spec_of(case)
    encoder = ee.Encoder(spec)
    assert encoder_shapes(spec) == shapes_of(encoder)
    assert quantized_shapes(spec) == shapes_of(encoder.quantize())


@pytest.mark.parametrize(("case", "layout"), PAIRS, ids=pair_id)
def test_a_heads_parameters(case: Case, layout: HeadLayout) -> None:
    encoder = ee.Encoder(spec_of(case))
    model = MODELS[layout.task](encoder)
    num_outputs = count_outputs(layout, encoder.spec, {})
    assert head_shapes(layout, encoder.spec, num_outputs) == shapes_of(model.head)
