"""A table of static embeddings: a text's vector is the mean of its tokens' rows.

Dimensions: V rows, N token ids, T packed tokens, B texts, D features.
"""

from __future__ import annotations

import hashlib
from typing import TYPE_CHECKING

import numpy as np

from encoder_engine import _native
from encoder_engine.dataclass import dataclass
from encoder_engine.errors import CheckpointFileError, NonFiniteWeightsError, TensorShapeError
from encoder_engine.families.checkpoints.arrays import (
    blocks_of,
    dtype_name,
    largest_word,
    widen,
    words,
)
from encoder_engine.inference.memory import address

if TYPE_CHECKING:
    import numpy.typing as npt

    from encoder_engine.families.checkpoints.arrays import Array
    from encoder_engine.inference.memory import MappedFiles

__all__ = ["TABLE_DTYPES", "StaticTable"]

TABLE_DTYPES = ("float32", "float16", "bfloat16", "int8")
# A sum of 2^20 such numbers is finite in float32.
_LARGEST = 1e30


@dataclass(frozen=True, kw_only=True, eq=False)
class StaticTable:
    """An embedding table, with a table row and a factor for each token id.

    rows_VD: the table, in float32, float16, bfloat16 or int8.
    mapping_N: the row of each id, int32; None: the id is the row.
    weights_N: the factor of each id, float32; None: 1.
    left_out: an id that pooling ignores; -1: none.
    mapped_files: the mapped files of the table, checked for changes at every call; None: the table
    is in memory.

    Raises :class:`CheckpointFileError` for another dtype, :class:`TensorShapeError` for arrays that
    do not belong together, and :class:`NonFiniteWeightsError` for NaN, infinity or numbers beyond
    1e30.
    """

    rows_VD: Array
    mapping_N: npt.NDArray[np.int32] | None = None
    weights_N: npt.NDArray[np.float32] | None = None
    left_out: int = -1
    mapped_files: MappedFiles | None = None

    def __post_init__(self) -> None:
        if self.dtype not in TABLE_DTYPES:
            raise CheckpointFileError(
                f"the table of embeddings is {self.dtype}; expected {', '.join(TABLE_DTYPES)}"
            )
        shape = self.rows_VD.shape
        if len(shape) != 2 or 0 in shape:
            raise TensorShapeError(f"the table of embeddings is {list(shape)}, expected [V, D]")
        for name, array in (("mapping", self.mapping_N), ("weights", self.weights_N)):
            if array is not None and array.shape != (self.num_ids,):
                raise TensorShapeError(
                    f"the {name} of the embeddings is {list(array.shape)}, expected "
                    f"[{self.num_ids}], a number for each token"
                )
        mapping, num_rows = self.mapping_N, len(self.rows_VD)
        if mapping is None and self.num_ids > num_rows:
            raise TensorShapeError(
                f"the embeddings have {self.num_ids} weights and {num_rows} rows; without a "
                "mapping each token has both"
            )
        if mapping is not None and not ((mapping >= 0) & (mapping < num_rows)).all():
            raise TensorShapeError(
                f"the mapping of the embeddings names rows beyond the table's {num_rows}"
            )
        if self.dtype != "int8":
            _check_finite(self.rows_VD, "embeddings")
        if self.weights_N is not None:
            _check_finite(self.weights_N, "weights")

    @property
    def dtype(self) -> str:
        """The name of the dtype of the table's rows."""
        return dtype_name(self.rows_VD.dtype)

    @property
    def width(self) -> int:
        """The number of features of a table row, D."""
        return int(self.rows_VD.shape[1])

    @property
    def num_ids(self) -> int:
        """The number of token ids that have a table row, N."""
        if self.mapping_N is not None:
            return len(self.mapping_N)
        return len(self.rows_VD if self.weights_N is None else self.weights_N)

    def mean(
        self,
        ids: npt.NDArray[np.int32],
        cu_seqlens: npt.NDArray[np.int32],
        *,
        dimension: int | None = None,
        normalized: bool = False,
        num_threads: int,
    ) -> npt.NDArray[np.float32]:
        """Return each text's mean of table rows times factors, float32 [B, D].

        The id ``left_out`` is not counted; a text without another token has zeros.

        ids: int32 [T].
        cu_seqlens: the first token of each text, then T: int32 [B + 1].
        dimension: leading features to keep; None: all.
        normalized: divide by the Euclidean norm, at least 1e-12, of the features that are kept.

        Raises :class:`CheckpointFileError` where a mapped file was written to since it was loaded,
        and ``IndexError`` for an id that is not below :attr:`num_ids`.
        """
        if self.mapped_files is not None:
            self.mapped_files.check()
        width = self.width if dimension is None else dimension
        ids, cu_seqlens = np.ascontiguousarray(ids), np.ascontiguousarray(cu_seqlens)
        found_BD = np.empty((len(cu_seqlens) - 1, width), dtype=np.float32)
        _native.mean_static_rows(
            *(self.dtype, address(self.rows_VD), address(ids), address(cu_seqlens)),
            *(address(self.mapping_N), address(self.weights_N), self.left_out, normalized),
            *(address(found_BD), len(found_BD), self.width, width, self.num_ids, num_threads),
        )
        return found_BD

    def fingerprint(self) -> str:
        """Return the SHA-256 of the table, each id's row and factor, and the left-out id."""
        digest = hashlib.sha256()
        for array in (self.rows_VD, self.mapping_N, self.weights_N):
            if array is None:
                digest.update(b"none\0")
                continue
            digest.update(f"{dtype_name(array.dtype)} {list(array.shape)}\0".encode())
            digest.update(np.ascontiguousarray(array).reshape(-1).view(np.uint8).data)
        digest.update(str(self.left_out).encode())
        return digest.hexdigest()


def _check_finite(array: Array, name: str) -> None:
    """Raise :class:`NonFiniteWeightsError` for NaN, infinity and numbers beyond 1e30."""
    unit = np.array([_LARGEST], np.float32)
    limit = {"float32": int(words(unit)[0]), "bfloat16": int(words(unit)[0] >> 16)}
    highest = limit.get(dtype_name(array.dtype), 0x7BFF)
    if largest_word(blocks_of(array)) > highest:
        wide = np.abs(widen(array).reshape(len(array), -1))
        rows = np.flatnonzero(~(wide <= _LARGEST).all(axis=1))
        raise NonFiniteWeightsError(
            f"the {name} hold NaN, infinity or numbers beyond {_LARGEST:g} in {len(rows)} of "
            f"{len(array)} rows, the first is row {rows[0]}; the file is damaged: fetch it again"
        )
