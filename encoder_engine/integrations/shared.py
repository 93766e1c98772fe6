"""A transformers model's own parameters in an encoder of ours: shared, not copied.

Dimensions: B texts, L longest, T packed tokens, K features in, N features out, D width.
"""

from __future__ import annotations

import json
import warnings
from dataclasses import replace
from typing import TYPE_CHECKING, Any

import torch
from torch import Tensor, nn
from torch.utils.checkpoint import checkpoint

from encoder_engine import ops
from encoder_engine.errors import UnknownConfigKeyWarning, UnsupportedFeatureError
from encoder_engine.integrations.dropout import DropoutCheck
from encoder_engine.models import Encoder
from encoder_engine.models.config import spec_from_config
from encoder_engine.models.constants import Constant
from encoder_engine.models.names import Origin, origins
from encoder_engine.models.registry import find_family

if TYPE_CHECKING:
    from encoder_engine.models.attention import Surroundings
    from encoder_engine.models.spec import EncoderSpec
    from encoder_engine.packing import SelectedRows

__all__ = [
    "SharedEncoder",
    "check_free",
    "check_replaced",
    "pack_copy",
    "put_forward",
    "read_spec",
    "spread",
    "take_forward",
]


class JoinedLinear(nn.Module):
    """A dense layer of several of transformers', stacked: query, key and value.

    Without gradients the stacked weight is a view of theirs, which :func:`_lay_end_to_end` has put
    side by side; with gradients, or where they lie apart again, it is joined in each call.
    """

    def __init__(self, layers: tuple[nn.Module, ...], origin: Origin) -> None:
        super().__init__()
        # A tuple: the layers stay transformers' and are no modules of this one.
        self.layers = layers
        self.origin = origin

    def forward(self, input_TK: Tensor) -> Tensor:
        """Return [T, N]."""
        weight_NK, bias_N = self._stacked("weight"), self._stacked("bias")
        assert weight_NK is not None
        return ops.linear(input_TK, weight_NK, bias_N)

    def _stacked(self, part: str) -> Tensor | None:
        tensors = [getattr(layer, part) for layer in self.layers]
        if tensors[0] is None:
            return None
        wants_gradient = torch.is_grad_enabled() and any(t.requires_grad for t in tensors)
        if not (wants_gradient or self.origin.halves_swapped) and _lie_end_to_end(tensors):
            shape = (sum(len(t) for t in tensors), *tensors[0].shape[1:])
            whole: Tensor = tensors[0].detach().as_strided(shape, tensors[0].stride())
            return whole
        return self.origin.join(dict(zip(self.origin.names, tensors, strict=True)))


def _lie_end_to_end(tensors: list[Tensor]) -> bool:
    place = tensors[0].data_ptr()
    storage = tensors[0].untyped_storage().data_ptr()
    for tensor in tensors:
        same = tensor.data_ptr() == place and tensor.untyped_storage().data_ptr() == storage
        if not (same and tensor.is_contiguous()):
            return False
        place += tensor.nbytes
    return True


def _lay_end_to_end(tensors: list[Tensor]) -> None:
    """Move parameters into one piece of memory; each stays the parameter it was."""
    if len(tensors) == 1 or _lie_end_to_end(tensors):
        return
    with torch.inference_mode(False), torch.no_grad():
        pieces = torch.split(torch.cat(tensors), [len(t) for t in tensors])
    for tensor, piece in zip(tensors, pieces, strict=True):
        tensor.data = piece


class RecomputedBlock(nn.Module):
    """A block that gradient checkpointing computes again in the backward pass, where it is on."""

    def __init__(self, block: nn.Module) -> None:
        super().__init__()
        self.block = block
        self.recomputed = False

    def forward(
        self, hidden_TD: Tensor, around: Surroundings, rows: SelectedRows | None = None
    ) -> tuple[Tensor, Tensor | None]:
        """Return what the block does."""
        result: tuple[Tensor, Tensor | None]
        if self.recomputed and torch.is_grad_enabled():
            result = checkpoint(self.block, hidden_TD, around, rows, use_reentrant=False)
        else:
            result = self.block(hidden_TD, around, rows)
        return result


class SharedEncoder:
    """Our encoder over the parameters of a transformers model, made of them as they are now.

    Raises :class:`UnsupportedFeatureError` where the model has other parameters than its
    configuration says: adapters, say, or parametrisations.
    """

    def __init__(self, base: Any) -> None:
        spec = read_spec(base)
        self._children = [
            (parent, name, child)
            for parent in base.modules()
            for name, child in parent._modules.items()
        ]
        self._held = [
            (module, name, parameter)
            for module in base.modules()
            for name, parameter in module._parameters.items()
        ]
        theirs = _parameters_by_name(base, spec)
        placed = {(tensor.device, tensor.dtype) for tensor in theirs.values()}
        if len(placed) != 1:
            raise UnsupportedFeatureError(
                f"the parameters are of several devices or types: {sorted(map(str, placed))}; "
                "bring the model to one by .to(device, dtype)"
            )
        self._placed = placed.pop()
        self.encoder = _bare_encoder(spec, theirs)
        found = _origins_checked(self.encoder, theirs, base)
        for ours, origin in found.items():
            path, _, part = ours.rpartition(".")
            if len(origin.names) == 1 and not origin.halves_swapped:
                setattr(self.encoder.get_submodule(path), part, theirs[origin.names[0]])
                continue
            _lay_end_to_end([theirs[name] for name in origin.names])
            if part == "weight":
                layers = tuple(base.get_submodule(name[: -len(".weight")]) for name in origin.names)
                self.encoder.set_submodule(path, JoinedLinear(layers, origin))
        _fit_constants(self.encoder, *self._placed)
        for index, block in enumerate(self.encoder.blocks):
            self.encoder.blocks[index] = RecomputedBlock(block)
        self._base = base
        self._check_dropout = DropoutCheck(base)
        self.follow_modes()

    def follow_modes(self) -> None:
        """Train or evaluate, and recompute blocks, as the model now would.

        Raises :class:`UnsupportedFeatureError` for what :class:`DropoutCheck` finds.
        """
        self._check_dropout()
        training = self._base.training
        if self.encoder.training != training:
            self.encoder.train(training)
        self.recomputes = training and any(
            getattr(module, "gradient_checkpointing", False) for module in self._base.modules()
        )
        for block in self.encoder.blocks:
            assert isinstance(block, RecomputedBlock)
            block.recomputed = self.recomputes

    def is_current(self) -> bool:
        """Whether the model still has the modules and parameters this was made of."""
        return (
            all(parent._modules.get(name) is child for parent, name, child in self._children)
            and all(module._parameters.get(name) is held for module, name, held in self._held)
            and (self.encoder.device, self.encoder.dtype) == self._placed
            # Resizing leaves module and parameter the ones they were.
            and len(self.encoder.embedding.tokens.weight) == self.encoder.spec.embedding.vocab_size
        )


def pack_copy(base: Any) -> Encoder:
    """Make an encoder whose dense layers are packed copies of the model's; the rest is shared."""
    spec = read_spec(base)
    theirs = {name: p.detach() for name, p in _parameters_by_name(base, spec).items()}
    encoder = _bare_encoder(spec, theirs)
    found = _origins_checked(encoder, theirs, base)
    state = {ours: origin.join(theirs) for ours, origin in found.items()}
    encoder.load_state_dict(state, strict=True, assign=True)
    del state
    tokens = encoder.embedding.tokens.weight
    _fit_constants(encoder, tokens.device, tokens.dtype)
    return encoder.requires_grad_(False).eval().pack()


def read_spec(base: Any) -> EncoderSpec:
    """Read what a transformers model computes; raises what :func:`spec_from_config` does."""
    with warnings.catch_warnings():
        # The class is transformers' own: it reads no key that config.json may hold beside.
        warnings.simplefilter("ignore", UnknownConfigKeyWarning)
        spec = spec_from_config(json.loads(base.config.to_json_string()))
    # Below a classifier, GTE and NomicBERT have a pooler that their encoders have not.
    return replace(spec, pooler=spec.pooler or getattr(base, "pooler", None) is not None)


def _parameters_by_name(base: Any, spec: EncoderSpec) -> dict[str, Tensor]:
    theirs = dict(base.named_parameters(remove_duplicate=False))
    for copy in find_family(spec.model_type).copies:
        theirs.pop(copy, None)
    return theirs


def _bare_encoder(spec: EncoderSpec, theirs: dict[str, Tensor]) -> Encoder:
    with torch.device("meta"):
        encoder = Encoder(spec)
    if not any(name.startswith("pooler.") for name in theirs):
        encoder.pooler = None
    return encoder


def _origins_checked(encoder: Encoder, theirs: dict[str, Tensor], base: Any) -> dict[str, Origin]:
    parameters = dict(encoder.named_parameters())
    family = find_family(encoder.spec.model_type)
    found = origins(family.memory_renames or family.renames, parameters)
    wanted = {name for origin in found.values() for name in origin.names}
    kind = type(base).__name__
    if wanted != theirs.keys():
        raise UnsupportedFeatureError(
            f"this {kind} has other parameters than are known of one: missing "
            f"{sorted(wanted - theirs.keys())[:4]}, unexpected "
            f"{sorted(theirs.keys() - wanted)[:4]}; merge adapters or parametrisations into it, or "
            "give the original forward back by restore(model)"
        )
    for ours, origin in found.items():
        rows, *rest = parameters[ours].shape
        shape = (rows // len(origin.names), *rest)
        for name in origin.names:
            if tuple(theirs[name].shape) != shape or theirs[name].is_meta:
                raise UnsupportedFeatureError(
                    f"{name} of this {kind} is {list(theirs[name].shape)} on "
                    f"{theirs[name].device}; its configuration says {list(shape)}, in memory"
                )
    return found


def _fit_constants(encoder: Encoder, device: torch.device, dtype: torch.dtype) -> None:

    for module in encoder.modules():
        if isinstance(module, Constant):
            module.fit(device, dtype)


def put_forward(base: Any, replaced: object) -> None:
    """Let ``replaced`` compute instead of a module's own forward, or of another such one.

    Raises what :func:`check_free` does.
    """
    check_free(base, replaced)
    base.forward = replaced


def check_free(base: Any, replaced: object) -> None:
    """Raise :class:`UnsupportedFeatureError` where somebody else has replaced a forward already."""
    present = base.__dict__.get("forward")
    if present is not None and type(present) is not type(replaced):
        raise UnsupportedFeatureError(
            f"something else has replaced the forward of {type(base).__name__} already; undo that "
            "first (device_map='auto' does it: load the model to one device)"
        )


def take_forward(base: Any, kind: type) -> None:
    """Give a module its own forward back; raises what :func:`check_replaced` does."""
    check_replaced(base, kind)
    del base.forward


def check_replaced(base: Any, kind: type) -> None:
    """Raise :class:`UnsupportedFeatureError` where a module has its own forward."""
    if not isinstance(base.__dict__.get("forward"), kind):
        raise UnsupportedFeatureError(f"this {type(base).__name__} is not accelerated")


def spread(rows_TD: Tensor, keep_BL: Tensor) -> Tensor:
    """Put rows where tokens are, zero elsewhere: [B, L, D]."""
    if len(rows_TD) == keep_BL.numel():
        return rows_TD.view(*keep_BL.shape, -1)
    padded = rows_TD.new_zeros(*keep_BL.shape, rows_TD.shape[1])
    padded[keep_BL] = rows_TD
    return padded
