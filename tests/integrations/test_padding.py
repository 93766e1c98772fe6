"""Padding wherever it lies, and masks of every type: transformers' logits, or a refusal by name."""

from __future__ import annotations

import copy
import warnings
from typing import Any

import pytest
import torch
from torch import nn

from encoder_engine.errors import BatchError, EncoderEngineWarning, UnsupportedFeatureError
from encoder_engine.integrations.torch import accelerate as accelerate_torch
from encoder_engine.integrations.transformers import NAME, accelerate, register
from encoder_engine.ops.testing import assert_within_budget
from tests.integrations.test_acceleration import batch_of, bert
from tests.models.cases import CASES, Case, one_per_family
from tests.models.exact import exact, in_float64
from tests.selection import unless

pytestmark = [
    pytest.mark.filterwarnings("ignore::DeprecationWarning:transformers.*"),
    pytest.mark.filterwarnings("ignore:enable_nested_tensor:UserWarning"),
    pytest.mark.filterwarnings("ignore:.*begin with padding"),
]
MASKS = [torch.bool, torch.uint8, torch.int32, torch.float32, torch.bfloat16, torch.float64]
OWN_ATTENTION = ("deberta-v2", "mpnet", "t5", "longformer")


def classifiers() -> list[Any]:
    import transformers

    found = []
    for case in one_per_family():
        stem = case.model_class.removesuffix("Model").removesuffix("Encoder")
        name = f"{stem}For{'Token' if case.model_type == 't5' else 'Sequence'}Classification"
        if hasattr(transformers, name):
            found.append(Case(case.model_type, case.config_class, name, case.sizes))
    return found


def has_no_choice(case: Case, how: str) -> str | None:
    fixed = how == "our attention" and case.model_type in OWN_ATTENTION
    return f"the attention of {case.model_type} cannot be chosen" if fixed else None


@unless(has_no_choice)
@torch.no_grad()
@pytest.mark.parametrize("how", ["accelerated", "packed", "our attention"])
@pytest.mark.parametrize("case", classifiers(), ids=lambda c: c.model_type)
def test_logits_of_texts_that_begin_with_padding_are_transformers_own(case: Case, how: str) -> None:
    model = case.build(num_labels=3)
    batch = batch_of(model, left=True)
    eager = model(**batch).logits
    with in_float64():
        truth = exact(model)(**batch).logits
    if how == "our attention":
        register()
        model.set_attn_implementation(NAME)
    else:
        accelerate(model, pack=how == "packed")
    assert eager.std(0).max() > 1e-3
    rows = ... if eager.dim() == 2 else batch["attention_mask"].bool()
    assert_within_budget(
        model(**batch).logits[rows], eager[rows], truth[rows], terms=3 * model.config.hidden_size
    )


def test_left_padding_is_told_of_once() -> None:
    model = accelerate(bert())
    with warnings.catch_warnings(record=True) as told:
        warnings.simplefilter("always")
        for left in (False, True, True, False):
            model(**batch_of(model, left=left))
    ours = [w for w in told if w.category is EncoderEngineWarning]
    assert len(ours) == 1
    assert "padding_side" in str(ours[0].message)


def heads_of_both() -> list[Any]:
    names = ("BertModel", "BertForSequenceClassification", "BertForMaskedLM")
    return [Case("bert", "BertConfig", name, CASES[0].sizes).build() for name in names]


@pytest.mark.parametrize("place", range(3))
def test_the_warning_of_left_padding_points_at_the_callers_line(place: int) -> None:
    model = accelerate(heads_of_both()[place])
    with pytest.warns(EncoderEngineWarning, match="begin with padding") as told:
        model(**batch_of(model, left=True))
    assert [w.filename for w in told] == [__file__]


def test_the_warning_of_pytorchs_encoder_points_at_the_callers_line() -> None:
    layer = nn.TransformerEncoderLayer(32, 4, 64, batch_first=True)
    encoder = nn.TransformerEncoder(layer, 2, enable_nested_tensor=False).eval()
    padding = torch.tensor([[True, False]])
    with pytest.warns(EncoderEngineWarning, match="begin with padding") as told:
        accelerate_torch(encoder)(torch.randn(1, 2, 32), src_key_padding_mask=padding)
    assert [w.filename for w in told] == [__file__]


@torch.no_grad()
def test_texts_without_any_token_are_as_before() -> None:
    model = bert()
    batch = batch_of(model)
    batch["attention_mask"][1] = 0
    plain = model(**batch).last_hidden_state
    assert torch.equal(accelerate(model)(**batch).last_hidden_state, plain)


@torch.no_grad()
@pytest.mark.parametrize("left", [False, True], ids=["right", "left"])
@pytest.mark.parametrize("dtype", MASKS, ids=str)
def test_masks_of_0_and_1_may_be_of_any_type(dtype: torch.dtype, left: bool) -> None:
    model = accelerate(bert())
    batch = batch_of(model, left=left)
    expected = model(**batch).last_hidden_state
    batch["attention_mask"] = batch["attention_mask"].to(dtype)
    assert torch.equal(model(**batch).last_hidden_state, expected)


def test_other_masks_are_refused_by_name() -> None:
    model = accelerate(bert())
    batch = batch_of(model)
    mask = batch.pop("attention_mask")
    length = mask.shape[1]
    for shape in ((len(mask), length, length), (len(mask), 1, length, length)):
        with pytest.raises(UnsupportedFeatureError, match="masks of pairs of tokens"):
            model(**batch, attention_mask=torch.ones(shape))
    with pytest.raises(BatchError, match="row 0 of attention_mask holds other numbers") as caught:
        model(**batch, attention_mask=(1.0 - mask) * -1e9)
    assert caught.value.row == 0
    with pytest.raises(BatchError, match="holds other numbers"):
        model(**batch, attention_mask=2 * mask)
    with pytest.raises(BatchError, match=r"attention_mask is \[5, 2\]"):
        model(**batch, attention_mask=mask[:, :2])


def test_ids_of_one_text_without_a_batch_are_refused_by_their_shape() -> None:
    """An IndexError about a tuple was raised."""
    model = accelerate(bert())
    with pytest.raises(BatchError, match=r"input_ids is \[3\], expected \[B, L\]"):
        model(input_ids=torch.tensor([2, 7, 3]))


@torch.no_grad()
@pytest.mark.parametrize("batch_first", [False, True])
def test_pytorchs_encoder_gives_its_own_rows_where_texts_begin_with_padding(
    batch_first: bool,
) -> None:
    torch.manual_seed(0)
    layer = nn.TransformerEncoderLayer(32, 4, 64, batch_first=batch_first)
    encoder = nn.TransformerEncoder(layer, 2, enable_nested_tensor=False).eval()
    rows = torch.randn(2, 5, 32) if batch_first else torch.randn(5, 2, 32)
    padding = torch.tensor([[True, True, False, False, False], [False] * 5])
    plain = copy.deepcopy(encoder)(rows, src_key_padding_mask=padding)
    assert torch.equal(accelerate_torch(encoder)(rows, src_key_padding_mask=padding), plain)


def test_a_summary_over_padding_is_refused() -> None:
    electra = next(c for c in CASES if c.model_type == "electra")
    with pytest.raises(UnsupportedFeatureError, match="summary_type='mean'"):
        accelerate(electra.build(summary_type="mean"))
