"""An encoder whose dense layers are packed copies of a transformers model's, and known to be.

How it works: fused optimisers and ``parameter.data`` change weights and leave no trace, so nothing
but the weights' content says whether a copy is still one. Every call therefore reads all weights
that were copied and compares a 64-bit hash of them, at the speed of memory: about 2 ms for the
43 MB of MiniLM (docs/integrations.md has the figures). Where the C++ extension is not built, a
plain copy is kept beside the packed one and compared byte by byte.
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
    """An encoder packed of a model's weights as they were, and a look at whether they still are."""

    def __init__(self, base: Any) -> None:
        self._base = base
        spec = read_spec(base)
        theirs = {name: p.detach() for name, p in parameters_by_name(base, spec).items()}
        encoder = bare_encoder(spec, theirs)
        found = origins_checked(encoder, theirs, base)
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
            {ours: stack_tensors(origin, theirs) for ours, origin in found.items()},
            strict=True,
            assign=True,
        )
        read_epsilons(norms_of(encoder, found, base))
        tokens = encoder.embedding.tokens.weight
        fit_constants(encoder, tokens.device, tokens.dtype)
        self.encoder: Encoder = encoder.requires_grad_(False).eval().pack()

    def is_current(self) -> bool:
        """Whether all parameters lie where and as they did, and those copied hold what they did."""
        return _places(self._parameters) == self._places and self._content.is_same()


def _places(tensors: list[Tensor]) -> list[tuple[int, torch.Size, tuple[int, ...]]]:
    """Say where tensors lie: addresses, shapes and strides."""
    return [(t.data_ptr(), t.shape, t.stride()) for t in tensors]


class _Content:
    """What tensors hold at one moment."""

    def __init__(self, tensors: list[Tensor]) -> None:
        self._tensors = tensors
        self._hash_memory = _hasher() if all(t.is_contiguous() for t in tensors) else None
        if self._hash_memory is not None:
            self._hash = self._hash_memory(tensors)
        else:
            self._copies = [t.detach().contiguous().clone() for t in tensors]

    def is_same(self) -> bool:
        """Whether every byte is what it was; the tensors lie where they lay."""
        if self._hash_memory is not None:
            return self._hash_memory(self._tensors) == self._hash
        return all(
            torch.equal(t.detach().contiguous().view(torch.uint8), c.view(torch.uint8))
            for t, c in zip(self._tensors, self._copies, strict=True)
        )


def _hasher() -> Callable[[Sequence[Tensor]], int] | None:
    """Find the C++ extension's hash; None where it is not built."""
    try:
        from encoder_engine.ops.native.memory import hash_memory
    except ImportError:
        return None
    return hash_memory
