"""Every family trains as transformers does: every parameter's gradient, within the budget."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import pytest
import torch
from safetensors.torch import load_file

import encoder_engine as ee
from encoder_engine.families.checkpoints.parameters import arrangements
from encoder_engine.families.facts.names import modern_name, origins
from encoder_engine.models import all_families
from encoder_engine.models.checkpoints.stacking import stack_tensors
from encoder_engine.ops.testing import assert_within_budget, largest
from encoder_engine.packing import pack
from tests.models.all_cases import firsts
from tests.models.cases import Case, case_id
from tests.models.exact import exact, in_float64
from tests.models.test_families import padded_inputs, token_rows

if TYPE_CHECKING:
    from pathlib import Path

    from encoder_engine.models.encoder import EncoderOutput

pytestmark = pytest.mark.filterwarnings("ignore::DeprecationWarning:transformers.*")
LENGTHS = [9, 1, 40, 3]


def weigh(shape: tuple[int, ...], dtype: torch.dtype) -> torch.Tensor:
    """Draw what an output is multiplied by; no dtype rounds it."""
    generator = torch.Generator().manual_seed(7)
    return (torch.randint(-8, 9, shape, generator=generator) / 8).to(dtype)


def total(outputs: Any, rows: torch.Tensor) -> torch.Tensor:
    """Weigh all outputs: the hidden rows, packed, and the pooler's."""
    loss = (rows * weigh(tuple(rows.shape), rows.dtype)).sum()
    pooled = getattr(outputs, "pooler_output", None)
    if pooled is not None:
        loss = loss + (pooled * weigh(tuple(pooled.shape), pooled.dtype)).sum()
    return loss


def gradients_by_transformers(
    model: Any, rows: list[list[int]], folder: Path
) -> dict[str, torch.Tensor]:
    """Return the gradients under the names that a checkpoint has: saved as if they were weights."""
    ids, mask = padded_inputs(model, rows)
    outputs = model(input_ids=ids, attention_mask=mask)
    total(outputs, outputs.last_hidden_state[mask.bool()]).backward()  # type: ignore[no-untyped-call]
    with torch.no_grad():
        for parameter in model.parameters():
            grad = parameter.grad
            parameter.copy_(torch.zeros_like(parameter) if grad is None else grad)
    model.save_pretrained(folder)
    stored = load_file(folder / "model.safetensors")
    return {modern_name(name): tensor for name, tensor in stored.items()}


def packed_loss(outputs: EncoderOutput) -> torch.Tensor:
    return total(outputs, outputs.last_hidden_state)


@pytest.mark.parametrize("case", firsts(), ids=case_id)
def test_every_gradient_is_within_budget(case: Case, tmp_path: Path) -> None:
    family = all_families()[case.model_type]
    model = case.save(tmp_path / "model", **dict.fromkeys(family.dropouts, 0.0)).train()
    encoder = ee.Encoder.from_pretrained(tmp_path / "model", device="cpu").train()
    rows = token_rows(LENGTHS)
    with in_float64():
        truth = gradients_by_transformers(exact(model), rows, tmp_path / "truth")
    eager = gradients_by_transformers(model, rows, tmp_path / "eager")
    packed_loss(encoder(pack(rows))).backward()  # type: ignore[no-untyped-call]
    parameters = dict(encoder.named_parameters())
    size = largest(*truth.values())
    for name, origin in origins(family.renames, parameters, arrangements(encoder.spec)).items():
        found = parameters[name].grad
        assert_within_budget(
            torch.zeros_like(parameters[name]) if found is None else found,
            stack_tensors(origin, eager),
            stack_tensors(origin, truth),
            name,
            # The longest sum: over the batch's rows, and a row's features, layer after layer.
            terms=3 * encoder.spec.width + sum(LENGTHS),
            size=size,
        )
