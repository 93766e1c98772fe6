"""The pooling recipe of a model directory: prompts, pooling, normalization, limits."""

from __future__ import annotations

from dataclasses import field, replace
from typing import TYPE_CHECKING

from encoder_engine.dataclass import dataclass
from encoder_engine.errors import ConfigError, UnsupportedFeatureError
from encoder_engine.json_values import JsonValue
from encoder_engine.opening.checksums import verify_settings
from encoder_engine.opening.json_files import read_value
from encoder_engine.opening.modules import (
    MODULES,
    read_module_folders,
)
from encoder_engine.packing.module_stack import EMPTY_STACK
from encoder_engine.text import Tokenizer

if TYPE_CHECKING:
    from pathlib import Path

    from encoder_engine.packing.module_stack import ModuleStack
    from encoder_engine.packing.pooling_modes import PoolingMode

CONFIG = "config_sentence_transformers.json"
_MODEL_KEYS = ("__version__", "default_prompt_name", "model_type", "prompts")
# Keys that only one model type has.
_OWN_KEYS = {
    "SentenceTransformer": ("similarity_fn_name", "truncate_dim"),
    "SparseEncoder": ("similarity_fn_name", "max_active_dims"),
    # The first is sentence-transformers' own key, the others are PyLate's.
    "MultiVectorEncoder": (
        "similarity_fn_name",
        "query_prefix",
        "document_prefix",
        "query_length",
        "document_length",
        "query_expansion",
        "do_query_expansion",
        "attend_to_expansion_tokens",
        "skiplist_words",
        "truncate_dim",
    ),
    "CrossEncoder": ("activation_fn",),
}
# The names that other libraries give a model type.
_NAMES_OF_OTHERS = {"ColBERT": "MultiVectorEncoder"}
# transformers writes 1e30 where a tokenizer has no limit.
_NO_LIMIT = 10**9


# The class that loads a model_type of config_sentence_transformers.json.
_LOADERS = {
    "CrossEncoder": "Ranker",
    "MultiVectorEncoder": "MultiVectorEmbedder",
    "SentenceTransformer": "Embedder",
    "SparseEncoder": "SparseEmbedder",
}


@dataclass(frozen=True, kw_only=True)
class PoolingRecipe:
    """The settings of a model directory that turn token vectors into text vectors.

    encoder_directory: the folder of the encoder and the tokenizer.
    pooling: pooling modes, whose results are concatenated in this order.
    default_pooling: whether neither the directory nor the caller named a mode.
    pooling_width: the encoder width that the pooling was made for, if stated.
    include_prompt: whether the prompt's tokens are pooled too.
    modules: the modules after pooling, such as dense layers.
    normalized: whether vectors are scaled to Euclidean length 1.
    max_seq_length: the most tokens of a text, special tokens included; None: no limit.
    lowercase: whether text is lower-cased before the tokenizer.
    prompts: prompts by name.
    default_prompt_name: the prompt of calls that name none.
    truncate_dim: the number of leading features to keep; None: all.
    similarity: the name of the similarity function, if stated.
    layers: the layers to pool, with their weights; 0: the embeddings; None: only the last layer.
    """

    encoder_directory: Path
    pooling: tuple[PoolingMode, ...]
    default_pooling: bool = False
    pooling_width: int | None = None
    include_prompt: bool = True
    modules: ModuleStack = EMPTY_STACK
    normalized: bool = False
    max_seq_length: int | None = None
    lowercase: bool = False
    prompts: dict[str, str] = field(default_factory=lambda: {"query": "", "document": ""})
    default_prompt_name: str | None = None
    truncate_dim: int | None = None
    similarity: str | None = None
    layers: tuple[tuple[int, float], ...] | None = None

    def check_width(self, width: int) -> None:
        """Raise :class:`ConfigError` if pooling or modules are for an encoder of another width."""
        fault = self.modules.mismatch(width * len(self.pooling))
        if self.pooling_width not in (None, width):
            fault = f"the pooling expects vectors of {self.pooling_width} features, "
            fault += f"the encoder computes {width}"
        if fault is not None:
            raise ConfigError(f"{fault}; the files belong to different models")


@dataclass(frozen=True, kw_only=True)
class Settings:
    """The settings of ``config_sentence_transformers.json``, or the defaults without that file.

    ``max_active_dims``: the number of values of a sparse vector to keep; None: all.
    """

    prompts: dict[str, str] = field(default_factory=lambda: {"query": "", "document": ""})
    default_prompt_name: str | None = None
    truncate_dim: int | None = None
    max_active_dims: int | None = None
    similarity: str | None = None


def tokenizer_limit(directory: Path) -> int | None:
    """Read the most tokens of a text from tokenizer_config.json; None: no limit."""
    path = directory / "tokenizer_config.json"
    if not path.is_file():
        return None
    stated = read_value(path).get("model_max_length")
    limit = stated.optional(lambda limit: limit.number(least=1))
    if limit is None or limit >= _NO_LIMIT:
        return None
    if not limit.is_integer():
        raise stated.must_be("an integer of at least 1")
    return int(limit)


def read_tokenizer(directory: Path, *, lowercase: bool) -> Tokenizer:
    """Load a tokenizer; ``lowercase``: make it lower-case texts, and leave accents as they were."""
    tokenizer = Tokenizer.from_pretrained(directory)
    model = tokenizer.spec.model
    lowered = model.lowercased() if lowercase else model
    return tokenizer if lowered is model else Tokenizer(replace(tokenizer.spec, model=lowered))


def read_settings(directory: Path, wanted: str) -> Settings:
    """Read a directory's settings, for a model of the type ``wanted``.

    Raises :class:`UnsupportedFeatureError` for another type and :class:`ConfigError` for a
    malformed file.
    """
    path = directory / CONFIG
    if not path.is_file():
        return Settings()
    stated = read_value(path)
    model_type = stated.object().get("model_type", wanted)
    if _NAMES_OF_OTHERS.get(str(model_type), model_type) != wanted:
        loader = _LOADERS.get(str(model_type))
        hint = "" if loader is None else f"; {loader}.from_pretrained loads it"
        raise UnsupportedFeatureError(f"{path} describes a {model_type}, expected a {wanted}{hint}")
    stated.only_keys((*_MODEL_KEYS, *_OWN_KEYS[wanted]))
    prompts, default_prompt_name = _read_prompts(stated)
    return Settings(
        prompts=prompts,
        default_prompt_name=default_prompt_name,
        truncate_dim=stated.get("truncate_dim").optional(JsonValue.positive),
        max_active_dims=stated.get("max_active_dims").optional(JsonValue.positive),
        similarity=stated.get("similarity_fn_name").optional(JsonValue.string),
    )


def _read_prompts(settings: JsonValue) -> tuple[dict[str, str], str | None]:
    prompts, stated = {"query": "", "document": ""}, settings.get("prompts")
    for name, prompt in (stated.members() if stated.value else {}).items():
        prompts[stated.at(name, "").string()] = prompt.optional(JsonValue.string) or ""
    default = settings.get("default_prompt_name")
    known = {name: name for name in prompts}
    return prompts, default.optional(lambda found: found.one_of(known))


def encoder_directory(directory: Path) -> Path:
    """Find the folder of a model's encoder and tokenizer, whatever modules follow.

    The settings and vocabularies of both folders are compared with their checksums. Raises
    :class:`ChecksumError`, and :class:`ConfigError` for a malformed ``modules.json`` or a folder
    outside the directory.
    """
    verify_settings(directory)
    if not (directory / MODULES).is_file():
        return directory
    folder = read_module_folders(directory)[0]
    verify_settings(folder)
    return folder
