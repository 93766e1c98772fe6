"""The manifest of a folder of shards: file names, keys with their types, and its own SHA-256.

A manifest decides which files belong to a store, so nothing of it is used before its SHA-256, all
keys and all types are verified.
"""

from __future__ import annotations

import hashlib
import json
import re
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, Literal, get_args

from encoder_engine import files
from encoder_engine.errors import InputError

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping, Sequence
    from pathlib import Path

    from encoder_engine.errors import EncoderEngineError

ShardFormat = Literal["npy", "parquet", "arrow", "lance"]
SHARD_FORMATS: tuple[ShardFormat, ...] = get_args(ShardFormat)

# Readers of Parquet, pandas and Spark among them, pass over names that begin with "_" or ".".
MANIFEST_NAME = "_manifest.json"
JOURNAL_NAME = "_journal.jsonl"
SKIPPED_NAME = "_skipped.jsonl"
# As versions before wrote them; they are read, and written no more.
FORMER_NAMES = {
    MANIFEST_NAME: "manifest.json",
    JOURNAL_NAME: "journal.jsonl",
    SKIPPED_NAME: "skipped.jsonl",
}
DIGEST_KEY = "sha256"
_SHA256 = re.compile(r"[0-9a-f]{64}")


@dataclass(frozen=True, kw_only=True)
class ShardRecord:
    """A finished shard.

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
    """Return the name of a shard's file of vectors."""
    return f"part-{number:05d}.{shard_format}"


def shard_names(number: int, options: Mapping[str, Any]) -> list[str]:
    """Return the names of a shard's files: vectors, and for .npy with ids a file of ids.

    ``options``: the options of the plan.
    """
    name = shard_name(number, options["shard_format"])
    if options["shard_format"] != "npy" or options["id_column"] is None:
        return [name]
    return [name, f"part-{number:05d}.ids.txt"]


def record_path(folder: Path, name: str) -> Path:
    """Return a record's path: its name, or the former name in a folder of a former version."""
    if (folder / MANIFEST_NAME).exists() or (folder / JOURNAL_NAME).exists():
        return folder / name
    former = folder / FORMER_NAMES[name]
    return former if former.exists() else folder / name


def digest(value: Mapping[str, Any], before: str = "") -> str:
    """Return the SHA-256 of the digest ``before`` and a JSON object without its own digest.

    Layout and order of keys do not matter; every key, type and value does.
    """
    rest = {key: part for key, part in value.items() if key != DIGEST_KEY}
    content = before + json.dumps(rest, sort_keys=True, ensure_ascii=True)
    return hashlib.sha256(content.encode("ascii")).hexdigest()


def manifest_content(manifest: Mapping[str, Any]) -> bytes:
    """Return the bytes of a manifest with its digest."""
    signed = {**manifest, DIGEST_KEY: digest(manifest)}
    return (json.dumps(signed, indent=1, ensure_ascii=True) + "\n").encode("ascii")


def read_manifest(folder: Path, error: type[EncoderEngineError]) -> dict[str, Any] | None:
    """Read a folder's manifest; None where there is none, and the output is incomplete.

    Raises ``error`` for a manifest that was changed after it was written.
    """
    path = record_path(folder, MANIFEST_NAME)
    if not path.exists():
        return None
    try:
        value = files.read_json(path, UnexpectedValueError)
        _check_object(value, _MANIFEST, "")
        signed = path.name == MANIFEST_NAME or DIGEST_KEY in value
        if signed and value.get(DIGEST_KEY) != digest(value):
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
    """Raise :class:`UnexpectedValueError` where a plan lacks a key, or one has another type."""
    _check_object(plan, _PLAN, "plan")
    options = plan["options"]
    if options["shard_format"] not in SHARD_FORMATS:
        raise UnexpectedValueError(f"plan.options.shard_format is {options['shard_format']!r:.80}")


def read_records(shards: Sequence[Any], options: Mapping[str, Any]) -> list[ShardRecord]:
    """Read the records of shards in order.

    ``options``: the options of the plan. Raises :class:`UnexpectedValueError` for a malformed
    record or for files that are not named as the shard's.
    """
    records = []
    for number, shard in enumerate(shards):
        name = f"shards[{number}]"
        _check_object(shard, _SHARD, name)
        unknown = sorted(shard.keys() - _SHARD.keys())
        if unknown:
            raise UnexpectedValueError(f"{name}.{unknown[0]} is no key of a shard")
        record = ShardRecord(**shard)
        if record.shard != number:
            raise UnexpectedValueError(f"{name} is of shard {record.shard}")
        expected = shard_names(number, options)
        if sorted(record.files) != sorted(expected):
            found = ", ".join(sorted(record.files))
            raise UnexpectedValueError(f"{name} names {found:.200}, not {', '.join(expected)}")
        records.append(record)
    return records


class UnexpectedValueError(InputError):
    """A value of a record is missing, of another type, or contradicts another."""


def _whole(value: Any) -> bool:
    return isinstance(value, int) and not isinstance(value, bool) and value >= 0


def _positive(value: Any) -> bool:
    return _whole(value) and value > 0


def _text(value: Any) -> bool:
    return isinstance(value, str)


def _sha256(value: Any) -> bool:
    return isinstance(value, str) and _SHA256.fullmatch(value) is not None


def _flag(value: Any) -> bool:
    return isinstance(value, bool)


def _or_null(check: Callable[[Any], bool]) -> Callable[[Any], bool]:
    return lambda value: value is None or check(value)


def _list_of(check: Callable[[Any], bool]) -> Callable[[Any], bool]:
    return lambda value: isinstance(value, list) and all(map(check, value))


def _map_of(check: Callable[[Any], bool]) -> Callable[[Any], bool]:
    return lambda value: isinstance(value, dict) and all(map(check, value.values()))


def _layer(value: Any) -> bool:
    number, weight = value if isinstance(value, list) and len(value) == 2 else (None, None)
    return (
        isinstance(number, int)
        and not isinstance(number, bool)
        and isinstance(weight, (int, float))
        and not isinstance(weight, bool)
    )


_PLAN: dict[str, Any] = {
    "model": {
        "fingerprint": _sha256,
        "dtype": _text,
        "device": _text,
        "quantization": _or_null(_text),
        "pooling": _list_of(_text),
        "layers": _list_of(_layer),
        "max_seq_length": _or_null(_positive),
    },
    "tokenizer": {"fingerprint": _sha256},
    "options": {
        "prompt": _text,
        "num_prompt_tokens": _whole,
        "normalized": _flag,
        "dimension": _positive,
        "precision": _text,
        "on_truncation": _text,
        "column": _text,
        "id_column": _or_null(_text),
        "max_characters": _or_null(_positive),
        "unique_ids": _flag,
        "shard_rows": _or_null(_positive),
        "shard_format": _text,
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
    "plan": lambda value: isinstance(value, dict),
    "model": _text,
    "inputs": _list_of(_text),
    "rows": _positive,
    "tokens": _whole,
    "truncated_rows": _whole,
    "skipped_rows": _whole,
    "shards": lambda value: isinstance(value, list) and bool(value),
}
_KINDS: dict[Any, str] = {
    _whole: "a whole number",
    _positive: "a whole number from 1",
    _text: "a text",
    _sha256: "a SHA-256",
    _flag: "true or false",
}


def _check_object(value: Any, expected: Mapping[str, Any], name: str) -> None:
    """Raise :class:`UnexpectedValueError` where keys or types of an object are not expected."""
    if not isinstance(value, dict):
        raise UnexpectedValueError(f"{name or 'it'} is {value!r:.40}, not an object")
    for key, check in expected.items():
        inner = f"{name}.{key}" if name else key
        if key not in value:
            raise UnexpectedValueError(f"{inner} is missing")
        if isinstance(check, dict):
            _check_object(value[key], check, inner)
        elif not check(value[key]):
            kind = _KINDS.get(check, "what belongs there")
            raise UnexpectedValueError(f"{inner} is {value[key]!r:.80}, not {kind}")
