"""Reversible renames between the engine's parameter names and a checkpoint's."""

from __future__ import annotations

from typing import TYPE_CHECKING, NamedTuple

from encoder_engine.dataclass import dataclass

if TYPE_CHECKING:
    from collections.abc import Iterable, Mapping

    import numpy as np
    import numpy.typing as npt

    Places = npt.NDArray[np.int64]

__all__ = ["Arrangement", "Origin", "Rename", "modern_name", "origins"]


class Arrangement(NamedTuple):
    """The order of rows and columns in a parameter that is stacked from a checkpoint's tensors.

    rows: the number of rows of each tensor; None: all have equally many.
    order: for each row of the parameter, its index in the stack, int64; None: the same index. A row
        of order -1 is zero, and not in the checkpoint.
    columns: for each column of the parameter, its index in the stack, int64; None: the same index.
    """

    rows: tuple[int, ...] | None = None
    order: Places | None = None
    columns: Places | None = None


PLAIN = Arrangement()


class Origin(NamedTuple):
    """The checkpoint tensors from which one of the engine's parameters is stacked.

    names: the tensors, in the order of their rows.
    halves_swapped, transposed: as in :class:`Rename`.
    arrangement: the order of the parameter's rows and columns; by default the stack's.
    """

    names: tuple[str, ...]
    halves_swapped: bool = False
    transposed: bool = False
    arrangement: Arrangement = PLAIN

    @property
    def places(self) -> Places | None:
        """For each row of the stack, its row in the parameter; None: the order is the same."""
        order = self.arrangement.order
        if order is None:
            return None
        stored = (order >= 0).nonzero()[0]
        places: Places = stored[order[stored].argsort()]
        return places

    @property
    def is_rearranged(self) -> bool:
        """True if the parameter's rows or columns are not in the order of the stacked tensors."""
        _, order, columns = self.arrangement
        moved = order is not None or columns is not None
        return moved or self.halves_swapped or self.transposed

    def rows_of(self, total: int) -> tuple[int, ...]:
        """Return each tensor's number of rows, for a parameter of ``total`` rows."""
        count = len(self.names)
        rows = self.arrangement.rows
        return (total // count,) * count if rows is None or count == 1 else rows


# What stands for a block's index in a name.
BLOCK = "{block}"


@dataclass(frozen=True)
class Rename:
    """The name of a module in the engine, and its name or names in a checkpoint.

    ``{block}`` in a name stands for a block's index.
    ``theirs``: the checkpoint's names; several are stacked along the first dimension.
    ``halves_swapped``: the two halves of the first dimension are exchanged.
    ``transposed``: matrices are stored as [inputs, outputs] (GPT-2).
    ``biases``: the full names of biases, where these are not ``theirs`` with ``.bias`` appended.
    """

    ours: str
    theirs: str | tuple[str, ...]
    halves_swapped: bool = False
    transposed: bool = False
    biases: tuple[str, ...] | None = None

    def apply(self, name: str) -> Origin | None:
        """Return the tensors that one of the engine's parameters comes from.

        None: the parameter belongs to another module.
        """
        module, _, part = name.rpartition(".")
        before, marker, after = self.ours.partition(BLOCK)
        block = module.removeprefix(before).removesuffix(after)
        is_below = before + block + after == module and (block.isdecimal() if marker else not block)
        if not is_below or part not in ("weight", "weight_scale", "bias"):
            return None
        theirs = (self.theirs,) if isinstance(self.theirs, str) else self.theirs
        if self.biases is not None and part == "bias":
            return Origin(tuple(other.replace(BLOCK, block) for other in self.biases))
        names = tuple(f"{other.replace(BLOCK, block)}.{part}" for other in theirs)
        return Origin(names, self.halves_swapped, self.transposed and part == "weight")


def origins(
    renames: Iterable[Rename],
    parameters: Iterable[str],
    arrangements: Mapping[str, Arrangement] | None = None,
) -> dict[str, Origin]:
    """Map each of the engine's parameter names to the checkpoint tensors that it is stacked from.

    ``renames``: exactly one of them fits each parameter.
    ``arrangements``: those of parameters that are not plain stacks of equal parts, by name.
    """
    mapped: dict[str, Origin] = {}
    renames = tuple(renames)
    for name in parameters:
        found = [origin for rename in renames if (origin := rename.apply(name)) is not None]
        assert len(found) == 1, f"{name} is named by {len(found)} renames, not one"
        mapped[name] = found[0]._replace(arrangement=(arrangements or {}).get(name, PLAIN))
    return mapped


def modern_name(name: str) -> str:
    """Rename gamma and beta, a norm's tensors in TensorFlow conversions, to weight and bias."""
    for old, new in ((".gamma", ".weight"), (".beta", ".bias")):
        if name.endswith(old):
            return name.removesuffix(old) + new
    return name
