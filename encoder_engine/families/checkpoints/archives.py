"""Reads the archives of ``torch.save`` without PyTorch: tensors by name, and no code.

An archive is a zip file: a pickle that describes tensors, and a file for each storage. The
unpickler knows the few functions that rebuild tensors, and refuses every other name.
"""

from __future__ import annotations

import pickle
from collections import OrderedDict
from typing import TYPE_CHECKING, Any

import numpy as np

from encoder_engine.dataclass import dataclass
from encoder_engine.errors import CheckpointFileError
from encoder_engine.families.checkpoints.arrays import BFLOAT16

if TYPE_CHECKING:
    from pathlib import Path
    from zipfile import ZipFile

    from encoder_engine.families.checkpoints.arrays import Array

__all__ = ["ArchivedTensor", "UnusableTensor", "is_archive", "read_archive"]

_STORAGES: dict[str, np.dtype[Any]] = {
    "DoubleStorage": np.dtype("<f8"),
    "FloatStorage": np.dtype("<f4"),
    "HalfStorage": np.dtype("<f2"),
    "BFloat16Storage": BFLOAT16,
    "LongStorage": np.dtype("<i8"),
    "IntStorage": np.dtype("<i4"),
    "ShortStorage": np.dtype("<i2"),
    "CharStorage": np.dtype("i1"),
    "ByteStorage": np.dtype("u1"),
    "BoolStorage": np.dtype("?"),
}


@dataclass(frozen=True, kw_only=True)
class _Storage:
    """A storage, as in PyTorch: one file of the archive, which holds ``count`` numbers."""

    path: Path
    name: str
    dtype: np.dtype[Any]
    count: int


@dataclass(frozen=True, kw_only=True)
class ArchivedTensor:
    """A tensor in an archive of ``torch.save``: a strided view of a storage, not yet read."""

    storage: _Storage
    offset: int
    shape: tuple[int, ...]
    strides: tuple[int, ...]

    @property
    def dtype(self) -> np.dtype[Any]:
        """The dtype of the tensor's numbers."""
        return self.storage.dtype

    def read(self) -> Array:
        """Read the tensor into new memory; a damaged file raises :class:`CheckpointFileError`."""
        storage = self.storage
        # A pickle can set the fields of what it has made.
        _check_layout(self.offset, self.shape, self.strides)
        try:
            with _open(storage.path) as archive:
                numbers = np.frombuffer(archive.read(storage.name), dtype=storage.dtype)
        # Damage makes zipfile raise almost any type, and a part of a number is a ValueError.
        except Exception as error:
            raise CheckpointFileError(
                f"{storage.path}: {storage.name} cannot be read: {error}; fetch the file again"
            ) from error
        last = self.offset + sum((n - 1) * s for n, s in zip(self.shape, self.strides, strict=True))
        if len(numbers) != storage.count or (0 not in self.shape and last >= len(numbers)):
            raise CheckpointFileError(
                f"{storage.path}: {storage.name} holds {len(numbers)} numbers, a tensor of "
                f"{list(self.shape)} needs those to {last}; fetch the file again"
            )
        size = storage.dtype.itemsize
        if 0 in self.shape:
            return np.empty(self.shape, dtype=storage.dtype)
        view = np.lib.stride_tricks.as_strided(
            numbers[self.offset :], self.shape, [size * stride for stride in self.strides]
        )
        return np.array(view, order="C")


@dataclass(frozen=True, kw_only=True)
class UnusableTensor:
    """A tensor that cannot be a weight; ``kind``: its unsuitable dtype, or its sparse layout."""

    kind: str
    shape: tuple[int, ...]


def is_archive(path: Path) -> bool:
    """Return whether a file is an archive of ``torch.save``, and not its older format."""
    from zipfile import is_zipfile

    return is_zipfile(path)


def _open(path: Path) -> ZipFile:
    from zipfile import ZipFile  # not before: most checkpoints are no archives

    return ZipFile(path)


def read_archive(path: Path) -> Any:
    """Return the object in an archive, with each tensor as an :class:`ArchivedTensor`.

    A tensor that cannot be a weight is an :class:`UnusableTensor`. Raises
    :class:`CheckpointFileError` for a damaged file, and for one whose pickle asks for other
    functions or classes than those of tensors, dictionaries and plain values.
    """
    try:
        with _open(path) as archive:
            (described,) = (n for n in archive.namelist() if n.endswith("/data.pkl"))
            root = described.removesuffix("data.pkl")
            order = f"{root}byteorder"
            if order in archive.namelist() and archive.read(order).strip() != b"little":
                raise CheckpointFileError(f"{path} holds big-endian numbers; save it again")
            with archive.open(described) as stream:
                return _Unpickler(stream, path, root).load()
    except CheckpointFileError:
        raise
    # Damage makes an unpickler raise almost any type.
    except Exception as error:
        reason = str(error).strip().splitlines()[0] if str(error).strip() else type(error).__name__
        raise CheckpointFileError(
            f"{path} cannot be read as weights only: {reason}; fetch it again, or convert it to "
            "model.safetensors"
        ) from error


class _Unpickler(pickle.Unpickler):
    """Rebuilds tensors, ordered dictionaries and plain values; every other name is refused."""

    def __init__(self, stream: Any, path: Path, root: str) -> None:
        super().__init__(stream)
        self._path, self._root = path, root

    def find_class(self, module: str, name: str) -> Any:
        """Return the known function or class of this name; raise an error for any other."""
        if (module, name) == ("collections", "OrderedDict"):
            return OrderedDict
        if module == "torch" and name in _STORAGES:
            return _STORAGES[name]
        if (module, name) == ("torch._utils", "_rebuild_tensor_v2"):
            return _rebuild_tensor
        if (module, name) == ("torch._utils", "_rebuild_parameter"):
            return _rebuild_parameter
        if (module, name) == ("torch._utils", "_rebuild_sparse_tensor"):
            return _rebuild_sparse
        if (module, name) == ("torch._utils", "_rebuild_tensor_v3"):
            return _rebuild_other_dtype
        if (module, name) == ("torch.serialization", "_get_layout"):
            return str
        if module == "torch" and name.startswith(("float", "uint", "int", "complex")):
            return name
        if module in ("torch", "torch.storage") and name == "UntypedStorage":
            return np.dtype("u1")
        if (module, name) == ("torch", "Size"):
            return tuple
        raise pickle.UnpicklingError(f"it asks for {module}.{name}")

    def persistent_load(self, pid: Any) -> Any:
        """Return the :class:`_Storage` that ``pid`` refers to, without reading its numbers."""
        kind, dtype, key, _, count = pid
        if kind != "storage" or not isinstance(dtype, np.dtype):
            raise pickle.UnpicklingError(f"it asks for a {kind!r}")
        name = f"{self._root}data/{key}"
        return _Storage(path=self._path, name=name, dtype=dtype, count=int(count))


def _rebuild_tensor(
    storage: _Storage, offset: int, shape: tuple[int, ...], strides: tuple[int, ...], *_: Any
) -> ArchivedTensor:
    shape, strides = tuple(map(int, shape)), tuple(map(int, strides))
    _check_layout(offset, shape, strides)
    return ArchivedTensor(storage=storage, offset=int(offset), shape=shape, strides=strides)


def _check_layout(offset: int, shape: tuple[int, ...], strides: tuple[int, ...]) -> None:
    """Raise :class:`CheckpointFileError` for a view with a negative offset, size or stride."""
    if offset < 0 or min((*shape, *strides), default=0) < 0 or len(shape) != len(strides):
        raise CheckpointFileError(
            f"a tensor of {list(shape)} has the strides {list(strides)} and begins at {offset}; "
            "fetch the file again"
        )


def _rebuild_parameter(tensor: ArchivedTensor, *_: Any) -> ArchivedTensor:
    return tensor


def _rebuild_sparse(layout: str, parts: tuple[Any, ...]) -> UnusableTensor:
    shape = next(part for part in parts if isinstance(part, tuple))
    return UnusableTensor(kind=layout, shape=tuple(map(int, shape)))


def _rebuild_other_dtype(*arguments: Any) -> UnusableTensor:
    dtype = next(part for part in arguments if isinstance(part, str))
    return UnusableTensor(kind=f"torch.{dtype}", shape=tuple(map(int, arguments[2])))
