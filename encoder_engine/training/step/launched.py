"""The losses and gradient norm of a launched step, which the host reads when the device is done.

On a GPU the host launches the next step before it reads a step's numbers: reading waits for the
device, which would then idle until the host has launched more.
"""

from __future__ import annotations

import math
from typing import TYPE_CHECKING, Any, NamedTuple

import torch
from torch import Tensor

from encoder_engine.errors import NonFiniteLossError

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence

__all__ = ["Halt", "Launched", "Numbers", "can_read_late", "check_finite", "mean_losses"]


class Numbers:
    """A tensor's values while they are copied to the host; later steps cannot change them."""

    def __init__(self, values: Tensor) -> None:
        self._ready = None
        if not values.is_cuda:
            self._host = values.clone()
        else:
            self._host = torch.empty(values.shape, dtype=values.dtype, pin_memory=True)
            self._host.copy_(values, non_blocking=True)
            self._ready = torch.cuda.Event()  # type: ignore[no-untyped-call]
            self._ready.record(torch.cuda.current_stream(values.device))

    def read(self) -> list[float]:
        """Wait until the copy to the host is complete, and return the numbers."""
        if self._ready is not None:
            self._ready.synchronize()
        found: list[float] = self._host.tolist()
        return found


class Launched(NamedTuple):
    """A training step whose kernels were launched; its losses may not have been read yet.

    ``step``: its index, from 0.
    ``tokens``: the number of tokens, over all processes.
    ``terms``: the number of terms of each loss, over all micro-batches and processes.
    ``numbers``: the sum of each loss, and the gradient's norm before clipping.
    """

    step: int
    tokens: int
    terms: Mapping[str, float]
    numbers: Numbers | list[float]

    def read(self, weights: Mapping[str, float]) -> dict[str, Any]:
        """Return the step's losses and gradient norm, by the keys of ``log.jsonl``.

        weights: the weight of each loss in the total. Raises :class:`NonFiniteLossError` for
        numbers that are read after the step and are not finite.
        """
        if isinstance(self.numbers, Numbers):
            *sums, norm = self.numbers.read()
            loss, means = mean_losses(weights, self.terms, sums)
            check_finite("the loss", loss, self.step)
            check_finite("the gradient's norm", norm, self.step)
        else:
            *sums, norm = self.numbers
            loss, means = mean_losses(weights, self.terms, sums)
        logged = norm if math.isfinite(norm) else None
        return {"loss": loss, "losses": means, "norm": logged}


def mean_losses(
    weights: Mapping[str, float], terms: Mapping[str, float], sums: Sequence[float]
) -> tuple[float, dict[str, float]]:
    """Return the weighted total loss of a step, and the mean of each loss.

    ``terms``: the number of terms of each loss; ``sums``: each loss, summed over these.
    """
    means = {n: x / max(terms[n], 1.0) for n, x in zip(weights, sums, strict=True)}
    return sum(weights[name] * mean for name, mean in means.items()), means


class Halt:
    """A flag on the GPU that stops all weight updates from the first step with NaN or infinity on.

    The host reads a step's losses after the next step is launched. While the flag is set, fused
    AdamW changes neither weights nor moments. The flag is never cleared.
    """

    def __init__(self, optimizers: Sequence[torch.optim.Optimizer], device: torch.device) -> None:
        self._mark = torch.zeros((), device=device)
        for optimizer in optimizers:
            # The name under which torch's gradient scaler says that a gradient overflowed.
            optimizer.found_inf = self._mark  # type: ignore[attr-defined]

    def see(self, numbers: Tensor) -> None:
        """Set the flag if any of a step's losses or its gradient norm is not finite."""
        # A number that is finite times 0 is 0, any other is NaN.
        self._mark.add_((numbers * 0.0).sum().ne(0.0)).clamp_(max=1.0)


def can_read_late(
    device: torch.device,
    optimizers: Sequence[torch.optim.Optimizer],
    scaler: torch.amp.GradScaler,
    *,
    sharded: bool,
) -> bool:
    """Return whether a step's losses may be read after the next step is launched.

    Only torch's fused AdamW can skip an update by a flag on the device (:class:`Halt`), and only
    of weights that are not sharded. In float16 the host itself must skip a step that overflows.
    """
    halts = all(type(optimizer) is torch.optim.AdamW for optimizer in optimizers)
    return device.type == "cuda" and halts and not scaler.is_enabled() and not sharded


def check_finite(what: str, value: float, step: int) -> None:
    """Raise :class:`NonFiniteLossError` if a value of step ``step`` (from 0) is not finite.

    ``what``: the name of the value, for the message.
    """
    if not math.isfinite(value):
        raise NonFiniteLossError(
            f"{what} is {value} at step {step + 1}; the step is not taken. Begin again in another "
            "folder, with a lower optimizer.learning_rate or optimizer.clip_norm, or a longer "
            "schedule.warmup"
        )
