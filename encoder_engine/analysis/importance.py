"""The importance of attention heads for a task (Michel et al. 2019).

How it works: a head's output is multiplied by a gate of 1. The gradient of an example's loss on the
gate is the sum over its tokens of ``output . gradient of the output``; the importance is the mean
of its absolute value over the examples. The absolute value is taken of each example, which may
have several sequences (the choices of a question, the windows of a long text), so the importance
does not depend on which examples are computed together. Only a loss that couples examples makes it
depend on them: in-batch negatives come from a batch of ``batch_tokens``.
"""

from __future__ import annotations

from contextlib import contextmanager
from typing import TYPE_CHECKING, Any

import numpy as np
import torch

from encoder_engine.errors import InputError

if TYPE_CHECKING:
    from collections.abc import Iterator, Sequence

    import numpy.typing as npt
    from torch import Tensor, nn

    from encoder_engine.models import Encoder
    from encoder_engine.prediction.predictor import Predictor

__all__ = ["BATCH_TOKENS", "head_importance"]

BATCH_TOKENS = 4096


class _Gates:
    """Records, in a forward pass, all attention heads' outputs, and the sequence of each row."""

    def __init__(self) -> None:
        self.outputs: dict[int, Tensor] = {}
        self.owners: dict[int, Tensor] = {}

    def watch(self, number: int, attention: nn.Module) -> list[Any]:
        """Register hooks that record the output of a block's attention heads; return the hooks."""

        def note(_: nn.Module, arguments: tuple[Any, ...]) -> None:
            _, inputs, *rows = arguments
            chosen = rows[0] if rows else None
            sequences = inputs.sequences if chosen is None else chosen.within
            self.owners[number] = sequences.sequence_ids

        def gate(_: nn.Module, arguments: tuple[Tensor, ...]) -> tuple[Tensor, ...]:
            (mixed,) = arguments
            if mixed.requires_grad:
                mixed.retain_grad()
            else:
                mixed = mixed.detach().requires_grad_()
            self.outputs[number] = mixed
            return (mixed,)

        output = attention.get_submodule("output")
        return [attention.register_forward_pre_hook(note), output.register_forward_pre_hook(gate)]


@contextmanager
def _watched(encoder: Encoder) -> Iterator[_Gates]:
    gates = _Gates()
    hooks = [
        hook
        for number, block in enumerate(encoder.blocks)
        for hook in gates.watch(number, block.get_submodule("attention"))
    ]
    try:
        yield gates
    finally:
        for hook in hooks:
            hook.remove()


def head_importance(
    predictor: Predictor, examples: Sequence[Any], *, batch_tokens: int = BATCH_TOKENS
) -> list[npt.NDArray[np.float64]]:
    """Return the importance of the attention heads of each block, float64 [H] per block.

    ``examples``: labelled examples, of whose loss the gradient is taken.
    For a block that is used several times, the last use counts. Raises :class:`InputError` for
    examples without labels.
    """
    task, model = predictor.task, predictor.module
    if not examples or any(task.unlabelled(example) for example in examples):
        raise InputError("the importance of heads is of a loss; give labelled rows")
    items = task.encode(examples, predictor.tokenizer, predictor.windows)
    sums = [np.zeros(block.attention.num_heads) for block in model.encoder.spec.blocks]
    num_examples = 0
    model.eval()
    trained = [parameter for parameter in model.parameters() if parameter.requires_grad]
    try:
        # Gradients of the outputs alone.
        model.requires_grad_(False)
        for numbers in items.batches(batch_tokens):
            part = items.take(numbers)
            inputs = task.collate(part).to(model.encoder.device)
            with _watched(model.encoder) as gates, torch.enable_grad():
                losses = model(inputs)
                total = sum(model.weights.get(n, 1.0) * one.total for n, one in losses.items())
                assert isinstance(total, torch.Tensor)
                total.backward()  # type: ignore[no-untyped-call]
            named, places = np.unique(part.examples, return_inverse=True)
            of_sequence = torch.from_numpy(np.repeat(places, np.diff(part.offsets)))
            num_examples += len(named)
            for number, output in gates.outputs.items():
                owners = of_sequence.to(output.device)[gates.owners[number]]
                gradients = _gate_gradients(output, owners, len(named), sums[number].size)
                sums[number] += gradients.abs().sum(0).cpu().double().numpy()
    finally:
        for parameter in trained:
            parameter.requires_grad_()
    return [total / num_examples for total in sums]


def _gate_gradients(output: Tensor, owners: Tensor, num_examples: int, num_heads: int) -> Tensor:
    """Return the gradient of each example's loss on each head's gate, [examples, H].

    owners: int64 [rows]: the example of each row of the output.
    """
    assert output.grad is not None
    products = (output.detach() * output.grad).view(len(output), num_heads, -1).sum(2)
    return products.new_zeros(num_examples, num_heads).index_add_(0, owners, products)
