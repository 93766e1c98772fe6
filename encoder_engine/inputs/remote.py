"""Inputs and outputs at addresses, such as s3://bucket/texts.jsonl, by fsspec.

fsspec finds the file system of an address: ``s3://`` needs s3fs, ``gs://`` gcsfs, ``hf://``
huggingface_hub, ``https://`` aiohttp. Files are read in order, in blocks, and nothing is stored.
"""

from __future__ import annotations

import io
import re
from contextlib import contextmanager
from typing import TYPE_CHECKING, Any

from encoder_engine.errors import EncoderEngineError, MissingDependencyError, OutputError, ReadError
from encoder_engine.files import file_sha256

if TYPE_CHECKING:
    from collections.abc import Iterator, Sequence
    from pathlib import Path

__all__ = ["expand_remote", "is_remote", "open_remote", "upload_folder"]

_ADDRESS = re.compile(r"[A-Za-z][A-Za-z0-9+.-]+://")
_SHARD = re.compile(r"_?part-\d{5,}\.\S+")
_BLOCK_BYTES = 1 << 20
# The name of the marker file at an address while a folder is copied to it; readers skip names that
# begin with ``_``.
_UPLOADING = "_uploading"


def is_remote(name: str) -> bool:
    """Return whether a name is an address; for ``file://``, False: use the path."""
    return bool(_ADDRESS.match(name)) and not name.startswith("file://")


def expand_remote(name: str) -> list[str]:
    """List the files of an address: itself, those in a folder, or those that match a glob.

    Files are sorted by name; in a folder, names that begin with ``.`` or ``_`` are left out. Raises
    :class:`ReadError` for an address without files, and :class:`MissingDependencyError`.
    """
    with _failures(name):
        system, path = _file_system(name)
        if any(character in path for character in "*?["):
            matches = system.glob(path, detail=True)
            found = sorted(p for p, facts in matches.items() if facts["type"] == "file")
        elif system.isdir(path):
            found = [p for p in sorted(system.find(path)) if not _hidden(p, path)]
        else:
            found = [path] if system.exists(path) else []
        if not found:
            raise ReadError(f"{name} holds no files, or does not exist")
        return [name] if found == [path] else [str(system.unstrip_protocol(p)) for p in found]


@contextmanager
def open_remote(name: str) -> Iterator[tuple[io.BufferedReader, int]]:
    """Open a file at an address for reading; yield its stream and its size in bytes.

    Raises :class:`ReadError` where it cannot be opened or read, and
    :class:`MissingDependencyError`.
    """
    with _failures(name):
        system, path = _file_system(name)
        size = int(system.info(path)["size"] or 0)
        with system.open(path, "rb", block_size=_BLOCK_BYTES) as raw:
            yield io.BufferedReader(raw, _BLOCK_BYTES), size


def upload_folder(folder: Path, address: str, last: str) -> int:
    """Copy the files of a folder to an address, the file ``last`` at the end; return their number.

    A folder at an address is therefore complete if that file exists. A stopped upload is
    resumed: files that it copied are not copied again. Files of these names from an earlier folder
    are removed first, because their sizes may be the same. Raises :class:`OutputError`.
    """
    files = sorted(path for path in folder.iterdir() if path.is_file() and path.name[:1] != ".")
    ordered = [path for path in files if path.name != last] + [folder / last]
    try:
        system, base = _file_system(address)
        base = base.rstrip("/")
        system.makedirs(base, exist_ok=True)
        _begin_upload(system, base, [path.name for path in reversed(ordered)], folder / last)
        for path in ordered:
            target = f"{base}/{path.name}"
            if path.name != last and _has_size(system, target, path.stat().st_size):
                continue
            system.put_file(str(path), target)
            if not _has_size(system, target, path.stat().st_size):
                raise OutputError(f"{address} holds {path.name} with another size; upload it again")
        system.rm_file(f"{base}/{_UPLOADING}")
    except (OutputError, MissingDependencyError):
        raise
    except Exception as error:  # each file system raises errors of its own
        raise OutputError(
            f"{address} could not be written: {error}; {folder} is whole: the same command uploads "
            "it again"
        ) from error
    return len(ordered)


def _begin_upload(system: Any, base: str, names: Sequence[str], last: Path) -> None:
    """Begin or resume an upload, by the marker file that a stopped upload leaves at the address.

    The marker has the SHA-256 of the folder's file ``last``. If it is that of this folder, the
    upload is resumed, and only the copy of ``names[0]``, the file ``last``, is removed. Otherwise
    all files of an earlier upload are removed, and the marker is written.

    names: the names of the folder's files, ``last`` first.
    """
    marker, digest = f"{base}/{_UPLOADING}", file_sha256(last).encode("ascii")
    begun = system.exists(marker) and system.cat_file(marker) == digest
    for name in names[:1] if begun else names:
        if system.exists(f"{base}/{name}"):
            system.rm_file(f"{base}/{name}")
    if begun:
        return
    # A store that shrank leaves shards at the address that it no longer has.
    for path in system.find(base, maxdepth=1):
        if _SHARD.fullmatch(path.rpartition("/")[2]):
            system.rm_file(path)
    system.pipe_file(marker, digest)


def _has_size(system: Any, path: str, size: int) -> bool:
    return bool(system.exists(path)) and system.info(path)["size"] == size


def _file_system(name: str) -> tuple[Any, str]:
    """Return fsspec's file system of an address, and the path in it."""
    try:
        import fsspec
    except ImportError:
        raise MissingDependencyError(f"reading {name}", library="fsspec", extra="fsspec") from None
    try:
        system, path = fsspec.core.url_to_fs(name)
    except ImportError as error:
        # fsspec's message names the library of the address: "Install s3fs to access S3".
        library = re.search(r"[Ii]nstall (\S+)", str(error))
        raise MissingDependencyError(
            f"the address {name}", library=library[1] if library else name.partition(":")[0]
        ) from error
    return system, str(path)


def _hidden(path: str, base: str) -> bool:
    inner = path.removeprefix(base).strip("/")
    return any(part.startswith((".", "_")) for part in inner.split("/"))


@contextmanager
def _failures(name: str) -> Iterator[None]:
    """Convert a file system's exceptions to :class:`ReadError`."""
    try:
        yield
    except EncoderEngineError:
        raise
    except Exception as error:  # each file system raises errors of its own
        reason = str(error).partition("\n")[0] or type(error).__name__
        raise ReadError(f"{name} cannot be read: {reason}") from error
