"""Gluon's functions, computed with NumPy arrays on the simulated multiprocessor.

Values of half precision are float32 arrays that were rounded. Layouts are nothing.
"""

from __future__ import annotations

import ast
import threading
from math import prod
from types import SimpleNamespace
from typing import TYPE_CHECKING, Any

import numpy as np
import numpy.typing as npt

from tests import ROOT
from tests.kernels.gluon.machine import Barrier, Buffer, Machine, Product, SimulationError

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator, Sequence

Array = npt.NDArray[Any]


class Kind:
    """An element type; half precision rounds."""

    def __init__(self, name: str, itemsize: int) -> None:
        self.name, self.itemsize = name, itemsize

    def round(self, x: Array) -> Array:
        """Return values of this type."""
        if self.name == "float16":
            return x.astype(np.float16).astype(np.float32)
        if self.name == "bfloat16":
            bits = np.ascontiguousarray(x, np.float32).view(np.uint32)
            # To the nearest, ties to even; NaN keeps its leading bits.
            rounded = (bits + 0x7FFF + ((bits >> 16) & 1)) & np.uint32(0xFFFF0000)
            kept = np.where(np.isnan(x), bits & np.uint32(0xFFFF0000), rounded)
            return kept.astype(np.uint32).view(np.float32)
        return x.astype(self.name)


KINDS = {
    name: Kind(name, size)
    for name, size in (("float16", 2), ("bfloat16", 2), ("float32", 4), ("int32", 4), ("int64", 8))
}


LAYOUTS = (
    *("NVMMADistributedLayout", "DotOperandLayout", "SliceLayout", "BlockedLayout"),
    *("DistributedLinearLayout", "SwizzledSharedLayout"),
)


class Values(np.ndarray[Any, np.dtype[Any]]):
    """Registers: an array that converts."""

    def to(self, kind: Kind) -> Values:
        return values(kind.round(np.asarray(self)))


def values(x: Any) -> Values:
    """Return registers of an array or a number."""
    return np.asarray(x).view(Values)


class Memory:
    """A tensor in global memory, flat: to read, to write once, or ``scratch``.

    A store or a load outside, and of scratch memory by two partitions, is an error, and so is a
    second store to what is written once.
    """

    def __init__(self, array: Array, *, writable: bool = False, scratch: bool = False) -> None:
        self.array = array.reshape(-1)
        self._stores = np.zeros(self.array.size, np.int8) if writable else None
        self._owners = np.zeros(self.array.size, np.int64) if scratch else None

    def load(self, places: Array) -> Values:
        self._check(places)
        self._own(places)
        return values(self.array[places])

    def store(self, places: Array, x: Array) -> None:
        if self._stores is None and self._owners is None:
            raise SimulationError("a store to a tensor that is read")
        self._check(places)
        self._own(places)
        if self._stores is not None:
            if np.unique(places).size != places.size or self._stores[places].any():
                raise SimulationError("an element is stored twice")
            self._stores[places] = 1
        self.array[places] = x

    def _own(self, places: Array) -> None:
        if self._owners is not None:
            me = threading.get_ident()
            if not np.isin(self._owners[places], (0, me)).all():
                raise SimulationError("two partitions use one place of scratch memory")
            self._owners[places] = me

    def _check(self, places: Array) -> None:
        if places.size and not (places.min() >= 0 and places.max() < self.array.size):
            raise SimulationError(f"place {places.min()} .. {places.max()} of {self.array.size}")


class Pointer:
    """Addresses in a tensor."""

    def __init__(self, memory: Memory, places: Any = 0) -> None:
        self.memory, self.places = memory, np.asarray(places, np.int64)

    def __add__(self, more: Any) -> Pointer:
        return Pointer(self.memory, self.places + np.asarray(more))


class Shared:
    """A block of shared memory, some rows of it, or it transposed."""

    def __init__(self, machine: Machine, buffer: Buffer, view: Array, kind: Kind) -> None:
        self.machine, self.buffer, self.view, self.dtype = machine, buffer, view, kind

    def permute(self, _order: tuple[int, int]) -> Shared:
        return self._part(self.view.T)

    def slice(self, start: int, length: int) -> Shared:
        return self._part(self.view[start : start + length])

    def load(self, _layout: None) -> Values:
        self._touch("a load", writes=False)
        return values(self.view.copy())

    def store(self, x: Array) -> None:
        self._touch("a store", writes=True)
        self.view[:] = x

    def _touch(self, doing: str, *, writes: bool) -> None:
        self.machine.step()
        self.buffer.check(doing, writes=writes, asynchronous=False)
        self.buffer.unfenced.add(self.machine.partition)

    def _part(self, view: Array) -> Shared:
        return Shared(self.machine, self.buffer, view, self.dtype)


class SharedBlocks:
    """Some blocks of shared memory."""

    def __init__(self, machine: Machine, shape: Sequence[int], kind: Kind) -> None:
        self.machine, self.dtype = machine, kind
        num_bytes = prod(shape[1:]) * kind.itemsize
        self._buffers = [
            machine.allocate(np.full(shape[1:], np.nan, np.float32), num_bytes)
            for _ in range(shape[0])
        ]

    def index(self, place: Any) -> Shared:
        buffer = self._buffers[int(place)]
        return Shared(self.machine, buffer, buffer.values, self.dtype)


class Descriptor:
    """A tensor [rows, width] that TMA reads in blocks; rows beyond the last are zero."""

    def __init__(self, array: Array, block: tuple[int, int], kind: Kind) -> None:
        self.array, self.dtype, self.layout = array, kind, None
        self.block_type = SimpleNamespace(shape=list(block), nbytes=prod(block) * kind.itemsize)

    def read(self, row: int, column: int) -> Array:
        rows, width = self.block_type.shape
        found = np.zeros((rows, width), np.float32)
        part = self.array[max(row, 0) : row + rows, column : column + width]
        found[: len(part), : part.shape[1]] = part
        return found


class Barriers:
    """Some mbarriers, of which one is chosen."""

    def __init__(self, barriers: list[Barrier | None], place: int = 0) -> None:
        self._barriers, self._place = barriers, place

    def index(self, place: Any) -> Barriers:
        return Barriers(self._barriers, int(place))

    def init(self, count: int) -> None:
        self._barriers[self._place] = Barrier(count, count)

    @property
    def chosen(self) -> Barrier:
        found = self._barriers[self._place]
        if found is None:
            raise SimulationError("a barrier is used before its init")
        return found


class Language:
    """The names that a kernel's module imports, for one program of a launch."""

    def __init__(self, machine: Machine, program: int, num_programs: int) -> None:
        self.machine, self.program, self.num_programs = machine, program, num_programs

    def names(self) -> dict[str, Any]:
        """Return the globals of a kernel's functions."""
        return {
            "gl": self._gluon(),
            "mbarrier": SimpleNamespace(
                init=lambda at, *, count: at.init(count),
                expect=self._expect,
                arrive=self._arrive,
                wait=self._wait,
                MBarrierLayout=lambda: Barriers,
            ),
            "async_load": self._async_load,
            "fence_async_shared": self._fence,
            "warpgroup_mma": self._multiply,
            "warpgroup_mma_wait": self._wait_for_products,
            "range": self._range,
        }

    def _gluon(self) -> SimpleNamespace:
        nothing = lambda *_, **__: None  # noqa: E731
        return SimpleNamespace(
            **KINDS,
            **dict.fromkeys(LAYOUTS, nothing),
            NVMMASharedLayout=SimpleNamespace(get_default_for=nothing),
            constexpr=object,
            static_range=range,
            program_id=lambda _: values(np.int32(self.program)),
            num_programs=lambda _: self.num_programs,
            warp_specialize=lambda parts, _warps, _registers: self.machine.run(parts),
            allocate_shared_memory=self._allocate,
            inline_asm_elementwise=lambda _text, _constraints, given, **_: given[0],
            convert_layout=lambda x, *_, **__: x,
            load=_load,
            store=_store,
            zeros=lambda shape, kind, *_: values(np.zeros(shape, _dtype(kind))),
            full=lambda shape, x, kind, *_: values(np.full(shape, x, _dtype(kind))),
            arange=lambda low, high, **_: values(np.arange(low, high, dtype=np.int32)),
            expand_dims=lambda x, axis: values(np.expand_dims(x, axis)),
            where=lambda condition, x, y: values(np.where(condition, x, y)),
            maximum=lambda x, y: values(np.maximum(x, y)),
            minimum=lambda x, y: values(np.minimum(x, y)),
            max=lambda x, axis: values(np.asarray(x).max(axis)),
            sum=lambda x, axis: values(np.asarray(x).sum(axis)),
            exp2=lambda x: values(np.exp2(x)),
            log2=lambda x: values(np.log2(x)),
            fma=lambda x, y, z: x * np.float32(y) + z,
        )

    def _allocate(self, kind: Kind, shape: Sequence[int], layout: Any) -> Any:
        if layout is Barriers:
            return Barriers([None] * shape[0])
        return SharedBlocks(self.machine, shape, kind)

    def _range(self, low: Any, high: Any = None, step: Any = 1) -> Iterator[Values]:
        low, high = (0, low) if high is None else (low, high)
        return (values(np.int32(x)) for x in range(int(low), int(high), int(step)))

    def _expect(self, at: Barriers, num_bytes: int) -> None:
        self.machine.step()
        at.chosen.bytes_awaited += num_bytes
        at.chosen.arrive()

    def _arrive(self, at: Barriers, *, count: int) -> None:
        self.machine.step()
        at.chosen.arrive(count)

    def _wait(self, at: Barriers, phase: Any, pred: Any = True) -> None:
        if not pred:
            return
        barrier, parity = at.chosen, int(phase)
        self.machine.step(
            lambda: barrier.has_ended(parity), f"parity {parity} after {barrier.phases_ended}"
        )

    def _fence(self) -> None:
        self.machine.step()
        for buffer in self.machine.buffers:
            buffer.unfenced.discard(self.machine.partition)

    def _async_load(
        self, rows: Descriptor, at: Sequence[Any], ready: Barriers, into: Shared
    ) -> None:
        self.machine.step()
        buffer, barrier = into.buffer, ready.chosen
        buffer.check("TMA writes", writes=True, asynchronous=True)
        buffer.copies += 1
        buffer.values[:] = np.nan
        row, column = (int(x) for x in at)

        def complete() -> None:
            buffer.values[:] = rows.read(row, column)
            buffer.copies -= 1
            barrier.receive(rows.block_type.nbytes)

        self.machine.copy(complete)

    def _multiply(
        self, a: Any, b: Shared, acc: Values, *, use_acc: bool = True, is_async: bool
    ) -> Product:
        assert is_async
        self.machine.step()
        buffers = tuple(x.buffer for x in (a, b) if isinstance(x, Shared))
        for buffer in buffers:
            buffer.check("a product reads", writes=False, asynchronous=True)
            buffer.products += 1

        def compute() -> Values:
            left = a.view if isinstance(a, Shared) else np.asarray(a)
            product = left @ b.view
            return values(acc + product if use_acc else product)

        product = Product(compute, buffers)
        self.machine.partition.under_way.append(product)
        return product

    def _wait_for_products(self, most: int, deps: Sequence[Any]) -> Any:
        self.machine.step()
        under_way = self.machine.partition.under_way
        while len(under_way) > most:
            under_way.pop(0).end()
        found = [x.result if isinstance(x, Product) and x.result is not None else x for x in deps]
        return found[0] if len(found) == 1 else tuple(found)


def _dtype(kind: Kind) -> str:
    return "float32" if kind.itemsize == 2 else kind.name


def _load(pointer: Pointer, mask: Any = True, other: Any = np.nan) -> Values:
    places, mask = np.broadcast_arrays(pointer.places, np.asarray(mask))
    if mask.all():
        return pointer.memory.load(places)
    found = np.full(places.shape, other, pointer.memory.array.dtype)
    found[mask] = pointer.memory.load(places[mask])
    return values(found)


def _store(pointer: Pointer, x: Any, *, mask: Any) -> None:
    places, x, mask = np.broadcast_arrays(pointer.places, np.asarray(x), np.asarray(mask))
    pointer.memory.store(places[mask], x[mask])


def functions_of(*modules: str, change: Callable[[str], str] = str) -> dict[str, ast.FunctionDef]:
    """Return the functions of kernels' modules without their decorators, perhaps changed.

    ``change`` gets and returns the modules' text, a statement a line.
    """
    texts = [(ROOT / "kernels" / f"{module}.py").read_text("utf-8") for module in modules]
    found = {}
    for node in ast.parse(change("\n".join(ast.unparse(ast.parse(x)) for x in texts))).body:
        if isinstance(node, ast.FunctionDef) and node.decorator_list:
            node.decorator_list = []
            found[node.name] = node
    return found


def compile_functions(functions: dict[str, ast.FunctionDef], language: Language) -> dict[str, Any]:
    """Define the functions over the names of a language."""
    names = language.names()
    module = ast.Module(body=list(functions.values()), type_ignores=[])
    exec(compile(module, "<kernel>", "exec", dont_inherit=True), names)
    return names
