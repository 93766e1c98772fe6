"""Finds a checkpoint's files, and reads or memory-maps the tensors in them."""

from __future__ import annotations

import json
import mmap
import os
import re
from contextlib import ExitStack, contextmanager
from contextvars import ContextVar
from functools import partial, wraps
from pathlib import Path
from typing import TYPE_CHECKING, Any, NamedTuple, TypedDict, TypeVar, cast

import numpy as np
from safetensors import SafetensorError, safe_open

from encoder_engine.errors import CheckpointFileError, ConfigError, MissingDependencyError
from encoder_engine.families.checkpoints.archives import (
    ArchivedTensor,
    UnusableTensor,
    is_archive,
    read_archive,
)
from encoder_engine.families.checkpoints.arrays import BFLOAT16, CHUNK, dtype_name
from encoder_engine.families.checkpoints.pickles import read_pickle, to_array
from encoder_engine.files import each_file_once, refuse_pointer
from encoder_engine.json_values import JsonValue, nearest, read_value

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator, Mapping
    from io import BufferedReader
    from typing import Unpack

    from encoder_engine.families.checkpoints.arrays import Array

__all__ = [
    "COMPILED",
    "CRF_FILE",
    "HEADS_BESIDE",
    "SETTINGS_OF_OTHERS",
    "SPAN_HEAD_FILE",
    "WEIGHTS",
    "HubKeywords",
    "StoredTensor",
    "fetched_by",
    "fetching",
    "hub_of_base",
    "index_of",
    "mapped_files",
    "open_tensor_file",
    "open_tensors",
    "refuse_compiled",
    "resolve_directory",
    "take_directory",
]

# The file of a compiled encoder, in a directory of its own.
COMPILED = "compiled.safetensors"
# The files of weights, in the order in which they are looked for; each may have an index instead.
WEIGHTS = ("model.safetensors", "pytorch_model.bin")

# The names of safetensors for what a checkpoint may hold; weights are made of the first five.
_DTYPES: dict[str, np.dtype[Any]] = {
    "F64": np.dtype("<f8"),
    "F32": np.dtype("<f4"),
    "F16": np.dtype("<f2"),
    "BF16": BFLOAT16,
    "I8": np.dtype("i1"),
    "U8": np.dtype("u1"),
    "BOOL": np.dtype("?"),
    "I16": np.dtype("<i2"),
    "U16": np.dtype("<u2"),
    "I32": np.dtype("<i4"),
    "U32": np.dtype("<u4"),
    "I64": np.dtype("<i8"),
    "U64": np.dtype("<u8"),
}
# Settings of ColBERT as its authors publish it, and the two small heads of BGE-M3.
SETTINGS_OF_OTHERS = ("artifact.metadata", "colbert_linear.pt", "sparse_linear.pt")
# Of fine-tuned models: weights beside the encoder that have no name in transformers' layouts.
HEADS_BESIDE = CRF_FILE, SPAN_HEAD_FILE = ("crf.safetensors", "span_head.safetensors")
_HUB_ID = re.compile(r"[\w-][\w.-]*(/[\w-][\w.-]*)?")
# Files of sentence-transformers that list the folders of modules, and those of a Router.
_MODULES, _ROUTER = "modules.json", ("router_config.json", "config.json")
# The classes of modules without weights.
_WEIGHTLESS = {"Dropout", "MultiVectorMask", "Normalize", "Pooling", "Router", "SpladePooling"}


class HubKeywords(TypedDict, total=False):
    """Keywords of a download from the Hugging Face hub.

    For a local directory, ``revision`` is refused, and the others are used to download the base
    model of its adapter.

    revision: a branch, a tag or a commit; a commit makes a job over a hub id reproducible.
    token: the access token of an account, or True for the account that is logged in.
    cache_dir: the folder of downloads instead of the hub's default.
    local_files_only: use what was downloaded before, without the network.
    """

    revision: str | None
    token: str | bool | None
    cache_dir: str | os.PathLike[str] | None
    local_files_only: bool


# The keywords of the loading that is under way.
_LOADING: ContextVar[HubKeywords | None] = ContextVar("loading", default=None)
Load = TypeVar("Load", bound="Callable[..., Any]")


@contextmanager
def fetched_by(hub: Mapping[str, Any]) -> Iterator[None]:
    """Return a context in which base models of adapters are downloaded by the keywords in ``hub``.

    ``hub``: its :class:`HubKeywords` are used, other keywords ignored. Within the context each file
    is compared with its checksum once, and each config.json parsed once.
    """
    own = {name: hub[name] for name in HubKeywords.__annotations__ if name in hub}
    token = _LOADING.set(cast("HubKeywords", {**(_LOADING.get() or {}), **own}))
    try:
        with each_file_once():
            yield
    finally:
        _LOADING.reset(token)


def fetching(load: Load) -> Load:
    """Decorate a loading function so that its hub keywords also serve to download base models.

    A base model is the model that a LoRA adapter was trained on; see :func:`fetched_by`.
    """

    @wraps(load)
    def load_by_keywords(*arguments: Any, **options: Any) -> Any:
        with fetched_by(options):
            return load(*arguments, **options)

    return cast("Load", load_by_keywords)


def hub_of_base() -> HubKeywords:
    """Return the current call's hub keywords without the revision, for an adapter's base model."""
    hub = HubKeywords(**(_LOADING.get() or {}))
    hub.pop("revision", None)
    return hub


def resolve_directory(path_or_hub_id: str | os.PathLike[str], **hub: Unpack[HubKeywords]) -> Path:
    """Find a model's local directory, downloading it if it is an id on the Hugging Face hub.

    An existing local directory takes precedence. The download needs ``huggingface_hub`` (extra
    ``hf``) and honours its offline mode. Raises :class:`CheckpointFileError` that lists what was
    looked for, :class:`ConfigError` for a ``revision`` of a local directory, and ``TypeError`` for
    an unknown keyword.
    """
    for name in hub:
        if name not in HubKeywords.__annotations__:
            raise TypeError(
                f"from_pretrained() got an unexpected keyword argument {name!r}"
                f"{nearest(name, HubKeywords.__annotations__)}"
            )
    path = Path(path_or_hub_id)
    if path.is_dir():
        if hub.get("revision") is not None:
            raise ConfigError(
                f"{path} is a local directory, which has no revision {hub['revision']!r}; leave "
                "revision= out, or name the id on the hub"
            )
        return path
    if path.exists():
        raise CheckpointFileError(f"{path} is a file; give the directory that holds the model")
    name = os.fspath(path_or_hub_id)
    if not _HUB_ID.fullmatch(name):
        raise CheckpointFileError(f"there is no directory {name}")
    return _download(name, hub)


def take_directory(path_or_hub_id: str | os.PathLike[str], options: dict[str, Any]) -> Path:
    """Find a model's directory by the :class:`HubKeywords` in ``options``; delete them from it."""
    hub = {name: options.pop(name) for name in HubKeywords.__annotations__ if name in options}
    return resolve_directory(path_or_hub_id, **hub)


def _download(hub_id: str, hub: HubKeywords) -> Path:
    try:
        from huggingface_hub import errors, snapshot_download
    except ImportError:
        raise MissingDependencyError(
            f"there is no directory {hub_id}; taking it as a hub id",
            library="huggingface_hub",
            extra="hf",
        ) from None
    fetch = partial(snapshot_download, hub_id, **hub)
    small = ["*.json", "*.txt", "*.model", "*.jinja", "SHA256SUMS", *SETTINGS_OF_OTHERS]
    try:
        directory = Path(fetch(allow_patterns=[*small, "*.safetensors"]))
        others = _patterns_of_bin(directory)
        if others:
            directory = Path(fetch(allow_patterns=[*small, *others]))
    except (
        errors.HfHubHTTPError,
        errors.LocalEntryNotFoundError,
        errors.HFValidationError,
        OSError,
    ) as error:
        reason = str(error).strip().splitlines()[0] if str(error).strip() else type(error).__name__
        revision = f" in revision {hub['revision']}" if hub.get("revision") else ""
        raise CheckpointFileError(
            f"there is no directory {hub_id}, and the hub gave no model of that id{revision}: "
            f"{reason}"
        ) from error
    return directory


def _patterns_of_bin(directory: Path) -> list[str]:
    """Return glob patterns of ``.bin`` files to download: of modules without safetensors."""
    patterns = []
    for place, kind in _module_types(directory).items():
        names = [path.name for path in (directory / place).glob("*.safetensors")]
        # A directory may hold an adapter beside the weights of its base.
        if kind.rpartition(".")[2] in _WEIGHTLESS or set(names) - {"adapter_model.safetensors"}:
            continue
        patterns += [f"{place}/*.bin"] if place else ["pytorch_model*.bin", "adapter_model.bin"]
    return patterns


def _module_types(directory: Path) -> dict[str, str]:
    """Return the class of the module in each folder, by the folder's path; ``""`` is the root.

    The folders are those that ``modules.json`` and the settings of its Routers list.
    """
    if not (directory / _MODULES).is_file():
        return {"": "Transformer"}
    types: dict[str, str] = {}
    for entry in read_value(directory / _MODULES, ConfigError).items():
        place = entry.get("path").string()
        types[place] = entry.kind()
        if entry.kind().rpartition(".")[2] != "Router":
            continue
        files = [directory / place / name for name in _ROUTER]
        for router in [path for path in files if path.is_file()][:1]:
            routed = read_value(router, ConfigError).get("types").members()
            types |= {f"{place}/{name}".strip("/"): one.string() for name, one in routed.items()}
    return types


def mapped_files(directory: Path) -> list[Path]:
    """List the safetensors files that :func:`open_tensors` would open."""
    whole, index = directory / "model.safetensors", directory / "model.safetensors.index.json"
    if whole.is_file():
        return [whole]
    if not index.is_file():
        return []
    listed = read_value(index, CheckpointFileError).get("weight_map").members()
    return [directory / name for name in sorted({_shard_name(shard) for shard in listed.values()})]


class StoredTensor(NamedTuple):
    """A tensor in a file.

    dtype: PyTorch's name, or that of safetensors where NumPy has no such dtype.
    read: a function that reads the tensor into new memory; a ``.bin`` in the format before PyTorch
    1.6 is in memory already.
    map: for safetensors, a function that returns the tensor as a read-only view of the mapped file:
    pages are read when first touched, and unmapped with the array. For other files, as ``read``.
    blocks: a function that yields the tensor's elements block by block in one reused buffer; None:
    reading or mapping the tensor takes its memory anyway.
    """

    shape: tuple[int, ...]
    dtype: str
    read: Callable[[], Array]
    map: Callable[[], Array]
    blocks: Callable[[], Iterator[Array]] | None = None


@contextmanager
def open_tensors(directory: Path) -> Iterator[dict[str, StoredTensor]]:
    """Yield every tensor of a checkpoint by name, readable while the context lasts.

    The first of these files is used: model.safetensors, model.safetensors.index.json,
    pytorch_model.bin, pytorch_model.bin.index.json. A ``.bin`` in the format before PyTorch 1.6 is
    read as a whole, which needs PyTorch. Opening and reading raise :class:`CheckpointFileError`.
    """
    with ExitStack() as files:
        yield _find_tensors(directory, files)


def open_tensor_file(path: Path, files: ExitStack) -> dict[str, StoredTensor]:
    """Return every tensor of one file by name, readable while ``files`` are open.

    Raises :class:`CheckpointFileError`, and so does reading the tensors.
    """
    if path.suffix == ".safetensors":
        return _open_safetensors(path, files)
    return _open_pickle(path)


def _find_tensors(directory: Path, files: ExitStack) -> dict[str, StoredTensor]:
    opened = partial(_open_safetensors, files=files)
    finders: tuple[Callable[[Path], dict[str, StoredTensor]], ...] = (opened, _open_pickle)
    for name, find in zip(WEIGHTS, finders, strict=True):
        if (directory / name).is_file():
            return find(directory / name)
        index = directory / index_of(name)
        if index.is_file():
            return _open_shards(index, find)
    raise CheckpointFileError(
        f"{directory} has no weights; it should hold model.safetensors or pytorch_model.bin "
        "(or either one's .index.json with its shards)"
    )


def refuse_compiled(directory: Path) -> None:
    """Raise :class:`CheckpointFileError` for a compiled encoder without its original weights.

    A compiled encoder keeps weights in the layouts of the CPU kernels, not in a checkpoint's.
    """
    weights = (*WEIGHTS, *map(index_of, WEIGHTS))
    if (directory / COMPILED).is_file() and not any((directory / w).is_file() for w in weights):
        raise CheckpointFileError(
            f"{directory} holds a compiled encoder ({COMPILED}) and no {' or '.join(WEIGHTS)}; "
            "load it by CompiledEncoder.from_pretrained or an embedder, or load the directory that "
            "it was compiled from"
        )


def index_of(name: str) -> str:
    """Return the name of the index file that lists the shards of the weights file ``name``."""
    return f"{name}.index.json"


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


def _refuse_pointer(path: Path) -> None:
    with path.open("rb") as stream:
        refuse_pointer(path, stream.read(32), CheckpointFileError)


def _open_safetensors(path: Path, files: ExitStack) -> dict[str, StoredTensor]:
    _refuse_pointer(path)
    with _naming_file(path):
        # The header is checked by this; its mapping would keep what is read of it in memory, and a
        # file that is changed later must not change a loaded model.
        with safe_open(path, framework="np"):
            pass
        stream = files.enter_context(path.open("rb"))
        size = int.from_bytes(stream.read(8), "little")
        header: dict[str, Any] = json.loads(stream.read(size))
        header.pop("__metadata__", None)
        return {
            name: _stored(path, stream, 8 + size, name, entry) for name, entry in header.items()
        }


def _stored(
    path: Path, stream: BufferedReader, start: int, name: str, entry: dict[str, Any]
) -> StoredTensor:
    shape, dtype = tuple(entry["shape"]), _DTYPES.get(entry["dtype"])
    if dtype is None:
        refuse = partial(_refuse, path, name, entry["dtype"])
        return StoredTensor(shape, entry["dtype"], refuse, refuse)
    first, last = entry["data_offsets"]
    start, num_bytes = start + first, last - first
    return StoredTensor(
        shape,
        dtype_name(dtype),
        partial(_read_tensor, path, stream, start, num_bytes, shape, dtype),
        partial(_map_tensor, path, stream, start, num_bytes, shape, dtype),
        partial(_read_blocks, path, stream, start, num_bytes, dtype),
    )


def _refuse(path: Path, name: str, dtype: str) -> Array:
    raise CheckpointFileError(
        f"{path}: {name} is {dtype}; weights must be dense float64, float32, float16 or "
        "bfloat16 (a quantized checkpoint cannot be loaded)"
    )


def _read_tensor(
    path: Path,
    stream: BufferedReader,
    start: int,
    num_bytes: int,
    shape: tuple[int, ...],
    dtype: np.dtype[Any],
) -> Array:
    array = np.empty(shape, dtype=dtype)
    with _naming_file(path):
        stream.seek(start)
        if stream.readinto(array.reshape(-1).view(np.uint8).data) != num_bytes:
            raise OSError("it ends within a tensor")
    return array


def _read_blocks(
    path: Path, stream: BufferedReader, start: int, num_bytes: int, dtype: np.dtype[Any]
) -> Iterator[Array]:
    block = np.empty(min(CHUNK, num_bytes // dtype.itemsize), dtype=dtype)
    memory = block.view(np.uint8).data
    for first in range(0, num_bytes, max(len(memory), 1)):
        size = min(len(memory), num_bytes - first)
        with _naming_file(path):
            stream.seek(start + first)
            if stream.readinto(memory[:size]) != size:
                raise OSError("it ends within a tensor")
        yield block[: size // dtype.itemsize]


def _map_tensor(
    path: Path,
    stream: BufferedReader,
    start: int,
    num_bytes: int,
    shape: tuple[int, ...],
    dtype: np.dtype[Any],
) -> Array:
    skipped = start % mmap.ALLOCATIONGRANULARITY
    if num_bytes == 0 or skipped % dtype.itemsize:
        return _read_tensor(path, stream, start, num_bytes, shape, dtype)
    with _naming_file(path):
        # A mapping of its own for each tensor: it ends with the array, and its pages with it.
        pages = mmap.mmap(
            stream.fileno(), skipped + num_bytes, access=mmap.ACCESS_READ, offset=start - skipped
        )
    count = num_bytes // dtype.itemsize
    return np.frombuffer(pages, dtype=dtype, count=count, offset=skipped).reshape(shape)


@contextmanager
def _naming_file(path: Path) -> Iterator[None]:
    """Raise :class:`CheckpointFileError` with ``path`` in place of errors within the context.

    These are the errors of reading a safetensors file.
    """
    try:
        yield
    except (SafetensorError, OSError, ValueError, RuntimeError, KeyError) as error:
        raise CheckpointFileError(
            f"{path} is not a readable safetensors file: {error}; fetch it again"
        ) from error


def _open_pickle(path: Path) -> dict[str, StoredTensor]:
    """Return the tensors of a ``.bin`` or ``.pt``; the format before PyTorch 1.6 needs PyTorch."""
    _refuse_pointer(path)
    if is_archive(path):
        tensors: Any = read_archive(path)
        if not isinstance(tensors, dict) or not all(
            isinstance(name, str) and isinstance(tensor, (ArchivedTensor, UnusableTensor))
            for name, tensor in tensors.items()
        ):
            raise CheckpointFileError(f"{path} does not hold a dictionary of named tensors")
        return {name: _archived(path, name, tensor) for name, tensor in tensors.items()}
    found = {}
    for name, tensor in read_pickle(path).items():
        read = partial(to_array, name, tensor)
        dtype = str(tensor.dtype).removeprefix("torch.")
        found[name] = StoredTensor(tuple(tensor.shape), dtype, read, read)
    return found


def _archived(path: Path, name: str, tensor: ArchivedTensor | UnusableTensor) -> StoredTensor:
    if isinstance(tensor, ArchivedTensor):
        return StoredTensor(tensor.shape, dtype_name(tensor.dtype), tensor.read, tensor.read)
    refuse = partial(_refuse, path, name, tensor.kind)
    return StoredTensor(tensor.shape, tensor.kind, refuse, refuse)
