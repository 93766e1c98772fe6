"""Checks that another library's modules compute what the engine will compute instead.

How it works: :class:`ModuleCheck` compares every module below a model with the one that the same
class makes of the same configuration: type, attributes, buffers, hooks, and methods set on the
object. A difference raises :class:`UnsupportedFeatureError`, which names the module and the
difference. Later calls only check whether anything has changed since, by comparisons that run in C:
0.1 ms for the 120 modules of MiniLM. Where something has, everything is compared again.
"""

from __future__ import annotations

import copy
import operator
from functools import partial
from itertools import chain
from types import FunctionType, MethodType
from typing import TYPE_CHECKING, Any

import torch
from torch import Tensor, nn

from encoder_engine.errors import UnsupportedFeatureError
from encoder_engine.integrations.acceleration.hooks import check_global_hooks, check_hooks
from encoder_engine.integrations.acceleration.source import (
    check_classes,
    check_functions,
    modules_of,
)

if TYPE_CHECKING:
    from collections.abc import Callable

__all__ = ["EPSILONS", "ModuleCheck"]

MEMBERS = ("_modules", "_parameters", "_buffers")
_members = operator.itemgetter(*MEMBERS)
_hooks = operator.itemgetter(
    "_forward_hooks", "_forward_pre_hooks", "_backward_hooks", "_backward_pre_hooks"
)
# Containers are never called: their mode, hooks and methods have no effect.
CONTAINERS = (nn.ModuleList, nn.ModuleDict)
# Attributes that change no result, or that are compared elsewhere.
FREE = frozenset(
    [
        "_compiled_call_impl",
        "_gradient_checkpointing_func",
        "_is_full_backward_hook",
        "_is_hf_initialized",
        "_non_persistent_buffers_set",
        "_output_capturing_hooks_installed",
        "attn_implementation",
        "gradient_checkpointing",
        # Read by caches alone; derived values, such as a window, have their own attributes.
        "layer_id",
        "layer_idx",
        "n_layers",
        "training",
    ]
)
# Keys of a configuration that do not change the computation, or that each call overrides.
OF_NO_RESULT = frozenset(
    [
        "_name_or_path",
        "architectures",
        "attn_implementation",
        "dtype",
        "torch_dtype",
        "transformers_version",
    ]
)
SAID_BY_CALL = ("_attn", "output_", "return_dict", "use_cache")
# The names of epsilon in norms.
EPSILONS = ("eps", "variance_epsilon")
MEND = "undo that, or call restore(model)"


class ModuleCheck:
    """Compares a model's modules with those of a new model of the same class, and notices changes.

    ``base``: the model. It is called through its own ``__call__``: its hooks run, and its
    ``forward`` may be wrapped.
    ``make``: makes the model to compare with; its parameters may be on the meta device.
    ``with_rates``: compare dropout rates in training mode; False: never.
    ``configs``: the configurations that modules refer to.

    The epsilon of a norm may have any value, because the engine reads it. Raises
    :class:`UnsupportedFeatureError` for a module that differs.
    """

    def __init__(
        self, base: nn.Module, make: Callable[[], nn.Module], *, with_rates: bool = True
    ) -> None:
        self._base = base
        self._made = make()
        self._with_rates = with_rates
        # Comparisons of configurations, by their ids: modules share few of them.
        self._alike: dict[tuple[int, int], bool] = {}
        self._modules = list(base.modules())
        self._classes = list(dict.fromkeys(c for m in self._modules for c in type(m).__mro__))
        self._sources = modules_of(self._classes)
        self._compare()
        self._remember()

    def __call__(self) -> bool:
        """Return whether anything has changed since the last call.

        Raises :class:`UnsupportedFeatureError` for a module that differs.
        """
        check_global_hooks()
        if self._is_unchanged():
            return False
        self._compare()
        self._remember()
        return True

    def has_same_members(self) -> bool:
        """Return whether the model's modules, parameters and configurations are still the same."""
        own = chain.from_iterable(map(_members, map(vars, self._modules)))
        found = map(dict.get, self._holders, self._names)
        return (
            all(map(operator.is_, own, self._dicts))
            and list(map(len, self._dicts)) == self._sizes
            and all(map(operator.is_, found, self._values))
            and all(map(operator.eq, map(vars, self.configs), self._config_copies))
        )

    def _is_unchanged(self) -> bool:
        states = list(map(vars, self._modules))
        try:
            return (
                all(map(operator.is_, map(type, self._modules), self._types))
                and all(map(operator.eq, states, self._states))
                # Configurations with different attention implementations compare equal.
                and all(map(operator.is_, map(_config_of, states), self._config_objects))
                and list(filter(None, chain.from_iterable(map(_hooks, states)))) == self._hooked
                and all(map(operator.eq, self._code(), self._code_copies))
                and all(map(torch.equal, self._buffers, self._buffer_copies))
            )
        except (RuntimeError, TypeError, ValueError):
            # A value that cannot be compared is a change, such as a tensor instead of a number.
            return False

    def _remember(self) -> None:
        states = list(map(vars, self._modules))
        self._dicts: list[dict[str, Any]] = list(chain.from_iterable(map(_members, states)))
        self._sizes = list(map(len, self._dicts))
        members = [(one, name, value) for one in self._dicts for name, value in one.items()]
        self._holders = [holder for holder, _, _ in members]
        self._names = [name for _, name, _ in members]
        self._values = [value for _, _, value in members]
        self._states = [_copied(state) for state in states]
        hooked = filter(None, chain.from_iterable(map(_hooks, states)))
        self._hooked = [copy.copy(hooks) for hooks in hooked]
        self._types = list(map(type, self._modules))
        self._code_copies = list(map(dict, self._code()))
        self._buffers = [b for b in self._base.buffers() if b is not None]
        self._buffer_copies = [b.detach().clone() for b in self._buffers]
        self._config_objects = list(map(_config_of, states))
        configs = {id(c): c for c in self._config_objects if c is not None}
        self.configs = list(configs.values())
        self._config_copies = [copy.deepcopy(vars(config)) for config in self.configs]

    def _code(self) -> map[Any]:
        """Yield ``vars`` of the modules' classes, and of the Python modules that define them."""
        return map(vars, chain(self._classes, self._sources))

    def _compare(self) -> None:
        check_global_hooks()
        check_classes(self._classes)
        check_functions(self._sources)
        self._alike.clear()
        ours = dict(self._base.named_modules(remove_duplicate=False))
        made = dict(self._made.named_modules(remove_duplicate=False))
        for name, module in ours.items():
            twin = made.get(name, module)
            if type(module) is not type(twin):
                raise UnsupportedFeatureError(
                    f"{name} is a {_described(module)}, the configuration makes a "
                    f"{type(twin).__name__} there; merge adapters (merge_and_unload()), and put "
                    "quantized or replaced layers back, or call restore(model)"
                )
        if ours.keys() != made.keys():
            raise UnsupportedFeatureError(_layout_message(self._base, ours, made))
        for name, module in ours.items():
            twin = made[name]
            if not isinstance(module, CONTAINERS):
                self._compare_module(name, module, twin)

    def _same(self, found: Any, made: Any) -> bool:
        if not (hasattr(made, "to_dict") and hasattr(found, "to_dict")):
            return _same(found, made)
        pair = id(found), id(made)
        if pair not in self._alike:
            self._alike[pair] = _computed(found) == _computed(made)
        return self._alike[pair]

    def _compare_module(self, name: str, module: nn.Module, twin: nn.Module) -> None:
        is_base = module is self._base
        if not is_base:
            check_hooks(name, module)
        _check_mode(name, module, self._base)
        ours, made = _attributes(module), _attributes(twin)
        with_rates = self._with_rates and self._base.training
        for key in made:
            skipped = is_base and _is_bookkeeping(key)
            if skipped or key in EPSILONS or (_is_rate(module, key) and not with_rates):
                continue
            if key not in ours or not self._same(ours[key], made[key]):
                raise UnsupportedFeatureError(_attribute_message(name, key, ours, made[key]))
        for key in ours.keys() - made.keys():
            if _is_override(type(module), key, is_base=is_base):
                raise UnsupportedFeatureError(
                    f"{name or 'the model'} has its own {key} instead of its class's, which is "
                    f"not called here; {MEND}"
                )
        for key, parameter in module._parameters.items():
            if parameter is not None and type(parameter) is not nn.Parameter:
                raise UnsupportedFeatureError(_parameter_message(f"{name}.{key}", parameter))
        for key, buffer in module._buffers.items():
            if not _same(buffer, twin._buffers.get(key)):
                raise UnsupportedFeatureError(
                    f"the buffer {name}.{key} differs from the model's configuration, by which "
                    f"the engine computes; load the model anew, or {MEND}"
                )


def _config_of(state: dict[str, Any]) -> Any:
    return state.get("config")


def _copied(state: dict[str, Any]) -> dict[str, Any]:
    """Copy a module's attributes: plain containers deeply, all others as they are."""
    return {
        key: copy.deepcopy(value) if key not in MEMBERS and _is_plain_container(value) else value
        for key, value in state.items()
    }


def _is_plain_container(value: object) -> bool:
    if type(value) is dict:
        return all(map(_is_plain, value.keys())) and all(map(_is_plain, value.values()))
    return type(value) in (list, set, tuple) and all(map(_is_plain, value))  # type: ignore[call-overload]


def _is_plain(value: object) -> bool:
    return isinstance(value, (bool, int, float, str, type(None))) or _is_plain_container(value)


def _attributes(module: nn.Module) -> dict[str, Any]:
    return {
        key: value
        for key, value in vars(module).items()
        if key not in FREE and key not in MEMBERS and "_hooks" not in key
    }


def _is_bookkeeping(key: str) -> bool:
    """Return whether an attribute of this name is bookkeeping, which no forward reads."""
    return key.startswith("_") or key in ("name_or_path", "warnings_issued", "generation_config")


def _is_rate(module: nn.Module, key: str) -> bool:
    return "drop" in key or (key == "p" and isinstance(module, nn.Dropout))


def _is_override(kind: type, key: str, *, is_base: bool) -> bool:
    """Return whether an object's attribute of this name overrides a method of its class.

    is_base: the object is the model itself, whose ``forward`` may be replaced.
    """
    if not is_base:
        return hasattr(kind, key)
    methods = (FunctionType, property, staticmethod, classmethod)
    return key != "forward" and any(
        isinstance(vars(one).get(key), methods)
        for one in kind.__mro__
        if ".models." in one.__module__
    )


def _check_mode(name: str, module: nn.Module, base: nn.Module) -> None:
    # Among leaf modules only dropout reads its mode.
    reads_mode = isinstance(module, nn.Dropout) or next(module.children(), None) is not None
    if reads_mode and module.training != base.training:
        modes = {True: "training", False: "evaluating"}
        raise UnsupportedFeatureError(
            f"{name} is {modes[module.training]}, the encoder {modes[base.training]}; an "
            "accelerated model has one mode: call model.train() or model.eval(), or restore(model)"
        )


def _same(found: Any, made: Any) -> bool:
    """Return whether an attribute has the same value in the model and in the new one."""
    if found is made:
        return True
    if isinstance(found, Tensor) or isinstance(made, Tensor):
        return _same_tensor(found, made)
    if isinstance(found, MethodType) and isinstance(made, MethodType):
        return found.__func__ is made.__func__
    if isinstance(found, partial) and isinstance(made, partial):
        return all(
            _same(one, other)
            for one, other in (
                (found.func, made.func),
                (found.args, made.args),
                (found.keywords, made.keywords),
            )
        )
    try:
        return bool(found == made)
    except (RuntimeError, TypeError, ValueError):
        return False


def _same_tensor(found: Any, made: Any) -> bool:
    if not (isinstance(found, Tensor) and isinstance(made, Tensor)):
        return False
    if found.is_meta or found.shape != made.shape:
        return False
    # A cast of the model casts its buffers.
    return torch.equal(found.detach().cpu(), made.to(found.dtype))


def _computed(config: Any) -> dict[str, Any]:
    """Return the values of a configuration that change the computation."""
    settings: dict[str, Any] = config.to_dict()
    return {
        key: value
        for key, value in settings.items()
        if key not in OF_NO_RESULT and not key.startswith(SAID_BY_CALL)
    }


def _described(module: nn.Module) -> str:
    return _described_type(type(module))


def _described_type(kind: type) -> str:
    standard = kind.__module__.startswith(("torch.nn.", "transformers."))
    return kind.__name__ if standard else f"{kind.__name__} of {kind.__module__}"


def _parameter_message(name: str, parameter: Tensor) -> str:
    if type(parameter) is Tensor:
        return (
            f"{name} is a Tensor in the place of a Parameter, as torch.func.functional_call puts "
            "them; load the values (load_state_dict), or call restore(model)"
        )
    return (
        f"{name} is a {_described_type(type(parameter))}, which may compute anything; supported is "
        "nn.Parameter itself: put plain weights back, or call restore(model)"
    )


def _attribute_message(name: str, key: str, ours: dict[str, Any], made: Any) -> str:
    place, found = name or "the model", ours.get(key)
    if hasattr(made, "to_dict") and hasattr(found, "to_dict"):
        return (
            f"{place} has another {key} than the model: {_config_difference(found, made)}; give "
            "all modules one config, or call restore(model)"
        )
    message = f"{place} has {key} = {found!r}" if key in ours else f"{place} lacks {key}"
    message += f", the model's config states {made!r}"
    if "drop" in key or key == "p":
        return (
            f"{message}; the engine computes by the config: make the model of a config with the "
            "dropout wanted, or call restore(model)"
        )
    return (
        f"{message}; the engine computes by the config: make the model of a config with the {key} "
        f"wanted, give the module the config's {key} again, or call restore(model)"
    )


def _config_difference(found: Any, made: Any) -> str:
    """Describe, for a message, a few keys that have different values in two configurations."""
    here, there = _computed(found), _computed(made)
    keys = sorted(k for k in here.keys() | there.keys() if here.get(k) != there.get(k))
    changes = [f"{k} is {here.get(k, 'missing')!r}, not {there.get(k, 'missing')!r}" for k in keys]
    return _few(changes)


def _layout_message(base: nn.Module, ours: dict[str, Any], made: dict[str, Any]) -> str:
    missing, unexpected = (
        _outermost(made.keys() - ours.keys()),
        _outermost(ours.keys() - made.keys()),
    )
    kind = type(base).__name__
    if missing and not unexpected:
        return (
            f"this {kind} lacks modules that its config describes: {_few(missing)}; where layers "
            "were cut off, set the config's number of layers too, or call restore(model)"
        )
    return (
        f"this {kind} has other modules than its config describes: missing {_few(missing)}, "
        f"unexpected {_few(unexpected)}; merge adapters (merge_and_unload()) or parametrisations "
        "into it, set the config's number of layers where it was changed, or call restore(model)"
    )


def _outermost(names: set[str]) -> list[str]:
    """Return the dotted names that do not lie below another name of ``names``."""
    return sorted(name for name in names if name.rpartition(".")[0] not in names)


def _few(names: list[str]) -> str:
    return ", ".join(names[:4]) + (", ..." if len(names) > 4 else "") if names else "none"
