"""The state of a folder before a run: the shards recorded in it, their files, and other files."""

from __future__ import annotations

import re
from typing import TYPE_CHECKING, Any

from encoder_engine.dataclass import dataclass
from encoder_engine.errors import OutputError
from encoder_engine.jobs.journal import Journal
from encoder_engine.locks import LOCK_NAME
from encoder_engine.vectors.manifest import (
    JOURNAL_NAME,
    MANIFEST_NAME,
    SKIPPED_NAME,
    ShardRecord,
    read_manifest,
    rows_name,
    shard_names,
)

if TYPE_CHECKING:
    from pathlib import Path

_RECORDS = "_(manifest|journal|skipped)[.]jsonl?"
_WRITTEN_NAME = re.compile(
    rf"_?part-\d{{5,}}[.](rows[.]npy|npy|ids[.]txt|parquet|arrow|lance)|{_RECORDS}"
)
_PARTIAL_NAME = re.compile(
    rf"_{{0,2}}(part-\d{{5,}}[.].+|{_RECORDS})[.][0-9a-f]{{8}}([.]scratch)?[.]partial"
)


@dataclass(frozen=True, kw_only=True)
class FolderState:
    """The shards recorded in a folder, and the files there that belong to them.

    manifest: the folder's manifest; None: the folder is not complete.
    records: the shards' records, of the manifest or else of the journal.
    own: the names of the files that the manifest or the journal lists.
    partial: the names of temporary files that a killed run left.
    """

    manifest: dict[str, Any] | None
    journal: Journal
    records: list[ShardRecord]
    own: frozenset[str]
    partial: frozenset[str]

    @property
    def plan(self) -> dict[str, Any] | None:
        """The model, tokenizer and options of earlier runs; None: nothing is recorded."""
        return self.journal.plan if self.manifest is None else self.manifest["plan"]


def read_folder(folder: Path) -> FolderState:
    """Read a folder's records and file names, and change nothing.

    Only files that the manifest or the journal lists belong to the store. Raises
    :class:`OutputError` where either is damaged, where a file that a run would write exists but is
    not listed, and where a folder without records contains any file.
    """
    manifest = read_manifest(folder, OutputError)
    journal = Journal(folder)
    records = journal.records
    if manifest is not None:
        records = [ShardRecord(**shard) for shard in manifest["shards"]]
    plan = journal.plan if manifest is None else manifest["plan"]
    names = {path.name for path in folder.iterdir()} if folder.is_dir() else set()
    own = {name for record in records for name in record.files}
    if journal.plan is not None:
        own.add(JOURNAL_NAME)
        # A run that was killed between a shard and the shard's line in the journal leaves that
        # shard.
        own.update(shard_names(len(journal.records), journal.plan["options"]))
        own.add(rows_name(len(journal.records)))
    if manifest is not None:
        own.add(MANIFEST_NAME)
    if journal.skipped or (manifest is not None and manifest["skipped_rows"]):
        own.add(SKIPPED_NAME)
    partial = {name for name in names if _PARTIAL_NAME.fullmatch(name)}
    _refuse_others(folder, names - own - partial - {LOCK_NAME}, begun=plan is not None)
    return FolderState(
        manifest=manifest,
        journal=journal,
        records=records,
        own=frozenset(own & names),
        partial=frozenset(partial),
    )


def _refuse_others(folder: Path, others: set[str], *, begun: bool) -> None:
    in_the_way = sorted(name for name in others if not begun or _WRITTEN_NAME.fullmatch(name))
    if not in_the_way:
        return
    named = ", ".join(in_the_way[:3]) + (", ..." if len(in_the_way) > 3 else "")
    if not begun:
        raise OutputError(
            f"{folder} holds other files ({named}) and no record of a run; name a new folder, or "
            "an empty one"
        )
    raise OutputError(
        f"{folder} holds {named}, which its records do not list; move such files away, or name "
        "another folder"
    )
