"""Has an accelerated encoder compute in training only the rows that transformers' head reads.

How it works: a hook before the model's forward records the positions of these rows for the encoder
(:data:`RUNNING`), and transformers' own code computes the head from what the encoder returns:

- For a ``...ForMaskedLM`` that gets labels, the labelled rows: [1, M, D] instead of [B, L, D]. The
  hook passes labels [1, M] on. A hook after the forward takes the logits out of the output.
- For a ``...ForSequenceClassification``, the first row of each text: [B, 1, D].

Dimensions: B texts, L longest, M labelled rows, D width, E width of the output layer's input, V
vocabulary.
"""

from __future__ import annotations

import inspect
import sys
from typing import TYPE_CHECKING, Any

import torch
from torch import Tensor, nn

from encoder_engine.errors import TokenIdError
from encoder_engine.families.heads import read_rows
from encoder_engine.families.registry import find_family
from encoder_engine.integrations.acceleration.heads.read_rows import (
    RUNNING,
    ReadRows,
    SkippedLogits,
)
from encoder_engine.integrations.acceleration.hooks import has_hooks
from encoder_engine.integrations.acceleration.shared import eagerly

if TYPE_CHECKING:
    from collections.abc import Iterator

    from encoder_engine.families.facts.head_layout import HeadLayout

__all__ = ["HeadHooks", "find_heads"]

IGNORED = -100


def find_heads(model_type: str) -> dict[str, HeadLayout]:
    """Return, by transformers' class name, the heads that read few encoder rows in training."""
    tasks = ("masked-lm", "sequence-classification")
    layouts = find_family(model_type).layouts
    return {layout.architecture: layout for layout in layouts if layout.task in tasks}


class HeadHooks:
    """The two hooks on ``forward`` of a model with a head.

    ``replaced``: the class of the objects that replace the ``forward`` of accelerated encoders.
    ``full_logits``: compute all logits of a masked-language model in training too.
    """

    def __init__(self, replaced: type, *, full_logits: bool = False) -> None:
        self.replaced, self.full_logits = replaced, full_logits

    def put(self, model: Any) -> None:
        """Register the hooks on the model, if they support its head; earlier ones are removed."""
        self.take(model)
        kind = type(model)
        own = kind.__module__.startswith("transformers.")
        if own and kind.__name__ in find_heads(model.config.model_type):
            model.register_forward_pre_hook(self.before, with_kwargs=True)
            model.register_forward_hook(self.after, with_kwargs=True, always_call=True)

    @staticmethod
    def take(model: nn.Module) -> None:
        """Remove the hooks from the model, if there are any."""
        for hooks in (model._forward_pre_hooks, model._forward_hooks):
            for key in [key for key, hook in hooks.items() if _is_ours(hook)]:
                del hooks[key]

    def before(
        self, model: Any, args: tuple[Any, ...], kwargs: dict[str, Any]
    ) -> tuple[tuple[Any, ...], dict[str, Any]] | None:
        """Record the rows that the head reads in this call of the model.

        Returns None, or the call's arguments with the labels of these rows alone.
        """
        named = _named(model, args, kwargs)
        if not _is_noted(model, named):
            return None
        compiling = torch.compiler.is_compiling()
        return eagerly(self._note, model, named) if compiling else self._note(model, named)

    def after(self, model: Any, args: tuple[Any, ...], kwargs: dict[str, Any], output: Any) -> Any:
        """Put :class:`SkippedLogits` in the place of logits that the call did not compute."""
        if not _is_noted(model, _named(model, args, kwargs)):
            return None
        return eagerly(_finish, output) if torch.compiler.is_compiling() else _finish(output)

    def _note(
        self, model: Any, named: dict[str, Any]
    ) -> tuple[tuple[Any, ...], dict[str, Any]] | None:
        ids_BL, labels_BL = named.get("input_ids"), named.get("labels")
        if not isinstance(ids_BL, Tensor):
            return None
        layout = find_heads(model.config.model_type)[type(model).__name__]
        if layout.task == "masked-lm":
            return self._note_labels(model, named, ids_BL, labels_BL)
        first = read_rows(layout, vars(model.config)) in ("first", "pooled")
        if first and model.training and self._is_plain(model):
            places_BL = torch.zeros_like(ids_BL, dtype=torch.bool)
            places_BL[:, :1] = True
            RUNNING.set(ReadRows(ids_BL, places_BL))
        return None

    def _note_labels(
        self, model: Any, named: dict[str, Any], ids_BL: Tensor, labels_BL: Any
    ) -> tuple[tuple[Any, ...], dict[str, Any]] | None:
        if not isinstance(labels_BL, Tensor) or ids_BL.shape != labels_BL.shape:
            # transformers takes labels of any shape.
            return None
        labels_BL = labels_BL.to(ids_BL.device)
        places_BL = labels_BL != IGNORED
        skips = model.training and not self.full_logits and self._is_plain(model)
        if not (skips and _has_plain_loss(model) and bool(places_BL.any())):
            RUNNING.set(ReadRows(ids_BL, places_BL, selected=False))
            return None
        weight_VE = _output_weight(model)
        _check_labels(labels_BL, places_BL, len(weight_VE))
        RUNNING.set(ReadRows(ids_BL, places_BL, output_weight=weight_VE))
        return (), {**named, "labels": labels_BL[places_BL][None]}

    def _is_plain(self, model: Any) -> bool:
        """Return whether the head is transformers' own code, and no other hook reads its rows."""
        kind = type(model)
        code, module = inspect.unwrap(kind.forward).__code__, sys.modules[kind.__module__]
        return (
            code.co_filename == module.__file__
            and isinstance(vars(model.base_model).get("forward"), self.replaced)
            and not any(map(has_hooks, _modules_of_head(model)))
        )


def _is_noted(model: nn.Module, named: dict[str, Any]) -> bool:
    """Return whether the hooks do anything in a call: in training, or where it has labels.

    Such hooks break torch.compile's graph; other calls are compiled without a break.
    """
    return model.training or named.get("labels") is not None


def _finish(output: Any) -> Any:
    read = RUNNING.get()
    RUNNING.set(None)
    if read is None or read.output_weight is None or output is None:
        return None
    loss, logits = output[0].as_subclass(Tensor), SkippedLogits()
    if isinstance(output, tuple):
        return (loss, logits, *output[2:])
    output.loss, output.logits = loss, logits
    return output


def _output_weight(model: Any) -> Tensor:
    """Return the weight [V, E] by which the head computes logits; it may be the embeddings'."""
    weight_VE: Tensor = model.get_output_embeddings().weight
    # In DeBERTa's newer head (legacy=False) the layer of this name is another.
    if len(weight_VE) != model.config.vocab_size:
        weight_VE = model.get_input_embeddings().weight
    return weight_VE


def _has_plain_loss(model: Any) -> bool:
    """Return whether the loss is transformers' own; another one may count unlabelled positions."""
    loss = getattr(model, "mlm_loss_fct", None)
    return "_loss_function" not in vars(model) and type(loss) in (type(None), nn.CrossEntropyLoss)


def _is_ours(hook: object) -> bool:
    return isinstance(getattr(hook, "__self__", None), HeadHooks)


def _named(model: Any, args: tuple[Any, ...], kwargs: dict[str, Any]) -> dict[str, Any]:
    """Return a call's arguments by name; {} if they do not fit: ``forward`` will raise an error."""
    if not args:
        return kwargs
    names = inspect.signature(type(model).forward).parameters
    placed = dict(zip(list(names)[1:], args, strict=False))
    fits = len(placed) == len(args) and not placed.keys() & kwargs.keys()
    return placed | kwargs if fits else {}


def _modules_of_head(model: Any) -> Iterator[nn.Module]:
    """Yield the modules that receive the rows: the model, its encoder and its head's modules."""
    base = model.base_model
    yield from (model, base)
    for child in model.children():
        if child is not base:
            yield from child.modules()


def _check_labels(labels_BL: Tensor, places_BL: Tensor, vocab_size: int) -> None:
    """Raise :class:`TokenIdError` on a CPU for a label outside the vocabulary.

    On a GPU the loss of such a label is NaN.
    """
    if labels_BL.device.type != "cpu":
        return
    wrong_BL = places_BL & ((labels_BL < 0) | (labels_BL >= vocab_size))
    if wrong_BL.any():
        row, column = wrong_BL.nonzero()[0].tolist()
        raise TokenIdError(
            f"row {row} of labels has {int(labels_BL[row, column])} in column {column}; a label is "
            f"a token from 0 to {vocab_size - 1}, or {IGNORED} to ignore its place",
            row=row,
        )
