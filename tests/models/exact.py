"""Models of transformers in float64 throughout: the truth that both of us are measured against."""

from __future__ import annotations

import copy
from contextlib import contextmanager
from typing import TYPE_CHECKING, Any

import torch
from torch.overrides import TorchFunctionMode

if TYPE_CHECKING:
    from collections.abc import Iterator


class InFloat64(TorchFunctionMode):
    """Gives float64 wherever float32 is asked for by name, as many models do of some steps."""

    def __torch_function__(
        self, func: Any, types: Any, args: tuple[Any, ...] = (), kwargs: Any = None
    ) -> Any:
        """Call with one name in the place of the other."""
        if func is torch.Tensor.float:
            return args[0].double()
        args = tuple(torch.float64 if arg is torch.float32 else arg for arg in args)
        named = {} if kwargs is None else kwargs
        named = {k: torch.float64 if v is torch.float32 else v for k, v in named.items()}
        return func(*args, **named)


@contextmanager
def in_float64() -> Iterator[None]:
    """Compute in float64 what is not told to be done in another type."""
    before = torch.get_default_dtype()
    torch.set_default_dtype(torch.float64)
    try:
        with InFloat64():
            yield
    finally:
        torch.set_default_dtype(before)


def sines_and_cosines(num_positions: int, width: int) -> torch.Tensor:
    """Return RoFormer's table, which its own code rounds to float32 in a model of any type."""
    frequencies = 10_000.0 ** -(torch.arange(0, width, 2) / width)
    angles = torch.arange(num_positions)[:, None] * frequencies
    return torch.cat((angles.sin(), angles.cos()), dim=1)


def exact(model: Any) -> Any:
    """Return the same model in float64, tables of angles too; call it within :func:`in_float64`."""
    with in_float64():
        config = copy.deepcopy(model.config)
        # A head that makes its encoder from the configuration makes it in this type.
        config.dtype = torch.float64
        again = type(model)(config)
        # Saved tables of angles are of float32: the model's own are made anew.
        tables = again.state_dict().keys() & dict(again.named_buffers()).keys()
        own = {name: again.state_dict()[name] for name in tables}
        again.load_state_dict(model.state_dict() | own, strict=True)
        for table in again.buffers():
            assert table.dtype != torch.float32
        for module in again.modules():
            if type(module).__name__ == "RoFormerSinusoidalPositionalEmbedding":
                module.weight.copy_(sines_and_cosines(*module.weight.shape))
    return again.train(model.training)
