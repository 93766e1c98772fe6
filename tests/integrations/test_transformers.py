"""transformers' encoders with this engine's attention: the same numbers, padding never attended."""

from __future__ import annotations

from typing import Any

import pytest
import torch

from encoder_engine.errors import UnsupportedFeatureError
from encoder_engine.integrations import transformers as integration
from encoder_engine.ops.testing import assert_within_budget, largest
from tests.models.cases import CASES, Case, case_id
from tests.models.exact import exact, in_float64
from tests.models.test_families import padded_inputs, token_rows

pytestmark = pytest.mark.filterwarnings("ignore::DeprecationWarning:transformers.*")
LENGTHS = [9, 1, 40, 40, 3]
# Families of transformers whose attention may be chosen, and that add nothing to its scores.
CHOOSING = [
    case for case in CASES if case.model_type not in ("deberta-v2", "longformer", "mpnet", "t5")
]
NO_DROPOUT = {
    "attention_dropout": 0.0,
    "attention_probs_dropout_prob": 0.0,
    "dropout": 0.0,
    "hidden_dropout_prob": 0.0,
}


@pytest.fixture(autouse=True)
def registered() -> None:
    integration.register()


def with_ours(model: Any) -> Any:
    model.set_attn_implementation(integration.NAME)
    return model


def hidden_and_gradients(model: Any, ids: torch.Tensor, mask: torch.Tensor) -> list[torch.Tensor]:
    rows = model(input_ids=ids, attention_mask=mask).last_hidden_state[mask.bool()]
    weights = torch.linspace(-1, 1, rows.numel(), dtype=torch.float64).to(rows.dtype)
    (rows * weights.view_as(rows)).sum().backward()
    grads = [p.grad for p in model.parameters() if p.grad is not None]
    model.zero_grad()
    return [rows.detach(), *grads]


def dropless(case: Case) -> Any:
    import transformers

    known = getattr(transformers, case.config_class)().to_dict()
    changes: dict[str, Any] = {key: rate for key, rate in NO_DROPOUT.items() if key in known}
    return case.build(**changes)


@pytest.mark.parametrize("left", [False, True], ids=["right", "left"])
@pytest.mark.parametrize("case", CHOOSING, ids=case_id)
def test_hidden_rows_and_gradients_are_within_budget(case: Case, left: bool) -> None:
    model = dropless(case).train()
    ids, mask = padded_inputs(model, token_rows(LENGTHS))
    if left:
        ids, mask = ids.flip(1), mask.flip(1)
    eager = hidden_and_gradients(model, ids, mask)
    with in_float64():
        truth = hidden_and_gradients(exact(model), ids, mask)
    found = hidden_and_gradients(with_ours(model), ids, mask)
    size = largest(*truth)
    for place, values in enumerate(zip(found, eager, truth, strict=True)):
        terms = 3 * model.config.hidden_size + sum(LENGTHS)
        assert_within_budget(*values, f"output {place}", terms=terms, size=size)


def bert(**changes: Any) -> Any:
    return with_ours(CASES[0].build(**changes))


def test_padding_changes_nothing_of_a_text() -> None:
    model = bert()
    ids, mask = padded_inputs(model, token_rows([9, 30]))
    with torch.no_grad():
        padded = model(input_ids=ids, attention_mask=mask).last_hidden_state[0, :9]
        other = ids.clone()
        other[0, 9:] = 77
        again = model(input_ids=other, attention_mask=mask).last_hidden_state[0, :9]
        alone = model(input_ids=ids[:1, :9]).last_hidden_state[0]
    assert torch.equal(padded, again)
    torch.testing.assert_close(padded, alone)


def test_weights_are_refused_and_not_left_out() -> None:
    model = bert()
    with pytest.raises(UnsupportedFeatureError, match="no attention weights"):
        model(input_ids=torch.tensor([[5, 6]]), output_attentions=True)
    assert model(input_ids=torch.tensor([[5, 6]]), output_hidden_states=True).hidden_states


def test_what_is_no_encoders_attention_is_refused() -> None:
    ids = torch.tensor([[5, 6, 7]])
    with pytest.raises(UnsupportedFeatureError):
        bert(is_decoder=True)(input_ids=ids)
    with pytest.raises(UnsupportedFeatureError, match=r"\[1, 1, 3, 3\]"):
        bert()(input_ids=ids, attention_mask=torch.zeros(1, 1, 3, 3))
    t5 = next(case for case in CASES if case.model_type == "t5").build()
    with pytest.raises(UnsupportedFeatureError, match="position_bias"):
        with_ours(t5)(input_ids=ids)


def test_a_pattern_of_one_text_alone_is_refused() -> None:
    """The first text's pattern was taken for all: chains attended to each other, and to padding."""
    import transformers

    config = transformers.EsmcConfig(
        hidden_size=32, intermediate_size=64, num_hidden_layers=1, num_attention_heads=2
    )
    plain: Any = transformers.EsmcModel(config)
    model = with_ours(plain.eval())
    ids = torch.tensor([[5, 6, 7, 8], [5, 6, 7, 8]])
    whole = torch.zeros_like(ids)
    chains = torch.tensor([[0, 0, 0, 0], [0, 0, 1, 1]])
    with torch.no_grad():
        found = model(input_ids=ids, sequence_id=whole).last_hidden_state
        assert torch.equal(found[0], found[1])
        for order in ([0, 1], [1, 0]):
            with pytest.raises(UnsupportedFeatureError, match="another pattern"):
                model(input_ids=ids, sequence_id=chains[order])


def test_a_hole_in_a_text_is_refused_beside_a_window() -> None:
    modern = with_ours(next(c for c in CASES if c.model_type == "modernbert").build())
    ids = torch.tensor([[5, 6, 7, 8]])
    mask = torch.tensor([[1, 0, 1, 1]])
    with pytest.raises(UnsupportedFeatureError, match="row 0"):
        modern(input_ids=ids.repeat(1, 10), attention_mask=mask.repeat(1, 10))
