"""Code of somebody's own in a library's place is refused: methods, functions, attention."""

from __future__ import annotations

import copy
from typing import Any

import pytest
import torch

from encoder_engine.errors import UnsupportedFeatureError
from encoder_engine.integrations.transformers import NAME, accelerate, register
from tests.integrations.test_acceleration import bert, hidden

pytestmark = pytest.mark.filterwarnings("ignore::DeprecationWarning:transformers.*")

# As typed at a prompt, or run by `python -c`: code of no file.
TYPED = """
def forward(self, hidden_states):
    return self.dense(hidden_states)
"""


def typed_forward() -> Any:
    names: dict[str, Any] = {"__name__": "__main__"}
    exec(compile(TYPED, "<string>", "exec"), names)
    return names["forward"]


def attend_to_nothing(
    module: Any, query: torch.Tensor, key: Any, value: torch.Tensor, *_: Any, **__: Any
) -> tuple[torch.Tensor, None]:
    return value.transpose(1, 2), None


def assert_refused(model: Any, message: str) -> None:
    for _ in range(2):
        with pytest.raises(UnsupportedFeatureError, match=message):
            hidden(model)
    with pytest.raises(UnsupportedFeatureError, match=message):
        accelerate(copy.deepcopy(model))


def test_a_class_patched_from_a_prompt_is_refused(monkeypatch: pytest.MonkeyPatch) -> None:
    from transformers.models.bert.modeling_bert import BertIntermediate

    model = accelerate(bert())
    before = hidden(model)
    monkeypatch.setattr(BertIntermediate, "forward", typed_forward())
    assert_refused(model, r"BertIntermediate\.forward is not transformers's own but from <string>")
    monkeypatch.undo()
    assert torch.equal(hidden(model), before)


def test_a_replaced_function_of_a_modeling_file_is_refused(monkeypatch: pytest.MonkeyPatch) -> None:
    from transformers.models.bert import modeling_bert

    model = accelerate(bert())
    before = hidden(model)
    monkeypatch.setattr(modeling_bert, "eager_attention_forward", attend_to_nothing)
    assert_refused(model, r"modeling_bert\.eager_attention_forward is not transformers's own")
    monkeypatch.undo()
    assert torch.equal(hidden(model), before)


def test_attention_of_somebodys_own_is_refused(monkeypatch: pytest.MonkeyPatch) -> None:
    from transformers.modeling_utils import ALL_ATTENTION_FUNCTIONS

    monkeypatch.setattr(
        ALL_ATTENTION_FUNCTIONS, "_local_mapping", {"mine": attend_to_nothing}, raising=True
    )
    model = accelerate(bert())
    before = hidden(model)
    model.config._attn_implementation = "mine"
    assert_refused(model, r"attention is 'mine', .*set_attn_implementation\('sdpa'\)")
    model.config._attn_implementation = "sdpa"
    assert torch.equal(hidden(model), before)
    heads = model.encoder.layer[1].attention.self
    heads.config = copy.deepcopy(heads.config)
    heads.config._attn_implementation = "mine"
    assert_refused(model, "attention is 'mine'")


@pytest.mark.parametrize("what", ["attention", "mask"])
def test_a_function_in_the_place_of_transformers_own_is_refused(
    what: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    from transformers.masking_utils import ALL_MASK_ATTENTION_FUNCTIONS
    from transformers.modeling_utils import ALL_ATTENTION_FUNCTIONS

    registered: Any = ALL_MASK_ATTENTION_FUNCTIONS if what == "mask" else ALL_ATTENTION_FUNCTIONS
    model = accelerate(bert())
    before = hidden(model)
    monkeypatch.setattr(registered, "_local_mapping", {"sdpa": attend_to_nothing})
    assert_refused(model, "has attend_to_nothing from .* for 'sdpa'")
    monkeypatch.undo()
    assert torch.equal(hidden(model), before)


@pytest.mark.parametrize("name", ["eager", "sdpa", NAME])
def test_attention_that_is_known_may_be_chosen(name: str) -> None:
    register()
    model = bert()
    before = hidden(accelerate(model))
    model.set_attn_implementation(name)
    assert torch.equal(hidden(model), before)
