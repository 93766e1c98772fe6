"""Rows that see beyond the window of a Longformer: outputs, attentions and gradients."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import pytest
import torch
from safetensors.torch import load_file

import encoder_engine as ee
from encoder_engine.errors import ShapeError, UnsupportedFeatureError
from encoder_engine.families.facts.names import origins
from encoder_engine.models import all_families
from encoder_engine.models.checkpoints.stacking import stack_tensors
from encoder_engine.ops.testing import assert_within_budget, largest
from encoder_engine.packing import SelectedRows, pack
from tests.models.cases import CASES, Case, case_id
from tests.models.exact import exact, in_float64
from tests.models.test_families import padded_inputs, token_rows
from tests.models.test_gradients import total

if TYPE_CHECKING:
    from pathlib import Path

pytestmark = pytest.mark.filterwarnings("ignore::DeprecationWarning:transformers.*")
LENGTHS = [9, 1, 40, 3]
# Of the third text three, of the second none: in transformers, and by their rows here.
PLACES = [(0, 0), (2, 0), (2, 1), (2, 25), (3, 2)]
GLOBAL_CASES = [case for case in CASES if "attention_window" in case.sizes]
NO_DROPOUT = {"hidden_dropout_prob": 0.0, "attention_probs_dropout_prob": 0.0}


def by_transformers(model: Any, folder: Path) -> tuple[torch.Tensor, dict[str, torch.Tensor]]:
    ids, mask = padded_inputs(model, token_rows(LENGTHS))
    seen_by_all = torch.zeros_like(ids)
    for row, place in PLACES:
        seen_by_all[row, place] = 1
    outputs = model(input_ids=ids, attention_mask=mask, global_attention_mask=seen_by_all)
    rows = outputs.last_hidden_state[mask.bool()]
    total(outputs, rows).backward()  # type: ignore[no-untyped-call]
    with torch.no_grad():
        for parameter in model.parameters():
            parameter.copy_(parameter.grad)
    model.save_pretrained(folder)
    return rows.detach(), load_file(folder / "model.safetensors")


@pytest.mark.parametrize("case", GLOBAL_CASES, ids=case_id)
def test_outputs_and_gradients_are_within_budget(case: Case, tmp_path: Path) -> None:
    model = case.save(tmp_path / "model", **NO_DROPOUT).train()
    encoder = ee.Encoder.from_pretrained(tmp_path / "model", device="cpu").train()
    with in_float64():
        truth, true_gradients = by_transformers(exact(model), tmp_path / "truth")
    eager, eager_gradients = by_transformers(model, tmp_path / "eager")
    batch = pack(token_rows(LENGTHS))
    starts = batch.sequences.offsets
    rows = torch.tensor([int(starts[row]) + place for row, place in PLACES])
    outputs = encoder(batch, global_rows=SelectedRows(rows, batch.sequences))
    terms = 3 * encoder.spec.width + sum(LENGTHS)
    assert_within_budget(outputs.last_hidden_state.detach(), eager, truth, terms=terms)
    total(outputs, outputs.last_hidden_state).backward()  # type: ignore[no-untyped-call]
    parameters = dict(encoder.named_parameters())
    size = largest(*true_gradients.values())
    for name, origin in origins(all_families()["longformer"].renames, parameters).items():
        found = parameters[name].grad
        assert found is not None, name
        expected = stack_tensors(origin, eager_gradients), stack_tensors(origin, true_gradients)
        assert_within_budget(found, *expected, name, terms=terms, size=size)


def test_attentions_of_global_rows_are_their_own(tmp_path: Path) -> None:
    model = GLOBAL_CASES[0].save(tmp_path)
    encoder = ee.Encoder.from_pretrained(tmp_path, device="cpu")
    ids = token_rows([24])
    batch = pack(ids)
    with torch.no_grad(), in_float64():
        mask = torch.zeros(1, 24, dtype=torch.int64)
        mask[0, 5] = 1
        truth = exact(model)(torch.tensor(ids), global_attention_mask=mask, output_attentions=True)
    with torch.no_grad():
        rows = SelectedRows(torch.tensor([5]), batch.sequences)
        ours = encoder.double()(batch, output_attentions=True, global_rows=rows)
    for found, local, everywhere in zip(
        ours.attentions, truth.attentions, truth.global_attentions, strict=True
    ):
        torch.testing.assert_close(found[:, :, 5], everywhere[:, :, :24, 0].double())
        # The first of a row's probabilities is of the global key.
        others = [place for place in range(24) if place != 5]
        torch.testing.assert_close(found[0][:, others, 5], local[0][:, others, 0].double())
        torch.testing.assert_close(found.sum(-1), torch.ones_like(found.sum(-1)))


def test_an_encoder_without_windows_refuses_global_rows(tmp_path: Path) -> None:
    CASES[0].save(tmp_path)
    encoder = ee.Encoder.from_pretrained(tmp_path, device="cpu")
    batch = pack([[5, 6]])
    with pytest.raises(UnsupportedFeatureError, match="bert has none"):
        encoder(batch, global_rows=SelectedRows(torch.tensor([0]), batch.sequences))


@pytest.mark.parametrize("output_hidden_states", [False, True])
def test_rows_of_another_batch_are_refused(tmp_path: Path, output_hidden_states: bool) -> None:
    CASES[0].save(tmp_path)
    encoder = ee.Encoder.from_pretrained(tmp_path, device="cpu")
    rows = SelectedRows(torch.tensor([0]), pack([[5], [6]]).sequences)
    with pytest.raises(ShapeError, match="other sequences"):
        encoder(pack([[5, 6]]), rows=rows, output_hidden_states=output_hidden_states)
