"""File access for the whole package: checksums, locks, atomic writes."""

from __future__ import annotations

import base64
import contextlib
import errno
import hashlib
import os
import re
import stat
import time
import warnings
from contextlib import contextmanager
from contextvars import ContextVar
from pathlib import Path
from typing import TYPE_CHECKING, Any, BinaryIO, Self, TypeVar

from encoder_engine.errors import ChecksumError, EncoderEngineWarning, LockedError, OutputError

if TYPE_CHECKING:
    from collections.abc import Callable, Collection, Iterable, Iterator, Mapping

    from encoder_engine.errors import EncoderEngineError

__all__ = [
    "CHECKSUMS",
    "LOCK_NAME",
    "FolderLock",
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
    "refuse_locked",
    "sync_directory",
    "verify_checksums",
    "write_atomically",
    "write_checksums",
    "writing",
]

CHECKSUMS = "SHA256SUMS"
# A name that no other program uses; readers of data skip names that begin with a dot.
LOCK_NAME = ".encoder-engine.lock"
_NO_LOCKS = {errno.ENOSYS, errno.ENOLCK, errno.EOPNOTSUPP}
_SHA256 = re.compile(r"[0-9a-f]{64}")
_LOCK_CONTENT = re.compile(rb"(\d{1,20}\n?)?")
# A check whether a folder is locked holds its lock for some microseconds.
_LOCK_SECONDS = 0.1
_LOCK_PAUSE = 0.005
Found = TypeVar("Found")
# What the loading under way has read, by purpose and path; None: there is none.
_READ: ContextVar[dict[tuple[str, Path], Any] | None] = ContextVar("read", default=None)


def read_text(path: Path, error: type[EncoderEngineError]) -> str:
    """Read a UTF-8 file; raises ``error`` with the reason where that is not possible."""
    return decode_text(read_bytes(path, error), path, error)


def read_bytes(path: Path, error: type[EncoderEngineError]) -> bytes:
    """Read a file; raises ``error`` with the reason where that is not possible."""
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
    """Raise ``error`` where the content's beginning is that of a Git LFS pointer."""
    if content.startswith(b"version https://git-lfs"):
        raise error(
            f"{path} is a Git LFS pointer in place of the file; run `git lfs pull` in its folder, "
            "or download the file itself"
        )


def decode_text(content: bytes, path: Path, error: type[EncoderEngineError]) -> str:
    """Decode the content of a UTF-8 file; raise ``error`` with the reason where it is not one."""
    try:
        text = content.decode("utf-8")
    except UnicodeDecodeError as failure:
        raise error(f"{path} is not UTF-8: byte {failure.start} is wrong") from failure
    if text.startswith("\ufeff"):
        raise error(f"{path} starts with a byte order mark; save it as plain UTF-8")
    return text


def check_target(path: Path, *, overwrite: bool) -> None:
    """Raise :class:`OutputError` where a file of this name cannot be written."""
    if path.is_dir():
        raise OutputError(f"{path} is a directory; name a file in it")
    if path.exists() and not overwrite:
        raise OutputError(f"{path} exists; name another file, or pass overwrite=True")
    if not path.parent.is_dir():
        raise OutputError(f"{path.parent} is not a directory; make it first")
    if not os.access(path.parent, os.W_OK | os.X_OK):
        raise OutputError(f"{path.parent} is not writable; choose another place")


def check_apart(outputs: Iterable[Path], inputs: Iterable[Path]) -> None:
    """Raise :class:`OutputError` where an output is also an input."""
    read = [file for file in inputs if file.exists()]
    for output in outputs:
        if output.exists() and any(output.samefile(file) for file in read):
            raise OutputError(f"{output} is one of the inputs; name another output")


@contextlib.contextmanager
def writing(target: Path) -> Iterator[None]:
    """Raise an OSError, such as of a full disk, as :class:`OutputError` that names the target."""
    try:
        yield
    except OutputError:
        raise
    except OSError as error:
        raise OutputError(f"{target} could not be written: {error.strerror or error}") from error


def partial_path(target: Path, mark: str = "") -> Path:
    """Return the path of a file or folder until it is whole: pandas and Spark skip ``_`` names."""
    return target.with_name(f"_{target.name}{mark and '.'}{mark}.partial")


class PendingFile:
    """A file that is written beside its target under another name, until :meth:`publish`.

    A process killed before leaves the target untouched, and perhaps a ``.partial`` file.
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
    """Rename a file that is on the disk, and flush its new name; between file systems, copy it.

    Raises :class:`OutputError` where the target exists, unless ``overwrite``.
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
    """Write a file so that the disk has either the old or the whole new content."""
    pending = PendingFile(path, overwrite=True)
    try:
        with writing(path):
            pending.stream.write(content)
            pending.publish()
    finally:
        pending.discard()


def _rename_without_replacing(source: Path, target: Path) -> None:
    """Rename a file; raises where the target has appeared meanwhile, and leaves it alone."""
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
    """Compare and parse each file once until the context ends, as a loading does.

    Contexts within one another share what was read.
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
    """Return what ``read`` makes of a file or folder, the first time in :func:`each_file_once`."""
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
    from the name of the blob that a file links to.
    ``only``: the files to compare; None: all.
    Raises :class:`ChecksumError` that names the file.
    """
    compare_checksums(directory, recorded_checksums(directory), only=only)


def compare_checksums(
    directory: Path, recorded: Mapping[str, str], *, only: Collection[str] | None = None
) -> None:
    """Compare the files of a directory with SHA-256 sums; see :func:`verify_checksums`."""
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
    """Return the recorded SHA-256 of the directory's files, hexadecimal, by name."""
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
    """Return pip's recorded sums of files in an installed package that contains the directory."""
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
    """List a directory, empty if there is none; a glob takes longer than loading a tokenizer."""
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


def _refuse_without_locks(folder: Path) -> None:
    """Raise :class:`OutputError` on Windows, which has neither POSIX's locks nor ``O_NOFOLLOW``."""
    if not hasattr(os, "O_NOFOLLOW"):
        raise OutputError(
            f"{folder} cannot be locked: this system has no POSIX locks of files, so two runs may "
            "write the same folder; compute in memory here, or write it on Linux or macOS"
        )


def refuse_locked(folder: Path) -> None:
    """Raise :class:`LockedError` where another run holds the folder's lock; changes nothing.

    Any number of processes may check at once, by a shared lock. Raises :class:`OutputError` on
    Windows.
    """
    _refuse_without_locks(folder)
    import fcntl

    path = folder / LOCK_NAME
    try:
        descriptor = os.open(path, os.O_RDONLY | os.O_NONBLOCK | os.O_CLOEXEC | os.O_NOFOLLOW)
    except OSError:
        return  # none is there; or one that cannot be taken, and then taking it says why
    try:
        fcntl.flock(descriptor, fcntl.LOCK_SH | fcntl.LOCK_NB)
    except BlockingIOError:
        raise _held(folder, descriptor) from None
    except OSError:
        return
    finally:
        os.close(descriptor)


def _held(folder: Path, descriptor: int) -> LockedError:
    holder = os.pread(descriptor, 64, 0).decode("ascii", "replace").strip()
    named = f" (process {holder})" if _alive(holder) else ""
    return LockedError(
        f"{folder} is being written by another run{named}; wait for it, stop it, or name another "
        "output"
    )


def _alive(process: str) -> bool:
    """Return whether a process of this number is running; a lock file may name a former holder."""
    if not process.isdecimal() or int(process) == 0:
        return False
    try:
        os.kill(int(process), 0)
    except PermissionError:
        return True  # another user's
    except (OSError, OverflowError):
        return False
    return True


class FolderLock:
    """Allows one run at a time in a folder: holds a lock file from entry to exit, then removes it.

    The system releases the lock of a killed process: a lock file without a holder is taken over. A
    file or link of that name that is not a lock is refused and left alone. So is every folder on
    Windows.
    """

    def __init__(self, folder: Path) -> None:
        self._folder = folder
        self._path = folder / LOCK_NAME
        self._descriptor = -1

    def __enter__(self) -> Self:
        _refuse_without_locks(self._folder)
        try:
            while not self._take():
                pass
        except OutputError:
            raise
        except OSError as error:
            if error.errno == errno.ELOOP:
                raise self._not_ours("is a symbolic link") from error
            raise OutputError(
                f"{self._path} cannot be written: {error.strerror or error}"
            ) from error
        return self

    def _take(self) -> bool:
        """Open and lock the file; False where its holder removed it in between."""
        flags = os.O_RDWR | os.O_CREAT | os.O_CLOEXEC | os.O_NOFOLLOW | os.O_NONBLOCK
        descriptor = os.open(self._path, flags, 0o644)
        try:
            self._lock(descriptor)
            held = os.fstat(descriptor)
            try:
                same = os.path.samestat(held, self._path.lstat())
            except FileNotFoundError:
                same = False
            if same:
                self._refuse_others(descriptor, held)
                os.ftruncate(descriptor, 0)
                os.pwrite(descriptor, f"{os.getpid()}\n".encode("ascii"), 0)
        except BaseException:
            os.close(descriptor)
            raise
        if not same:
            os.close(descriptor)
            return False
        self._descriptor = descriptor
        return True

    def _lock(self, descriptor: int) -> None:
        import fcntl

        try:
            for _ in range(round(_LOCK_SECONDS / _LOCK_PAUSE)):
                with contextlib.suppress(BlockingIOError):
                    fcntl.flock(descriptor, fcntl.LOCK_EX | fcntl.LOCK_NB)
                    return
                time.sleep(_LOCK_PAUSE)
        except OSError as error:
            if error.errno not in _NO_LOCKS:
                raise
            warnings.warn(
                EncoderEngineWarning(
                    f"the file system of {self._folder} has no locks ({error.strerror}); do not "
                    "start a second run there before this one ends"
                ),
                stacklevel=4,
            )
            return
        raise _held(self._folder, descriptor)

    def _refuse_others(self, descriptor: int, status: os.stat_result) -> None:
        if not stat.S_ISREG(status.st_mode):
            raise self._not_ours("is not a plain file")
        if status.st_nlink > 1 or not _LOCK_CONTENT.fullmatch(os.pread(descriptor, 64, 0)):
            raise self._not_ours("was written by another program")

    def _not_ours(self, reason: str) -> OutputError:
        return OutputError(
            f"{self._path} {reason}, so the folder cannot be locked; move it away, or name another "
            "folder"
        )

    def exchange(self, other: FolderLock) -> None:
        """Follow the files of both locks, whose folders have exchanged their names."""
        self._path, other._path = other._path, self._path

    def __exit__(self, *_details: object) -> None:
        # Removed while the lock is held: a process that opened it meanwhile sees that it is gone.
        try:
            self._path.unlink(missing_ok=True)
        finally:
            os.close(self._descriptor)
