"""Where a checkpoint's files are, whether they are whole, and the tensors in them."""

from __future__ import annotations

import hashlib
import json
import os
import re
import tempfile
from pathlib import Path
from typing import TYPE_CHECKING, Any

import torch
from safetensors import SafetensorError, safe_open

from encoder_engine.errors import CheckpointFileError, ChecksumError, MissingDependencyError

if TYPE_CHECKING:
    from collections.abc import Iterable

    from torch import Tensor

__all__ = [
    "read_tensors",
    "resolve_directory",
    "verify_checksums",
    "write_atomically",
    "write_checksums",
]

CHECKSUMS = "SHA256SUMS"
_HUB_ID = re.compile(r"[\w-][\w.-]*(/[\w-][\w.-]*)?")
_HUB_SHA256 = re.compile(r"[0-9a-f]{64}")


def resolve_directory(path_or_hub_id: str | os.PathLike[str]) -> Path:
    """Find a model's local directory, downloading it if it is an id on the Hugging Face hub.

    An existing directory wins. The download needs ``huggingface_hub`` (extra ``hf``) and honours
    its offline mode. Raises :class:`CheckpointFileError` with what was looked for.
    """
    path = Path(path_or_hub_id)
    if path.is_dir():
        return path
    if path.exists():
        raise CheckpointFileError(f"{path} is a file; give the directory that holds the model")
    name = os.fspath(path_or_hub_id)
    if not _HUB_ID.fullmatch(name):
        raise CheckpointFileError(f"there is no directory {name}")
    return _download(name)


def _download(hub_id: str) -> Path:
    try:
        from huggingface_hub import errors, snapshot_download
    except ImportError:
        raise MissingDependencyError(
            f"there is no directory {hub_id}; taking it as a hub id",
            library="huggingface_hub",
            extra="hf",
        ) from None
    small = ["*.json", "*.txt", "*.model", "SHA256SUMS"]
    try:
        directory = Path(snapshot_download(hub_id, allow_patterns=[*small, "*.safetensors"]))
        if not any(directory.glob("*.safetensors")):
            directory = Path(snapshot_download(hub_id, allow_patterns=[*small, "*.bin"]))
    except (
        errors.HfHubHTTPError,
        errors.LocalEntryNotFoundError,
        errors.HFValidationError,
        OSError,
    ) as error:
        reason = str(error).strip().splitlines()[0] if str(error).strip() else type(error).__name__
        raise CheckpointFileError(
            f"there is no directory {hub_id}, and the hub gave no model of that id: {reason}"
        ) from error
    return directory


def verify_checksums(directory: Path) -> None:
    """Compare the directory's files with the SHA-256 recorded for them, where one is.

    Recorded in a ``SHA256SUMS`` file (as ``sha256sum * > SHA256SUMS`` writes) or, in a hub cache,
    in the name of the blob a file links to. Raises :class:`ChecksumError` naming the file.
    """
    expected = _recorded_checksums(directory)
    for name, digest in expected.items():
        path = directory / name
        if not path.is_file():
            raise ChecksumError(f"{directory / CHECKSUMS} lists {name}, which is not there")
        found = _sha256(path)
        if found != digest:
            raise ChecksumError(
                f"{path} has SHA-256 {found}, {digest} was recorded; the file is damaged or was "
                f"changed: fetch it again, or if the change was meant, renew {CHECKSUMS}"
            )


def _recorded_checksums(directory: Path) -> dict[str, str]:
    expected = {}
    for path in directory.glob("*.safetensors"):
        blob = path.resolve()
        if path.is_symlink() and _HUB_SHA256.fullmatch(blob.name):
            expected[path.name] = blob.name
    sums = directory / CHECKSUMS
    if not sums.is_file():
        return expected
    for number, line in enumerate(sums.read_text(encoding="utf-8").splitlines(), start=1):
        if not line.strip():
            continue
        digest, _, name = line.partition(" ")
        name = name.lstrip(" *")
        inside = not Path(name).is_absolute() and ".." not in Path(name).parts
        if not _HUB_SHA256.fullmatch(digest) or not name or not inside:
            raise ChecksumError(f"{sums} line {number} is not '<sha256>  <file>': {line!r}")
        expected[name] = digest
    return expected


def _sha256(path: Path) -> str:
    with path.open("rb") as file:
        return hashlib.file_digest(file, "sha256").hexdigest()


def write_checksums(directory: Path, names: Iterable[str]) -> None:
    """Record the SHA-256 of the named files in ``SHA256SUMS``, atomically."""
    lines = [f"{_sha256(directory / name)}  {name}\n" for name in sorted(names)]
    write_atomically(directory / CHECKSUMS, "".join(lines).encode())


def write_atomically(path: Path, content: bytes) -> None:
    """Write a file so that it is either the old one or wholly the new one."""
    handle, temporary = tempfile.mkstemp(dir=path.parent, prefix=f".{path.name}.")
    try:
        with os.fdopen(handle, "wb") as file:
            file.write(content)
            file.flush()
            os.fsync(file.fileno())
        os.chmod(temporary, 0o644)
        os.replace(temporary, path)
    except BaseException:
        os.unlink(temporary)
        raise


def read_tensors(directory: Path) -> dict[str, Tensor]:
    """Read every tensor of a checkpoint to the CPU.

    From the first of: model.safetensors, model.safetensors.index.json, pytorch_model.bin,
    pytorch_model.bin.index.json; a ``.bin`` only by torch's weights-only unpickler. Raises
    :class:`CheckpointFileError`.
    """
    for name, read in (("model.safetensors", _read_safetensors), ("pytorch_model.bin", _read_bin)):
        if (directory / name).is_file():
            return read(directory / name)
        index = directory / f"{name}.index.json"
        if index.is_file():
            tensors: dict[str, Tensor] = {}
            for shard in _shards(index):
                tensors |= read(shard)
            return tensors
    raise CheckpointFileError(
        f"{directory} has no weights; it should hold model.safetensors or pytorch_model.bin "
        "(or either one's .index.json with its shards)"
    )


def _shards(index: Path) -> list[Path]:
    try:
        weight_map: Any = json.loads(index.read_text(encoding="utf-8"))["weight_map"]
        names = sorted({str(name) for name in weight_map.values()})
    except (ValueError, KeyError, TypeError, AttributeError) as error:
        raise CheckpointFileError(f"{index} is not a weight index: {error!r}") from error
    shards = [index.parent / name for name in names]
    absent = [shard.name for shard in shards if not shard.is_file() or shard.parent != index.parent]
    if absent:
        raise CheckpointFileError(f"{index} names shards that are not beside it: {absent}")
    return shards


def _read_safetensors(path: Path) -> dict[str, Tensor]:
    try:
        with safe_open(path, framework="pt") as file:
            # Copied out of the mapping: a file changed later must not change a loaded model.
            return {name: file.get_tensor(name).clone() for name in file.keys()}  # noqa: SIM118
    except (SafetensorError, OSError, ValueError, RuntimeError, KeyError) as error:
        raise CheckpointFileError(
            f"{path} is not a readable safetensors file: {error}; fetch it again"
        ) from error


def _read_bin(path: Path) -> dict[str, Tensor]:
    try:
        tensors: Any = torch.load(path, map_location="cpu", weights_only=True)
    # The unpickler meets damage in as many ways as there are operations in it.
    except Exception as error:
        reason = str(error).strip().splitlines()[0] if str(error).strip() else type(error).__name__
        raise CheckpointFileError(
            f"{path} cannot be read as weights only: {reason}; fetch it again, or convert it to "
            "model.safetensors"
        ) from error
    if not isinstance(tensors, dict) or not all(
        isinstance(name, str) and isinstance(value, torch.Tensor) for name, value in tensors.items()
    ):
        raise CheckpointFileError(f"{path} does not hold a dictionary of named tensors")
    return tensors
