"""Turns results of each kind into columns of a table, and such columns into results.

====== =============================== ============================================
kind   columns                         results of n rows in memory
====== =============================== ============================================
dense  ``embedding`` fixed-size list   array [n, D]
sparse ``indices`` and ``values``      :class:`SparseVectors`
tokens ``token_ids``, ``embeddings``   :class:`TokenVectors`
scores ``score``                       array [n, C]
====== =============================== ============================================

The kind ``predictions`` has columns of its own: :class:`PredictedRows`.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, Literal, get_args

import numpy as np

from encoder_engine.dataclass import dataclass
from encoder_engine.errors import ReadError
from encoder_engine.vectors.sparse_vectors import SparseVectors
from encoder_engine.vectors.token_vectors import TokenVectors

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence

__all__ = [
    "KINDS",
    "Kind",
    "PredictedRows",
    "columns_of",
    "kind_of_columns",
    "metadata_of",
    "rows_of_columns",
    "stated_dimension",
    "stated_ids",
]

Kind = Literal["dense", "sparse", "tokens", "scores", "predictions"]
KINDS: tuple[Kind, ...] = get_args(Kind)
VECTOR_COLUMN = "embedding"
# The key of a table that states the vocabulary size of sparse vectors: their largest index may be
# far below it.
_DIMENSION = "dimension"
# The key of a table with kept columns that states which column holds the ids.
ID_COLUMN = "id_column"
# The columns of each kind, beside the ids.
COLUMNS: dict[Kind, tuple[str, ...]] = {
    "dense": (VECTOR_COLUMN,),
    "sparse": ("indices", "values"),
    "tokens": ("token_ids", "embeddings"),
    "scores": ("score",),
    # The columns of the predictions of all tasks; a table has some of them.
    "predictions": (
        "label",
        "labels",
        "score",
        "scores",
        "probabilities",
        "answer",
        "start",
        "stop",
        "entities",
    ),
}


@dataclass(kw_only=True, eq=False)
class PredictedRows:
    """The predictions of n rows as columns.

    columns: the n values of each column, by its name.
    types: the type of each column, by its name in pyarrow; ``list<...>`` for lists, and the types
        of fields for lists of structs.
    """

    columns: dict[str, list[Any]]
    types: Mapping[str, str | Mapping[str, str]]

    def __len__(self) -> int:
        """Return the number of rows."""
        return len(next(iter(self.columns.values())))


def kind_of_columns(names: Sequence[str]) -> Kind:
    """Return the kind of results that columns of these names hold.

    Raises :class:`ReadError` if they are the columns of no kind.
    """
    for kind, columns in COLUMNS.items():
        if set(columns) <= set(names):
            return kind
    raise ReadError(
        f"the columns {', '.join(names)} are none of embed's; expected "
        + ", or ".join(" and ".join(columns) for columns in COLUMNS.values())
    )


def columns_of(pyarrow: Any, rows: Any, kind: Kind) -> dict[str, Any]:
    """Return a kind's results as pyarrow columns by name; contiguous arrays are not copied."""
    if kind == "sparse":
        offsets = pyarrow.array(_offsets(rows.indptr))
        return {
            "indices": pyarrow.ListArray.from_arrays(offsets, pyarrow.array(rows.indices)),
            "values": pyarrow.ListArray.from_arrays(offsets, pyarrow.array(rows.values)),
        }
    if kind == "tokens":
        offsets = pyarrow.array(_offsets(rows.cu_seqlens))
        vectors = _fixed_lists(pyarrow, rows.vectors)
        return {
            "token_ids": pyarrow.ListArray.from_arrays(offsets, pyarrow.array(rows.ids)),
            "embeddings": pyarrow.ListArray.from_arrays(offsets, vectors),
        }
    if kind == "predictions":
        return {
            name: pyarrow.array(values, type=_type(pyarrow, rows.types[name]))
            for name, values in rows.columns.items()
        }
    if kind == "scores" and rows.shape[1] == 1:
        return {"score": pyarrow.array(np.ascontiguousarray(rows[:, 0]))}
    return {COLUMNS[kind][0]: _fixed_lists(pyarrow, rows)}


def metadata_of(rows: Any, kind: Kind) -> dict[str, str]:
    """Return the metadata to store with a table: the vocabulary size of sparse vectors."""
    return {_DIMENSION: str(rows.dimension)} if kind == "sparse" else {}


def stated_ids(metadata: Mapping[bytes, bytes] | None) -> str | None:
    """Return the id column that a table's metadata names; "": no ids; None: nothing is stated."""
    stated = (metadata or {}).get(ID_COLUMN.encode())
    return None if stated is None else stated.decode()


def stated_dimension(metadata: Mapping[bytes, bytes] | None) -> int | None:
    """Return the vocabulary size in the metadata of a table of sparse vectors, or None."""
    stated = (metadata or {}).get(_DIMENSION.encode())
    return None if stated is None else int(stated)


def _type(pyarrow: Any, name: str | Mapping[str, str]) -> Any:
    if not isinstance(name, str):
        fields = {field: _type(pyarrow, inner) for field, inner in name.items()}
        return pyarrow.list_(pyarrow.struct(list(fields.items())))
    if name.startswith("list<"):
        return pyarrow.list_(_type(pyarrow, name.removeprefix("list<").removesuffix(">")))
    return pyarrow.type_for_alias(name)


def _offsets(starts: Any) -> Any:
    """Return list offsets as int32: the 4,096 rows of a window have fewer than 2**31 values."""
    assert int(starts[-1]) < 2**31
    return starts.astype(np.int32)


def _fixed_lists(pyarrow: Any, rows: Any) -> Any:
    flat = pyarrow.array(np.ascontiguousarray(rows).reshape(-1))
    return pyarrow.FixedSizeListArray.from_arrays(flat, rows.shape[1])


def rows_of_columns(batch: Any, kind: Kind, dimension: int | None = None) -> Any:
    """Return the results in a pyarrow record batch; for their types see the module's docstring.

    ``dimension``: the vocabulary size of sparse vectors; None: the largest index plus one. Raises
    :class:`ReadError` for columns of other types, for nulls, for lists of one row that differ in
    length, and for indices beyond the vocabulary.
    """
    first = batch.column(COLUMNS[kind][0])
    if kind == "sparse":
        indices, indptr = _lists(first, "indices")
        values, others = _lists(batch.column("values"), "values")
        if not np.array_equal(indptr, others):
            raise ReadError("the columns 'indices' and 'values' differ in length")
        found = _numbers(indices, "indices", np.int32)
        size = int(found.max(initial=-1)) + 1 if dimension is None else dimension
        if len(found) and not 0 <= int(found.min()) <= int(found.max()) < size:
            raise ReadError(f"the column 'indices' holds numbers beyond the vocabulary of {size}")
        return SparseVectors(
            indptr=indptr,
            indices=found,
            values=_numbers(values, "values", np.float32),
            dimension=size,
        )
    if kind == "tokens":
        ids, cu_seqlens = _lists(first, "token_ids")
        inner, others = _lists(batch.column("embeddings"), "embeddings")
        if not np.array_equal(cu_seqlens, others):
            raise ReadError("the columns 'token_ids' and 'embeddings' differ in length")
        return TokenVectors(
            vectors=_matrix(inner, "embeddings"),
            ids=_numbers(ids, "token_ids", np.int32),
            cu_seqlens=cu_seqlens,
        )
    if kind == "scores" and not _is_fixed(first):
        return _numbers(first, "score", np.float32)[:, None]
    return _matrix(first, COLUMNS[kind][0])


def _is_fixed(column: Any) -> bool:
    import pyarrow

    return bool(pyarrow.types.is_fixed_size_list(column.type))


def _lists(column: Any, name: str) -> tuple[Any, Any]:
    """Return the values of a column of lists, and each row's first index, int64 [n + 1]."""
    import pyarrow

    types = pyarrow.types
    if not (types.is_list(column.type) or types.is_large_list(column.type)):
        raise ReadError(f"column {name!r} holds {column.type}, expected lists")
    column.validate()
    if column.null_count:
        raise ReadError(f"column {name!r} holds nulls; every row needs a list")
    # flatten() returns the values of a slice alone; the offsets still count from the whole column.
    offsets = column.offsets.to_numpy().astype(np.int64)
    return column.flatten(), offsets - offsets[0]


def _numbers(column: Any, name: str, kind: Any) -> Any:
    if column.null_count:
        raise ReadError(f"column {name!r} holds nulls")
    numbers = column.to_numpy(zero_copy_only=False)
    if numbers.dtype.kind != np.dtype(kind).kind:
        raise ReadError(f"column {name!r} holds {column.type}, expected {np.dtype(kind).name}")
    return numbers.astype(kind, copy=False)


def _matrix(column: Any, name: str) -> Any:
    """Return a column of fixed-size lists as an array [n, D] that shares its memory."""
    if not _is_fixed(column):
        raise ReadError(f"column {name!r} holds {column.type}, not lists of one fixed size")
    column.validate()
    flat = column.flatten()
    if column.null_count or flat.null_count:
        raise ReadError(f"column {name!r} holds nulls; every row needs a vector")
    return flat.to_numpy().reshape(len(column), column.type.list_size)
