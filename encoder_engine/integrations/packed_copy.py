"""An encoder with packed copies of a transformers model's dense layers, checked to be current.

How it works: fused optimisers and ``parameter.data`` change weights without incrementing any
version, so only the weights' content shows whether a copy is current. Every call therefore reads
all copied weights and compares a 64-bit hash of them, at memory bandwidth: about 2 ms for the 43 MB
of MiniLM (docs/integrations.md has the figures). Where the C++ extension is not built, a plain copy
is kept beside the packed one and compared byte by byte.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import torch
from torch import Tensor, nn

from encoder_engine.integrations.shared import (
    bare_encoder,
    fit_constants,
    norms_of,
    origins_checked,
    parameters_by_name,
    read_epsilons,
    read_spec,
)
from encoder_engine.models.checkpoints.stacking import stack_tensors

if TYPE_CHECKING:
    from collections.abc import Callable, Sequence

    from encoder_engine.models import Encoder

__all__ = ["PackedCopy"]


class PackedCopy:
    """An encoder packed from a model's weights, with a check whether these have changed since."""

    def __init__(self, base: Any) -> None:
        self._base = base
        spec = read_spec(base)
        model_tensors = {name: p.detach() for name, p in parameters_by_name(base, spec).items()}
        encoder = bare_encoder(spec, model_tensors)
        found = origins_checked(encoder, model_tensors, base)
        dense = {n for n, m in encoder.named_modules() if isinstance(m, nn.Linear)}
        copied = [
            name
            for ours, origin in found.items()
            for name in origin.names
            if len(origin.names) > 1 or origin.halves_swapped or ours.rpartition(".")[0] in dense
        ]
        by_name = dict(base.named_parameters(remove_duplicate=False))
        self._parameters = list(by_name.values())
        self._places = _places(self._parameters)
        self._copied = [by_name[name] for name in copied]
        self._content = _Content(self._copied)
        encoder.load_state_dict(
            {ours: stack_tensors(origin, model_tensors) for ours, origin in found.items()},
            strict=True,
            assign=True,
        )
        read_epsilons(norms_of(encoder, found, base))
        tokens = encoder.embedding.tokens.weight
        fit_constants(encoder, tokens.device, tokens.dtype)
        self.encoder: Encoder = encoder.requires_grad_(False).eval().pack()

    def is_current(self) -> bool:
        """Return whether memory and strides, and bytes of copied parameters, are the same."""
        return _places(self._parameters) == self._places and self._content.is_same()


def _places(tensors: list[Tensor]) -> list[tuple[int, torch.Size, tuple[int, ...]]]:
    """Return the address, shape and strides of each tensor."""
    return [(t.data_ptr(), t.shape, t.stride()) for t in tensors]


class _Content:
    """A snapshot of the content of tensors: a hash, or copies without the extension."""

    def __init__(self, tensors: list[Tensor]) -> None:
        self._tensors = tensors
        self._hash_memory = _hasher() if all(t.is_contiguous() for t in tensors) else None
        if self._hash_memory is not None:
            self._hash = self._hash_memory(tensors)
        else:
            self._copies = [t.detach().contiguous().clone() for t in tensors]

    def is_same(self) -> bool:
        """Return whether every byte is unchanged; the tensors must have the same memory."""
        if self._hash_memory is not None:
            return self._hash_memory(self._tensors) == self._hash
        return all(
            torch.equal(t.detach().contiguous().view(torch.uint8), c.view(torch.uint8))
            for t, c in zip(self._tensors, self._copies, strict=True)
        )


def _hasher() -> Callable[[Sequence[Tensor]], int] | None:
    """Return the C++ extension's hash function; None where it is not built."""
    try:
        from encoder_engine.ops.native.memory import hash_memory
    except ImportError:
        return None
    return hash_memory
