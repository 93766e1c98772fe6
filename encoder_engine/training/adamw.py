"""AdamW for float32 parameters on a CPU: one pass over each tensor, clipping included."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import torch
from torch import Tensor

from encoder_engine.ops import cpu
from encoder_engine.ops.registry import CallFacts

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable

    from encoder_engine.ops.native.adamw import AdamWTensor

__all__ = ["NativeAdamW", "gradient_norm", "takes_natively"]


def takes_natively(tensors: Iterable[Tensor]) -> bool:
    """Return whether the C++ extension can update these tensors: float32, contiguous, on a CPU."""
    if cpu.refuse_trained(CallFacts(requires_grad=True)) is not None:
        return False
    return all(
        type(x.data) is Tensor
        and x.dtype == torch.float32
        and x.device.type == "cpu"
        and x.layout == torch.strided
        and x.is_contiguous()
        for x in tensors
    )


def gradient_norm(gradients: list[Tensor]) -> float:
    """Return the Euclidean norm of all gradients together, computed by the C++ extension.

    :func:`takes_natively` must be true of the gradients.
    """
    from encoder_engine.ops.native import adamw

    return adamw.gradient_norm(gradients)


class NativeAdamW(torch.optim.AdamW):
    """AdamW (Loshchilov and Hutter 2019) in C++; its state is that of ``torch.optim.AdamW``.

    ``gradient_factor``: a factor by which the next step multiplies the gradients that it reads; the
    tensors themselves are unchanged. The step sets the factor to 1 again.
    """

    gradient_factor: float = 1.0

    @torch.no_grad()
    def step(self, closure: Callable[[], float] | None = None) -> float | None:  # type: ignore[override]
        """Update the parameters once; parameters without a gradient are skipped."""
        from encoder_engine.ops.native import adamw

        loss = None if closure is None else closure()
        for group in self.param_groups:
            tensors = [
                self._tensor(p, p.grad, group) for p in group["params"] if p.grad is not None
            ]
            adamw.take_step(
                tensors,
                betas=group["betas"],
                epsilon=group["eps"],
                gradient_factor=self.gradient_factor,
            )
        self.gradient_factor = 1.0
        return loss

    def _tensor(self, parameter: Tensor, gradient: Tensor, group: dict[str, Any]) -> AdamWTensor:
        from encoder_engine.ops.native.adamw import AdamWTensor

        state = self.state[parameter]
        if not state:
            state["step"] = torch.zeros((), dtype=torch.float32)
            state["exp_avg"] = torch.zeros_like(parameter)
            state["exp_avg_sq"] = torch.zeros_like(parameter)
        state["step"] += 1
        step, (beta1, beta2) = float(state["step"]), group["betas"]
        return AdamWTensor(
            parameter,
            gradient.float().contiguous(),
            state["exp_avg"],
            state["exp_avg_sq"],
            group["lr"] / (1.0 - beta1**step),
            1.0 - group["lr"] * group["weight_decay"],
            (1.0 - beta2**step) ** -0.5,
        )
