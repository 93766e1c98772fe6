"""Changes that people make to a model: weights, modules, hooks, configuration, modes.

Each is drawn with a generator and applied to a model in place; the same seed changes a copy alike.
"""

from __future__ import annotations

import copy
import types
from typing import TYPE_CHECKING, Any

import torch
from torch import nn
from torch.nn.utils import parametrizations, parametrize, prune

if TYPE_CHECKING:
    from collections.abc import Callable
    from random import Random

    Mutation = Callable[[Any, Random], object]

__all__ = ["CHANGING", "COMPUTED", "Undo", "undo_all"]

FUSED = (torch.optim.AdamW, torch.optim.Adam, torch.optim.SGD, torch.optim.Adagrad)
ACTIVATIONS = (nn.ReLU, nn.GELU, nn.SiLU, nn.Tanh, nn.Identity)
# What is set on the whole process, to be taken back after a case.
Undo: list[Callable[[], object]] = []


def undo_all() -> None:
    """Take back what was set on classes, or on all modules of the process."""
    while Undo:
        Undo.pop()()


def encoder_of(model: Any) -> Any:
    """Return the encoder of a model of transformers, or the one of PyTorch."""
    if hasattr(model, "base_model"):
        return model.base_model
    return next(m for m in model.modules() if isinstance(m, nn.TransformerEncoder))


def parameter_of(model: Any, rng: Random) -> tuple[Any, str, nn.Parameter]:
    """Choose a parameter: its module, its name there, and itself."""
    found = [
        (module, name, parameter)
        for module in encoder_of(model).modules()
        for name, parameter in module._parameters.items()
        if parameter is not None
    ]
    return rng.choice(found)


def module_of(model: Any, rng: Random, kind: type[nn.Module] = nn.Module) -> tuple[Any, str, Any]:
    """Choose a module below the encoder: its parent, its name there, and itself."""
    found = [
        (parent, name, child)
        for parent in encoder_of(model).modules()
        for name, child in parent._modules.items()
        if isinstance(child, kind)
    ]
    return rng.choice(found)


def layers_of(model: Any) -> nn.ModuleList:
    """Return the longest list of layers."""
    lists = [m for m in encoder_of(model).modules() if isinstance(m, nn.ModuleList)]
    return max(lists, key=len)


@torch.no_grad()
def in_place(model: Any, rng: Random) -> None:
    """Scale a parameter where it lies."""
    parameter_of(model, rng)[2].mul_(1.5)


def data_in_place(model: Any, rng: Random) -> None:
    """Scale a parameter's data, which leaves no trace."""
    parameter_of(model, rng)[2].data.mul_(1.5)


def all_data(model: Any, _: Random) -> None:
    """Scale all parameters, as an average of weights does."""
    for parameter in model.parameters():
        parameter.data.mul_(0.9)


def data_elsewhere(model: Any, rng: Random) -> None:
    """Give a parameter other memory."""
    parameter = parameter_of(model, rng)[2]
    parameter.data = parameter.data * 1.25


def other_strides(model: Any, rng: Random) -> None:
    """Give a matrix memory by columns."""
    parameter = parameter_of(model, rng)[2]
    if parameter.dim() == 2:
        parameter.data = parameter.data.T.contiguous().T * 1.1


def one_element(model: Any, rng: Random) -> None:
    """Change one number, through NumPy."""
    parameter = parameter_of(model, rng)[2]
    parameter.detach().view(-1).numpy()[rng.randrange(parameter.numel())] += 0.5


def swapped_rows(model: Any, rng: Random) -> None:
    """Swap the first and last row."""
    data = parameter_of(model, rng)[2].data
    data[[0, -1]] = data[[-1, 0]].clone()


def new_parameter(model: Any, rng: Random) -> None:
    """Put another parameter in the place of one; a tied one stays tied."""
    _, _, old = parameter_of(model, rng)
    new = nn.Parameter(old.detach() * 0.75)
    for module in model.modules():
        for name, parameter in module._parameters.items():
            if parameter is old:
                setattr(module, name, new)


def loaded(model: Any, rng: Random) -> None:
    """Load other weights, by copying or by assigning."""
    assign = rng.random() < 0.5
    state = {
        name: tensor * 0.8 if tensor.is_floating_point() and "inv_freq" not in name else tensor
        for name, tensor in model.state_dict().items()
    }
    model.load_state_dict(state, assign=assign)
    if assign and hasattr(model, "tie_weights"):
        model.tie_weights()


def optimiser_step(model: Any, rng: Random) -> None:
    """Step an optimiser, mostly fused, by drawn gradients."""
    kind, how = rng.choice(FUSED), rng.choice(["fused", "fused", "foreach", None])
    generator = torch.Generator().manual_seed(rng.randrange(2**30))
    trained = [p for p in model.parameters() if p.requires_grad]
    for parameter in trained:
        drawn = torch.randn(parameter.shape, generator=generator, dtype=torch.float64)
        parameter.grad = drawn.to(parameter.dtype)
    options: dict[str, Any] = {} if how is None else {how: True}
    if trained:
        kind(trained, lr=0.01, **options).step()
    for parameter in trained:
        parameter.grad = None


def frozen(model: Any, rng: Random) -> None:
    """Freeze some parameters."""
    for parameter in model.parameters():
        parameter.requires_grad_(rng.random() < 0.5)


def moved(model: Any, rng: Random) -> None:
    """Cast and cast back, or share the memory with other processes."""
    if rng.random() < 0.3:
        model.share_memory()
    else:
        model.double().float()


def tied(model: Any, rng: Random) -> None:
    """Let two layers share a weight."""
    groups: dict[Any, list[tuple[Any, str]]] = {}
    for layer in layers_of(model):
        for path, module in layer.named_modules():
            for name, parameter in module._parameters.items():
                if parameter is not None:
                    groups.setdefault((path, name, parameter.shape), []).append((module, name))
    same = [group for group in groups.values() if len(group) > 1]
    if same:
        (first, name), (second, _) = rng.choice(same)[:2]
        setattr(second, name, getattr(first, name))


def tied_within(model: Any, rng: Random) -> None:
    """Let two modules of a layer share a weight, or weights of two parameters lie in one place."""
    groups: dict[Any, list[tuple[Any, str]]] = {}
    for module in rng.choice(layers_of(model)).modules():
        for name, parameter in module._parameters.items():
            if parameter is not None:
                groups.setdefault((name, parameter.shape), []).append((module, name))
    same = [group for group in groups.values() if len(group) > 1]
    if same:
        (first, name), (second, _) = rng.sample(rng.choice(same), 2)
        if rng.random() < 0.5:
            setattr(second, name, getattr(first, name))
        else:
            getattr(second, name).data = getattr(first, name).data


def resized(model: Any, rng: Random) -> None:
    """Give the vocabulary more tokens."""
    if hasattr(model, "resize_token_embeddings"):
        torch.manual_seed(rng.randrange(2**30))
        model.resize_token_embeddings(model.config.vocab_size + 8, mean_resizing=False)


def hook_on_encoder(model: Any, _: Random) -> None:
    """Set a hook on the encoder itself, where hooks are called."""

    def double(_m: Any, _a: Any, output: Any) -> Any:
        if isinstance(output, torch.Tensor):
            return 2 * output
        output["last_hidden_state"] = 2 * output["last_hidden_state"]
        return output

    if not isinstance(getattr(model, "config", None), object) or model is encoder_of(model):
        encoder_of(model).register_forward_hook(double)


def _scaled(value: Any) -> Any:
    if isinstance(value, torch.Tensor) and value.is_floating_point():
        return value * 0.5
    if isinstance(value, tuple):
        return (_scaled(value[0]), *value[1:])
    return value


def forward_hook(model: Any, rng: Random) -> None:
    """Set a hook on a module within that perhaps changes its output."""
    changes = rng.random() < 0.7
    module_of(model, rng)[2].register_forward_hook(
        lambda _m, _a, output: _scaled(output) if changes else None
    )


def forward_pre_hook(model: Any, rng: Random) -> None:
    """Set a hook on a module within that changes its input."""
    module_of(model, rng)[2].register_forward_pre_hook(
        lambda _m, arguments: tuple(map(_scaled, arguments))
    )


def backward_hook(model: Any, rng: Random) -> None:
    """Set a hook on the gradients of a module within."""
    module_of(model, rng)[2].register_full_backward_hook(
        lambda _m, gradients, _o: tuple(None if g is None else 2 * g for g in gradients)
    )


def global_hook(_: Any, __: Random) -> None:
    """Set a hook on all modules of the process."""
    handle = nn.modules.module.register_module_forward_hook(
        lambda module, _a, output: _scaled(output) if isinstance(module, nn.Linear) else None
    )
    Undo.append(handle.remove)


def own_forward(model: Any, rng: Random) -> None:
    """Put a forward on the object."""
    module = module_of(model, rng, rng.choice([nn.Linear, nn.LayerNorm, nn.Embedding]))[2]
    module.forward = types.MethodType(_half_of_own, module)


def _half_of_own(module: Any, *args: Any, **named: Any) -> Any:
    return type(module).forward(module, *args, **named) * 0.5


def subclass(model: Any, rng: Random) -> None:
    """Make a module one of a class derived from its own."""
    module = module_of(model, rng)[2]
    kind = type(module)

    def forward(self: Any, *args: Any, **named: Any) -> Any:
        return _scaled(kind.forward(self, *args, **named))

    module.__class__ = type("Derived", (kind,), {"forward": forward})


def replaced(model: Any, rng: Random) -> None:
    """Put an identity, or another activation, in a module's place."""
    parent, name, child = module_of(model, rng)
    if not any(True for _ in child.parameters()):
        parent._modules[name] = rng.choice(ACTIVATIONS)()
    elif isinstance(child, nn.LayerNorm):
        parent._modules[name] = nn.Identity()


def attribute(model: Any, rng: Random) -> None:
    """Change a plain attribute of a module within."""
    found = [
        (module, key, value)
        for module in list(encoder_of(model).modules())[1:]
        for key, value in vars(module).items()
        if not key.startswith("_") and isinstance(value, (bool, int, float, str))
    ]
    module, key, value = rng.choice(found)
    setattr(module, key, _changed(value, rng))


def attribute_of_encoder(model: Any, rng: Random) -> None:
    """Change a plain attribute of the encoder itself."""
    encoder = encoder_of(model)
    found = [
        (key, value)
        for key, value in vars(encoder).items()
        if not key.startswith("_") and isinstance(value, (bool, int, float)) and key != "training"
    ]
    if found:
        key, value = rng.choice(found)
        setattr(encoder, key, _changed(value, rng))


def _changed(value: Any, rng: Random) -> Any:
    if isinstance(value, bool):
        return not value
    if isinstance(value, int):
        return rng.choice([value + 1, max(1, value - 1), 2 * value])
    if isinstance(value, float):
        return rng.choice([value * 3 + 0.1, value + 0.5, 0.0])
    return rng.choice(["relu", "gelu", "silu", value + "x"])


def configuration(model: Any, rng: Random) -> None:
    """Change a value of the configuration."""
    config = getattr(model, "config", None)
    if config is None:
        return
    kinds = (bool, int, float, str, list, dict)
    values = [(k, v) for k, v in sorted(config.to_dict().items()) if isinstance(v, kinds)]
    # The Python object holds more than the file's names for it.
    values = [(k, v) for k, v in values if hasattr(config, k) and k != "model_type"]
    key, value = rng.choice(values)
    value = copy.deepcopy(getattr(config, key))
    if isinstance(value, list) and value and isinstance(value[0], (int, str)):
        value[0] = _changed(value[0], rng)
    elif isinstance(value, dict):
        for inner in value:
            if isinstance(value[inner], float):
                value[inner] = 2 * value[inner]
    else:
        value = _changed(value, rng) if isinstance(value, (bool, int, float, str)) else value
    setattr(config, key, value)


def buffer(model: Any, rng: Random) -> None:
    """Change a table in place, which leaves no trace."""
    found = [b for b in encoder_of(model).buffers() if b is not None and b.numel()]
    if found:
        chosen = rng.choice(found)
        with torch.no_grad():
            chosen.data.copy_(chosen.flip(-1) if rng.random() < 0.5 else chosen * 0 + 1)


def one_mode(model: Any, rng: Random) -> None:
    """Give one module a mode of its own."""
    module = module_of(model, rng)[2]
    module.train(not module.training)


def parametrised(model: Any, rng: Random) -> None:
    """Compute a weight of others: by a norm, a mask or a function."""
    module = module_of(model, rng, nn.Linear)[2]
    how = rng.randrange(3)
    if how == 0:
        parametrizations.weight_norm(module)
        with torch.no_grad():
            module.parametrizations.weight.original0.mul_(1.5)
    elif how == 1:
        prune.l1_unstructured(module, "weight", amount=0.5)  # type: ignore[no-untyped-call]
    else:
        parametrize.register_parametrization(module, "weight", nn.Softplus())


def fewer_layers(model: Any, rng: Random) -> None:
    """Cut layers off, or put them in another order, perhaps with the configuration told."""
    layers = layers_of(model)
    if rng.random() < 0.5:
        layers._modules = dict(
            zip(layers._modules, reversed(layers._modules.values()), strict=True)
        )
        return
    for encoder in encoder_of(model).modules():
        for name, child in list(encoder._modules.items()):
            if child is layers:
                setattr(encoder, name, layers[:-1] or layers)
    config = getattr(model, "config", None)
    if config is not None and rng.random() < 0.5:
        config.num_hidden_layers = max(1, config.num_hidden_layers - 1)


def twice_the_layer(model: Any, _: Random) -> None:
    """Let one layer compute twice."""
    layers = layers_of(model)
    if len(layers) > 1:
        layers[1] = layers[0]


def patched_class(model: Any, rng: Random) -> None:
    """Patch the class of a module within."""
    kind = type(module_of(model, rng)[2])
    plain: Any = vars(kind).get("forward")
    if plain is None or kind.__module__.startswith("torch.nn.modules.container"):
        return

    def forward(self: Any, *args: Any, **named: Any) -> Any:
        return _scaled(plain(self, *args, **named))

    kind.forward = forward
    Undo.append(lambda: setattr(kind, "forward", plain))


# What has to be computed, and what may be refused.
COMPUTED: dict[str, Mutation] = {
    one.__name__: one
    for one in (
        *(in_place, data_in_place, all_data, data_elsewhere, other_strides, one_element),
        *(swapped_rows, new_parameter, loaded, optimiser_step, frozen, moved, tied, resized),
        *(tied_within, hook_on_encoder),
    )
}
CHANGING: dict[str, Mutation] = {
    one.__name__: one
    for one in (
        *(forward_hook, forward_pre_hook, backward_hook, global_hook, own_forward, subclass),
        *(replaced, attribute, attribute, attribute_of_encoder, configuration, configuration),
        *(buffer, one_mode, parametrised, fewer_layers, twice_the_layer, patched_class),
    )
}
