"""The rows of an accelerated encoder that a head reads, and logits that are never computed.

How it works: transformers' own code computes a head of :class:`LabelledRows` instead of a padded
batch. :class:`LabelledRows` behave like any tensor, but their product with the output layer's
weight gives :class:`PendingLogits`: hidden rows, weight and bias. The cross-entropy of those is one
operation, ``ops.masked_cross_entropy``. Everything else that reads them raises an error.

Dimensions: B texts, L longest, M labelled rows, E width of the output layer's input, V vocabulary.
"""

from __future__ import annotations

from contextvars import ContextVar
from typing import TYPE_CHECKING, Any, NamedTuple, NoReturn

import torch
import torch.nn.functional as F  # noqa: N812
from torch import Tensor

from encoder_engine import ops
from encoder_engine.errors import MissingLogitsError, ShapeError
from encoder_engine.integrations.acceleration.shared import eagerly
from encoder_engine.packing import SelectedRows

if TYPE_CHECKING:
    from encoder_engine.packing import Sequences

__all__ = ["RUNNING", "LabelledRows", "PendingLogits", "ReadRows", "SkippedLogits", "find_read"]


class ReadRows(NamedTuple):
    """The rows of the encoder's output that the model's head reads in a call.

    ``input_ids``: the call's own tensor, by which the encoder recognises the call.
    ``places_BL``: bool, true at the positions of these rows.
    ``selected``: the head gets no other rows.
    ``output_weight``: the output layer's weight if its logits are skipped, [V, E]; else None.
    """

    input_ids: Tensor
    places_BL: Tensor
    selected: bool = True
    output_weight: Tensor | None = None

    def has_any(self, others_BL: Tensor) -> bool:
        """Return whether ``others_BL`` marks the position of any of these rows."""
        return bool((self.places_BL & others_BL).any())

    def rows_within(self, sequences: Sequences, keep_BL: Tensor) -> SelectedRows:
        """Return these rows' indices in the packed batch; ``keep_BL``: true at tokens."""
        return SelectedRows(self.places_BL[keep_BL].nonzero().flatten(), sequences)

    def shaped(self, hidden_MD: Tensor) -> Tensor:
        """Return the rows in the shape that the head takes: [1, M, D] or [B, 1, D].

        The first is of labelled rows, whose logits are skipped; the second of each text's first
        row.
        """
        if self.output_weight is None:
            return hidden_MD[:, None]
        rows: LabelledRows = hidden_MD[None].as_subclass(LabelledRows)
        return rows


# The call that runs, in this thread.
RUNNING: ContextVar[ReadRows | None] = ContextVar("RUNNING", default=None)


def find_read(input_ids: Tensor) -> ReadRows | None:
    """Return the rows that the head reads, if the running call has these ids; None: all rows."""
    read = RUNNING.get()
    return read if read is not None and read.input_ids is input_ids else None


class LabelledRows(Tensor):
    """Hidden states of labelled tokens, whose product with the output layer is not computed.

    All other operations work as for any tensor.
    """

    @classmethod
    def __torch_function__(
        cls, func: Any, types: Any, args: tuple[Any, ...] = (), kwargs: Any = None
    ) -> Any:
        """Call the function, but replace the output layer's product by :class:`PendingLogits`."""
        call = (func, types, args, kwargs or {})
        return eagerly(cls._call, *call) if torch.compiler.is_compiling() else cls._call(*call)

    @classmethod
    def _call(cls, func: Any, types: Any, args: tuple[Any, ...], kwargs: Any) -> Any:
        read = RUNNING.get()
        if func is F.linear and read is not None and args[1] is read.output_weight:
            return PendingLogits(*args)
        return super().__torch_function__(func, types, args, kwargs)  # type: ignore[no-untyped-call]


def _refuse(*_: object, **__: object) -> NoReturn:
    raise MissingLogitsError(
        "logits were not computed: an accelerated model that is called with labels in training "
        "mode computes the loss of the labelled tokens alone; call accelerate(model, "
        "full_logits=True) for all logits, or leave the labels out, or call model.eval()"
    )


class SkippedLogits:
    """A stand-in for logits that were not computed.

    Reading them raises :class:`MissingLogitsError`, which says how to get them.
    """

    @classmethod
    def __torch_function__(
        cls, func: Any, types: Any, args: tuple[Any, ...] = (), kwargs: Any = None
    ) -> Tensor:
        """Raise the error for logits that were not computed."""
        _refuse()

    # Python looks for operators in the class alone.
    __array__ = __bool__ = __float__ = __getitem__ = __iter__ = __len__ = _refuse
    __add__ = __sub__ = __mul__ = __truediv__ = __matmul__ = __neg__ = __gt__ = __lt__ = _refuse

    def __getattr__(self, name: str) -> NoReturn:
        """Raise the error for logits that were not computed, except for dunder names."""
        if name.startswith("__"):
            # Python and its libraries look for protocols, such as copying, by these names.
            raise AttributeError(name)
        _refuse()


class PendingLogits(SkippedLogits):
    """Stands in for logits [.., V] within a head; their cross-entropy is computed without them.

    ``wide``: the loss is float32 or wider, as of logits after ``.float()``.
    """

    def __init__(
        self, hidden: Tensor, weight_VE: Tensor, bias_V: Tensor | None, *, wide: bool = False
    ) -> None:
        self.hidden, self.wide = hidden.as_subclass(Tensor), wide
        self.weight_VE, self.bias_V = weight_VE, bias_V

    @property
    def device(self) -> torch.device:
        """The device of the loss."""
        return self.hidden.device

    def size(self, dim: int) -> int:
        """Return a size of the shape [.., V]."""
        found: int = (*self.hidden.shape[:-1], len(self.weight_VE))[dim]
        return found

    def view(self, *shape: int) -> PendingLogits:
        """Return the same logits as [M, V]; raises :class:`ShapeError` for another V."""
        if shape != (-1, len(self.weight_VE)):
            raise ShapeError(
                f"the logits of {len(self.weight_VE)} tokens are viewed as {list(shape)}: the "
                "config's vocab_size is not the output layer's; call model.resize_token_embeddings"
            )
        hidden_ME = self.hidden.flatten(0, -2)
        return PendingLogits(hidden_ME, self.weight_VE, self.bias_V, wide=self.wide)

    def float(self) -> PendingLogits:
        """Return the same logits, with a loss of at least float32."""
        return PendingLogits(self.hidden, self.weight_VE, self.bias_V, wide=True)

    @classmethod
    def __torch_function__(
        cls, func: Any, types: Any, args: tuple[Any, ...] = (), kwargs: Any = None
    ) -> Tensor:
        """Compute the cross-entropy; raises :class:`MissingLogitsError` for all else."""
        if func is not F.cross_entropy or not isinstance(args[0], PendingLogits):
            _refuse()
        return _cross_entropy(args[0], args[1], **(kwargs or {}))


def _cross_entropy(
    logits: PendingLogits,
    labels_M: Tensor,
    *,
    reduction: ops.Reduction,
    ignore_index: int,
    label_smoothing: float,
    **others: object,
) -> Tensor:
    if reduction == "none" or any(value is not None for value in others.values()):
        # Such a loss may read how many places there are in all.
        _refuse()
    loss = ops.masked_cross_entropy(
        *(logits.hidden, torch.arange(len(labels_M), device=labels_M.device), labels_M),
        *(logits.weight_VE, logits.bias_V),
        label_smoothing=label_smoothing,
        ignore_index=ignore_index,
        reduction=reduction,
    )
    # Under autocast PyTorch's cross-entropy is float32 too.
    wide = logits.wide or torch.is_autocast_enabled(loss.device.type)
    return loss if wide else loss.to(logits.hidden.dtype)
