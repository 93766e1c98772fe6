"""Trains low-rank adapters (LoRA, Hu et al. 2022) on dense layers.

How it works: a dense layer multiplies with the weight W + (alpha / rank) B A, so that operations
fused with the product (bias, GELU) stay fused. W is frozen. One layer here may stack several
modules of transformers, such as query, key and value. It has an adapter for each of them that is a
target, on the module's rows alone, so that the files have transformers' names and shapes.

Dimensions: r rank, K columns and N rows of a dense layer's weight.
"""

from __future__ import annotations

import math
from contextlib import contextmanager
from typing import TYPE_CHECKING, Any

import torch
from torch import Tensor, nn

from encoder_engine.dataclass import dataclass
from encoder_engine.errors import ConfigError, UnsupportedFeatureError
from encoder_engine.families.checkpoints.parameters import arrangements
from encoder_engine.families.facts.names import origins
from encoder_engine.families.registry import find_family
from encoder_engine.models.linear import Linear

if TYPE_CHECKING:
    from collections.abc import Iterator, Sequence

    from encoder_engine.families.facts.names import Origin
    from encoder_engine.models.network import Network

__all__ = ["AdaptedLinear", "Adapter", "adapted_layers", "add_adapters", "merged_adapters"]


@dataclass(frozen=True, kw_only=True)
class Adapter:
    """The settings of LoRA adapters; all adapters of a model have the same rank and factor.

    ``targets``: the last parts of the names of adapted modules in transformers, such as ``query``.
    """

    rank: int
    alpha: float
    targets: tuple[str, ...]

    @property
    def factor(self) -> float:
        """The factor of the product B A: alpha / rank."""
        return self.alpha / self.rank


class AdaptedLinear(Linear):
    """A dense layer whose weight is frozen, with adapters on some of its rows.

    ``parts``: for each adapter its module's name in transformers, and its first row and the row
    after its last. A is ``down`` [r, K], B is ``up`` [rows, r]; B begins as 0.
    """

    def __init__(
        self, layer: Linear, parts: Sequence[tuple[str, int, int]], adapter: Adapter
    ) -> None:
        super().__init__(
            layer.in_features, layer.out_features, layer.bias is not None, device="meta"
        )
        self.weight, self.bias = layer.weight, layer.bias
        self.parts, self.adapter = tuple(parts), adapter
        self.down, self.up = nn.ParameterList(), nn.ParameterList()
        for _, start, stop in self.parts:
            down_RK = layer.weight.new_empty(adapter.rank, layer.in_features)
            nn.init.kaiming_uniform_(down_RK, a=math.sqrt(5))
            self.down.append(nn.Parameter(down_RK))
            self.up.append(nn.Parameter(layer.weight.new_zeros(stop - start, adapter.rank)))

    def whole_weight(self) -> Tensor:
        """Return the weight with its adapters added, W + (alpha / rank) B A, [N, K]."""
        rows: list[Tensor] = []
        place = 0
        # Under autocast the sum would lose the bits of small updates.
        with torch.autocast(self.weight.device.type, enabled=False):
            for (_, start, stop), down, up in zip(self.parts, self.down, self.up, strict=True):
                rows.append(self.weight[place:start])
                rows.append(self.weight[start:stop] + self.adapter.factor * (up @ down))
                place = stop
            rows.append(self.weight[place:])
            return torch.cat([part for part in rows if len(part)])

    def forward(self, input_TK: Tensor, *, gelu: Any = None) -> Tensor:
        """Return the output of the layer with its adapters, [T, N]."""
        return Linear.multiply(input_TK, self.whole_weight(), self.bias, gelu=gelu)

    @torch.no_grad()
    def merge(self) -> Linear:
        """Return a plain dense layer with the weight W + (alpha / rank) B A."""
        has_bias = self.bias is not None
        plain = Linear(self.in_features, self.out_features, has_bias, device="meta")
        plain.weight = nn.Parameter(self.whole_weight(), requires_grad=False)
        plain.bias = self.bias
        return plain


def add_adapters(encoder: Network, adapter: Adapter) -> None:
    """Put adapters on the dense layers of an encoder's blocks that ``adapter.targets`` names.

    The encoder is changed in place. Raises :class:`ConfigError` for a target that no block has, and
    :class:`UnsupportedFeatureError` for one whose rows a checkpoint stores in another order.
    """
    found: dict[str, list[tuple[str, int, int]]] = {}
    names: set[str] = set()
    for layer_name, origin in _origins(encoder).items():
        layer = encoder.get_submodule(layer_name)
        if not layer_name.startswith("blocks.") or not isinstance(layer, Linear):
            continue
        start = 0
        for name, rows in zip(origin.names, origin.rows_of(layer.out_features), strict=True):
            module = name.removesuffix(".weight")
            names.add(module.rpartition(".")[2])
            if module.rpartition(".")[2] in adapter.targets:
                if origin.is_rearranged:
                    raise UnsupportedFeatureError(
                        f"{module} is stored in another order than it is computed in; leave it out "
                        "of the adapters' targets"
                    )
                found.setdefault(layer_name, []).append((module, start, start + rows))
            start += rows
    unknown = [target for target in adapter.targets if target not in names]
    if unknown or not found:
        raise ConfigError(
            f"the encoder's blocks have no dense layer {', '.join(map(repr, unknown)) or 'at all'};"
            f" there are {', '.join(sorted(names))}"
        )
    for layer_name, parts in found.items():
        plain = encoder.get_submodule(layer_name)
        assert isinstance(plain, Linear)
        _replace(encoder, layer_name, AdaptedLinear(plain, parts, adapter))


def adapted_layers(model: nn.Module) -> dict[str, AdaptedLinear]:
    """Return a model's :class:`AdaptedLinear` layers, by name."""
    return {n: layer for n, layer in model.named_modules() if isinstance(layer, AdaptedLinear)}


@contextmanager
def merged_adapters(model: nn.Module) -> Iterator[None]:
    """Replace a model's layers with adapters by plain, merged layers, while the context lasts."""
    layers = adapted_layers(model)
    for name, layer in layers.items():
        _replace(model, name, layer.merge())
    try:
        yield
    finally:
        for name, layer in layers.items():
            _replace(model, name, layer)


def _origins(encoder: Network) -> dict[str, Origin]:
    """Return, for each matrix of the encoder, the checkpoint tensors that it is stacked from.

    Keys are names of layers, without ``.weight``.
    """
    family = find_family(encoder.spec.model_type)
    names = [name for name, p in encoder.named_parameters() if p.dim() == 2]
    found = origins(family.renames, names, arrangements(encoder.spec))
    return {name.removesuffix(".weight"): origin for name, origin in found.items()}


def _replace(model: nn.Module, name: str, layer: nn.Module) -> None:
    parent, _, last = name.rpartition(".")
    setattr(model.get_submodule(parent), last, layer)
