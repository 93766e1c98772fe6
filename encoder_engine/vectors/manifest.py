"""The manifest of a folder of shards: file names, typed keys, and its own SHA-256.

A manifest decides which files belong to a store, so nothing of it is used before its SHA-256, all
keys and all types are verified.
"""

from __future__ import annotations

import hashlib
import json
import re
from collections.abc import Callable
from typing import TYPE_CHECKING, Any, Literal, get_args

from encoder_engine.dataclass import dataclass
from encoder_engine.errors import InputError
from encoder_engine.json_values import JsonSource, JsonValue, read_json

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence
    from pathlib import Path

    from encoder_engine.errors import EncoderEngineError

ShardFormat = Literal["npy", "parquet", "arrow", "lance"]
SHARD_FORMATS: tuple[ShardFormat, ...] = get_args(ShardFormat)
Reader = Callable[[JsonValue], Any]

# Readers of Parquet, pandas and Spark among them, pass over names that begin with "_" or ".".
MANIFEST_NAME = "_manifest.json"
JOURNAL_NAME = "_journal.jsonl"
SKIPPED_NAME = "_skipped.jsonl"
DIGEST_KEY = "sha256"
_SHA256 = re.compile(r"[0-9a-f]{64}")


@dataclass(frozen=True, kw_only=True)
class ShardRecord:
    """What a manifest or a journal records of a finished shard.

    files: the SHA-256 of each file by name.
    rows_sha256: the digest of the shard's input texts and ids.
    """

    shard: int
    rows: int
    tokens: int
    truncated_rows: int
    rows_sha256: str
    files: dict[str, str]


def shard_name(number: int, shard_format: str) -> str:
    """Return the file name of a shard's vectors."""
    return f"part-{number:05d}.{shard_format}"


def shard_names(number: int, options: Mapping[str, Any]) -> list[str]:
    """Return the names of a shard's files: vectors, and for .npy with ids a file of ids.

    ``options``: the options in the manifest's plan.
    """
    name = shard_name(number, options["shard_format"])
    if options["shard_format"] != "npy" or options["id_column"] is None:
        return [name]
    return [name, f"part-{number:05d}.ids.txt"]


def rows_name(number: int) -> str:
    """Return the file name of a shard's row digests; see :class:`RowKeys`."""
    return f"_part-{number:05d}.rows.npy"


def digest(value: Mapping[str, Any], before: str = "") -> str:
    """Return the SHA-256, in hex digits, of a JSON object without the digest that it records.

    ``before``: the digest of the object before it, with which the lines of a journal are chained.
    Layout and order of keys do not matter; every key, type and value does.
    """
    rest = {key: part for key, part in value.items() if key != DIGEST_KEY}
    content = before + json.dumps(rest, sort_keys=True, ensure_ascii=True)
    return hashlib.sha256(content.encode("ascii")).hexdigest()


def manifest_content(manifest: Mapping[str, Any]) -> bytes:
    """Return the bytes of a manifest's file, with the manifest's digest in it."""
    signed = {**manifest, DIGEST_KEY: digest(manifest)}
    return (json.dumps(signed, indent=1, ensure_ascii=True) + "\n").encode("ascii")


def read_manifest(folder: Path, error: type[EncoderEngineError]) -> dict[str, Any] | None:
    """Read a folder's manifest; None: there is none, because the output is incomplete.

    Raises ``error`` for a manifest that was changed after it was written.
    """
    path = folder / MANIFEST_NAME
    if not path.exists():
        return None
    try:
        value = read_json(path, UnexpectedValueError)
        _check(record_value(value), _MANIFEST)
        if value.get(DIGEST_KEY) != digest(value):
            raise UnexpectedValueError("its content does not match the SHA-256 that it records")
        check_plan(value["plan"])
        records = read_records(value["shards"], value["plan"]["options"])
        for key in ("rows", "tokens", "truncated_rows"):
            total = sum(getattr(record, key) for record in records)
            if value[key] != total:
                raise UnexpectedValueError(f"{key} is {value[key]}, its shards have {total}")
    except UnexpectedValueError as reason:
        raise error(
            f"{path} is damaged, or none of encoder-engine's ({reason}); restore it, or embed into "
            "a new folder"
        ) from None
    found: dict[str, Any] = value
    return found


def check_plan(plan: Any) -> None:
    """Raise :class:`UnexpectedValueError` if a run's plan lacks a key or has a wrong type."""
    _check(record_value(plan, "plan"), _PLAN)


def read_records(shards: Sequence[Any], options: Mapping[str, Any]) -> list[ShardRecord]:
    """Check the records of shards of a manifest, and return them in order.

    ``options``: the options of the plan. Raises :class:`UnexpectedValueError` for a malformed
    record or for files that are not named as the shard's.
    """
    records = []
    for number, shard in enumerate(shards):
        name = f"shards[{number}]"
        _check(record_value(shard, name), _SHARD)
        record_value(shard, name).only_keys(_SHARD)
        record = ShardRecord(**shard)
        if record.shard != number:
            raise UnexpectedValueError(f"{name} is of shard {record.shard}")
        expected = [*shard_names(number, options), rows_name(number)]
        if record.files.keys() != set(expected):
            found = ", ".join(sorted(record.files))
            raise UnexpectedValueError(f"{name} names {found:.200}, not {', '.join(expected)}")
        records.append(record)
    return records


class UnexpectedValueError(InputError):
    """A value of a manifest is missing, of another type, or contradicts another value."""


def _whole(value: JsonValue) -> int:
    return value.integer(most=None)


def _positive(value: JsonValue) -> int:
    return value.positive(most=None)


def _text(value: JsonValue) -> str:
    return value.string(surrogates=True)


def _sha256(value: JsonValue) -> str:
    if not _SHA256.fullmatch(value.string()):
        raise value.must_be("a SHA-256")
    return value.string()


def _or_null(read: Reader) -> Reader:
    return lambda value: value.optional(read)


def _list_of(read: Reader) -> Reader:
    return lambda value: [read(item) for item in value.items()]


def _map_of(read: Reader) -> Reader:
    return lambda value: [read(member) for member in value.members().values()]


def _shards(value: JsonValue) -> list[JsonValue]:
    if not value.items():
        raise value.must_be("a list of shards")
    return value.items()


_PLAN: dict[str, Any] = {
    "model": {
        "fingerprint": _sha256,
        "dtype": _text,
        "device": _text,
        "quantization": _or_null(_text),
        "pooling": _list_of(_text),
        "layers": _list_of(lambda value: value.read_as(tuple[int, float])),
        "max_seq_length": _or_null(_positive),
    },
    "tokenizer": {"fingerprint": _sha256},
    "options": {
        "prompt": _text,
        "num_prompt_tokens": _whole,
        "normalized": JsonValue.boolean,
        "dimension": _positive,
        "precision": _text,
        "on_truncation": _text,
        "column": _text,
        "id_column": _or_null(_text),
        "max_characters": _or_null(_positive),
        "unique_ids": JsonValue.boolean,
        "shard_rows": _or_null(_positive),
        "shard_format": lambda value: value.read_as(ShardFormat),
    },
    "versions": _map_of(_text),
}
_SHARD: dict[str, Any] = {
    "shard": _whole,
    "rows": _positive,
    "tokens": _whole,
    "truncated_rows": _whole,
    "rows_sha256": _sha256,
    "files": _map_of(_sha256),
}
_MANIFEST: dict[str, Any] = {
    "plan": JsonValue.object,
    "model": _text,
    "inputs": _list_of(_text),
    "rows": _positive,
    "tokens": _whole,
    "truncated_rows": _whole,
    "skipped_rows": _whole,
    "shards": _shards,
    "generation": _positive,
}


def record_value(value: Any, path: str = "") -> JsonValue:
    """Return a manifest's value as one whose readers raise :class:`UnexpectedValueError`."""
    return JsonValue(value, JsonSource(name="", error=UnexpectedValueError, mend=""), path)


def _check(value: JsonValue, expected: Mapping[str, Any]) -> None:
    """Raise :class:`UnexpectedValueError` if a key is missing, or its value has another type."""
    for key, read in expected.items():
        inner = value.get(key)
        if not inner.present and key == "generation":  # of a store that never grew
            continue
        if not inner.present:
            raise inner.must_be("stated")
        if isinstance(read, dict):
            _check(inner, read)
        else:
            read(inner)
