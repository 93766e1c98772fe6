"""The processes of a distributed run: their rank, number, device and collective operations."""

from __future__ import annotations

import os
import time
from contextlib import contextmanager
from dataclasses import field
from functools import partial
from typing import TYPE_CHECKING, Any

import torch
import torch.distributed as dist

from encoder_engine.dataclass import dataclass
from encoder_engine.errors import EncoderEngineError
from encoder_engine.models.placement import resolve_device
from encoder_engine.models.training_model import CoupledModel

if TYPE_CHECKING:
    from collections.abc import Iterator, Sequence

    from torch import Tensor, nn

    from encoder_engine.models import Encoder

__all__ = ["World"]

# 0.1 s sufficed on a busy machine; ten times that.
SETTLING_SECONDS = 1.0


@dataclass(frozen=True, kw_only=True)
class World:
    """The rank and the device of this process, and the number of processes; 1 without torchrun."""

    rank: int = 0
    size: int = 1
    device: torch.device = field(default_factory=partial(torch.device, "cpu"))

    @classmethod
    def join(cls, device: str = "auto") -> World:
        """Read rank and size from torchrun's environment, and join the process group.

        Raises :class:`ConfigError` for a device that torch does not know or the machine lacks.
        """
        size, local = int(os.environ.get("WORLD_SIZE", "1")), int(os.environ.get("LOCAL_RANK", "0"))
        cuda = torch.cuda.is_available() if device == "auto" else device.startswith("cuda")
        found = torch.device("cpu")
        if cuda:
            index = resolve_device(device).index if device not in ("auto", "cuda") else local
            found = resolve_device(torch.device("cuda", index or 0))
            torch.cuda.set_device(found)
        elif device != "auto":
            found = resolve_device(device)
        if size == 1:
            return cls(device=found)
        if not dist.is_initialized():
            dist.init_process_group("nccl" if cuda else "gloo")
        return cls(rank=dist.get_rank(), size=size, device=found)

    @property
    def is_first(self) -> bool:
        """Return whether this is rank 0, which writes the files of the run."""
        return self.rank == 0

    @property
    def is_first_here(self) -> bool:
        """Return whether this is local rank 0, which verifies the data files on its machine."""
        return self.size == 1 or os.environ.get("LOCAL_RANK", "0") == "0"

    def sums(self, values: Sequence[float]) -> list[float]:
        """Return the sums of numbers over all ranks, element by element, in float64."""
        if self.size == 1:
            return list(values)
        total = torch.tensor(values, dtype=torch.float64, device=self.device)
        dist.all_reduce(total)
        found: list[float] = total.tolist()
        return found

    def gather(self, rows: Tensor) -> list[Tensor]:
        """Return the tensors of all ranks, in rank order; their first dimensions may differ."""
        if self.size == 1:
            return [rows]
        own = torch.tensor([len(rows)], device=self.device)
        counts = [torch.empty_like(own) for _ in range(self.size)]
        dist.all_gather(counts, own)
        longest = max(int(count) for count in counts)
        filled = rows.new_zeros((longest, *rows.shape[1:]))
        filled[: len(rows)] = rows
        parts = [torch.empty_like(filled) for _ in range(self.size)]
        dist.all_gather(parts, filled)
        return [part[: int(count)] for part, count in zip(parts, counts, strict=True)]

    def add_up(self, tensor: Tensor) -> Tensor:
        """Sum a tensor over all ranks, in place, and return it."""
        if self.size > 1:
            dist.all_reduce(tensor)
        return tensor

    def broadcast(self, value: Any) -> Any:
        """Return rank 0's value on all ranks."""
        if self.size == 1:
            return value
        box = [value]
        dist.broadcast_object_list(box, src=0, device=self.device)
        return box[0]

    def gather_values(self, value: Any) -> list[Any]:
        """Return the values of all ranks, in rank order, on all ranks."""
        if self.size == 1:
            return [value]
        boxes: list[Any] = [None] * self.size
        dist.all_gather_object(boxes, value)
        return boxes

    @contextmanager
    def awaiting_first(self) -> Iterator[None]:
        """Wait until rank 0 leaves this context.

        An :class:`EncoderEngineError` that rank 0 raises in it is raised on all ranks.
        """
        refused = None
        try:
            yield
        except EncoderEngineError as error:
            refused = error
        refused = self.broadcast(refused) or refused
        if refused is not None:
            raise refused

    def wait(self) -> None:
        """Wait until all ranks have called this method."""
        if self.size > 1:
            dist.barrier()

    def leave(self) -> None:
        """Leave the process group at the end of a run."""
        if self.size > 1 and dist.is_initialized():
            if dist.get_backend() == "gloo":
                # DDP and FSDP keep gloo's threads; one that frees its last tensors during
                # interpreter shutdown aborts the process (pytorch #179291).
                time.sleep(SETTLING_SECONDS)
            dist.destroy_process_group()


def shard(model: nn.Module, encoders: Sequence[Encoder]) -> None:
    """Shard weights, gradients and optimizer state over all ranks, a unit per block (FSDP2)."""
    from torch.distributed.fsdp import fully_shard, register_fsdp_forward_method

    for encoder in encoders:
        for block in encoder.blocks:
            fully_shard(block)
    fully_shard(model)
    if isinstance(model, CoupledModel):
        register_fsdp_forward_method(model, "embed")


def replicate(model: nn.Module, world: World) -> nn.Module:
    """Return the model wrapped by DDP, which averages the gradients of all ranks."""
    from torch.nn.parallel import DistributedDataParallel

    devices = [world.device] if world.device.type == "cuda" else None
    # Views of the buckets that are exchanged: no copy, and half the memory of gradients.
    return DistributedDataParallel(model, device_ids=devices, gradient_as_bucket_view=True)
