"""Builds an encoder of this engine that shares the parameters of a transformers model.

How it works: the family's renames pair the parameters of both sides. If one parameter corresponds
to exactly one, both sides hold the same tensor. Query, key and value are joined in each call
(``joined.py``). Tables of positions, angles and slopes are computed for the device and dtype. The
encoder is rebuilt when the model's members or configuration have changed.

Dimensions: B texts, L longest, T packed tokens, K features in, N features out, D width.
"""

from __future__ import annotations

import copy
import inspect
import json
import warnings
from collections import OrderedDict
from dataclasses import replace
from typing import TYPE_CHECKING, Any, TypeVar

import torch
from torch import nn
from torch._compile import _disable_dynamo
from torch.overrides import TorchFunctionMode
from torch.utils.checkpoint import checkpoint

from encoder_engine.errors import UnknownConfigKeyWarning, UnsupportedFeatureError
from encoder_engine.families.checkpoints.parameters import arrangements
from encoder_engine.families.config import spec_from_config
from encoder_engine.families.facts.names import origins
from encoder_engine.families.registry import find_family
from encoder_engine.integrations.acceleration.joined import JoinedLinear, PaddedTable
from encoder_engine.integrations.acceleration.module_check import EPSILONS, ModuleCheck
from encoder_engine.integrations.acceleration.source import check_attention
from encoder_engine.models import Encoder
from encoder_engine.models.constants import Constant
from encoder_engine.models.norm import Norm

if TYPE_CHECKING:
    from collections.abc import Callable

    from torch import Tensor

    from encoder_engine.families.facts.names import Origin
    from encoder_engine.families.facts.spec import EncoderSpec
    from encoder_engine.models.attention import BlockInputs
    from encoder_engine.packing import SelectedRows

__all__ = [
    "SharedEncoder",
    "bare_encoder",
    "check_free",
    "check_replaced",
    "eagerly",
    "fit_constants",
    "norms_of",
    "origins_checked",
    "parameters_by_name",
    "put_forward",
    "read_epsilons",
    "read_spec",
    "refuse_tracing",
    "spread",
    "take_forward",
]


Replaced = TypeVar("Replaced")


def refuse_tracing() -> None:
    """Raise :class:`UnsupportedFeatureError` while a model is traced or exported."""
    if torch._C._get_tracing_state() is not None or torch.compiler.is_exporting():
        raise UnsupportedFeatureError(
            "an accelerated model cannot be traced or exported (torch.export, ONNX, torch.jit); "
            "call restore(model) first, and accelerate it again afterwards"
        )


@_disable_dynamo
def eagerly(compute: Callable[..., Any], *args: Any, **kwargs: Any) -> Any:
    """Return ``compute(...)``; torch.compile does not trace it, but calls it as it is.

    Tracing would evaluate the checks of arguments once, and keep their results as constants.
    """
    return compute(*args, **kwargs)


class RecomputedBlock(nn.Module):
    """A block that backward computes a second time while gradient checkpointing is on."""

    def __init__(self, block: nn.Module) -> None:
        super().__init__()
        self.block = block
        self.recomputed = False

    def forward(
        self, hidden_TD: Tensor, inputs: BlockInputs, rows: SelectedRows | None = None
    ) -> tuple[Tensor, Tensor | None]:
        """Compute the block, by ``checkpoint`` where it is to be recomputed."""
        result: tuple[Tensor, Tensor | None]
        if self.recomputed and torch.is_grad_enabled():
            result = checkpoint(self.block, hidden_TD, inputs, rows, use_reentrant=False)
        else:
            result = self.block(hidden_TD, inputs, rows)
        return result


class SharedEncoder:
    """The engine's encoder over the parameters of a transformers model.

    Raises :class:`UnsupportedFeatureError` where modules or parameters differ from the model's
    configuration, by adapters or another activation, for example.
    """

    def __init__(self, base: Any) -> None:
        spec = read_spec(base)
        self._base = base
        self._check = ModuleCheck(base, lambda: _twin(base))
        model_tensors = parameters_by_name(base, spec)
        placed = {(tensor.device, tensor.dtype) for tensor in model_tensors.values()}
        if len(placed) != 1:
            raise UnsupportedFeatureError(
                f"the parameters have several devices or dtypes: {sorted(map(str, placed))}; "
                "move the model to one by .to(device, dtype)"
            )
        self._placed = placed.pop()
        self.encoder = bare_encoder(spec, model_tensors)
        self._origins = origins_checked(self.encoder, model_tensors, base)
        for ours, origin in self._origins.items():
            path, _, part = ours.rpartition(".")
            if len(origin.names) == 1 and not origin.is_rearranged:
                source = base.get_submodule(origin.names[0].rpartition(".")[0])
                if getattr(source, "padding_idx", None) is not None:
                    self.encoder.set_submodule(path, PaddedTable(source))
                else:
                    setattr(self.encoder.get_submodule(path), part, model_tensors[origin.names[0]])
            elif part == "weight":
                layers = tuple(base.get_submodule(name[: -len(".weight")]) for name in origin.names)
                self.encoder.set_submodule(path, JoinedLinear(layers, origin))
        fit_constants(self.encoder, *self._placed)
        self._norms = norms_of(self.encoder, self._origins, base)
        read_epsilons(self._norms)
        for index, block in enumerate(self.encoder.blocks):
            self.encoder.blocks[index] = RecomputedBlock(block)
        self.follow()

    def follow(self) -> bool:
        """Set the engine's encoder to the model's training mode and gradient checkpointing.

        Returns whether anything in the model's modules has changed. Raises
        :class:`UnsupportedFeatureError` for differences that :class:`ModuleCheck` finds, and for
        attention that is not transformers' own.
        """
        changed = self._check()
        for config in self._check.configs:
            check_attention(config)
        if changed:
            read_epsilons(self._norms)
        training = self._base.training
        if self.encoder.training != training:
            self.encoder.train(training)
        self.recomputes = training and any(
            getattr(module, "gradient_checkpointing", False) for module in self._base.modules()
        )
        for block in self.encoder.blocks:
            assert isinstance(block, RecomputedBlock)
            block.recomputed = self.recomputes
        return changed

    def is_current(self) -> bool:
        """Return whether the model's members, configuration, device and dtype are unchanged."""
        return (
            self._check.has_same_members()
            and (self.encoder.device, self.encoder.dtype) == self._placed
            # Resizing keeps module and parameter objects.
            and len(self.encoder.embedding.tokens.weight) == self.encoder.spec.embedding.vocab_size
        )


def read_spec(base: Any) -> EncoderSpec:
    """Return the spec of a transformers model; raises the errors of :func:`spec_from_config`."""
    with warnings.catch_warnings():
        # The class is transformers' own: it ignores other keys of config.json.
        warnings.simplefilter("ignore", UnknownConfigKeyWarning)
        spec = spec_from_config(json.loads(base.config.to_json_string()))
    if not find_family(spec.model_type).in_place:
        raise UnsupportedFeatureError(
            f"a {type(base).__name__} is not accelerated in place; load its directory as an "
            "Encoder or an Embedder instead"
        )
    summary = getattr(base.config, "summary_type", "first")
    if summary != "first":
        raise UnsupportedFeatureError(
            f"summary_type={summary!r} makes heads read rows of padding, which are zero here; "
            "supported: 'first'"
        )
    # Below a classifier, GTE and NomicBERT have a pooler that their encoders lack.
    return replace(spec, pooler=spec.pooler or getattr(base, "pooler", None) is not None)


class _WeightsNowhere(TorchFunctionMode):
    """Puts new weights on the meta device, but lets small tables be computed in memory."""

    def __torch_function__(
        self, func: Any, types: Any, args: tuple[Any, ...] = (), kwargs: Any = None
    ) -> Any:
        """Call the function; ``torch.empty`` without a device gets the meta device."""
        named = {} if kwargs is None else dict(kwargs)
        if func is torch.empty and named.get("device") is None:
            named["device"] = "meta"
        return func(*args, **named)


# A cache by configuration: a model that is cast or moved is read again.
_TWINS: OrderedDict[tuple[type, bool, str], nn.Module] = OrderedDict()
NUM_TWINS = 8


def _twin(base: Any) -> nn.Module:
    """Make a model of the same class and configuration, with weights on the meta device."""
    kind, pooled = type(base), getattr(base, "pooler", None) is not None
    key = (kind, pooled, base.config.to_json_string(use_diff=False))
    made = _TWINS.pop(key, None)
    if made is None:
        parameters = inspect.signature(kind.__init__).parameters
        options = {"add_pooling_layer": pooled} if "add_pooling_layer" in parameters else {}
        try:
            with torch.random.fork_rng([]), torch.device("cpu"), _WeightsNowhere():
                made = kind(copy.deepcopy(base.config), **options)
        except Exception as error:  # Whatever transformers says of a config that makes no model.
            raise UnsupportedFeatureError(
                f"transformers refuses to make a {kind.__name__} of this model's config: {error}"
            ) from error
        # Its class may be accelerated, by apply_encoder_engine.
        vars(made).pop("forward", None)
    _TWINS[key] = made
    while len(_TWINS) > NUM_TWINS:
        _TWINS.popitem(last=False)
    return made


def parameters_by_name(base: Any, spec: EncoderSpec) -> dict[str, Tensor]:
    """Return a model's parameters by name, a tied one by its original's name alone.

    Raises :class:`UnsupportedFeatureError` if parameters that should be tied are different tensors.
    """
    model_tensors = dict(base.named_parameters(remove_duplicate=False))
    for copied, original in find_family(spec.model_type).copies.items():
        tied = model_tensors.pop(copied, None)
        if tied is not None and tied is not model_tensors.get(original, tied):
            raise UnsupportedFeatureError(
                f"{copied} is no longer {original}, as in any {type(base).__name__}; tie them "
                "(model.tie_weights()), or call restore(model)"
            )
    return model_tensors


def bare_encoder(spec: EncoderSpec, model_tensors: dict[str, Tensor]) -> Encoder:
    """Make the engine's encoder on the meta device, with a pooler if the model has one."""
    with torch.device("meta"):
        encoder = Encoder(spec)
    if not any(name.startswith("pooler.") for name in model_tensors):
        encoder.pooler = None
    return encoder


def origins_checked(
    encoder: Encoder, model_tensors: dict[str, Tensor], base: Any
) -> dict[str, Origin]:
    """Map each parameter of the engine's encoder to the model's parameters that it consists of.

    Raises :class:`UnsupportedFeatureError` for missing, other and unexpected parameters.
    """
    parameters = dict(encoder.named_parameters())
    family = find_family(encoder.spec.model_type)
    renames = family.memory_renames or family.renames
    found = origins(renames, parameters, arrangements(encoder.spec))
    wanted = {name for origin in found.values() for name in origin.names}
    kind = type(base).__name__
    if wanted != model_tensors.keys():
        raise UnsupportedFeatureError(
            f"this {kind}'s parameters are not those its config describes: missing "
            f"{sorted(wanted - model_tensors.keys())[:4]}, unexpected "
            f"{sorted(model_tensors.keys() - wanted)[:4]}; merge adapters (merge_and_unload()) or "
            "parametrisations into it, or call restore(model)"
        )
    for ours, origin in found.items():
        total, *rest = parameters[ours].shape
        for name, rows in zip(origin.names, origin.rows_of(total), strict=True):
            shape = (rows, *rest)
            if tuple(model_tensors[name].shape) != shape or model_tensors[name].is_meta:
                raise UnsupportedFeatureError(
                    f"{name} of this {kind} is {list(model_tensors[name].shape)} on "
                    f"{model_tensors[name].device}; its configuration says {list(shape)}, and "
                    "weights on the meta device are not supported"
                )
    return found


def norms_of(encoder: Encoder, found: dict[str, Origin], base: Any) -> list[tuple[Norm, nn.Module]]:
    """Pair each norm of the engine's encoder with the model's."""
    return [
        (module, base.get_submodule(found[f"{path}.weight"].names[0].rpartition(".")[0]))
        for path, module in encoder.named_modules()
        if isinstance(module, Norm)
    ]


def read_epsilons(norms: list[tuple[Norm, nn.Module]]) -> None:
    """Copy the epsilons of the model's norms to the engine's; configurations may not have them."""
    for ours, norm in norms:
        epsilon = next(float(getattr(norm, name)) for name in EPSILONS if hasattr(norm, name))
        if ours.spec.epsilon != epsilon:
            ours.spec = replace(ours.spec, epsilon=epsilon)


def fit_constants(encoder: Encoder, device: torch.device, dtype: torch.dtype) -> None:
    """Compute the encoder's tables of angles, slopes and buckets for a device and dtype."""
    for module in encoder.modules():
        if isinstance(module, Constant):
            module.fit(device, dtype)


def put_forward(base: Any, replaced: object) -> None:
    """Set ``base.forward`` to ``replaced``, which may replace an earlier one of the same class.

    Raises the error of :func:`check_free`.
    """
    check_free(base, replaced)
    base.forward = replaced


def check_free(base: Any, replaced: object) -> None:
    """Raise :class:`UnsupportedFeatureError` if other code has replaced ``base.forward``.

    ``replaced``: the replacement to be installed; an earlier one of the same class is accepted.
    """
    present = base.__dict__.get("forward")
    if present is not None and type(present) is not type(replaced):
        raise UnsupportedFeatureError(
            f"something else has replaced the forward of {type(base).__name__} already; undo that "
            "first (device_map='auto' does it: load the model to one device)"
        )


def take_forward(base: Any, kind: type[Replaced]) -> Replaced | None:
    """Remove the replacement of a module's ``forward``, and return it; None: there was none.

    Raises the error of :func:`check_replaced`.
    """
    check_replaced(base, kind)
    replaced: Replaced | None = base.__dict__.pop("forward", None)
    return replaced


def check_replaced(base: Any, kind: type) -> None:
    """Raise :class:`UnsupportedFeatureError` if other code has replaced ``base.forward``.

    ``kind``: the class of the engine's replacements, which are accepted.
    """
    present = base.__dict__.get("forward")
    if present is not None and not isinstance(present, kind):
        raise UnsupportedFeatureError(
            f"something else has replaced the forward of {type(base).__name__} since; undo that "
            "first, then call restore again"
        )


def spread(rows_TD: Tensor, keep_BL: Tensor) -> Tensor:
    """Return packed rows in padded form, [B, L, D], with zeros where ``keep_BL`` is false."""
    if len(rows_TD) == keep_BL.numel():
        return rows_TD.view(*keep_BL.shape, -1)
    padded = rows_TD.new_zeros(*keep_BL.shape, rows_TD.shape[1])
    padded[keep_BL] = rows_TD
    return padded
