"""Finds a checkpoint's files and reads the tensors in them."""

from __future__ import annotations

import json
import os
import re
from contextlib import ExitStack, contextmanager
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING, Any, NamedTuple

import torch
from safetensors import SafetensorError, safe_open

from encoder_engine.errors import (
    CheckpointFileError,
    MissingDependencyError,
    UnsupportedFeatureError,
)
from encoder_engine.json_values import JsonValue, read_value

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator
    from io import BufferedReader

    from torch import Tensor

__all__ = ["StoredTensor", "open_tensors", "resolve_directory"]

# The names of safetensors for what weights are made of.
_DTYPES = {
    "F64": torch.float64,
    "F32": torch.float32,
    "F16": torch.float16,
    "BF16": torch.bfloat16,
    "I8": torch.int8,
}
# peft writes this file beside LoRA weights; transformers applies them at loading.
ADAPTER = "adapter_config.json"
_HUB_ID = re.compile(r"[\w-][\w.-]*(/[\w-][\w.-]*)?")


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


class StoredTensor(NamedTuple):
    """A tensor in a file, read to the CPU by :meth:`read`; of a ``.bin``, already in memory."""

    shape: tuple[int, ...]
    read: Callable[[], Tensor]


@contextmanager
def open_tensors(directory: Path) -> Iterator[dict[str, StoredTensor]]:
    """Yield every tensor of a checkpoint by name, readable while the context lasts.

    The first of these files is used: model.safetensors, model.safetensors.index.json,
    pytorch_model.bin, pytorch_model.bin.index.json. A ``.bin`` is read as a whole by torch's
    weights-only unpickler. Opening and reading raise :class:`CheckpointFileError`. A directory with
    an adapter raises :class:`UnsupportedFeatureError`.
    """
    if (directory / ADAPTER).exists():
        raise UnsupportedFeatureError(
            f"{directory} holds an adapter ({ADAPTER}), which would be left out; merge it into the "
            "weights first: peft's AutoPeftModel.from_pretrained(...).merge_and_unload()"
            ".save_pretrained(...)"
        )
    with ExitStack() as files:
        yield _find_tensors(directory, files)


def _find_tensors(directory: Path, files: ExitStack) -> dict[str, StoredTensor]:
    opened = partial(_open_safetensors, files=files)
    for name, find in (("model.safetensors", opened), ("pytorch_model.bin", _read_bin)):
        if (directory / name).is_file():
            return find(directory / name)
        index = directory / f"{name}.index.json"
        if index.is_file():
            return _open_shards(index, find)
    raise CheckpointFileError(
        f"{directory} has no weights; it should hold model.safetensors or pytorch_model.bin "
        "(or either one's .index.json with its shards)"
    )


def _open_shards(
    index: Path, find: Callable[[Path], dict[str, StoredTensor]]
) -> dict[str, StoredTensor]:
    listed = read_value(index, CheckpointFileError).get("weight_map").members()
    weight_map = {name: _shard_name(shard) for name, shard in listed.items()}
    shards = [index.parent / name for name in sorted(set(weight_map.values()))]
    absent = [shard.name for shard in shards if not shard.is_file()]
    if absent:
        raise CheckpointFileError(f"{index} names shards that are not in its folder: {absent}")
    tensors: dict[str, StoredTensor] = {}
    for shard in shards:
        for name, tensor in find(shard).items():
            if weight_map.get(name) != shard.name:
                raise CheckpointFileError(
                    f"{shard} holds {name}, which {index.name} expects in {weight_map.get(name)}"
                )
            tensors[name] = tensor
    if tensors.keys() != weight_map.keys():
        lost = sorted(set(weight_map) - set(tensors))
        raise CheckpointFileError(f"{index} lists {lost[0]}, which is not in {weight_map[lost[0]]}")
    return tensors


def _shard_name(value: JsonValue) -> str:
    name = value.string()
    if Path(name).name != name:
        raise value.must_be("a file in the folder of the index")
    return name


def _open_safetensors(path: Path, files: ExitStack) -> dict[str, StoredTensor]:
    with _naming_file(path):
        # The header is checked by this; its mapping would keep what is read of it in memory, and a
        # file that is changed later must not change a loaded model.
        with safe_open(path, framework="pt"):
            pass
        stream = files.enter_context(path.open("rb"))
        size = int.from_bytes(stream.read(8), "little")
        header: dict[str, Any] = json.loads(stream.read(size))
        header.pop("__metadata__", None)
        return {
            name: StoredTensor(
                tuple(entry["shape"]), partial(_read_tensor, path, stream, 8 + size, name, entry)
            )
            for name, entry in header.items()
        }


def _read_tensor(
    path: Path, stream: BufferedReader, start: int, name: str, entry: dict[str, Any]
) -> Tensor:
    """Read a tensor of a safetensors file; the header's offsets count from byte ``start``."""
    dtype = _DTYPES.get(entry["dtype"])
    if dtype is None:
        with _naming_file(path), safe_open(path, framework="pt") as file:
            return file.get_tensor(name).clone()  # type: ignore[no-any-return]
    tensor = torch.empty(entry["shape"], dtype=dtype, device="cpu")
    with _naming_file(path):
        first, last = entry["data_offsets"]
        stream.seek(start + first)
        content = tensor.reshape(-1).view(torch.uint8).numpy()
        if stream.readinto(content.data) != last - first:
            raise OSError("it ends within a tensor")
    return tensor


@contextmanager
def _naming_file(path: Path) -> Iterator[None]:
    """Turn any error of reading into :class:`CheckpointFileError` with the file's path."""
    try:
        yield
    except (SafetensorError, OSError, ValueError, RuntimeError, KeyError) as error:
        raise CheckpointFileError(
            f"{path} is not a readable safetensors file: {error}; fetch it again"
        ) from error


def _read_bin(path: Path) -> dict[str, StoredTensor]:
    try:
        tensors: Any = torch.load(path, map_location="cpu", weights_only=True)
    # Damage makes the unpickler raise almost any type.
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
    return {
        name: StoredTensor(tuple(tensor.shape), tensor.detach) for name, tensor in tensors.items()
    }
