"""File access for the whole package: checksums, atomic writes."""

from __future__ import annotations

import base64
import contextlib
import hashlib
import os
import re
from contextlib import contextmanager
from contextvars import ContextVar
from pathlib import Path
from typing import TYPE_CHECKING, Any, BinaryIO, TypeVar

from encoder_engine.errors import ChecksumError, OutputError

if TYPE_CHECKING:
    from collections.abc import Callable, Collection, Iterable, Iterator, Mapping

    from encoder_engine.errors import EncoderEngineError

__all__ = [
    "CHECKSUMS",
    "PendingFile",
    "check_apart",
    "check_target",
    "decode_text",
    "each_file_once",
    "file_sha256",
    "move_into_place",
    "once",
    "partial_path",
    "read_bytes",
    "read_text",
    "recorded_checksums",
    "sync_directory",
    "verify_checksums",
    "write_atomically",
    "write_checksums",
    "writing",
]

CHECKSUMS = "SHA256SUMS"
_SHA256 = re.compile(r"[0-9a-f]{64}")
Found = TypeVar("Found")
# What the loading under way has read, by purpose and path; None: there is none.
_READ: ContextVar[dict[tuple[str, Path], Any] | None] = ContextVar("read", default=None)


def read_text(path: Path, error: type[EncoderEngineError]) -> str:
    """Read a UTF-8 file; raise ``error`` with the reason if that is not possible."""
    return decode_text(read_bytes(path, error), path, error)


def read_bytes(path: Path, error: type[EncoderEngineError]) -> bytes:
    """Read a file; raise ``error`` with the reason if that is not possible."""
    try:
        content = path.read_bytes()
    except FileNotFoundError:
        raise error(
            f"{path} is missing; look at the name, and whether the whole folder was copied"
        ) from None
    except OSError as failure:
        raise error(f"{path} cannot be read: {failure.strerror}") from failure
    refuse_pointer(path, content, error)
    return content


def refuse_pointer(path: Path, content: bytes, error: type[EncoderEngineError]) -> None:
    """Raise ``error`` if the content begins like a Git LFS pointer."""
    if content.startswith(b"version https://git-lfs"):
        raise error(
            f"{path} is a Git LFS pointer in place of the file; run `git lfs pull` in its folder, "
            "or download the file itself"
        )


def decode_text(content: bytes, path: Path, error: type[EncoderEngineError]) -> str:
    """Decode a UTF-8 file's content; raise ``error`` with the reason if that is not possible."""
    try:
        text = content.decode("utf-8")
    except UnicodeDecodeError as failure:
        raise error(f"{path} is not UTF-8: byte {failure.start} is wrong") from failure
    if text.startswith("\ufeff"):
        raise error(f"{path} starts with a byte order mark; save it as plain UTF-8")
    return text


def check_target(path: Path, *, overwrite: bool) -> None:
    """Raise :class:`OutputError` if a file of this name exists, or cannot be written.

    ``overwrite``: it may exist.
    """
    if path.is_dir():
        raise OutputError(f"{path} is a directory; name a file in it")
    if path.exists() and not overwrite:
        raise OutputError(f"{path} exists; name another file, or pass overwrite=True")
    if not path.parent.is_dir():
        raise OutputError(f"{path.parent} is not a directory; make it first")
    if not os.access(path.parent, os.W_OK | os.X_OK):
        raise OutputError(f"{path.parent} is not writable; choose another place")


def check_apart(outputs: Iterable[Path], inputs: Iterable[Path]) -> None:
    """Raise :class:`OutputError` if an output is also an input."""
    read = [file for file in inputs if file.exists()]
    for output in outputs:
        if output.exists() and any(output.samefile(file) for file in read):
            raise OutputError(f"{output} is one of the inputs; name another output")


@contextlib.contextmanager
def writing(target: Path) -> Iterator[None]:
    """Raise :class:`OutputError` that names ``target`` for an OSError within the context."""
    try:
        yield
    except OutputError:
        raise
    except OSError as error:
        raise OutputError(f"{target} could not be written: {error.strerror or error}") from error


def partial_path(target: Path, mark: str = "") -> Path:
    """Return the path of an unfinished file or folder beside ``target``, with a leading ``_``.

    pandas and Spark skip such names. ``mark``: tells several unfinished files apart.
    """
    return target.with_name(f"_{target.name}{mark and '.'}{mark}.partial")


class PendingFile:
    """A file that is written beside its target under another name, until :meth:`publish`.

    A process that is killed earlier leaves the target untouched, and perhaps a ``.partial`` file.
    Raises :class:`OutputError` as :func:`check_target`, and where the file cannot be made.
    """

    def __init__(self, target: Path, *, overwrite: bool) -> None:
        check_target(target, overwrite=overwrite)
        self.target = target
        self.overwrite = overwrite
        self.path = partial_path(target, os.urandom(4).hex())
        try:
            self.stream: BinaryIO = self.path.open("xb")
        except OSError as error:
            raise OutputError(f"{target} cannot be written: {error.strerror}") from error

    def publish(self) -> None:
        """Flush the file to the disk, then rename it to the target."""
        self.stream.flush()
        os.fsync(self.stream.fileno())
        self.stream.close()
        move_into_place(self.path, self.target, overwrite=self.overwrite)

    def discard(self) -> None:
        """Remove the file, unless it was published."""
        with contextlib.suppress(OSError):
            self.stream.close()
        self.path.unlink(missing_ok=True)


def move_into_place(source: Path, target: Path, *, overwrite: bool) -> None:
    """Rename a file that was flushed to the disk, and flush its new name too.

    Across file systems it is copied. Raises :class:`OutputError` where the target exists, unless
    ``overwrite``.
    """
    if source.stat().st_dev != target.parent.stat().st_dev:
        import shutil  # not before: it imports every compression

        pending = PendingFile(target, overwrite=overwrite)
        try:
            with source.open("rb") as stream:
                shutil.copyfileobj(stream, pending.stream)
            pending.publish()
        finally:
            pending.discard()
        source.unlink()
        return
    if overwrite:
        source.replace(target)
    else:
        _rename_without_replacing(source, target)
    sync_directory(target.parent)


def write_atomically(path: Path, content: bytes) -> None:
    """Write a file so that a crash leaves the old content or the new; raises OutputError."""
    pending = PendingFile(path, overwrite=True)
    try:
        with writing(path):
            pending.stream.write(content)
            pending.publish()
    finally:
        pending.discard()


def _rename_without_replacing(source: Path, target: Path) -> None:
    """Rename a file; if the target exists by now, raise an error and change nothing."""
    try:
        os.link(source, target)
    except FileExistsError:
        raise OutputError(
            f"{target} was made meanwhile by another process, and is left as it is; move it away"
        ) from None
    except OSError:  # a file system without hard links
        check_target(target, overwrite=False)
        source.replace(target)
        return
    source.unlink()


def sync_directory(directory: Path) -> None:
    """Flush a directory's entries to the disk."""
    if not hasattr(os, "O_DIRECTORY"):
        return
    descriptor = os.open(directory, os.O_RDONLY | os.O_DIRECTORY)
    try:
        os.fsync(descriptor)
    finally:
        os.close(descriptor)


@contextmanager
def each_file_once() -> Iterator[None]:
    """Verify and parse each file only once within this context.

    Nested contexts share the results.
    """
    if _READ.get() is not None:
        yield
        return
    token = _READ.set({})
    try:
        yield
    finally:
        _READ.reset(token)


def once(purpose: str, path: Path, read: Callable[[Path], Found]) -> Found:
    """Return ``read(path)``; within :func:`each_file_once`, read once per ``purpose`` and path."""
    known = _READ.get()
    if known is None:
        return read(path)
    if (purpose, path) not in known:
        known[purpose, path] = read(path)
    found: Found = known[purpose, path]
    return found


def verify_checksums(directory: Path, *, only: Collection[str] | None = None) -> None:
    """Compare the files of a directory with their recorded SHA-256, where there is one.

    Sums are read from a ``SHA256SUMS`` file (as ``sha256sum * > SHA256SUMS`` writes), from the
    RECORD of the installed package that contains the directory, or, in a Hugging Face hub cache,
    from the name of the blob that a ``.safetensors`` file links to.
    ``only``: the files to compare; None: all.
    Raises :class:`ChecksumError` for a file that differs or is missing, and for malformed sums.
    """
    compare_checksums(directory, recorded_checksums(directory), only=only)


def compare_checksums(
    directory: Path, recorded: Mapping[str, str], *, only: Collection[str] | None = None
) -> None:
    """Compare the files of a directory with the SHA-256 sums ``recorded``, by name.

    See :func:`verify_checksums`.
    """
    for name, digest in recorded.items():
        if only is not None and name not in only:
            continue
        path = directory / name
        if not path.is_file():
            raise ChecksumError(f"{path} is missing, but its SHA-256 is recorded; fetch it again")
        found = once("sha256", path, file_sha256)
        if found != digest:
            raise ChecksumError(
                f"{path} has SHA-256 {found}, {digest} was recorded; the file is damaged or was "
                f"changed: fetch it again, or renew {CHECKSUMS} if the change was intended"
            )


def recorded_checksums(directory: Path) -> dict[str, str]:
    """Return the recorded SHA-256 of files by name, hexadecimal; see :func:`verify_checksums`."""
    return once("records", directory, _read_records)


def _read_records(directory: Path) -> dict[str, str]:
    expected = _package_checksums(directory.resolve())
    for name in _names(directory):
        if not name.endswith(".safetensors"):
            continue
        path = directory / name
        blob = path.resolve()
        if path.is_symlink() and _SHA256.fullmatch(blob.name):
            expected[path.name] = blob.name
    sums = directory / CHECKSUMS
    if not sums.is_file():
        return expected
    for number, line in enumerate(read_text(sums, ChecksumError).splitlines(), start=1):
        if not line.strip():
            continue
        digest, _, name = line.partition(" ")
        name = name.lstrip(" *")
        inside = not Path(name).is_absolute() and ".." not in Path(name).parts
        if not _SHA256.fullmatch(digest) or not name or not inside:
            raise ChecksumError(f"{sums} line {number} is not '<sha256>  <file>': {line!r}")
        expected[name] = digest
    return expected


def _package_checksums(directory: Path) -> dict[str, str]:
    """Return pip's recorded checksums of an installed package's files in this directory."""
    expected: dict[str, str] = {}
    for site in list(directory.parents)[:4]:
        inside = directory.relative_to(site)
        prefix = f"{inside.as_posix()}/"
        for record in _records(site, inside.parts[0]):
            import csv  # not before: every process imports this module

            for path, digest, _ in csv.reader(read_text(record, ChecksumError).splitlines()):
                algorithm, _, encoded = digest.partition("=")
                if path.startswith(prefix) and algorithm == "sha256":
                    padded = encoded + "=" * (-len(encoded) % 4)
                    name = path.removeprefix(prefix)
                    expected[name] = base64.urlsafe_b64decode(padded).hex()
    return expected


def _records(site: Path, package: str) -> list[Path]:
    names = _names(site)
    owners = (n for n in names if n.startswith(f"{package}-") and n.endswith(".dist-info"))
    return [record for name in owners if (record := site / name / "RECORD").is_file()]


def _names(directory: Path) -> list[str]:
    """Return the names in a directory; [] if it cannot be listed.

    A glob would take longer than loading a tokenizer.
    """
    try:
        with os.scandir(directory) as entries:
            return [entry.name for entry in entries]
    except OSError:
        return []


def file_sha256(path: Path) -> str:
    """Return the SHA-256 of a file's bytes, hexadecimal."""
    with path.open("rb") as file:
        return hashlib.file_digest(file, "sha256").hexdigest()


def write_checksums(directory: Path, names: Iterable[str]) -> None:
    """Record the SHA-256 of the named files in ``SHA256SUMS``, atomically."""
    lines = [f"{file_sha256(directory / name)}  {name}\n" for name in sorted(names)]
    write_atomically(directory / CHECKSUMS, "".join(lines).encode())
