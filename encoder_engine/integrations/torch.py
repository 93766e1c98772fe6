"""Has this engine compute PyTorch's ``nn.TransformerEncoder``, in memory.

Dimensions: B texts, L longest, T rows without padding, D width.
"""

from __future__ import annotations

import inspect
from typing import TYPE_CHECKING, Any, TypeVar

from encoder_engine.dependencies import require_torch

require_torch("encoder_engine.integrations.torch")

import torch
import torch.nn.functional as F  # noqa: N812
from torch import nn

from encoder_engine.errors import ShapeError, UnsupportedFeatureError
from encoder_engine.families.facts.spec import AttentionSpec, BlockSpec, FeedForwardSpec, NormSpec
from encoder_engine.integrations.acceleration.module_check import ModuleCheck
from encoder_engine.integrations.acceleration.padded_batch import (
    begins_with_padding,
    warn_of_left_padding,
)
from encoder_engine.integrations.acceleration.shared import (
    check_free,
    check_replaced,
    eagerly,
    put_forward,
    refuse_tracing,
    spread,
    take_forward,
)
from encoder_engine.models.attention import BlockInputs
from encoder_engine.models.layers import Block
from encoder_engine.models.norm import Norm
from encoder_engine.packing import Sequences

if TYPE_CHECKING:
    from types import CodeType

    from torch import Tensor

    from encoder_engine.families.facts.spec import Activation

__all__ = ["accelerate", "restore"]

Module = TypeVar("Module", bound=nn.Module)
# The modules of a layer, activation aside.
PLAIN = (
    nn.TransformerEncoderLayer,
    nn.MultiheadAttention,
    nn.modules.linear.NonDynamicallyQuantizableLinear,
    nn.Linear,
    nn.LayerNorm,
    nn.Dropout,
)


def accelerate(module: Module) -> Module:
    """Compute every ``nn.TransformerEncoder`` in a module by this engine; return the module.

    Parameters are shared: optimisers train them, and ``state_dict`` is unchanged. ``forward`` keeps
    its arguments and result, batch first or not, pre-norm or post-norm, with dropout in training.
    Rows that ``src_key_padding_mask`` marks are not computed and are zero in the result. A batch in
    which a text begins with padding is computed by PyTorch, with a warning. :func:`restore` undoes.

    Raises :class:`UnsupportedFeatureError`, changing nothing, where there is no such encoder, or
    where it or its layers are not PyTorch's own classes. A call raises it for an attention
    ``mask``, for hooks on inner modules, and for layers other than PyTorch's class makes.

    >>> layer = nn.TransformerEncoderLayer(32, nhead=4, dim_feedforward=64, batch_first=True)
    >>> encoder = accelerate(nn.TransformerEncoder(layer, 2, enable_nested_tensor=False).eval())
    >>> padding = torch.tensor([[False, False, True], [False, False, False]])
    >>> encoder(torch.ones(2, 3, 32), src_key_padding_mask=padding).shape
    torch.Size([2, 3, 32])
    >>> encoder = restore(encoder)
    """
    replaced = [ReplacedForward(encoder) for encoder in _encoders_of(module)]
    for one in replaced:
        one.current_stack()
        check_free(one.base, one)
    for one in replaced:
        put_forward(one.base, one)
    return module


def restore(module: Module) -> Module:
    """Restore PyTorch's forward of every ``nn.TransformerEncoder`` in a module.

    Weights are untouched; an encoder that is not accelerated stays as it is. Raises
    :class:`UnsupportedFeatureError`, changing nothing, where something else has replaced a forward
    since.
    """
    encoders = _encoders_of(module)
    for encoder in encoders:
        check_replaced(encoder, ReplacedForward)
    for encoder in encoders:
        take_forward(encoder, ReplacedForward)
    return module


def _encoders_of(module: nn.Module) -> list[nn.TransformerEncoder]:
    if not isinstance(module, nn.Module):
        raise UnsupportedFeatureError(f"accelerate takes a module, got {type(module).__name__}")
    found = [m for m in module.modules() if isinstance(m, nn.TransformerEncoder)]
    if not found:
        raise UnsupportedFeatureError(
            f"there is no nn.TransformerEncoder in this {type(module).__name__}; models of "
            "transformers and sentence-transformers have integrations of their own"
        )
    for encoder in found:
        if type(encoder) is not nn.TransformerEncoder:
            raise UnsupportedFeatureError(
                f"{type(encoder).__name__} is a subclass of nn.TransformerEncoder, which may "
                "compute anything; supported is PyTorch's own class"
            )
    return found


class ReplacedForward:
    """What :func:`accelerate` puts in the place of an ``nn.TransformerEncoder``'s ``forward``.

    It is a callable, not a module, so ``state_dict`` does not see it.
    """

    __signature__ = inspect.Signature(
        list(inspect.signature(nn.TransformerEncoder.forward).parameters.values())[1:]
    )

    def __init__(self, base: nn.TransformerEncoder) -> None:
        self.base = base
        self._made: Stack | None = None
        self._has_warned = False

    @property
    def __code__(self) -> CodeType:
        """The original ``forward``'s code: PyTorch's exporter reads argument names from it."""
        return type(self.base).forward.__code__

    def current_stack(self) -> Stack:
        """Return the engine's blocks, made again if the ``nn.TransformerEncoder`` has changed.

        Raises the errors of :class:`ModuleCheck`.
        """
        if self._made is None or not self._made.is_current():
            self._made = Stack(self.base)
        self._made.check()
        return self._made

    def __call__(self, *args: Any, **kwargs: Any) -> Tensor:
        """Compute what the original ``forward`` returns for these arguments."""
        refuse_tracing()
        compute = self._compute
        computed: Tensor = (
            eagerly(compute, *args, **kwargs)
            if torch.compiler.is_compiling()
            else compute(*args, **kwargs)
        )
        return computed

    def _compute(
        self,
        src: Tensor,
        mask: Tensor | None = None,
        src_key_padding_mask: Tensor | None = None,
        is_causal: bool | None = None,
    ) -> Tensor:
        if mask is not None or is_causal:
            raise UnsupportedFeatureError(
                "an accelerated nn.TransformerEncoder has no attention mask but "
                "src_key_padding_mask; leave mask and is_causal out, or call restore(module) first"
            )
        if src.is_nested or src.dim() not in (2, 3):
            shape = "a nested tensor" if src.is_nested else f"{list(src.shape)}"
            raise ShapeError(f"src must be [L, D], or padded with its batch, got {shape}")
        stack = self.current_stack()
        swapped = src.dim() == 3 and not stack.batch_first
        hidden_BLD = src[None] if src.dim() == 2 else src.transpose(0, 1) if swapped else src
        keep_BL = _kept(src_key_padding_mask, hidden_BLD)
        if keep_BL is not None and begins_with_padding(keep_BL):
            # Poolers read the first row of a text, padding or not: PyTorch computes a vector there.
            if not self._has_warned:
                self._has_warned = True
                warn_of_left_padding("src_key_padding_mask")
            return type(self.base).forward(
                self.base, src, src_key_padding_mask=src_key_padding_mask
            )
        computed = stack(hidden_BLD, keep_BL)
        return computed[0] if src.dim() == 2 else computed.transpose(0, 1) if swapped else computed

    def __getstate__(self) -> dict[str, Any]:
        """Return PyTorch's encoder; the engine's blocks are made again when needed."""
        return {"base": self.base}

    def __setstate__(self, state: dict[str, Any]) -> None:
        """Restore from :meth:`__getstate__`; the engine's blocks are built at the next call."""
        self.__init__(state["base"])  # type: ignore[misc]


def _kept(padding: Tensor | None, hidden_BLD: Tensor) -> Tensor | None:
    """Return bool [B, L], true where a position is not padding; None without a mask."""
    if padding is None:
        return None
    padding = padding[None] if padding.dim() == 1 else padding
    if padding.shape != hidden_BLD.shape[:2]:
        raise ShapeError(
            f"src_key_padding_mask is {list(padding.shape)}, src has texts and places "
            f"{list(hidden_BLD.shape[:2])}"
        )
    if padding.dtype == torch.bool:
        return ~padding
    if bool(((padding != 0) & ~padding.isneginf()).any()):
        raise UnsupportedFeatureError(
            "src_key_padding_mask must be bool, or hold 0 and -inf: other numbers, added to the "
            "scores, are not supported; call restore(module) to use them"
        )
    return padding == 0


class Stack:
    """The engine's blocks, which compute with the parameters of an ``nn.TransformerEncoder``."""

    def __init__(self, base: nn.TransformerEncoder) -> None:
        self._base = base
        self._specs = _block_specs(base)
        self.check = ModuleCheck(base, lambda: _twin(base), with_rates=False)
        self.batch_first: bool = base.layers[0].self_attn.batch_first
        self._blocks = [
            _make_block(spec, layer) for spec, layer in zip(self._specs, base.layers, strict=True)
        ]
        self._final_norm = None
        if base.norm is not None:
            spec, width = _norm_spec(base.norm), base.layers[0].linear1.in_features
            self._final_norm = Norm(spec, width=width)
            _share(self._final_norm, base.norm)

    def is_current(self) -> bool:
        """Return whether PyTorch's encoder still has the same parameters, sizes and dropout."""
        return self.check.has_same_members() and _block_specs(self._base) == self._specs

    def __call__(self, hidden_BLD: Tensor, keep_BL: Tensor | None) -> Tensor:
        """Compute all layers at the positions that ``keep_BL`` marks: [B, L, D], zero elsewhere."""
        batch_size, length, width = hidden_BLD.shape
        if keep_BL is None:
            lengths, rows_TD = [length] * batch_size, hidden_BLD.reshape(-1, width)
        else:
            lengths, rows_TD = keep_BL.sum(1).tolist(), hidden_BLD[keep_BL]
        inputs = BlockInputs(Sequences.from_lengths(lengths, device=rows_TD.device))
        for block, layer in zip(self._blocks, self._base.layers, strict=True):
            if block.training != layer.training:
                block.train(layer.training)
            rows_TD, _ = block(rows_TD, inputs)
        if self._final_norm is not None:
            rows_TD = self._final_norm(rows_TD)
        if keep_BL is None:
            return rows_TD.view(batch_size, length, -1)
        return spread(rows_TD, keep_BL)


def _twin(base: nn.TransformerEncoder) -> nn.TransformerEncoder:
    """Make an ``nn.TransformerEncoder`` of the same sizes on the meta device, to compare with."""
    with torch.device("meta"), torch.random.fork_rng([]):
        try:
            layers = [_twin_of_layer(layer, base.layers[0]) for layer in base.layers]
        except Exception as error:  # Whatever PyTorch says of sizes that make no layer.
            raise UnsupportedFeatureError(
                f"PyTorch refuses to make a layer of these sizes: {error}"
            ) from error
        norm = None
        if base.norm is not None:
            spec, width = _norm_spec(base.norm), base.layers[0].linear1.in_features
            norm = nn.LayerNorm(width, eps=spec.epsilon, bias=spec.bias)
        made = nn.TransformerEncoder(layers[0], 0, norm, enable_nested_tensor=False)
    made.layers = nn.ModuleList(layers)
    for name in ("enable_nested_tensor", "mask_check", "num_layers", "use_nested_tensor"):
        setattr(made, name, getattr(base, name))
    return made


def _twin_of_layer(layer: Any, first: Any) -> nn.TransformerEncoderLayer:
    attention: nn.MultiheadAttention = layer.self_attn
    return nn.TransformerEncoderLayer(
        first.linear1.in_features,
        attention.num_heads,
        layer.linear1.out_features,
        activation=layer.activation,
        layer_norm_eps=layer.norm1.eps,
        batch_first=first.self_attn.batch_first,
        norm_first=layer.norm_first,
        bias=attention.in_proj_bias is not None,
    )


def _block_specs(base: nn.TransformerEncoder) -> tuple[BlockSpec, ...]:
    return tuple(_block_spec(layer) for layer in base.layers)


def _block_spec(layer: Any) -> BlockSpec:
    """Return the spec of a layer; raises :class:`UnsupportedFeatureError` for a modified layer."""
    for module in layer.modules():
        if type(module) not in PLAIN and module is not getattr(layer, "activation", None):
            raise UnsupportedFeatureError(
                f"a layer has a {type(module).__name__}, which may compute anything; supported "
                "are nn.TransformerEncoderLayer and the modules it makes: merge adapters first"
            )
    attention: nn.MultiheadAttention = layer.self_attn
    norms = {_norm_spec(layer.norm1), _norm_spec(layer.norm2)}
    if len(norms) > 1:
        raise UnsupportedFeatureError(f"the norms of a layer differ: {norms}")
    return BlockSpec(
        attention=AttentionSpec(
            num_heads=attention.num_heads,
            head_dim=attention.head_dim,
            bias=attention.in_proj_bias is not None,
            output_bias=attention.out_proj.bias is not None,
            dropout=attention.dropout,
            output_dropout=layer.dropout1.p,
        ),
        feed_forward=FeedForwardSpec(
            width=layer.linear1.out_features,
            activation=_activation(layer.activation),
            up_bias=layer.linear1.bias is not None,
            down_bias=layer.linear2.bias is not None,
            dropout=layer.dropout.p,
            output_dropout=layer.dropout2.p,
        ),
        norm=norms.pop(),
        norm_first=layer.norm_first,
    )


def _norm_spec(norm: nn.Module) -> NormSpec:
    if type(norm) is not nn.LayerNorm or norm.weight is None:
        raise UnsupportedFeatureError(f"a norm must be nn.LayerNorm with weights, this is {norm}")
    return NormSpec(epsilon=norm.eps, bias=norm.bias is not None)


def _activation(activation: object) -> Activation:
    # These types exactly: a subclass may compute anything.
    if activation is F.relu or activation is torch.relu or type(activation) is nn.ReLU:
        return "relu"
    if activation is F.gelu:
        return "gelu"
    if type(activation) is nn.GELU:
        return "gelu" if activation.approximate == "none" else "gelu_tanh"
    raise UnsupportedFeatureError(
        f"activation {activation!r} is not supported; supported are 'relu', 'gelu', nn.ReLU and "
        "nn.GELU"
    )


def _make_block(spec: BlockSpec, layer: Any) -> Block:
    with torch.device("meta"):
        block = Block(spec, width=layer.linear1.in_features)
    block.attention.qkv.weight = layer.self_attn.in_proj_weight
    block.attention.qkv.bias = layer.self_attn.in_proj_bias
    _share(block.attention.output, layer.self_attn.out_proj)
    _share(block.attention_norm, layer.norm1)
    _share(block.feed_forward.up, layer.linear1)
    _share(block.feed_forward.down, layer.linear2)
    _share(block.feed_forward_norm, layer.norm2)
    return block.train(layer.training)


def _share(ours: nn.Module | None, layer: nn.Module) -> None:
    assert ours is not None
    ours.weight, ours.bias = layer.weight, layer.bias
