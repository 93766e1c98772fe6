"""A compiled encoder made of a transformers model's weights, with a check for changed weights.

How it works: embedding tables and norms are the model's own memory. Dense layers are copies, laid
out for the CPU's matrix products, and so are the biases and vectors of distances. The compiled
encoder computes in the model's dtype, and the memory of its arrays shows which are copies. Fused
optimisers and ``parameter.data`` change weights without incrementing any version, so only the
weights' content shows whether a copy is current. Every call therefore reads all copied weights and
compares a 64-bit hash of them, at memory bandwidth: 1 to 2 ms for the 43 MB of MiniLM.

Dimensions: T packed tokens, D width.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import torch
from torch import Tensor

from encoder_engine.errors import MissingExtensionError
from encoder_engine.integrations.acceleration.shared import (
    bare_encoder,
    norms_of,
    origins_checked,
    parameters_by_name,
    read_epsilons,
    read_spec,
)
from encoder_engine.models.checkpoints.stacking import stack_tensors, to_array
from encoder_engine.models.compiling import find_compiled_encoder
from encoder_engine.ops.cpu import native_instruction_set

if TYPE_CHECKING:
    from encoder_engine.models import EncoderSpec
    from encoder_engine.packing import PackedBatch

__all__ = ["CompiledCopy", "refuse_compiled"]


def refuse_compiled(spec: EncoderSpec) -> str | None:
    """Return why a compiled encoder cannot compute a spec, or would be slower; None: it can."""
    if native_instruction_set() == "portable":
        return "the C++ extension has no kernels for this processor"
    try:
        return find_compiled_encoder().supports(spec)
    except MissingExtensionError:
        return "the C++ extension is not built"


class CompiledCopy:
    """A compiled encoder with a transformers model's weights, which notices later changes of them.

    The pooler is not included. :func:`refuse_compiled` must have returned None for the model.
    """

    def __init__(self, base: Any) -> None:
        spec = read_spec(base)
        model_tensors = {name: p.detach() for name, p in parameters_by_name(base, spec).items()}
        encoder = bare_encoder(spec, model_tensors)
        found = origins_checked(encoder, model_tensors, base)
        norms = norms_of(encoder, found, base)
        read_epsilons(norms)
        names = {id(module): name for name, module in encoder.named_modules()}
        wanted = {ours: o for ours, o in found.items() if not ours.startswith("pooler.")}
        by_name = dict(base.named_parameters(remove_duplicate=False))
        self._parameters = list(by_name.values())
        self._places = _places(self._parameters)
        # The bare encoder's own dtype is PyTorch's default.
        self._dtype = next(iter(model_tensors.values())).dtype
        self._encoder = find_compiled_encoder().from_parameters(
            spec,
            {ours: to_array(stack_tensors(o, model_tensors)) for ours, o in wanted.items()},
            str(self._dtype),
            epsilons={names[id(norm)]: norm.spec.epsilon for norm, _ in norms},
        )
        # Joined, cast, and gathered tensors are in memory of their own.
        copied = {
            name
            for ours, origin in wanted.items()
            for name in origin.names
            if not self._encoder.shares(ours, to_array(model_tensors[name]))
        }
        self._content = _Content([by_name[name] for name in sorted(copied)])

    def hidden(self, batch: PackedBatch) -> Tensor:
        """Return the hidden states of a batch, [T, D]; the batch must state no positions."""
        encoder, types = self._encoder, batch.token_type_ids
        encoder.num_threads = torch.get_num_threads()
        rows_TD = encoder.hidden(
            batch.input_ids.numpy(),
            batch.sequences.host_offsets.numpy(),
            None if types is None else types.numpy(),
        )
        return torch.from_numpy(rows_TD).to(self._dtype)

    def is_current(self) -> bool:
        """Return whether the compiled encoder still has the transformers model's weights.

        It has if parameters have the same addresses, shapes and strides as at compilation, and the
        copied ones the same bytes.
        """
        return _places(self._parameters) == self._places and self._content.is_same()


def _places(tensors: list[Tensor]) -> list[tuple[int, torch.Size, tuple[int, ...]]]:
    """Return the address, shape and strides of each tensor."""
    return [(t.data_ptr(), t.shape, t.stride()) for t in tensors]


class _Content:
    """A snapshot of tensors' content: a hash, or copies of all tensors if one is not contiguous."""

    def __init__(self, tensors: list[Tensor]) -> None:
        self._tensors = tensors
        self._hash = _hash(tensors)
        self._copies: list[Tensor] = []
        if self._hash is None:
            self._copies = [t.detach().contiguous().clone() for t in tensors]

    def is_same(self) -> bool:
        """Return whether every byte of the tensors is as in the snapshot.

        Call it only for tensors that still have the addresses that they had at the snapshot.
        """
        if self._hash is not None:
            return _hash(self._tensors) == self._hash
        return all(
            torch.equal(t.detach().contiguous().view(torch.uint8), c.view(torch.uint8))
            for t, c in zip(self._tensors, self._copies, strict=True)
        )


def _hash(tensors: list[Tensor]) -> int | None:
    """Return a 64-bit hash of the bytes of all tensors; None if one is not contiguous."""
    if not all(t.is_contiguous() for t in tensors):
        return None
    # Late: the extension may not be built.
    from encoder_engine.ops.native.memory import hash_memory

    return hash_memory(tensors)
