"""The whole encoder of a transformers model computed here, in memory: the model stays theirs.

Dimensions: B texts, L longest, T tokens that are none of padding, D width, H heads.
"""

from __future__ import annotations

import inspect
from typing import TYPE_CHECKING, Any, NamedTuple, TypeVar

import torch

from encoder_engine import ops
from encoder_engine.errors import MissingDependencyError, UnsupportedFeatureError
from encoder_engine.integrations.shared import (
    SharedEncoder,
    pack_copy,
    put_forward,
    read_spec,
    spread,
    take_forward,
)
from encoder_engine.models.registry import find_family
from encoder_engine.packing import PackedBatch, SelectedRows, unpad

if TYPE_CHECKING:
    from collections.abc import Callable

    from torch import Tensor

    from encoder_engine.models import Encoder, EncoderOutput, EncoderSpec

__all__ = ["ReplacedForward", "accelerate", "restore"]

Model = TypeVar("Model", bound=torch.nn.Module)
# What a forward here reads, and what changes nothing of its results.
READ = frozenset(
    [
        "attention_mask",
        "global_attention_mask",
        "input_ids",
        "output_attentions",
        "output_hidden_states",
        "position_ids",
        "return_dict",
        "token_type_ids",
    ]
)
IDLE = frozenset(["num_items_in_batch", "use_cache"])
_OUTPUTS: dict[tuple[type, bool], OutputForm] = {}


def accelerate(model: Model, *, pack: bool = False) -> Model:
    """Let this engine compute the encoder of a transformers model, in place; return the model.

    ``model`` is an encoder or has one below a head: of the families of :func:`all_families` those
    that transformers has classes of. Its parameters stay where and what they are: optimisers train
    them, ``state_dict`` and ``save_pretrained`` write what they wrote, and nobody needs this engine
    to load that. Only query, key and value weights of a layer are moved, into one piece of memory
    of which each is a view, so that one product takes all three; where gradients are wanted, or
    they lie apart again after ``.to()`` of a single layer, they are joined in each call. Weights
    that are loaded, moved, cast or resized later are followed.

    ``forward`` takes and gives padded tensors as before, in the same class of output, and keeps
    dropout, autocast and gradient checkpointing (always the non-reentrant kind); rows of padding
    come back zero. Dropout is what the config states, in all layers or none: a layer with a mode of
    its own, or in training a rate of its own, is refused. What the original takes and this does
    not, such as ``inputs_embeds``, raises :class:`UnsupportedFeatureError`. Hooks on modules within
    the encoder are not called.

    ``pack``: in evaluation mode on a CPU, without gradients, the dense layers compute by packed
    copies of their weights, which take as much memory again; made when first needed, and again when
    a weight has changed, but by ``parameter.data`` unnoticed.

    Raises :class:`UnsupportedFeatureError` for a model that is no such encoder, and for ``pack``
    where it cannot be; :func:`restore` undoes.

    >>> import transformers
    >>> config = transformers.BertConfig(vocab_size=50, hidden_size=32, num_hidden_layers=2,
    ...                                  num_attention_heads=4, intermediate_size=64)
    >>> model = accelerate(transformers.BertForMaskedLM(config).eval())
    >>> model(input_ids=torch.tensor([[2, 7, 9, 3]])).logits.shape
    torch.Size([1, 4, 50])
    >>> model = restore(model)
    """
    base = find_base(model)
    replaced = ReplacedForward(base, pack=pack)
    replaced.prepare()
    put_forward(base, replaced)
    return model


def restore(model: Model) -> Model:
    """Give a model its own forward back, in place; weights are untouched, bit for bit.

    Raises :class:`UnsupportedFeatureError` for a model that is not accelerated.
    """
    take_forward(find_base(model), ReplacedForward)
    return model


def find_base(model: Any) -> Any:
    """Find the encoder in a transformers model; :class:`UnsupportedFeatureError` if it has none."""
    try:
        from transformers import PreTrainedModel
    except ImportError:
        raise MissingDependencyError(
            "accelerating a transformers model", library="transformers", extra="transformers"
        ) from None
    if not isinstance(model, PreTrainedModel):
        raise UnsupportedFeatureError(
            f"accelerate takes a model of transformers, got {type(model).__name__}"
        )
    base: Any = model.base_model
    said = type(base).__name__
    if not type(base).__module__.startswith("transformers."):
        raise UnsupportedFeatureError(
            f"{said} is defined in {type(base).__module__}, which may compute anything; supported "
            "are transformers' own classes"
        )
    architecture = find_family(read_spec(base).model_type).architecture
    if said != architecture:
        raise UnsupportedFeatureError(
            f"the model's base is {said}; of this family {architecture} is supported, alone or "
            "below a head"
        )
    return base


class ReplacedForward:
    """What stands in the place of an encoder's ``forward``; not a module, so nothing saves it."""

    def __init__(self, base: Any, *, pack: bool = False) -> None:
        self.base = base
        self.pack = pack
        self._shared: SharedEncoder | None = None
        self._packed: Encoder | None = None
        self._packed_of: list[tuple[int, int, int]] = []

    @property
    def __signature__(self) -> inspect.Signature:
        """Say what the original takes."""
        plain = inspect.signature(type(self.base).forward)
        return plain.replace(parameters=list(plain.parameters.values())[1:])

    @property
    def recomputes(self) -> bool:
        """Whether the last call kept no more of its blocks than the backward pass begins with."""
        return self._shared is not None and self._shared.recomputes

    def prepare(self) -> None:
        """Make the encoder now, so that what is refused is refused now."""
        encoder = self._make_current().encoder
        if self.pack and not encoder.packable:
            told = ops.explain(
                "packed_linear", device=encoder.device.type, dtype=str(encoder.dtype)
            )
            reasons = "; ".join(f"{name}: {why}" for name, why in told if why is not None)
            raise UnsupportedFeatureError(
                f"pack lays float32 and bfloat16 out for a CPU, this model is {encoder.dtype} on "
                f"{encoder.device} ({reasons}); leave it out"
            )

    def __call__(self, *args: Any, **kwargs: Any) -> Any:
        """Compute what the original does, of the same arguments."""
        named = self._named(args, kwargs)
        encoder = self._choose()
        spec, keep_BL, batch = encoder.spec, *_without_padding(encoder.spec, named)
        with_hidden = self._asked(named, "output_hidden_states")
        with_attentions = self._asked(named, "output_attentions")
        if with_attentions:
            _refuse_attentions(spec, encoder.training)
        output = encoder(
            batch,
            output_hidden_states=with_hidden,
            output_attentions=with_attentions,
            global_rows=_global_rows(named, keep_BL, batch),
        )
        form = _form_of_output(self.base)
        result = form.kind(**_padded(output, keep_BL))
        if named.get("return_dict", self.base.config.return_dict) is not False:
            return result
        values = result.to_tuple()
        return (values[0], None, *values[1:]) if form.names_missing_pooler else values

    def _named(self, args: tuple[Any, ...], kwargs: dict[str, Any]) -> dict[str, Any]:
        named = kwargs
        if args:
            # Too many are refused here as by any function, and so is what is given twice.
            placed = self.__signature__.bind_partial(*args).arguments
            twice = sorted(placed.keys() & kwargs.keys())
            if twice:
                raise TypeError(f"forward() got multiple values for argument {twice[0]!r}")
            named = placed | kwargs
        named = {name: value for name, value in named.items() if value is not None}
        unknown = sorted(named.keys() - READ - IDLE)
        if unknown or "input_ids" not in named:
            raise UnsupportedFeatureError(
                f"an accelerated {type(self.base).__name__} computes of input_ids, got "
                f"{', '.join(unknown) or 'none'}; leave that out, or restore(model) first"
            )
        return named

    def _asked(self, named: dict[str, Any], name: str) -> bool:
        asked = named.get(name, getattr(self.base.config, name, False))
        if not isinstance(asked, bool):
            raise UnsupportedFeatureError(f"{name} must be True or False here, got {asked!r}")
        return asked

    def _choose(self) -> Encoder:
        shared = self._make_current()
        shared.follow_modes()
        encoder = shared.encoder
        if self.pack and not (encoder.training or torch.is_grad_enabled()) and encoder.packable:
            return self._current_pack()
        return encoder

    def _make_current(self) -> SharedEncoder:
        if self._shared is None or not self._shared.is_current():
            self._shared = SharedEncoder(self.base)
        return self._shared

    def _current_pack(self) -> Encoder:
        marks = [(id(p), _version(p), p.data_ptr()) for p in self.base.parameters()]
        if self._packed is None or marks != self._packed_of:
            # The old copy goes before the new one is made.
            self._packed = None
            self._packed = pack_copy(self.base)
            self._packed_of = marks
        return self._packed

    def __getstate__(self) -> dict[str, Any]:
        """Leave behind what is made again when it is needed."""
        return {"base": self.base, "pack": self.pack}

    def __setstate__(self, state: dict[str, Any]) -> None:
        """Begin without an encoder."""
        self.__init__(state["base"], pack=state["pack"])  # type: ignore[misc]


def _version(parameter: Tensor) -> int:
    return 0 if parameter.is_inference() else parameter._version


def _without_padding(spec: EncoderSpec, named: dict[str, Any]) -> tuple[Tensor, PackedBatch]:
    ids_BL, mask_BL = named["input_ids"], named.get("attention_mask")
    positions = named.get("position_ids")
    keep_BL = torch.ones_like(ids_BL, dtype=torch.bool) if mask_BL is None else mask_BL.bool()
    if keep_BL.shape == ids_BL.shape and _begins_late(keep_BL):
        _refuse_holes(spec, keep_BL)
        positions = _positions(spec, ids_BL) if positions is None else positions
    types = named.get("token_type_ids") if spec.embedding.num_segments else None
    batch = unpad(
        *(ids_BL, mask_BL),
        token_type_ids=None if types is None else types.expand_as(ids_BL),
        position_ids=None if positions is None else positions.expand_as(ids_BL),
    )
    return keep_BL, batch


def _begins_late(keep_BL: Tensor) -> bool:
    """Say whether a token follows padding: then its column is not its place in the text."""
    return bool((keep_BL[:, 1:] & ~keep_BL[:, :-1]).any())


def _refuse_holes(spec: EncoderSpec, keep_BL: Tensor) -> None:
    by_distance = spec.relative_bias or spec.distance_vectors or spec.convolution
    if not (by_distance or any(b.attention.window is not None for b in spec.blocks)):
        return
    begins_B = keep_BL[:, :1].sum(1) + (keep_BL[:, 1:] & ~keep_BL[:, :-1]).sum(1)
    if bool((begins_B > 1).any()):
        raise UnsupportedFeatureError(
            f"row {int((begins_B > 1).nonzero()[0])} of attention_mask has padding between its "
            f"tokens, which a {spec.model_type} counts as distance; pad at one end"
        )


def _positions(spec: EncoderSpec, ids_BL: Tensor) -> Tensor | None:
    """Give each column the number transformers does, which counts padding ahead of a text."""
    embedding = spec.embedding
    if embedding.positions_skip_padding:
        counted_BL = ids_BL != embedding.first_position - 1
        return counted_BL.cumsum(1) * counted_BL + embedding.first_position - 1
    if embedding.num_positions or any(b.attention.rotary is not None for b in spec.blocks):
        return torch.arange(ids_BL.shape[1], device=ids_BL.device)
    return None


def _global_rows(named: dict[str, Any], keep_BL: Tensor, batch: PackedBatch) -> SelectedRows | None:
    global_BL = named.get("global_attention_mask")
    if global_BL is None:
        return None
    return SelectedRows(global_BL[keep_BL].nonzero().flatten(), batch.sequences)


def _refuse_attentions(spec: EncoderSpec, training: bool) -> None:
    if any(block.attention.global_projections for block in spec.blocks):
        raise UnsupportedFeatureError(
            f"the attentions of a {spec.model_type} are laid out by window, which is not done "
            "here; restore(model) first"
        )
    if training:
        raise UnsupportedFeatureError(
            "attentions in training mode are those that the output is computed of, which are not "
            "kept here; call model.eval() or restore(model) first"
        )


def _padded(output: EncoderOutput, keep_BL: Tensor) -> dict[str, Any]:
    """Name what a ModelOutput holds, padded."""
    named: dict[str, Any] = {"last_hidden_state": spread(output.last_hidden_state, keep_BL)}
    if output.pooler_output is not None:
        named["pooler_output"] = output.pooler_output
    if output.hidden_states is not None:
        earlier = (spread(rows, keep_BL) for rows in output.hidden_states[:-1])
        named["hidden_states"] = (*earlier, named["last_hidden_state"])
    if output.attentions is not None:
        named["attentions"] = tuple(_spread_both(p, keep_BL) for p in output.attentions)
    return named


def _spread_both(packed_BHMM: Tensor, keep_BL: Tensor) -> Tensor:
    """Put probabilities of tokens in their columns, zero elsewhere: [B, H, L, L]."""
    length, num_heads, longest = keep_BL.shape[1], *packed_BHMM.shape[1:3]
    places_BL = (keep_BL.cumsum(1) - 1).clamp(min=0)
    rows = places_BL[:, None, :, None].expand(-1, num_heads, -1, longest)
    columns = places_BL[:, None, None, :].expand(-1, num_heads, length, -1)
    both_BLL = keep_BL[:, :, None] & keep_BL[:, None, :]
    spread = packed_BHMM.gather(2, rows).gather(3, columns)
    return spread.masked_fill(~both_BLL[:, None], 0.0)


class OutputForm(NamedTuple):
    """What a model returns: its class and, of one without a pooler, whether tuples hold a None."""

    kind: Callable[..., Any]
    names_missing_pooler: bool


def _form_of_output(base: Any) -> OutputForm:
    """Find out by one token, once for each class: what annotations say of it is not always so."""
    known = type(base), getattr(base, "pooler", None) is None
    if known not in _OUTPUTS:
        forked = [base.device] if base.device.type == "cuda" else []
        token = torch.zeros(1, 1, dtype=torch.int64, device=base.device)
        with torch.no_grad(), torch.random.fork_rng(forked):
            named, plain = (
                type(base).forward(base, input_ids=token, return_dict=asked)
                for asked in (True, False)
            )
        missing = known[1] and len(plain) > 1 and plain[1] is None
        _OUTPUTS[known] = OutputForm(type(named), missing)
    return _OUTPUTS[known]
