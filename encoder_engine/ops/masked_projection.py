"""The masked-language-model loss, computed only for masked rows: its public function.

How it works: of T tokens about 15% are masked, so the M masked rows are gathered before the
transform, and only [M, E] is multiplied by the vocabulary [V, E]. ``stored`` keeps [M, V] logits
(fastest; the default up to 1 GiB); ``tiled`` computes them twice and stores none.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Literal, NamedTuple, overload

from encoder_engine.dataclass import dataclass
from encoder_engine.errors import BatchError, ShapeError, TokenIdError
from encoder_engine.ops import cpu, gpu
from encoder_engine.ops.activation import bias_gelu
from encoder_engine.ops.layer_norm import layer_norm
from encoder_engine.ops.linear import linear
from encoder_engine.ops.registry import (
    CallFacts,
    Operation,
    autocast,
    check_alike,
    find_operation,
    plain,
)

if TYPE_CHECKING:
    from torch import Tensor

    from encoder_engine.ops.weights import Approximation

__all__ = ["MaskedTokenLoss", "ProjectionMode", "Reduction", "Transform", "masked_cross_entropy"]

Reduction = Literal["mean", "sum", "none"]
ProjectionMode = Literal["stored", "tiled"]

# Logits of more bytes than this are stored only with mode="stored".
MOST_STORED_BYTES = 2**30


@dataclass(frozen=True, kw_only=True)
class MaskedProjectionFacts(CallFacts):
    """The facts of a call by which an implementation is chosen.

    ``tiled``: the call asks for the mode ``"tiled"``, which stores no logits.
    """

    tiled: bool = False


def _refuse_native(facts: MaskedProjectionFacts) -> str | None:
    if not facts.requires_grad:
        return "it computes for training alone"
    return "it stores the logits" if facts.tiled else cpu.refuse_trained(facts)


_MASKED_CROSS_ENTROPY = Operation(
    "masked_cross_entropy",
    MaskedProjectionFacts,
    (
        gpu.triton("masked_projection"),
        cpu.native("masked_projection", _refuse_native),
        *plain("masked_projection"),
    ),
)


@dataclass(frozen=True, kw_only=True)
class Transform:
    """The transform of a head before the vocabulary projection: dense layer, GELU, layer norm.

    ``weight_ED``: [E, D], E the width of the token embeddings.
    ``bias_E``, ``norm_weight_E``, ``norm_bias_E``: [E]; a bias may be None.
    """

    weight_ED: Tensor
    bias_E: Tensor | None
    norm_weight_E: Tensor
    norm_bias_E: Tensor | None
    epsilon: float
    approximate: Approximation = "none"

    def __call__(self, hidden_MD: Tensor, *, implementation: str | None = None) -> Tensor:
        """Transform [M, D] to [M, E].

        ``implementation``: the name of the implementation to request of each of the three
        operations; one that has none of this name chooses for itself.
        """
        dense = linear(hidden_MD, self.weight_ED, implementation=_if_any("linear", implementation))
        active = bias_gelu(
            dense,
            self.bias_E,
            approximate=self.approximate,
            implementation=_if_any("bias_gelu", implementation),
        )
        return layer_norm(
            active,
            self.norm_weight_E,
            self.norm_bias_E,
            epsilon=self.epsilon,
            implementation=_if_any("layer_norm", implementation),
        )


def _if_any(operation: str, implementation: str | None) -> str | None:
    names = [i.name for i in find_operation(operation).implementations]
    return implementation if implementation in names else None


class MaskedTokenLoss(NamedTuple):
    """The masked-language-model loss, with values that give accuracy and pseudo-perplexity."""

    loss: Tensor  # [] or, with reduction "none", [M]
    nll_M: Tensor  # -log p(label) without smoothing and z-loss, 0 where ignored; no gradient
    predictions_M: Tensor  # int64: the likeliest token of every row, also of ignored ones


@overload
def masked_cross_entropy(
    hidden_TD: Tensor,
    rows_M: Tensor,
    labels_M: Tensor,
    weight_VE: Tensor,
    bias_V: Tensor | None = None,
    *,
    transform: Transform | None = None,
    label_smoothing: float = 0.0,
    z_loss: float = 0.0,
    ignore_index: int = -100,
    reduction: Reduction = "mean",
    return_predictions: Literal[False] = False,
    weight_gradient_VE: Tensor | None = None,
    mode: ProjectionMode | None = None,
    implementation: str | None = None,
) -> Tensor: ...


@overload
def masked_cross_entropy(
    hidden_TD: Tensor,
    rows_M: Tensor,
    labels_M: Tensor,
    weight_VE: Tensor,
    bias_V: Tensor | None = None,
    *,
    transform: Transform | None = None,
    label_smoothing: float = 0.0,
    z_loss: float = 0.0,
    ignore_index: int = -100,
    reduction: Reduction = "mean",
    return_predictions: Literal[True],
    weight_gradient_VE: Tensor | None = None,
    mode: ProjectionMode | None = None,
    implementation: str | None = None,
) -> MaskedTokenLoss: ...


def masked_cross_entropy(
    hidden_TD: Tensor,
    rows_M: Tensor,
    labels_M: Tensor,
    weight_VE: Tensor,
    bias_V: Tensor | None = None,
    *,
    transform: Transform | None = None,
    label_smoothing: float = 0.0,
    z_loss: float = 0.0,
    ignore_index: int = -100,
    reduction: Reduction = "mean",
    return_predictions: bool = False,
    weight_gradient_VE: Tensor | None = None,
    mode: ProjectionMode | None = None,
    implementation: str | None = None,
) -> Tensor | MaskedTokenLoss:
    """Compute the masked-language-model loss (Devlin et al. 2019) of the given rows alone.

    ``F.cross_entropy(F.linear(transform(hidden[rows]), weight, bias).float(), labels)``

    ``hidden_TD``: [T, D].
    ``rows_M``: int64 [M], rows of ``hidden``; a repeated row counts twice.
    ``labels_M``: int64 [M].
    ``weight_VE``: [V, E], E = D unless ``transform`` changes the width; may be the token embedding,
    whose gradients add up.
    ``bias_V``: [V] or None.
    ``label_smoothing``: as in torch (Szegedy et al. 2016).
    ``z_loss``: the weight of the squared log normaliser in each row's loss (Chowdhery et al. 2022).
    ``ignore_index``: rows with this label have no loss and no gradient.
    ``reduction``: ``"none"`` returns each row's loss, [M], ``"sum"`` their sum; ``"mean"`` divides
    that by the number of rows that are not ignored; without any it is NaN, with gradients of zero,
    as in torch.
    ``mode``: ``"stored"`` keeps the logits [M, V], and their gradient in the same memory, until
    backward. ``"tiled"`` (Wijmans et al. 2024) loops over the vocabulary, stores no logits and
    recomputes them in backward: a third more FLOPs, memory independent of V. None: ``"stored"`` up
    to 1 GiB of logits.
    ``weight_gradient_VE``: float32 [V, E] to which backward adds the weight's gradient instead of
    returning it in the weight's dtype; it is summed in float32 either way. Under autocast weight
    and bias keep their dtype, so that a gradient joins others of a tied weight unrounded.

    Returns the loss in float32 (float64 for float64), or a :class:`MaskedTokenLoss` with
    ``return_predictions``. Raises :class:`ShapeError`. On a CPU outside of torch.compile also
    raises :class:`BatchError` for a row outside ``hidden`` and :class:`TokenIdError` for a label
    outside the vocabulary. On a GPU values are not read back: such a row fails torch's device-side
    assertion, and such a label makes the loss NaN.
    """
    _check_shapes(hidden_TD, rows_M, labels_M, weight_VE, bias_V, transform)
    _check_options(label_smoothing, z_loss, reduction, mode)
    _check_buffer(weight_gradient_VE, weight_VE)
    _check_values(rows_M, labels_M, hidden_TD.shape[0], weight_VE.shape[0], ignore_index)
    # Looked up as an embedding, whose backward adds duplicate rows without atomics.
    hidden_ME = _look_up(rows_M, hidden_TD)
    if transform is not None:
        hidden_ME = transform(hidden_ME, implementation=implementation)
    # Weight and bias are cast within the operation, which returns their gradients unrounded.
    (hidden_ME,) = autocast(hidden_ME)
    mode = mode or choose_mode(rows_M.shape[0], weight_VE.shape[0], hidden_ME.element_size())
    function = _MASKED_CROSS_ENTROPY.find(
        implementation, hidden_ME, weight_VE, bias_V, tiled=mode == "tiled"
    )
    loss_M, nll_M, predictions_M = function(
        hidden_ME,
        weight_VE,
        bias_V,
        labels_M,
        label_smoothing=label_smoothing,
        z_loss=z_loss,
        ignore_index=ignore_index,
        tiled=mode == "tiled",
        predict=return_predictions,
        weight_gradient_VE=weight_gradient_VE,
    )
    loss: Tensor = loss_M if reduction == "none" else loss_M.sum()
    if reduction == "mean":
        loss = loss / (labels_M != ignore_index).sum()
    return MaskedTokenLoss(loss, nll_M, predictions_M) if return_predictions else loss


def choose_mode(num_rows: int, vocab_size: int, itemsize: int) -> ProjectionMode:
    """Return ``"stored"``, the faster mode, up to 1 GiB of logits, else ``"tiled"``."""
    return "stored" if num_rows * vocab_size * itemsize <= MOST_STORED_BYTES else "tiled"


def _look_up(rows_M: Tensor, hidden_TD: Tensor) -> Tensor:
    import torch.nn.functional as F  # noqa: N812

    return F.embedding(rows_M, hidden_TD)


def _check_shapes(
    hidden_TD: Tensor,
    rows_M: Tensor,
    labels_M: Tensor,
    weight_VE: Tensor,
    bias_V: Tensor | None,
    transform: Transform | None,
) -> None:
    if hidden_TD.dim() != 2 or weight_VE.dim() != 2 or weight_VE.shape[0] == 0:
        raise ShapeError(
            f"hidden must be [T, D] and weight [V, E] with V > 0, got {list(hidden_TD.shape)} and "
            f"{list(weight_VE.shape)}"
        )
    for name, values in (("rows", rows_M), ("labels", labels_M)):
        if values.dim() != 1 or str(values.dtype) != "torch.int64":
            raise ShapeError(f"{name} must be int64 [M], got {values.dtype} {list(values.shape)}")
        if values.device != hidden_TD.device:
            raise ShapeError(f"{name} are on {values.device}, hidden is on {hidden_TD.device}")
    if rows_M.shape != labels_M.shape:
        raise ShapeError(f"there are {rows_M.shape[0]} rows and {len(labels_M)} labels")
    width = hidden_TD.shape[1] if transform is None else len(transform.weight_ED)
    if weight_VE.shape[1] != width:
        source = "hidden" if transform is None else "the transform"
        raise ShapeError(f"{source} has {width} features, the weight expects {weight_VE.shape[1]}")
    if bias_V is not None and bias_V.shape != weight_VE.shape[:1]:
        raise ShapeError(f"bias is {list(bias_V.shape)}, the weight has {weight_VE.shape[0]} rows")
    check_alike(hidden_TD, weight=weight_VE, bias=bias_V)


def _check_options(label_smoothing: float, z_loss: float, reduction: str, mode: str | None) -> None:
    if not 0.0 <= label_smoothing <= 1.0:
        raise ShapeError(f"label_smoothing must be from 0 to 1, got {label_smoothing}")
    if not 0.0 <= z_loss < float("inf"):
        raise ShapeError(f"z_loss must be at least 0 and finite, got {z_loss}")
    if reduction not in ("mean", "sum", "none"):
        raise ShapeError(f"reduction must be 'mean', 'sum' or 'none', got {reduction!r}")
    if mode not in (None, "stored", "tiled"):
        raise ShapeError(f"mode must be 'stored', 'tiled' or None, got {mode!r}")


def _check_buffer(buffer_VE: Tensor | None, weight_VE: Tensor) -> None:
    if buffer_VE is None:
        return
    if buffer_VE.shape != weight_VE.shape or buffer_VE.device != weight_VE.device:
        raise ShapeError(
            f"weight_gradient is {list(buffer_VE.shape)} on {buffer_VE.device}, the weight "
            f"{list(weight_VE.shape)} on {weight_VE.device}"
        )
    if str(buffer_VE.dtype) != "torch.float32" or buffer_VE.requires_grad:
        raise ShapeError(
            f"weight_gradient must be float32 without requires_grad, got {buffer_VE.dtype}, "
            f"requires_grad={buffer_VE.requires_grad}"
        )


def _check_values(
    rows_M: Tensor, labels_M: Tensor, num_rows: int, vocab_size: int, ignore_index: int
) -> None:
    """Raise for invalid rows and labels, on a CPU outside of torch.compile, where this is cheap."""
    import torch

    if torch.compiler.is_compiling() or rows_M.device.type != "cpu" or rows_M.shape[0] == 0:
        return
    low, high = rows_M.aminmax()
    if low < 0 or high >= num_rows:
        place = int(((rows_M < 0) | (rows_M >= num_rows)).nonzero()[0])
        raise BatchError(
            f"rows[{place}] is {int(rows_M[place])}, hidden has {num_rows} rows", row=place
        )
    wrong = ((labels_M < 0) | (labels_M >= vocab_size)) & (labels_M != ignore_index)
    if wrong.any():
        place = int(wrong.nonzero()[0])
        raise TokenIdError(
            f"labels[{place}] is {int(labels_M[place])}; a label is a token from 0 to "
            f"{vocab_size - 1}, or {ignore_index} to ignore its row",
            row=place,
        )
