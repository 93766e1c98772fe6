"""Every family computes what transformers computes, from the same files, within the budget."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import pytest
import torch

import encoder_engine as ee
from encoder_engine.models import all_families
from encoder_engine.packing import pack, unpad
from tests.budget import assert_within_budget, floor, largest, max_error
from tests.models.cases import CASES, VOCAB_SIZE, Case, case_id

if TYPE_CHECKING:
    from pathlib import Path

pytestmark = pytest.mark.filterwarnings("ignore::DeprecationWarning:transformers.*")
LENGTHS = [9, 1, 40, 40, 3, 63]


def token_rows(lengths: list[int], seed: int = 3) -> list[list[int]]:
    generator = torch.Generator().manual_seed(seed)
    return [torch.randint(5, VOCAB_SIZE, (n,), generator=generator).tolist() for n in lengths]


def by_transformers(
    model: Any, rows: list[list[int]], *, padded: bool
) -> dict[str, list[torch.Tensor]]:
    """Return per-sequence outputs: run alone, or all at once in a padded batch with a mask."""
    batches = [rows] if padded else [[row] for row in rows]
    outputs: dict[str, list[torch.Tensor]] = {}
    with torch.no_grad():
        for batch in batches:
            longest = max(map(len, batch))
            ids = torch.full((len(batch), longest), model.config.pad_token_id)
            mask = torch.zeros_like(ids)
            for i, row in enumerate(batch):
                ids[i, : len(row)] = torch.tensor(row)
                mask[i, : len(row)] = 1
            out = model(input_ids=ids, attention_mask=mask, output_hidden_states=True)
            for i, row in enumerate(batch):
                n = len(row)
                outputs.setdefault("last_hidden_state", []).append(out.last_hidden_state[i, :n])
                for layer, hidden in enumerate(out.hidden_states):
                    outputs.setdefault(f"hidden_states[{layer}]", []).append(hidden[i, :n])
                if getattr(out, "pooler_output", None) is not None:
                    outputs.setdefault("pooler_output", []).append(out.pooler_output[i : i + 1])
    return outputs


def by_us(encoder: ee.Encoder, rows: list[list[int]]) -> dict[str, torch.Tensor]:
    with torch.no_grad():
        out = encoder(pack(rows), output_hidden_states=True)
    assert out.hidden_states is not None
    named = {"last_hidden_state": out.last_hidden_state}
    named |= {f"hidden_states[{i}]": hidden for i, hidden in enumerate(out.hidden_states)}
    return named if out.pooler_output is None else named | {"pooler_output": out.pooler_output}


@pytest.mark.parametrize("padded", [False, True], ids=["alone", "padded"])
@pytest.mark.parametrize("case", CASES, ids=case_id)
def test_outputs_are_within_budget(case: Case, padded: bool, tmp_path: Path) -> None:
    model = case.save(tmp_path)
    width = model.config.hidden_size
    rows = token_rows(LENGTHS)
    eager = by_transformers(model, rows, padded=padded)
    truth = by_transformers(model.double(), rows, padded=padded)
    single = by_us(ee.Encoder.from_pretrained(tmp_path, device="cpu"), rows)
    double = by_us(ee.Encoder.from_pretrained(tmp_path, device="cpu", dtype="float64"), rows)
    assert single.keys() == eager.keys() == truth.keys()
    for name in truth:
        true, theirs = torch.cat(truth[name]), torch.cat(eager[name])
        assert_within_budget(single[name], theirs, true, name, terms=3 * width)
        # In float64 transformers is no truer than we are; both may err as far as its float32
        # error, scaled to the finer rounding.
        finer = torch.finfo(torch.float64).eps / torch.finfo(torch.float32).eps
        allowed = 2.0 * finer * max_error(theirs, true)
        allowed += floor(true, torch.float64, terms=3 * width, size=largest(true))
        assert max_error(double[name], true) <= allowed, name


@pytest.mark.parametrize("case", CASES, ids=case_id)
def test_saved_models_load_in_transformers_and_agree_bit_for_bit(
    case: Case, tmp_path: Path
) -> None:
    import transformers

    model = case.save(tmp_path / "theirs")
    ee.Encoder.from_pretrained(tmp_path / "theirs", device="cpu").save_pretrained(tmp_path / "ours")
    again, info = getattr(transformers, case.model_class).from_pretrained(
        tmp_path / "ours", output_loading_info=True
    )
    assert not any(info[kind] for kind in ("missing_keys", "unexpected_keys", "mismatched_keys"))
    assert type(transformers.AutoModel.from_pretrained(tmp_path / "ours")) is type(model)
    assert again.state_dict().keys() == model.state_dict().keys()
    for name, tensor in model.state_dict().items():
        assert torch.equal(again.state_dict()[name], tensor), name


@pytest.mark.parametrize("case", CASES, ids=case_id)
def test_a_fresh_encoder_saves_what_transformers_loads(case: Case, tmp_path: Path) -> None:
    import transformers

    case.save(tmp_path / "theirs")
    spec = ee.Encoder.from_pretrained(tmp_path / "theirs", device="cpu").spec
    torch.manual_seed(1)
    fresh = ee.Encoder(spec).eval()
    fresh.save_pretrained(tmp_path / "fresh")
    model = transformers.AutoModel.from_pretrained(tmp_path / "fresh").eval()
    rows = token_rows(LENGTHS)
    truth = by_transformers(model.double(), rows, padded=False)
    eager = by_transformers(model.float(), rows, padded=False)
    found = by_us(fresh, rows)
    for name in truth:
        assert_within_budget(
            found[name],
            torch.cat(eager[name]),
            torch.cat(truth[name]),
            name,
            terms=3 * spec.width,
        )
    assert ee.Encoder.from_pretrained(tmp_path / "fresh", device="cpu").spec == spec


@pytest.mark.parametrize("case", CASES, ids=case_id)
def test_token_types_and_attentions_are_within_budget(case: Case, tmp_path: Path) -> None:
    model = case.save(tmp_path, attn_implementation="eager")
    encoder = ee.Encoder.from_pretrained(tmp_path, device="cpu")
    rows = token_rows([30, 30])
    kinds = [[i % 2 for i in range(30)] for _ in rows]
    segments = encoder.spec.embedding.num_segments
    keywords = {"token_type_ids": torch.tensor(kinds)} if segments > 1 else {}
    batch = pack(rows, token_type_ids=kinds if segments > 1 else None)
    with torch.no_grad():
        ours = encoder(batch, output_attentions=True)
        eager = model(torch.tensor(rows), output_attentions=True, **keywords)
        truth = model.double()(torch.tensor(rows), output_attentions=True, **keywords)
    assert ours.attentions is not None
    terms = 3 * encoder.spec.width
    for layer, (mine, theirs, true) in enumerate(
        zip(ours.attentions, eager.attentions, truth.attentions, strict=True)
    ):
        assert_within_budget(mine, theirs, true, f"attentions[{layer}]", terms=terms)
    assert_within_budget(
        ours.padded(), eager.last_hidden_state, truth.last_hidden_state, terms=terms
    )


@pytest.mark.parametrize("model_type", ["roberta", "xlm-roberta"])
def test_a_padding_token_inside_the_text_takes_no_position(model_type: str, tmp_path: Path) -> None:
    case = next(c for c in CASES if c.model_type == model_type)
    model = case.save(tmp_path)
    encoder = ee.Encoder.from_pretrained(tmp_path, device="cpu")
    ids = torch.tensor([[5, 1, 6, 1, 1, 7], [9, 9, 9, 1, 8, 8]])
    mask = torch.ones_like(ids)
    with torch.no_grad():
        ours = encoder(unpad(ids)).padded()
        eager = model(ids, attention_mask=mask).last_hidden_state
        truth = model.double()(ids, attention_mask=mask).last_hidden_state
    assert_within_budget(ours, eager, truth, terms=3 * encoder.spec.width)


def test_every_family_is_tested() -> None:
    assert {case.model_type for case in CASES} == set(all_families())
