"""The processes that train together: who this one is, and sums over all of them."""

from __future__ import annotations

import os
import time
from contextlib import contextmanager
from dataclasses import dataclass, field
from functools import partial
from typing import TYPE_CHECKING, Any

import torch
import torch.distributed as dist

from encoder_engine.errors import EncoderEngineError
from encoder_engine.models.placement import resolve_device

if TYPE_CHECKING:
    from collections.abc import Iterator, Sequence

    from torch import nn

    from encoder_engine.models import Encoder

__all__ = ["World"]

# Ten times what was seen to suffice on a busy machine.
SETTLING_SECONDS = 1.0


@dataclass(frozen=True, kw_only=True)
class World:
    """Rank ``rank`` of ``size`` processes, as torchrun starts them; alone where it did not."""

    rank: int = 0
    size: int = 1
    device: torch.device = field(default_factory=partial(torch.device, "cpu"))

    @classmethod
    def join(cls, device: str = "auto") -> World:
        """Find out who this process is, and meet the others.

        Raises :class:`ConfigError` for a device that torch does not know or that is not there.
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
        """Whether this process writes what is written once."""
        return self.rank == 0

    @property
    def is_first_here(self) -> bool:
        """Whether this process checks what those of one machine share."""
        return self.size == 1 or os.environ.get("LOCAL_RANK", "0") == "0"

    def sums(self, values: Sequence[float]) -> list[float]:
        """Add numbers up over all processes."""
        if self.size == 1:
            return list(values)
        total = torch.tensor(values, dtype=torch.float64, device=self.device)
        dist.all_reduce(total)
        found: list[float] = total.tolist()
        return found

    def told(self, value: Any) -> Any:
        """Return what the first process says."""
        if self.size == 1:
            return value
        box = [value]
        dist.broadcast_object_list(box, src=0, device=self.device)
        return box[0]

    @contextmanager
    def awaiting_first(self) -> Iterator[None]:
        """Wait for what the first process does here; where it refuses, raise that in all."""
        refused = None
        try:
            yield
        except EncoderEngineError as error:
            refused = error
        refused = self.told(refused) or refused
        if refused is not None:
            raise refused

    def wait(self) -> None:
        """Wait for all others."""
        if self.size > 1:
            dist.barrier()

    def leave(self) -> None:
        """Part from the others."""
        if self.size > 1 and dist.is_initialized():
            if dist.get_backend() == "gloo":
                # DDP and FSDP keep its threads, and one that lets go of its last tensors while the
                # interpreter is shut down aborts the process (see pytorch #179291).
                time.sleep(SETTLING_SECONDS)
            dist.destroy_process_group()


def shard(model: nn.Module, encoders: Sequence[Encoder]) -> None:
    """Split weights, gradients and optimizer state over all processes, block by block (FSDP2)."""
    from torch.distributed.fsdp import fully_shard

    for encoder in encoders:
        for block in encoder.blocks:
            fully_shard(block)
    fully_shard(model)


def replicate(model: nn.Module, world: World) -> nn.Module:
    """Keep all weights in every process, and average gradients (DDP)."""
    from torch.nn.parallel import DistributedDataParallel

    devices = [world.device] if world.device.type == "cuda" else None
    return DistributedDataParallel(model, device_ids=devices)
