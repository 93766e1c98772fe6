"""Merges low-rank adapters (LoRA) into the weights of a checkpoint as these are read.

How it works: an adapter adds ``s B A`` to a weight W (Hu et al. 2022). A merged tensor is read as
W, to which the product is added in float32, so inference with an adapter is as fast as without. Two
layouts are read: peft's, a folder with adapter_config.json, and checkpoints that hold an adapter
for each of several tasks beside every weight, one of which is chosen by name.

Dimensions: r rank, K columns and N rows of a dense layer's weight.
"""

from __future__ import annotations

import re
from collections import defaultdict
from dataclasses import field
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np

from encoder_engine.dataclass import dataclass
from encoder_engine.errors import (
    CheckpointFileError,
    ConfigError,
    OutputError,
    TensorNamesError,
    TensorShapeError,
    UnsupportedFeatureError,
)
from encoder_engine.families.checkpoints.arrays import dtype_name, widen
from encoder_engine.families.checkpoints.files import (
    COMPILED,
    WEIGHTS,
    StoredTensor,
    hub_of_base,
    index_of,
    open_tensor_file,
    resolve_directory,
)
from encoder_engine.families.facts.names import modern_name
from encoder_engine.json_values import JsonValue, read_value

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping
    from contextlib import ExitStack

    from encoder_engine.families.checkpoints.arrays import Array
    from encoder_engine.families.facts.family import Family

__all__ = [
    "ADAPTER",
    "ADAPTER_WEIGHTS",
    "PEFT_PREFIX",
    "check_no_leftovers",
    "has_stacked_adapters",
    "merge_adapters",
    "modules_beside",
    "weights_directory",
]

ADAPTER = "adapter_config.json"
ADAPTER_WEIGHTS = ("adapter_model.safetensors", "adapter_model.bin")
# The keys of adapter_config.json that this file reads.
_READ_KEYS = {
    "alpha_pattern",
    "base_model_name_or_path",
    "fan_in_fan_out",
    "init_lora_weights",
    "lora_alpha",
    "modules_to_save",
    "peft_type",
    "trainable_token_indices",
    "use_rslora",
}
# Keys that say how an adapter was made and trained; the tensors say what it became.
_HARMLESS_KEYS = {
    "auto_mapping",
    "bias",
    "corda_config",
    "ensure_weight_tying",
    "eva_config",
    "exclude_modules",
    "inference_mode",
    "layers_pattern",
    "layers_to_transform",
    "loftq_config",
    "lora_bias",
    "lora_dropout",
    "lora_ga_config",
    "megatron_core",
    "peft_version",
    "qalora_group_size",
    "r",
    "rank_pattern",
    "revision",
    "runtime_config",
    "target_modules",
    "task_type",
}
# Initialisations that leave the base weights alone; others (PiSSA, OLoRA, ...) change them.
_PLAIN_STARTS = (True, False, None, "gaussian", "eva", "orthogonal")
# The prefix of the names of the model's tensors in peft's files.
PEFT_PREFIX = "base_model.model."
_LORA = re.compile(
    r"(?P<module>.+)\.lora_(?P<part>A|B|embedding_A|embedding_B)(\.default)?"
    r"(\.(?P<kind>weight|bias))?"
)
_TRAINED_TOKENS = ".trainable_tokens_delta"
# torch.nn.utils.parametrize's names of a weight, and of the adapters stacked on it.
_ORIGINAL = ".parametrizations.weight.original"
_STACKED = re.compile(r"(?P<module>.+)\.parametrizations\.weight\.0\.lora_(?P<part>[AB])")
NAMES_OF_STACKED = "lora_adaptations"


def weights_directory(directory: Path) -> Path:
    """Return the directory of a model's config.json and weights: ``directory`` or its base model's.

    A directory with config.json and weights of its own is itself the base model of its adapter, as
    in transformers. Else the adapter's settings name the base: a directory, or a hub id and perhaps
    a revision, downloaded by the keywords that :func:`fetching` passes on. Raises ``ConfigError``
    if no base is named or the base holds an adapter, and as :func:`resolve_directory` does.
    """
    adapter = directory / ADAPTER
    if not adapter.is_file():
        return directory
    whole = [name for name in (*WEIGHTS, *map(index_of, WEIGHTS)) if (directory / name).is_file()]
    if whole and (directory / "config.json").is_file():
        return directory
    config = read_value(adapter, ConfigError)
    stated, revision = config.get("base_model_name_or_path"), config.get("revision")
    if stated.is_null:
        raise stated.must_be("the directory or the hub id of the adapter's model")
    hub = hub_of_base()
    if not revision.is_null and not Path(stated.string()).is_dir():
        hub["revision"] = revision.string()
    base = resolve_directory(stated.string(), **hub)
    if (base / ADAPTER).is_file():
        raise UnsupportedFeatureError(
            f"{adapter} names {base}, which holds an adapter too; merge that one into its model"
        )
    return base


def merge_adapters(
    directory: Path,
    tensors: Mapping[str, StoredTensor],
    config: Mapping[str, Any],
    files: ExitStack,
    *,
    prefix: str,
    chosen: str | None,
) -> dict[str, StoredTensor]:
    """Return the tensors of a checkpoint with the adapters of its directory merged.

    directory: if it holds adapter_config.json, that peft adapter is merged; else, if ``tensors``
    has named adapters beside the weights ("stacked"), the one of the name ``chosen``.
    config: config.json, which lists the names of stacked adapters.
    files: keeps the adapter's file open.
    prefix: the start of the encoder's tensor names in a model with a head.
    chosen: the name of a stacked adapter; None: no stacked adapter is merged.

    Raises :class:`UnsupportedFeatureError` for an adapter that is not a plain LoRA,
    :class:`ConfigError` for malformed settings or an unknown name, and :class:`CheckpointError` for
    tensors that do not fit.
    """
    if (directory / ADAPTER).is_file():
        if chosen is not None:
            raise ConfigError(f"{directory} holds one adapter without a name, not {chosen!r}")
        return _merge_peft(directory, tensors, files, prefix)
    return _merge_stacked(directory, tensors, config, chosen)


def modules_beside(directory: Path, family: Family) -> tuple[str, ...]:
    """Return the name prefixes of modules that an adapter stores in full and the encoder lacks.

    Such modules are, for example, heads that the family does not define. Empty for a directory
    without an adapter.
    """
    if not (directory / ADAPTER).is_file():
        return ()
    listed = read_value(directory / ADAPTER, ConfigError).get("modules_to_save")
    names = [] if listed.is_null else [one.string() for one in listed.items()]
    theirs = [(r.theirs,) if isinstance(r.theirs, str) else r.theirs for r in family.renames]
    own = {name.partition(".")[0] for one in theirs for name in one}
    return tuple(f"{name}." for name in names if name.partition(".")[0] not in own)


def check_no_leftovers(directory: Path) -> None:
    """Raise :class:`OutputError` for files in the target folder that would change the saved model.

    Such files are an adapter, which loading would merge into the saved weights, and a compiled
    encoder, which loading would prefer to the saved weights.
    """
    for name, effect in ((ADAPTER, "changes"), (COMPILED, "is loaded instead of")):
        if (directory / name).exists():
            raise OutputError(
                f"{directory} holds {name}, which {effect} the weights that are to be saved; name "
                "another folder, or remove the file first"
            )


def has_stacked_adapters(directory: Path) -> bool:
    """Return whether config.json lists adapters stored beside the weights, one per task."""
    path = directory / "config.json"
    if not path.is_file():
        return False
    return isinstance(read_value(path, ConfigError).object().get(NAMES_OF_STACKED), list)


@dataclass(kw_only=True)
class _Parts:
    """The tensors of one layer's adapter: A [r, K], B [N, r], and the bias of B, [N]."""

    tensors: dict[str, StoredTensor] = field(default_factory=dict)

    def pair(self, name: str) -> tuple[StoredTensor, StoredTensor, bool]:
        """Return A and B of the layer ``name``, and whether it is an embedding table."""
        for first, second, is_embedding in (
            ("A", "B", False),
            ("embedding_A", "embedding_B", True),
        ):
            if first in self.tensors and second in self.tensors:
                return self.tensors[first], self.tensors[second], is_embedding
        raise TensorNamesError(
            f"the adapter has {', '.join(sorted(self.tensors))} of {name}; A and B belong together",
            unexpected=[name],
        )


def _merge_peft(
    directory: Path, tensors: Mapping[str, StoredTensor], files: ExitStack, prefix: str
) -> dict[str, StoredTensor]:
    config = read_value(directory / ADAPTER, ConfigError)
    _refuse_other_kinds(config)
    path = next((directory / n for n in ADAPTER_WEIGHTS if (directory / n).is_file()), None)
    if path is None:
        raise CheckpointFileError(
            f"{directory} holds {ADAPTER} and no weights of an adapter; it should hold "
            f"{' or '.join(ADAPTER_WEIGHTS)}"
        )
    # A head may have been put before or taken off the encoder since.
    places = {modern_name(name).removeprefix(prefix): name for name in tensors}
    parts: defaultdict[str, _Parts] = defaultdict(_Parts)
    merged, replaced, tokens = dict(tensors), {}, {}
    for full, tensor in open_tensor_file(path, files).items():
        name = full.removeprefix(PEFT_PREFIX).replace(".token_adapter.", ".")
        name = name.replace(".base_layer.", ".")
        if ".original_module." in name:
            continue  # what modules_to_save replaces
        match = _LORA.fullmatch(name)
        if match is not None:
            part = "bias" if match["kind"] == "bias" else match["part"]
            parts[match["module"]].tensors[part] = tensor
        elif name.endswith(_TRAINED_TOKENS):
            tokens[name.removesuffix(_TRAINED_TOKENS)] = tensor
        elif ".lora_" in name:
            raise UnsupportedFeatureError(
                f"{path} holds {name}, which is not part of a plain LoRA (A and B); merge it first "
                "with peft's merge_and_unload()"
            )
        else:
            replaced[re.sub(r"\.modules_to_save(\.default)?(?=\.)", "", name)] = tensor
    for name, tensor in replaced.items():
        bare = modern_name(name).removeprefix(prefix)
        merged[places.get(bare, name)] = tensor
    for module, found in parts.items():
        _merge_module(config, module, found, merged, places, prefix)
    if not tokens and config.get("trainable_token_indices").value:
        raise TensorNamesError(f"{path} holds no trained tokens; copy the adapter again")
    for module, rows in tokens.items():
        place = places.get(f"{module.removeprefix(prefix)}.weight", f"{module}.weight")
        if place not in merged:
            raise TensorNamesError(f"{path} holds tokens of {module}, which has no weight")
        merged[place] = _with_tokens(place, merged[place], rows, _token_indices(config, module))
    return merged


def _token_indices(config: JsonValue, module: str) -> list[JsonValue]:
    """Return the ids of the tokens whose embeddings an adapter trained in the table ``module``.

    config: adapter_config.json, which lists them once for all tables or for each table. One listed
    table counts whatever its name, for tied layers share it. Raises :class:`TensorNamesError` where
    several tables are listed and none is ``module``.
    """
    stated = config.get("trainable_token_indices")
    if not isinstance(stated.value, dict):
        return stated.items()
    tables = stated.members()
    named = [name for name in tables if f".{module}".endswith(f".{name}")] or list(tables)
    if len(named) != 1:
        raise TensorNamesError(
            f"{stated.where} names {', '.join(tables) or 'no table'}, and the adapter holds tokens "
            f"of {module}; copy the adapter again"
        )
    return tables[named[0]].items()


def _with_tokens(
    name: str, base: StoredTensor, rows: StoredTensor, indices: list[JsonValue]
) -> StoredTensor:
    """Return the embedding table ``base`` with ``rows`` in place of its rows ``indices``."""
    shape = (len(indices), *base.shape[1:])
    if rows.shape != shape:
        raise TensorShapeError(
            f"the trained tokens of {name} are {list(rows.shape)}, expected {list(shape)}",
            mismatched=[(name, rows.shape, shape)],
        )
    places = [index.integer(most=base.shape[0] - 1) for index in indices]

    def read() -> Array:
        table = np.array(widen(base.read()))
        table[places] = widen(rows.read())
        return table

    return StoredTensor(base.shape, base.dtype, read, read)


def _merge_module(
    config: JsonValue,
    module: str,
    parts: _Parts,
    merged: dict[str, StoredTensor],
    places: Mapping[str, str],
    prefix: str,
) -> None:
    """Add an adapter to its layer's weight in ``merged``, and a bias of B to the layer's bias.

    parts: the adapter's tensors of the layer ``module``.
    places: the names in ``merged`` of the tensors, by their names without ``prefix``.
    """
    bare = module.removeprefix(prefix)
    first, second, is_embedding = parts.pair(module)
    if f"{bare}.weight" not in places:
        raise TensorNamesError(
            f"{config.source.name} is of another model: it adapts {module}, of which the "
            "checkpoint has no weight",
            missing=[f"{module}.weight"],
        )
    rank = first.shape[0]
    scale = _alpha(config, module, rank)
    name = places[f"{bare}.weight"]
    flipped = is_embedding or config.get("fan_in_fan_out").boolean(default=False)
    product = partial(_product, first.read, second.read, scale, flipped=flipped)
    shape = (second.shape[0], first.shape[1])
    merged[name] = _added(name, merged[name], product, shape[::-1] if flipped else shape)
    if "bias" in parts.tensors:
        bias = places.get(f"{bare}.bias")
        if bias is None:
            raise UnsupportedFeatureError(
                f"{config.source.name} adds a bias to {module}, which has none; merge it first "
                "with peft's merge_and_unload()"
            )
        own = parts.tensors["bias"]
        merged[bias] = _added(bias, merged[bias], partial(_scaled, own.read, scale), own.shape)


def _refuse_other_kinds(config: JsonValue) -> None:
    """Raise :class:`UnsupportedFeatureError` unless the adapter only adds ``s B A`` to weights."""
    kind = config.get("peft_type").value
    if kind != "LORA":
        raise UnsupportedFeatureError(
            f"{config.source.name} describes an adapter of type {kind}, which cannot be merged "
            "here; supported: LORA. Where peft can merge it: merge_and_unload().save_pretrained()"
        )
    start = config.get("init_lora_weights").value
    if start not in _PLAIN_STARTS:
        raise UnsupportedFeatureError(
            f"{config.source.name}: init_lora_weights={start!r} changed the weights of the base "
            "model too; merge the adapter first with peft's merge_and_unload()"
        )
    others = sorted(
        key
        for key, value in config.object().items()
        if key not in _READ_KEYS | _HARMLESS_KEYS and value not in (None, False, {}, [])
    )
    if others:
        raise UnsupportedFeatureError(
            f"{config.source.name} sets {', '.join(others)}, which merging s B A does not follow; "
            "merge the adapter first with peft's merge_and_unload()"
        )


def _alpha(config: JsonValue, module: str, rank: int) -> float:
    """Return the factor of ``B A``: alpha / r, or alpha / sqrt(r) with rsLoRA."""
    alpha = config.get("lora_alpha").number(8, least=0)
    pattern = config.get("alpha_pattern")
    for key, value in (pattern.members() if pattern.value else {}).items():
        try:
            matches = re.match(rf"(.*\.)?({key})$", module) is not None
        except re.error as error:
            raise pattern.fail(f"{key!r} is not a regular expression: {error}") from error
        if matches:
            alpha = value.number(least=0)
            break
    is_rank_stabilised = config.get("use_rslora").boolean(default=False)
    return float(alpha / (rank**0.5 if is_rank_stabilised else rank))


def _merge_stacked(
    directory: Path,
    tensors: Mapping[str, StoredTensor],
    config: Mapping[str, Any],
    chosen: str | None,
) -> dict[str, StoredTensor]:
    """Return the weights, without adapters; if ``chosen`` names one, it is merged into them.

    Of each weight, the tensors A and B hold all adapters, along a first dimension.
    """
    merged: dict[str, StoredTensor] = {}
    stacked: defaultdict[str, dict[str, StoredTensor]] = defaultdict(dict)
    for name, tensor in tensors.items():
        match = _STACKED.fullmatch(name)
        if match is not None:
            stacked[match["module"]][match["part"]] = tensor
        else:
            plain = name.removesuffix(_ORIGINAL)
            merged[name if plain == name else f"{plain}.weight"] = tensor
    if not stacked:
        if chosen is not None:
            raise ConfigError(
                f"{directory} holds no adapters by name, so there is none for {chosen!r}; leave "
                "task= out"
            )
        return merged
    names = config.get(NAMES_OF_STACKED)
    if chosen is None:
        return merged
    if not isinstance(names, list) or chosen not in names:
        listed = ", ".join(map(str, names)) if isinstance(names, list) else "none"
        raise ConfigError(f"{directory} has no adapter {chosen!r}; there are: {listed}")
    place, alpha = names.index(chosen), float(config.get("lora_alpha", 1))
    for module, pair in stacked.items():
        name = f"{module}.weight"
        if pair.keys() != {"A", "B"} or name not in merged:
            raise TensorNamesError(
                f"{directory}: an adapter of {module} needs lora_A, lora_B and a weight",
                unexpected=[module],
            )
        first, second = pair["A"], pair["B"]
        if len(first.shape) != 3 or len(second.shape) != 3:
            raise TensorShapeError(
                f"{module}: lora_A and lora_B must be three-dimensional, they are "
                f"{list(first.shape)} and {list(second.shape)}",
                mismatched=[(module, first.shape, second.shape)],
            )
        # An embedding's product is A B, a dense layer's B A.
        shape = merged[name].shape
        is_embedding = (first.shape[1], second.shape[2]) == shape
        left, right = (first, second) if is_embedding else (second, first)
        rank = left.shape[2]
        product = partial(
            _product, partial(_slice, right, place), partial(_slice, left, place), alpha / rank
        )
        merged[name] = _added(name, merged[name], product, (left.shape[1], right.shape[2]))
    return merged


def _slice(tensor: StoredTensor, place: int) -> Array:
    return np.array(tensor.map()[place])


def _product(
    read_first: Callable[[], Array],
    read_second: Callable[[], Array],
    scale: float,
    *,
    flipped: bool = False,
) -> Array:
    """Return ``scale * B @ A``; the two functions read A and B. ``flipped``: its transpose."""
    product: Array = widen(read_second()) @ widen(read_first()) * scale
    return product.T if flipped else product


def _scaled(read: Callable[[], Array], scale: float) -> Array:
    found: Array = widen(read()) * scale
    return found


def _added(
    name: str, base: StoredTensor, product: Callable[[], Array], shape: tuple[int, ...]
) -> StoredTensor:
    """Return the stored tensor ``base`` plus ``product()``, both computed when the sum is read."""
    if base.shape != shape:
        raise TensorShapeError(
            f"the adapter of {name} is {list(shape)}, the weight {list(base.shape)}",
            mismatched=[(name, shape, base.shape)],
        )

    def read() -> Array:
        weight = base.read()
        if dtype_name(weight.dtype) in ("int8", "uint8"):
            raise UnsupportedFeatureError(
                f"{name} is {dtype_name(weight.dtype)}: an adapter can be merged into "
                "floating-point weights only"
            )
        total: Array = np.ascontiguousarray(widen(weight) + product())
        return total

    return StoredTensor(shape, "float64" if base.dtype == "float64" else "float32", read, read)
