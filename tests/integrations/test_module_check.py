"""Modules within an accelerated model that were changed are refused by name, and so are hooks."""

from __future__ import annotations

import copy
import types
from typing import TYPE_CHECKING, Any

import pytest
import torch
from torch import nn

from encoder_engine.errors import EncoderEngineError, UnsupportedFeatureError
from encoder_engine.integrations.torch import accelerate as accelerate_torch
from encoder_engine.integrations.transformers import accelerate, restore
from encoder_engine.ops.testing import assert_within_budget
from tests.integrations.sums import terms_of
from tests.integrations.test_acceleration import batch_of, bert, hidden
from tests.models.cases import CASES, case_id, one_per_family
from tests.models.exact import in_float64

if TYPE_CHECKING:
    from collections.abc import Callable

    from tests.models.cases import Case

pytestmark = [
    pytest.mark.filterwarnings("ignore::DeprecationWarning:transformers.*"),
    pytest.mark.filterwarnings("ignore:enable_nested_tensor:UserWarning"),
]


class Halved(nn.Linear):
    """A dense layer that computes something else."""

    def forward(self, rows: torch.Tensor) -> torch.Tensor:
        """Return half of what a dense layer computes."""
        return super().forward(rows) / 2


def query_of(model: Any) -> Any:
    return model.encoder.layer[1].attention.self.query


def halve(model: Any) -> None:
    query = query_of(model)
    halved = Halved(query.in_features, query.out_features)
    halved.load_state_dict(query.state_dict())
    model.encoder.layer[1].attention.self.query = halved


def half_of(module: nn.Linear, rows: torch.Tensor) -> torch.Tensor:
    return nn.Linear.forward(module, rows) / 2


def override_forward(model: Any) -> None:
    query_of(model).forward = types.MethodType(half_of, query_of(model))


def orthogonal(model: Any) -> None:
    nn.utils.parametrizations.orthogonal(query_of(model))


class Doubled(torch.Tensor):
    """A tensor that computes as twice what it holds."""


def subclass_weight(model: Any) -> None:
    query = query_of(model)
    doubled = query.weight.detach().as_subclass(Doubled)
    query._parameters["weight"] = nn.Parameter(doubled)


def other_config(model: Any) -> None:
    module = model.encoder.layer[1].intermediate
    module.config = copy.deepcopy(model.config)
    attention = model.encoder.layer[1].attention.self
    attention.config = copy.deepcopy(model.config)
    attention.config.num_attention_heads = 5
    attention.config.use_cache = True


CHANGES: dict[str, tuple[Callable[[Any], object], str]] = {
    "a weight of another class": (subclass_weight, r"query\.weight is a Doubled of tests"),
    "another config": (
        other_config,
        r"self has another config than the model: num_attention_heads is 5, not 3; give",
    ),
    "forward hook": (
        lambda m: m.encoder.layer[0].register_forward_hook(lambda *_: None),
        r"encoder\.layer\.0 has a forward hook",
    ),
    "forward pre-hook": (
        lambda m: m.embeddings.register_forward_pre_hook(lambda *_: None),
        "embeddings has a forward pre-hook",
    ),
    "backward hook": (
        lambda m: query_of(m).register_full_backward_hook(lambda *_: None),
        "query has a backward hook",
    ),
    "backward pre-hook": (
        lambda m: query_of(m).register_full_backward_pre_hook(lambda *_: None),
        "query has a backward pre-hook",
    ),
    "activation": (
        lambda m: setattr(m.encoder.layer[0].intermediate, "intermediate_act_fn", nn.ReLU()),
        "intermediate_act_fn is a ReLU",
    ),
    "activation within": (
        lambda m: setattr(m.pooler.activation, "forward", torch.relu),
        r"pooler\.activation has its own forward",
    ),
    "scale": (lambda m: setattr(m.encoder.layer[0].attention.self, "scaling", 1.0), "scaling"),
    "padding": (lambda m: setattr(m.embeddings.word_embeddings, "padding_idx", 7), "padding_idx"),
    "subclass": (halve, "query is a Halved of tests"),
    "class of an object": (
        lambda m: setattr(query_of(m), "__class__", Halved),
        "query is a Halved of tests",
    ),
    "own forward": (override_forward, "query has its own forward"),
    "parametrisation": (orthogonal, "adapters"),
    "position table": (
        lambda m: m.embeddings.position_ids.data.add_(1),
        r"buffer embeddings\.position_ids",
    ),
    "segment table": (
        lambda m: m.embeddings.token_type_ids.data.fill_(1),
        r"buffer embeddings\.token_type_ids",
    ),
    "one layer's mode": (lambda m: m.encoder.layer[0].train(), "is training"),
    "configuration": (lambda m: setattr(m.config, "hidden_act", "relu"), "intermediate_act_fn"),
    "number of layers": (lambda m: setattr(m.config, "num_hidden_layers", 2), "unexpected"),
    "layers cut off": (
        lambda m: setattr(m.encoder, "layer", m.encoder.layer[:2]),
        "set the config's number of layers",
    ),
}


@pytest.mark.parametrize("name", CHANGES)
def test_what_was_changed_is_refused_at_once_and_in_the_next_call(name: str) -> None:
    change, message = CHANGES[name]
    model = bert()
    change(model)
    with pytest.raises(UnsupportedFeatureError, match=message):
        accelerate(model)
    model = accelerate(bert())
    hidden(model)
    change(model)
    for _ in range(2):
        with pytest.raises(UnsupportedFeatureError, match=message):
            hidden(model)
    assert hidden(restore(model)).isfinite().all()


def test_parameters_put_in_place_for_one_call_are_refused_by_name() -> None:
    model = accelerate(bert())
    before = hidden(model)
    doubled = {name: 2 * p.detach() for name, p in model.named_parameters()}
    with pytest.raises(UnsupportedFeatureError, match=r"weight is a Tensor .*functional_call"):
        torch.func.functional_call(model, doubled, (), batch_of(model))
    assert torch.equal(hidden(model), before)


def test_neftune_is_refused_by_its_name() -> None:
    from transformers.integrations.neftune import neftune_post_forward_hook

    model = accelerate(bert()).train()
    table = model.get_input_embeddings()
    table.neftune_noise_alpha = 5.0
    table.register_forward_hook(neftune_post_forward_hook)
    with pytest.raises(UnsupportedFeatureError, match="NEFTune; leave neftune_noise_alpha out"):
        model(**batch_of(model))


def test_a_change_that_is_undone_is_forgotten() -> None:
    model = accelerate(bert())
    before = hidden(model)
    handle = model.encoder.layer[0].register_forward_hook(lambda *_: None)
    with pytest.raises(UnsupportedFeatureError, match="forward hook"):
        hidden(model)
    handle.remove()
    assert torch.equal(hidden(model), before)


def test_hooks_on_the_encoder_itself_are_called() -> None:
    model = bert()
    calls: list[str] = []
    model.register_forward_pre_hook(lambda *_: calls.append("before"))
    model.register_forward_hook(lambda *_: calls.append("after"))
    hidden(accelerate(model))
    assert calls == ["before", "after"]


def test_hooks_on_all_modules_are_refused() -> None:
    model = accelerate(bert())
    handle = nn.modules.module.register_module_forward_hook(lambda *_: None)
    try:
        with pytest.raises(UnsupportedFeatureError, match="hook on all modules"):
            hidden(model)
    finally:
        handle.remove()
    assert hidden(model).isfinite().all()


def test_a_patched_class_is_refused(monkeypatch: pytest.MonkeyPatch) -> None:
    from transformers.models.bert.modeling_bert import BertIntermediate

    model = accelerate(bert())
    monkeypatch.setattr(BertIntermediate, "forward", lambda self, rows: self.dense(rows))
    with pytest.raises(UnsupportedFeatureError, match=r"BertIntermediate\.forward"):
        hidden(model)
    with pytest.raises(UnsupportedFeatureError, match=r"BertIntermediate\.forward"):
        accelerate(bert())
    monkeypatch.undo()
    assert hidden(model).isfinite().all()


CUTS: dict[str, slice] = {
    "the last": slice(2),
    "the first": slice(1, None),
    "every other": slice(None, None, 2),
}


def assert_as_plain(model: Any, ours: torch.Tensor) -> None:
    """Hold rows of an accelerated model, which is restored, to the budget of the plain one."""
    keep = batch_of(model)["attention_mask"].bool()
    eager = hidden(restore(model))
    raised = copy.deepcopy(model)
    with in_float64():
        truth = hidden(raised.double())
    assert_within_budget(ours[keep], eager[keep], truth[keep], terms=terms_of(model))


@pytest.mark.parametrize("name", CUTS)
@pytest.mark.parametrize("kind", ["bert", "electra", "distilbert", "mpnet", "gte", "nomic_bert"])
def test_layers_may_be_cut_off_with_the_configuration_told(kind: str, name: str) -> None:
    case = next(c for c in one_per_family() if c.model_type == kind)
    model = case.build()
    holder = next(m for m in model.modules() if isinstance(_layers(m), nn.ModuleList))
    kept = _layers(holder)[CUTS[name]]
    setattr(holder, "layer" if "layer" in holder._modules else "layers", kept)
    model.config.num_hidden_layers = len(kept)
    assert_as_plain(model, hidden(accelerate(model)))


def _layers(module: nn.Module) -> Any:
    return module._modules.get("layer", module._modules.get("layers"))


def test_layers_of_one_place_attending_otherwise_are_refused_elsewhere() -> None:
    model = next(c for c in CASES if c.model_type == "modernbert").build()
    model.layers = model.layers[1:]
    model.config.layer_types = model.config.layer_types[:-1]
    model.config.num_hidden_layers = len(model.layers)
    with pytest.raises(UnsupportedFeatureError, match=r"layers\.\d"):
        accelerate(model)


def test_hooks_that_change_nothing_are_let_be() -> None:
    model = bert()
    model(**batch_of(model), output_hidden_states=True)
    model.enable_input_require_grads()
    accelerate(model)
    assert len(model(**batch_of(model), output_hidden_states=True).hidden_states) == 4


@pytest.mark.parametrize("case", CASES, ids=case_id)
def test_no_family_is_refused_as_it_comes(case: Case) -> None:
    model = accelerate(case.build())
    for step in (model.train, model.eval, model.double, model.half, model.float):
        step()
        found = model.half().float() if step == model.float else model
        rounded = [name for name, _ in model.named_buffers() if "inv_freq" in name]
        if step == model.float and rounded:
            # Once rounded, the tables are others than those computed here.
            with pytest.raises(UnsupportedFeatureError, match="inv_freq"):
                hidden(found)
        elif model.dtype != torch.float16:
            assert hidden(found).isfinite().all()


@pytest.mark.parametrize("pack", [False, True], ids=["plain", "packed"])
@pytest.mark.parametrize("case", one_per_family(), ids=case_id)
def test_norms_compute_by_the_epsilon_they_have(case: Case, pack: bool) -> None:
    model = case.build()
    keep = batch_of(model)["attention_mask"].bool()
    before = hidden(accelerate(model, pack=pack))
    norms = [m for m in model.modules() if hasattr(m, "eps") or hasattr(m, "variance_epsilon")]
    norm = norms[len(norms) // 2]
    setattr(norm, "eps" if hasattr(norm, "eps") else "variance_epsilon", 0.5)
    found = hidden(model)
    assert not torch.equal(found[keep], before[keep])
    assert_as_plain(model, found)


def test_untied_copies_are_refused() -> None:
    model = accelerate(next(c for c in CASES if c.model_type == "t5").build())
    model.encoder.embed_tokens = nn.Embedding(*model.shared.weight.shape)
    with pytest.raises(UnsupportedFeatureError, match="tie"):
        hidden(model)


def torch_encoder() -> Any:
    torch.manual_seed(0)
    layer = nn.TransformerEncoderLayer(32, 4, 64, batch_first=True)
    return nn.TransformerEncoder(layer, 2, nn.LayerNorm(32), enable_nested_tensor=False).eval()


TORCH_CHANGES: dict[str, Callable[[Any], object]] = {
    "forward hook": lambda e: e.layers[0].register_forward_hook(lambda *_: None),
    "backward hook": lambda e: e.layers[0].linear1.register_full_backward_hook(lambda *_: None),
    "own forward": lambda e: setattr(e.layers[1], "forward", lambda rows, **_: rows),
    "own method": lambda e: setattr(e.layers[1], "_ff_block", torch.relu),
    "zero attention": lambda e: setattr(e.layers[1].self_attn, "add_zero_attn", True),
    "heads": lambda e: setattr(e.layers[1].self_attn, "num_heads", 2),
    "batch first": lambda e: setattr(e.layers[1].self_attn, "batch_first", False),
    "subclass of an activation": lambda e: setattr(
        e.layers[1], "activation", type("Soft", (nn.ReLU,), {})()
    ),
    "one layer's mode": lambda e: e.layers[1].train(),
}


@pytest.mark.parametrize("name", TORCH_CHANGES)
def test_changed_layers_of_pytorch_are_refused(name: str) -> None:
    rows = torch.randn(2, 5, 32)
    changed = torch_encoder()
    TORCH_CHANGES[name](changed)
    with pytest.raises(EncoderEngineError):
        accelerate_torch(changed)
    encoder = accelerate_torch(torch_encoder())
    encoder(rows)
    TORCH_CHANGES[name](encoder)
    with pytest.raises(EncoderEngineError):
        encoder(rows)
