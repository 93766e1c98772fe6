"""Makes optimizers by name; weight decay applies to matrices and embedding tables only.

AdamW and Muon are torch's, except AdamW of float32 weights on a CPU, which is in ``adamw.py``.
LAMB (You et al. 2020) and StableAdamW (Wortsman et al. 2023) are here:
both multiply AdamW's step of each tensor by one factor.
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from typing import TYPE_CHECKING, Any

import torch
from torch import Tensor, nn

from encoder_engine.training.adamw import NativeAdamW, gradient_norm, takes_natively

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable, Mapping, Sequence

    from encoder_engine.training.recipe import OptimizerRecipe

__all__ = [
    "Lamb",
    "StableAdamW",
    "clear_tiny_moments",
    "clip_gradient",
    "clip_unread",
    "hold_learning_rates",
    "make_optimizers",
    "set_learning_rate",
]

# A moment that gets no more gradients shrinks by its beta a step: by 0.9, it is denormal after some
# 700 steps, by 0.98 after some 3,500. Over an epsilon of 1e-8, a first moment below TINY moves a
# weight by less than 1e-22 learning rates, and the root of a second one is 1e-7 of epsilon.
TINY = 1e-30
# In so many steps a beta of 0.9 shrinks a moment to 1.4e-6 of it: TINY is not denormal by then.
CLEAR_EVERY = 128

Groups = list[dict[str, Any]]


class _ScaledAdamW(torch.optim.Optimizer, ABC):
    """The base of AdamW variants that multiply each tensor's step by one factor."""

    def __init__(
        self,
        params: Iterable[Any],
        lr: float = 1e-3,
        betas: tuple[float, float] = (0.9, 0.999),
        eps: float = 1e-6,
        weight_decay: float = 0.01,
    ) -> None:
        super().__init__(
            params, {"lr": lr, "betas": betas, "eps": eps, "weight_decay": weight_decay}
        )

    @torch.no_grad()
    def step(self, closure: Callable[[], float] | None = None) -> float | None:  # type: ignore[override]
        """Update the parameters once; parameters without a gradient are skipped."""
        loss = None if closure is None else closure()
        for group in self.param_groups:
            parameters = [p for p in group["params"] if p.grad is not None]
            if parameters:
                self._step_all(parameters, group)
        return loss

    def _step_all(self, parameters: list[Tensor], group: dict[str, Any]) -> None:
        """Update the parameters of a group; each operation runs on all of the tensors at once."""
        gradients = [p.grad for p in parameters if p.grad is not None]
        states = [self._state_of(parameter) for parameter in parameters]
        for state in states:
            state["step"] += 1
        steps = [float(state["step"]) for state in states]
        (beta1, beta2), epsilon = group["betas"], group["eps"]
        firsts = [state["exp_avg"] for state in states]
        seconds = [state["exp_avg_sq"] for state in states]
        torch._foreach_lerp_(firsts, gradients, 1.0 - beta1)
        torch._foreach_mul_(seconds, beta2)
        torch._foreach_addcmul_(seconds, gradients, gradients, 1.0 - beta2)
        squares = list(torch._foreach_div(seconds, [1.0 - beta2**step for step in steps]))
        surprises = self._surprises(gradients, squares, epsilon)
        torch._foreach_sqrt_(squares)
        torch._foreach_add_(squares, epsilon)
        updates = list(torch._foreach_div(firsts, [1.0 - beta1**step for step in steps]))
        torch._foreach_div_(updates, squares)
        # Not by the argument alpha: some devices round its product, others the sum alone.
        torch._foreach_add_(updates, torch._foreach_mul(parameters, group["weight_decay"]))
        rates = self._rates(group["lr"], parameters, updates, surprises)
        for update, rate in zip(updates, rates, strict=True):
            update.mul_(rate)
        torch._foreach_sub_(parameters, updates)

    def _state_of(self, parameter: Tensor) -> dict[str, Any]:
        state: dict[str, Any] = self.state[parameter]
        if not state:
            state["step"] = torch.zeros((), dtype=torch.float32)
            state["exp_avg"] = torch.zeros_like(parameter)
            state["exp_avg_sq"] = torch.zeros_like(parameter)
        return state

    def _surprises(
        self, gradients: list[Tensor], squares: list[Tensor], epsilon: float
    ) -> list[Tensor]:
        """Return per tensor RMS(gradient / sqrt(moment 2)), which StableAdamW needs; others: [].

        ``squares``: the second moments after bias correction.
        """
        del gradients, squares, epsilon
        return []

    @abstractmethod
    def _rates(
        self,
        learning_rate: float,
        parameters: list[Tensor],
        updates: list[Tensor],
        surprises: list[Tensor],
    ) -> Sequence[Tensor | float]:
        """Return the factor of each tensor's update, a scalar that contains the learning rate.

        ``updates``: AdamW's updates with weight decay. ``surprises``: see :meth:`_surprises`.
        """


class Lamb(_ScaledAdamW):
    """LAMB: multiplies a tensor's update by the norm of its weights / the norm of the update.

    The update is AdamW's with weight decay. Vectors (biases and norms) take AdamW's step, as in the
    authors' code.
    """

    def _rates(
        self,
        learning_rate: float,
        parameters: list[Tensor],
        updates: list[Tensor],
        surprises: list[Tensor],  # noqa: ARG002 - StableAdamW's
    ) -> Sequence[Tensor | float]:
        return [
            learning_rate * (1.0 if parameter.dim() < 2 else _norm_ratio(parameter, update))
            for parameter, update in zip(parameters, updates, strict=True)
        ]


def _norm_ratio(parameter: Tensor, update: Tensor) -> Tensor:
    """Return the norm of a parameter divided by the norm of its update; 1 where either is 0."""
    weight_norm, update_norm = parameter.norm(), update.norm()
    both = (weight_norm > 0) & (update_norm > 0)
    return torch.where(both, weight_norm / update_norm, torch.ones_like(weight_norm))


class StableAdamW(_ScaledAdamW):
    """StableAdamW: divides a tensor's learning rate by max(1, RMS(gradient / sqrt(moment 2)))."""

    def _surprises(
        self, gradients: list[Tensor], squares: list[Tensor], epsilon: float
    ) -> list[Tensor]:
        ratios = torch._foreach_mul(gradients, gradients)
        torch._foreach_div_(ratios, torch._foreach_clamp_min(squares, epsilon**2))
        return [ratio.mean().sqrt() for ratio in ratios]

    def _rates(
        self,
        learning_rate: float,
        parameters: list[Tensor],  # noqa: ARG002 - Lamb's
        updates: list[Tensor],  # noqa: ARG002
        surprises: list[Tensor],
    ) -> Sequence[Tensor | float]:
        return [learning_rate / surprise.clamp_min(1.0) for surprise in surprises]


def make_optimizers(
    model: nn.Module, recipe: OptimizerRecipe, rate_factors: Mapping[str, float] | None = None
) -> list[torch.optim.Optimizer]:
    """Make a model's optimizers: one; for ``"muon"`` up to two, Muon and AdamW.

    ``rate_factors``: factors on the learning rate, by parameter name; 1 for other parameters.
    """
    factors = rate_factors or {}
    named = [(name, p) for name, p in model.named_parameters() if p.requires_grad]
    common: dict[str, Any] = {
        "lr": recipe.learning_rate,
        "betas": recipe.betas,
        "eps": recipe.epsilon,
    }
    if recipe.name == "muon":
        by_muon = [(name, p) for name, p in named if ".blocks." in name and p.dim() == 2]
        names = {name for name, _ in by_muon}
        others = [(name, p) for name, p in named if name not in names]
        # A run may train a head alone, or the matrices of adapters alone.
        made: list[torch.optim.Optimizer] = []
        if by_muon:
            groups = [group for group in _groups(by_muon, recipe, factors) if group["params"]]
            made.append(
                torch.optim.Muon(groups, lr=recipe.learning_rate, adjust_lr_fn="match_rms_adamw")
            )
        if others:
            groups = _groups(others, recipe, factors)
            made.append(_adamw(groups, common))
        return made
    groups = _groups(named, recipe, factors)
    if recipe.name == "adamw":
        return [_adamw(groups, common)]
    kind = Lamb if recipe.name == "lamb" else StableAdamW
    return [kind(groups, **common)]


def _adamw(groups: Groups, common: dict[str, Any]) -> torch.optim.AdamW:
    if takes_natively(p for group in groups for p in group["params"]):
        return NativeAdamW(groups, **common)
    return torch.optim.AdamW(groups, fused=True, **common)


def _groups(
    named: list[tuple[str, nn.Parameter]], recipe: OptimizerRecipe, factors: Mapping[str, float]
) -> Groups:
    """Make parameter groups by learning rate factor; matrices and tables have weight decay."""
    groups: Groups = []
    for factor in sorted({factors.get(name, 1.0) for name, _ in named}, reverse=True):
        members = [p for name, p in named if factors.get(name, 1.0) == factor]
        matrices = [p for p in members if p.dim() >= 2]
        vectors = [p for p in members if p.dim() < 2]
        groups.append({"params": matrices, "weight_decay": recipe.weight_decay, "factor": factor})
        groups.append({"params": vectors, "weight_decay": 0.0, "factor": factor})
    return groups


def clip_gradient(
    parameters: Iterable[nn.Parameter],
    most: float | None,
    optimizers: Sequence[torch.optim.Optimizer] = (),
) -> float:
    """Clip gradients to a norm of ``most``; return their norm before clipping.

    Gradients with a smaller norm are left unchanged, and all where ``most`` is None. If all
    ``optimizers`` support it, they scale the gradients themselves in the pass of their next step.
    """
    trained = [p for p in parameters if p.grad is not None]
    gradients = [p.grad for p in trained if p.grad is not None]
    if gradients and takes_natively(gradients):
        whole = gradient_norm(gradients)
        norm = torch.tensor(whole)
    else:
        norm = nn.utils.get_total_norm(gradients)
        whole = float(norm.full_tensor() if hasattr(norm, "full_tensor") else norm)
    # torch multiplies by most / (norm + 1e-6) where that is below 1.
    if most is not None and not whole + 1e-6 <= most:
        native = [x for x in optimizers if isinstance(x, NativeAdamW)]
        if optimizers and len(native) == len(optimizers):
            for optimizer in native:
                optimizer.gradient_factor = most / (whole + 1e-6)
        else:
            nn.utils.clip_grads_with_norm_(trained, most, norm)
    return whole


def clip_unread(parameters: Iterable[nn.Parameter], most: float | None) -> Tensor:
    """Clip gradients as :func:`clip_gradient` does, without waiting for the device.

    Returns their norm before clipping as a tensor on the device.
    """
    trained = [p for p in parameters if p.grad is not None]
    norm = nn.utils.get_total_norm([p.grad for p in trained if p.grad is not None])
    if most is not None:
        nn.utils.clip_grads_with_norm_(trained, most, norm)
    return norm


def clear_tiny_moments(optimizers: Iterable[torch.optim.Optimizer]) -> None:
    """Set AdamW's first and second moments below ``TINY`` to zero, on a CPU.

    A token that does not occur for long has such moments in its row of an embedding table. A call
    every ``CLEAR_EVERY`` steps keeps AdamW from denormal numbers, with which a CPU computes ten
    times as slowly.
    """
    for optimizer in optimizers:
        for state in optimizer.state.values():
            for name in ("exp_avg", "exp_avg_sq"):
                moment = state.get(name)
                if moment is not None and not moment.is_cuda:
                    local = moment.to_local() if hasattr(moment, "to_local") else moment
                    local.masked_fill_(local.abs() < TINY, 0.0)


def set_learning_rate(optimizers: Iterable[torch.optim.Optimizer], learning_rate: float) -> None:
    """Set each parameter group's learning rate to ``learning_rate`` times the group's factor."""
    for optimizer in optimizers:
        for group in optimizer.param_groups:
            value = learning_rate * group.get("factor", 1.0)
            if isinstance(group["lr"], Tensor):
                group["lr"].fill_(value)
            else:
                group["lr"] = value


def hold_learning_rates(optimizers: Iterable[torch.optim.Optimizer]) -> None:
    """Keep learning rates and counts of steps on the device, where a CUDA graph reads them."""
    for optimizer in optimizers:
        for group in optimizer.param_groups:
            device = group["params"][0].device if group["params"] else None
            group["lr"] = torch.tensor(float(group["lr"]), device=device)
            group["capturable"] = True
