"""Reads the source texts of stored vectors again, and verifies them against the manifest."""

from __future__ import annotations

from itertools import islice, repeat
from typing import TYPE_CHECKING

from encoder_engine.errors import InputError, ReadError, RowError
from encoder_engine.inputs.digest import RowKeys, RowsDigest
from encoder_engine.inputs.opening import STANDARD_INPUT
from encoder_engine.inputs.readers import DEFAULT_COLUMN, open_inputs
from encoder_engine.vectors.store_files import row_digests

if TYPE_CHECKING:
    from collections.abc import Collection, Iterator, Sequence

    from encoder_engine.inputs.opening import Format
    from encoder_engine.inputs.readers import Inputs
    from encoder_engine.inputs.rows import Row
    from encoder_engine.vectors.stored_vectors import StoredVectors


def read_texts(
    store: StoredVectors,
    rows: Collection[int],
    *,
    inputs: Sequence[str] = (),
    column: str | None = None,
    input_format: Format | None = None,
) -> dict[int, str]:
    """Return the texts of some rows of a store.

    ``inputs``: by default those of the folder's manifest, with its options. The rows of every shard
    are compared with their recorded SHA-256; for a single file, only their number is. Bad rows are
    skipped, as at embedding. Raises :class:`ReadError` where the rows differ, and
    :class:`InputError` where neither the store nor the caller names the inputs.
    """
    manifest = store.manifest
    names = list(inputs) or (manifest["inputs"] if manifest is not None else [])
    if not names or STANDARD_INPUT in names:
        raise InputError(
            f"{store.path} does not say from which files its texts can be read again; name them"
        )
    options = {} if manifest is None else manifest["plan"]["options"]
    if column is None and options.get("column") != DEFAULT_COLUMN:
        column = options.get("column")
    opened = open_inputs(
        names,
        column=column,
        id_column=options.get("id_column"),
        pair_column=options.get("pair_column"),
        format=input_format,
        max_characters=options.get("max_characters"),
        unique_ids=options.get("unique_ids", False),
    ).skipping(_leave_out)
    if store.generation > 1:
        return _by_digest(store, rows, opened)
    shards = [] if manifest is None else manifest["shards"]
    found: dict[int, str] = {}
    stream, first_row = iter(opened), 0
    for shard in shards:
        digest = RowsDigest()
        for row, read in enumerate(islice(stream, shard["rows"]), start=first_row):
            digest.add([read.content], [read.identifier])
            if row in rows:
                found[row] = read.text
        if digest.hexdigest() != shard["rows_sha256"]:
            raise _others(store)
        first_row += shard["rows"]
    return found | _rest(store, stream, first_row, rows)


def _rest(
    store: StoredVectors, stream: Iterator[Row], first_row: int, rows: Collection[int]
) -> dict[int, str]:
    """Return the texts of ``rows`` that follow the shards, whose digests have been compared.

    Of a single file, which records no digest, these are all rows; only their number is compared.
    A folder has none, so further rows in the inputs raise :class:`ReadError`.
    """
    found, row = {}, first_row
    for row, read in enumerate(stream, start=first_row + 1):
        if row - 1 in rows:
            found[row - 1] = read.text
    if row != (first_row if store.manifest is not None else store.rows):
        raise _others(store)
    return found


def _by_digest(store: StoredVectors, rows: Collection[int], opened: Inputs) -> dict[int, str]:
    """Find the texts of rows by their ids and digests, in a store that was appended to.

    Its rows are in another order than those of the inputs.
    """
    wanted: dict[tuple[str, bytes], list[int]] = {}
    ids = store.iterate_ids() if store.has_ids else repeat(None)
    digests = row_digests(store.path, store.manifest)
    for row, (name, content) in enumerate(zip(ids, digests)):  # noqa: B905 - repeat() does not end
        if row in rows:
            wanted.setdefault((str(name), content), []).append(row)
    keys, found = RowKeys(by_id=store.has_ids, generation=store.generation), {}
    for read in opened:
        key = (str(read.identifier), keys.digest(read.content, read.source))
        found.update(dict.fromkeys(wanted.pop(key, ()), read.text))
    if wanted:
        raise _others(store)
    return found


def _others(store: StoredVectors) -> ReadError:
    return ReadError(
        f"the inputs do not hold the rows that {store.path} was made of; name those that do, or "
        "embed these"
    )


def _leave_out(_error: RowError) -> None:
    """Do nothing about a bad row, which embedding skipped; if it did not, the digests differ."""
