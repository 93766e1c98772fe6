"""Refuses hooks (a few excepted) on inner modules of accelerated models: they would not run."""

from __future__ import annotations

import operator
from typing import TYPE_CHECKING, Any

from torch import nn

from encoder_engine.errors import UnsupportedFeatureError

if TYPE_CHECKING:
    from collections.abc import Mapping

__all__ = ["check_global_hooks", "check_hooks", "has_hooks"]

KINDS = {
    "_forward_hooks": "forward hook",
    "_forward_pre_hooks": "forward pre-hook",
    "_backward_hooks": "backward hook",
    "_backward_pre_hooks": "backward pre-hook",
}
# transformers' own hooks that change no result: the first collects outputs, which the engine
# returns; the second makes gradients pass a frozen embedding, which they do here anyway.
HARMLESS = frozenset(
    [
        (
            "transformers.utils.output_capturing",
            "install_output_capuring_hook.<locals>.output_capturing_hook",
        ),
        (
            "transformers.modeling_utils",
            "EmbeddingAccessMixin.enable_input_require_grads.<locals>.make_inputs_require_grads",
        ),
        (
            "transformers.modeling_utils",
            "PreTrainedModel.enable_input_require_grads.<locals>.make_inputs_require_grads",
        ),
    ]
)
_global_hooks = operator.attrgetter(*(f"_global{name}" for name in KINDS))


def check_global_hooks() -> None:
    """Raise :class:`UnsupportedFeatureError` where hooks are set on all modules of the process."""
    found = _global_hooks(nn.modules.module)
    if any(found):
        hook = next(iter(next(filter(None, found)).values()))
        raise UnsupportedFeatureError(
            f"a hook on all modules is set ({_name(hook)}, by torch.nn.modules.module); it is not "
            "called for modules within an accelerated one: remove it, or call restore(model)"
        )


def has_hooks(module: nn.Module) -> bool:
    """Return whether other code has set hooks on a module that read its inputs or outputs."""
    ours = __name__.partition(".")[0]
    hooks = (hook for kind in KINDS for hook in vars(module)[kind].values())
    found = (identity for identity in map(_identity, hooks) if identity not in HARMLESS)
    return any(module.partition(".")[0] != ours for module, _ in found)


def check_hooks(name: str, module: nn.Module) -> None:
    """Raise :class:`UnsupportedFeatureError` for a module with hooks, which would not be called."""
    for where, kind in KINDS.items():
        hooks: Mapping[int, Any] = vars(module)[where]
        for hook in hooks.values():
            if _identity(hook) in HARMLESS:
                continue
            more = ""
            if _name(hook) == "neftune_post_forward_hook":
                more = " (NEFTune; leave neftune_noise_alpha out)"
            raise UnsupportedFeatureError(
                f"{name} has a {kind}, {_name(hook)}{more}: hooks on modules within an accelerated "
                "model are not called; remove it, or call restore(model). Hooks on the encoder "
                "itself are called"
            )


def _identity(hook: object) -> tuple[str, str]:
    return getattr(hook, "__module__", ""), getattr(hook, "__qualname__", "")


def _name(hook: object) -> str:
    return getattr(hook, "__name__", type(hook).__name__)
