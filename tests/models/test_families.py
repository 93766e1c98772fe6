"""Every family computes what transformers computes, from the same files, within the budget."""

from __future__ import annotations

import json
from typing import TYPE_CHECKING, Any

import pytest
import torch

import encoder_engine as ee
from encoder_engine.errors import ConfigError
from encoder_engine.inference.encoder import CompiledEncoder
from encoder_engine.models import all_families
from encoder_engine.ops.testing import assert_within_budget, floor, largest, max_error
from encoder_engine.packing import pack, unpad
from tests.models.all_cases import ALL_CASES, firsts, with_each
from tests.models.cases import VOCAB_SIZE, Case, case_id
from tests.models.exact import exact, in_float64
from tests.ops.attention.weight_statistics import joined, statistics_of

if TYPE_CHECKING:
    from pathlib import Path

pytestmark = pytest.mark.filterwarnings("ignore::DeprecationWarning:transformers.*")
# What transformers does not read as published; see test_published_layouts.
PUBLISHED = {
    "gte_v1",
    "jina_bert_v2",
    "jina_bert_v2_qk",
    "neobert",
    "new",
    "nomic_bert_v1",
    "xlm_roberta_flash",
    "xlm_roberta_rotary",
}
LENGTHS = [9, 1, 40, 40, 3, 63]


def token_rows(lengths: list[int], seed: int = 3) -> list[list[int]]:
    generator = torch.Generator().manual_seed(seed)
    return [torch.randint(5, VOCAB_SIZE, (n,), generator=generator).tolist() for n in lengths]


def padded_inputs(model: Any, rows: list[list[int]]) -> tuple[torch.Tensor, torch.Tensor]:
    """Pad rows to one batch: ids and mask."""
    ids = torch.full((len(rows), max(map(len, rows))), model.config.pad_token_id)
    mask = torch.zeros_like(ids)
    for i, row in enumerate(rows):
        ids[i, : len(row)] = torch.tensor(row)
        mask[i, : len(row)] = 1
    return ids, mask


def by_transformers(
    model: Any, rows: list[list[int]], *, padded: bool
) -> dict[str, list[torch.Tensor]]:
    """Return per-sequence outputs: run alone, or all at once in a padded batch with a mask."""
    batches = [rows] if padded else [[row] for row in rows]
    outputs: dict[str, list[torch.Tensor]] = {}
    with torch.no_grad():
        for batch in batches:
            ids, mask = padded_inputs(model, batch)
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


@pytest.mark.parametrize(("case", "texts"), with_each(["alone", "padded"]), ids=case_id)
def test_outputs_are_within_budget(case: Case, texts: str, tmp_path: Path) -> None:
    padded = texts == "padded"
    model = case.save(tmp_path)
    width = model.config.hidden_size
    rows = token_rows(LENGTHS)
    eager = by_transformers(model, rows, padded=padded)
    with in_float64():
        truth = by_transformers(exact(model), rows, padded=padded)
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


def assert_transformers_picks(case: Case, model: Any, folder: Path) -> None:
    """Check that transformers itself chooses the class, where it has one for encoders alone."""
    import transformers

    chosen = transformers.AutoModel.from_pretrained(folder)
    assert type(chosen) is type(model) or case.is_half_of == type(chosen).__name__


@pytest.mark.parametrize("case", firsts(), ids=case_id)
def test_saved_models_load_in_transformers_and_agree_bit_for_bit(
    case: Case, tmp_path: Path
) -> None:

    model = case.save(tmp_path / "theirs")
    ee.Encoder.from_pretrained(tmp_path / "theirs", device="cpu").save_pretrained(tmp_path / "ours")
    again, info = case.transformers_class.from_pretrained(
        tmp_path / "ours", output_loading_info=True
    )
    assert not info["unexpected_keys"]
    assert not info["mismatched_keys"]
    assert all(name.startswith(case.extra) for name in info["missing_keys"])
    assert_transformers_picks(case, model, tmp_path / "ours")
    assert again.state_dict().keys() == model.state_dict().keys()
    for name, tensor in model.state_dict().items():
        if name.startswith(case.extra):
            continue
        assert torch.equal(again.state_dict()[name], tensor), name


@pytest.mark.parametrize("case", firsts(), ids=case_id)
def test_a_fresh_encoder_saves_what_transformers_loads(case: Case, tmp_path: Path) -> None:

    case.save(tmp_path / "theirs")
    spec = ee.Encoder.from_pretrained(tmp_path / "theirs", device="cpu").spec
    torch.manual_seed(1)
    fresh = ee.Encoder(spec).eval()
    fresh.save_pretrained(tmp_path / "fresh")
    model = case.transformers_class.from_pretrained(tmp_path / "fresh").eval()
    rows = token_rows(LENGTHS)
    eager = by_transformers(model, rows, padded=False)
    with in_float64():
        truth = by_transformers(exact(model), rows, padded=False)
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


def whole(attentions: tuple[torch.Tensor, ...]) -> list[torch.Tensor]:
    """Give attentions a row of keys where a model gives a window of them, [B, H, L, 2 w + 1]."""
    return [x if x.shape[2] == x.shape[3] else unbanded(x) for x in attentions]


def unbanded(band_BHLW: torch.Tensor) -> torch.Tensor:
    """Put a window's probabilities where they belong: [B, H, L, L]."""
    *outer, length, width = band_BHLW.shape
    around = torch.zeros(*outer, length, length + width - 1, dtype=band_BHLW.dtype)
    keys = torch.arange(length)[:, None] + torch.arange(width)
    around.scatter_(3, keys.expand_as(band_BHLW), band_BHLW)
    return around[..., width // 2 : width // 2 + length]


@pytest.mark.parametrize("case", ALL_CASES, ids=case_id)
def test_token_types_and_attentions_are_within_budget(case: Case, tmp_path: Path) -> None:
    model = case.save(tmp_path, attn_implementation="eager")
    encoder = ee.Encoder.from_pretrained(tmp_path, device="cpu")
    rows = token_rows([30, 30])
    kinds = [[i % 2 for i in range(30)] for _ in rows]
    segments = encoder.spec.embedding.num_segments
    keywords = {"token_type_ids": torch.tensor(kinds)} if segments > 1 else {}
    batch = pack(rows, token_type_ids=kinds if segments > 1 else None)
    # The same for both texts.
    marks = (torch.arange(60) % 30)[:, None] % 7 == 0
    statistics = encoder.attention_statistics(batch, marks)
    with torch.no_grad():
        ours = encoder(batch, output_attentions=True)
        eager = model(torch.tensor(rows), output_attentions=True, **keywords)
        with in_float64():
            truth = exact(model)(torch.tensor(rows), output_attentions=True, **keywords)
    assert ours.attentions is not None
    terms = 3 * encoder.spec.width
    weights = ours.attentions, whole(eager.attentions), whole(truth.attentions)
    for layer, (mine, theirs, true) in enumerate(zip(*weights, strict=True)):
        assert_within_budget(mine, theirs, true, f"attentions[{layer}]", terms=terms)
        by_eager, by_truth = (
            torch.cat([statistics_of(x.transpose(0, 1), marks[:30]) for x in matrices])
            for matrices in (theirs, true)
        )
        found, name = joined(statistics[layer]), f"statistics[{layer}]"
        assert_within_budget(found, by_eager, by_truth, name, terms=terms)
    assert_within_budget(
        ours.padded(), eager.last_hidden_state, truth.last_hidden_state, terms=terms
    )


SKIPPING = [
    name
    for name, family in all_families().items()
    if family.positions_follow_padding_id and name not in PUBLISHED
]


@pytest.mark.parametrize("model_type", SKIPPING)
def test_a_padding_token_inside_the_text_takes_no_position(model_type: str, tmp_path: Path) -> None:
    case = next(c for c in ALL_CASES if c.model_type == model_type)
    model = case.save(tmp_path)
    encoder = ee.Encoder.from_pretrained(tmp_path, device="cpu")
    ids = torch.tensor([[5, 1, 6, 1, 1, 7], [9, 9, 9, 1, 8, 8]])
    mask = torch.ones_like(ids)
    with torch.no_grad():
        ours = encoder(unpad(ids)).padded()
        eager = model(ids, attention_mask=mask).last_hidden_state
        with in_float64():
            truth = exact(model)(ids, attention_mask=mask).last_hidden_state
    assert_within_budget(ours, eager, truth, terms=3 * encoder.spec.width)


# They count positions from the padding token's id, which MPNet's own code fixes at 1.
COUNTING = {name for name in SKIPPING if name != "mpnet"}


@pytest.mark.parametrize("model_type", sorted({case.model_type for case in ALL_CASES}))
def test_no_padding_token_is_needed(model_type: str, tmp_path: Path) -> None:
    case = next(c for c in ALL_CASES if c.model_type == model_type)
    model = case.save(tmp_path)
    path = tmp_path / "config.json"
    config = json.loads(path.read_text("utf-8")) | {"pad_token_id": None}
    path.write_text(json.dumps(config), encoding="utf-8")
    if model_type in COUNTING or (model_type == "esm" and encoder_counts(config)):
        with pytest.raises(ConfigError, match="pad_token_id must be"):
            ee.Encoder.from_pretrained(tmp_path, device="cpu")
        return
    rows = token_rows([7, 3])
    eager = torch.cat(by_transformers(model, rows, padded=False)["last_hidden_state"])
    with in_float64():
        truth = torch.cat(by_transformers(exact(model), rows, padded=False)["last_hidden_state"])
    encoder = ee.Encoder.from_pretrained(tmp_path, device="cpu")
    batch = pack(rows)
    with torch.no_grad():
        ours = encoder(batch).last_hidden_state
    assert_within_budget(ours, eager, truth, terms=3 * encoder.spec.width)
    if CompiledEncoder.supports(encoder.spec) is None:
        ends = batch.sequences.cu_seqlens.numpy()
        found = encoder.compile_for_inference().hidden(batch.input_ids.int().numpy(), ends)
        assert_within_budget(torch.from_numpy(found), eager, truth, terms=3 * encoder.spec.width)


def encoder_counts(config: dict[str, Any]) -> bool:
    """Say whether an ESM has a table of positions."""
    return bool(config["position_embedding_type"] == "absolute")


def test_every_family_is_tested() -> None:
    assert {case.model_type for case in ALL_CASES} | PUBLISHED == set(all_families())
