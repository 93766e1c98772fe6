"""The modules of a sentence-transformers directory, in the formats of version 6 and before."""

from __future__ import annotations

import re
from typing import TYPE_CHECKING, Any

from encoder_engine.dataclass import dataclass
from encoder_engine.errors import ConfigError, UnsupportedFeatureError
from encoder_engine.families.checkpoints.adapters import has_stacked_adapters
from encoder_engine.json_values import JsonValue
from encoder_engine.opening.json_files import read_value
from encoder_engine.packing.pooling_modes import POOLING_MODES, PoolingMode

if TYPE_CHECKING:
    from collections.abc import Collection, Sequence
    from pathlib import Path

MODULES = "modules.json"
# The files of the layers of a hybrid embedder such as BGE-M3, beside the files of a dense one.
SPARSE_FILE, TOKENS_FILE = "sparse_linear.pt", "colbert_linear.pt"
# The module of rerankers that are causal models.
LOGIT_SCORE = "LogitScore"


@dataclass(frozen=True)
class ModuleOrder:
    """The modules that a kind of directory may list, and their order.

    pattern: a regular expression that matches their names, joined by spaces.
    known: all names in the pattern.
    description: the pattern, described for messages.
    """

    pattern: str
    known: tuple[str, ...]
    description: str


_AFTER_POOLING = ("Dense", "LayerNorm", "Dropout", "Normalize")
EMBEDDER_ORDER = ModuleOrder(
    rf"Transformer( WeightedLayerPooling)? Pooling( ({'|'.join(_AFTER_POOLING)}))*",
    ("Transformer", "WeightedLayerPooling", "Pooling", *_AFTER_POOLING),
    "Transformer, Pooling, with WeightedLayerPooling between them if there is one, and any number "
    "of Dense, LayerNorm, Dropout and Normalize",
)
# Embedder.from_pretrained follows a Router; what reads or trains one encoder does not.
ROUTED_EMBEDDER_ORDER = ModuleOrder(
    rf"{EMBEDDER_ORDER.pattern}|.*\bRouter\b.*",
    (*EMBEDDER_ORDER.known, "Router"),
    f"{EMBEDDER_ORDER.description}, and a Router in the place of those that differ",
)
RANKER_ORDER = ModuleOrder(
    rf"Transformer( Pooling( ({'|'.join(_AFTER_POOLING)}))* Dense)?",
    ("Transformer", "Pooling", *_AFTER_POOLING),
    "Transformer alone, or with Pooling, any modules after it, and a Dense at the end",
)
MULTI_VECTOR_ORDER = ModuleOrder(
    r"Transformer( Dense)*( MultiVectorMask)?( Normalize)?",
    ("Transformer", "Dense", "MultiVectorMask", "Normalize"),
    "Transformer, any number of Dense, and optionally MultiVectorMask and Normalize",
)
TRANSFORMER_ORDER = ModuleOrder("Transformer", ("Transformer",), "Transformer alone")
CAUSAL_RANKER_ORDER = ModuleOrder(
    f"Transformer( {LOGIT_SCORE})?",
    ("Transformer", LOGIT_SCORE),
    "Transformer, and optionally LogitScore",
)
STATIC_ORDER = ModuleOrder(
    "StaticEmbedding( Normalize)?",
    ("StaticEmbedding", "Normalize"),
    "StaticEmbedding, and optionally Normalize",
)
# MLMTransformer: the Transformer of sentence-transformers 5.0 to 5.3 for masked LMs.
SPARSE_ORDER = ModuleOrder(
    "(MLM)?Transformer SpladePooling|Router",
    ("Transformer", "MLMTransformer", "SpladePooling", "Router"),
    "Transformer, SpladePooling, or a Router between a query's and a document's modules",
)
# The flags of modes, in the order in which sentence-transformers concatenates the results.
_LEGACY_POOLING_FLAGS: dict[str, PoolingMode] = {
    "pooling_mode_cls_token": "cls",
    "pooling_mode_max_tokens": "max",
    "pooling_mode_mean_tokens": "mean",
    "pooling_mode_mean_sqrt_len_tokens": "mean_sqrt_len_tokens",
    "pooling_mode_weightedmean_tokens": "weightedmean",
    "pooling_mode_lasttoken": "lasttoken",
}
_WIDTH_KEYS = ("embedding_dimension", "word_embedding_dimension")
_POOLING_KEYS = (*_WIDTH_KEYS, "pooling_mode", "include_prompt", *_LEGACY_POOLING_FLAGS)

_TRANSFORMER_FILES = tuple(
    f"sentence_{family}_config.json"
    for family in ("bert", "roberta", "distilbert", "camembert", "albert", "xlm-roberta", "xlnet")
)
# Classes of other libraries that compute what the class of sentence-transformers does.
_CLASSES_OF_OTHERS = ("pylate.models.Dense.Dense",)
# The class in the directories of checkpoints with an adapter for each task, which takes ``task``.
CHOOSING_ADAPTER = "custom_st.Transformer"
# The class that loads a directory with this module.
_LOADERS = {
    LOGIT_SCORE: "CausalRanker",
    "Pooling": "Embedder",
    "MLMTransformer": "SparseEmbedder",
    "SpladePooling": "SparseEmbedder",
    "StaticEmbedding": "StaticEmbedder",
    "MultiVectorMask": "MultiVectorEmbedder",
}
# The model_type that each of these classes reads.
_TYPES = {
    "CausalRanker": "CrossEncoder",
    "Embedder": "SentenceTransformer",
    "MultiVectorEmbedder": "MultiVectorEncoder",
    "SparseEmbedder": "SparseEncoder",
    "StaticEmbedder": "SentenceTransformer",
}
# Absent or at these values, these keys leave the vectors as they are.
_TRANSFORMER_DEFAULTS: dict[str, Any] = {
    "transformer_task": "feature-extraction",
    "module_output_name": "token_embeddings",
    "backend": "torch",
    "processing_kwargs": {},
    "tokenizer_name_or_path": None,
}
_LOADING_KEYS = (
    "model_args",
    "model_kwargs",
    "tokenizer_args",
    "processor_kwargs",
    "config_args",
    "config_kwargs",
)
_CONFIG_KEYS = ("config_args", "config_kwargs")
_HIDDEN_STATES = "output_hidden_states"
# The keys of an encoder whose queries and documents are cut or padded differently.
LATE_INTERACTION_KEYS = ("query_length", "document_length", "query_expansion")
# Keys that change the loading, not the vectors; from_pretrained's dtype decides the precision.
_HARMLESS_LOADING_KEYS = {
    "add_pooling_layer",
    "attn_implementation",
    "dtype",
    "low_cpu_mem_usage",
    "torch_dtype",
    "trust_remote_code",
    "use_safetensors",
}
_TRANSFORMER_KEYS = (
    "max_seq_length",
    "do_lower_case",
    "modality_config",
    "unpad_inputs",
    *LATE_INTERACTION_KEYS,
    *_TRANSFORMER_DEFAULTS,
    *_LOADING_KEYS,
)


@dataclass(frozen=True, kw_only=True)
class Module:
    """A module that ``modules.json`` lists: its class's name, such as Pooling, and its folder."""

    kind: str
    folder: Path


@dataclass(frozen=True, kw_only=True)
class TransformerConfig:
    """The settings in a Transformer module's file, which config.json of the encoder does not have.

    hidden_states: whether all layers are passed on, as WeightedLayerPooling needs.
    late_interaction: the values from which lengths of queries and documents are read; None: not
    accepted.
    chat: the file's values, from which settings of chat templates are read; None: not accepted.
    """

    max_seq_length: int | None = None
    lowercase: bool = False
    hidden_states: bool = False
    late_interaction: JsonValue | None = None
    chat: JsonValue | None = None


@dataclass(frozen=True, kw_only=True)
class PoolingConfig:
    """The settings of a Pooling module.

    modes: pooling modes, whose results are concatenated in this order.
    width: features of the encoder's vectors.
    include_prompt: whether the prompt's tokens are pooled too.
    """

    modes: tuple[PoolingMode, ...]
    width: int
    include_prompt: bool


def is_hybrid(directory: Path) -> bool:
    """Return whether a directory has BGE-M3's layers for sparse and token vectors."""
    return all((directory / name).is_file() for name in (SPARSE_FILE, TOKENS_FILE))


def read_modules(directory: Path, order: ModuleOrder = EMBEDDER_ORDER) -> tuple[Module, ...]:
    """Return the modules that ``modules.json`` lists, in their order.

    Raises :class:`UnsupportedFeatureError` for a module that is not in ``order`` or for another
    order, and :class:`ConfigError` for a malformed file or a folder outside the directory.
    """
    path = directory / MODULES
    modules = tuple(_read_module(path, entry, order.known) for entry in read_value(path).items())
    check_order(path, [module.kind for module in modules], order)
    return modules


def check_order(path: Path, kinds: Sequence[str], order: ModuleOrder) -> None:
    """Raise :class:`UnsupportedFeatureError` unless the modules ``kinds`` match ``order``.

    ``kinds``: the names of their classes, such as Pooling. ``path``: the file that lists them.
    """
    listed = " ".join(kinds)
    if re.fullmatch(order.pattern, listed):
        return
    own = re.fullmatch(EMBEDDER_ORDER.pattern, listed) is not None
    own = own and _stated_type(path) in (None, "SentenceTransformer")
    raise UnsupportedFeatureError(
        f"{path} lists {', '.join(kinds) or 'nothing'}; "
        f"the engine computes {order.description}, in this order"
        + ("; this model is one which Embedder.from_pretrained loads" if own else "")
    )


def _stated_type(path: Path) -> Any:
    settings = path.with_name("config_sentence_transformers.json")
    return read_value(settings).get("model_type").value if settings.is_file() else None


def read_module_folders(directory: Path) -> list[Path]:
    """Return the folder of each module in ``modules.json``, whatever the modules are.

    Raises :class:`ConfigError` for a malformed file or a folder outside the directory.
    """
    path = directory / MODULES
    entries = read_value(path).items()
    if not entries:
        raise ConfigError(f"{path} lists no modules")
    return [module_folder(path, entry.get("path")) for entry in entries]


def read_module_kinds(directory: Path) -> list[str]:
    """Return the name of each module's class in ``modules.json``, whatever the modules are."""
    return [entry.kind().rpartition(".")[2] for entry in read_value(directory / MODULES).items()]


def module_folder(path: Path, stated: JsonValue) -> Path:
    """Return a module's folder; the file ``path`` states it, relative to the file's own folder.

    Raises :class:`ConfigError` for a path or a link that leads out of the directory.
    """
    folder = stated.string()
    try:
        target = (path.parent / folder).resolve()
        target.is_dir()
    except (OSError, RuntimeError, ValueError) as error:  # too long, a loop of links, a surrogate
        raise ConfigError(f"{path}: module path {folder!a} is not a path: {error!a}") from error
    if not target.is_relative_to(path.parent.resolve()):
        raise ConfigError(f"{path}: module path {folder!r} leads out of the directory")
    return target


def _read_module(path: Path, entry: JsonValue, known: Collection[str]) -> Module:
    entry.only_keys(("idx", "name", "path", "type", "kwargs"))
    kind, folder = entry.kind(), module_folder(path, entry.get("path"))
    arguments = entry.get("kwargs").value
    if kind == CHOOSING_ADAPTER and has_stacked_adapters(folder):
        return Module(kind="Transformer", folder=folder)
    name = check_module_type(path, kind, known)
    if arguments:
        raise UnsupportedFeatureError(f"{path}: module {name} takes kwargs {arguments}")
    return Module(kind=name, folder=folder)


def check_module_type(path: Path, kind: str, known: Collection[str]) -> str:
    """Return the name of a module's class without its package, if ``known`` contains it.

    ``kind``: the class with its package, ``"sentence_transformers.models.Pooling"``, as the file
    ``path`` states it. Raises :class:`UnsupportedFeatureError` for another class.
    """
    name = kind.rpartition(".")[2]
    if not kind.startswith("sentence_transformers.") and kind not in _CLASSES_OF_OTHERS:
        raise UnsupportedFeatureError(
            f"{path} asks for {kind}, code in the model's directory, which the engine never runs"
        )
    if name not in known:
        loader = None if path.name != MODULES else _LOADERS.get(name)
        stated = _stated_type(path)
        if name == "Router" and path.name == MODULES:
            loader = "SparseEmbedder" if stated == "SparseEncoder" else "Embedder"
        # The class that the module is named for would refuse a model of another type.
        if loader is None or stated not in (None, "ColBERT", _TYPES[loader]):
            hint = f"which is not implemented{f' in a {stated}' if stated else ' here'}"
        else:
            hint = f"which {loader}.from_pretrained loads"
        raise UnsupportedFeatureError(f"{path} needs the module {name} ({kind}), {hint}")
    return name


def read_transformer_config(
    folder: Path,
    *,
    task: str = "feature-extraction",
    reads: str = "last_hidden_state",
    makes: str = "token_embeddings",
    late_interaction: bool = False,
    chat: bool = False,
) -> TransformerConfig:
    """Read ``sentence_bert_config.json`` (or an older name); without a file, all defaults.

    task: the ``transformer_task`` that the file must state, if it states one.
    reads: the field of the transformer's output that the next module reads.
    makes: the name under which modules pass on that field.
    late_interaction: accept lengths of queries and documents.
    chat: accept settings of chat templates.

    Raises :class:`UnsupportedFeatureError` for a setting that is not implemented.
    """
    path = next((folder / n for n in _TRANSFORMER_FILES if (folder / n).is_file()), None)
    if path is None:
        return TransformerConfig()
    config = read_value(path)
    config.only_keys(_TRANSFORMER_KEYS)
    own: dict[str, Any] = {"transformer_task": task, "module_output_name": makes}
    if not late_interaction:
        own |= dict.fromkeys(LATE_INTERACTION_KEYS)
    for key, neutral in (_TRANSFORMER_DEFAULTS | own).items():
        stated = config.get(key).value
        if stated not in (neutral, None) and not (chat and key == "processing_kwargs"):
            raise UnsupportedFeatureError(
                f"{path} sets {key} = {stated!r}; only {neutral!r} is implemented"
            )
    for key in _LOADING_KEYS:
        known = _HARMLESS_LOADING_KEYS | ({_HIDDEN_STATES} if key in _CONFIG_KEYS else set())
        extra = sorted(set(config.get(key).optional(JsonValue.object) or {}) - known)
        if extra:
            raise UnsupportedFeatureError(
                f"{path}: {key} sets {', '.join(extra)}, which is not implemented"
            )
    modalities = config.get("modality_config")
    text = (modalities.optional(JsonValue.object) or {}).get("text")
    if modalities.present and text != {"method": "forward", "method_output_name": reads}:
        raise UnsupportedFeatureError(
            f"{path}: modality_config.text must read the encoder's {reads}, got {text}"
        )
    return TransformerConfig(
        max_seq_length=config.get("max_seq_length").optional(lambda n: n.positive(most=None)),
        lowercase=config.get("do_lower_case").boolean(default=False),
        hidden_states=any(
            config.get(key).get(_HIDDEN_STATES).boolean(default=False)
            for key in _CONFIG_KEYS
            if config.get(key).value
        ),
        late_interaction=config if late_interaction else None,
        chat=config if chat else None,
    )


def read_pooling_config(folder: Path) -> PoolingConfig:
    """Read a Pooling module's ``config.json`` of any version; raises :class:`ConfigError`."""
    config = read_value(folder / "config.json")
    config.only_keys(_POOLING_KEYS)
    widths = {key: config.get(key).optional(JsonValue.positive) for key in _WIDTH_KEYS}
    stated = {width for width in widths.values() if width is not None}
    if len(stated) != 1:
        raise ConfigError(f"{config.where} must state one embedding_dimension, got {widths}")
    return PoolingConfig(
        modes=_pooling_modes(config),
        width=stated.pop(),
        include_prompt=config.get("include_prompt").boolean(default=True),
    )


def _pooling_modes(config: JsonValue) -> tuple[PoolingMode, ...]:
    legacy = tuple(
        mode
        for key, mode in _LEGACY_POOLING_FLAGS.items()
        if config.get(key).boolean(default=False)
    )
    modes = legacy
    stated = config.get("pooling_mode")
    if stated.present:
        modes = check_pooling_modes(stated.value, where=f"{config.where}: ")
        if legacy and set(legacy) != set(modes):
            raise stated.fail(f"{stated.value!r}, but the flags say {legacy}")
    if not modes:
        raise ConfigError(f"{config.where} switches no pooling mode on; set one, or pass pooling=")
    return modes


def check_pooling_modes(value: object, *, where: str = "") -> tuple[PoolingMode, ...]:
    """Return one pooling mode, or a list of them, as a tuple.

    Raises :class:`ConfigError` for unknown modes.
    """
    modes = [value] if isinstance(value, str) else value
    if not isinstance(modes, (list, tuple)) or not modes:
        raise ConfigError(f"{where}pooling must be a mode or a list of modes, got {value!r}")
    for mode in modes:
        if mode not in POOLING_MODES:
            raise ConfigError(
                f"{where}no pooling mode {mode!r}; there are {', '.join(POOLING_MODES)}"
            )
    return tuple(modes)
