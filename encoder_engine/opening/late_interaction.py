"""Reads models of late interaction (ColBERT) in the layouts of their three libraries.

- sentence-transformers 6: a Transformer with lengths and expansion, Dense, MultiVectorMask and
  Normalize.
- PyLate: a Transformer and Dense; prefixes, lengths and skipped words are in
  config_sentence_transformers.json.
- ColBERT (Stanford): a transformers directory whose config.json names the class HF_ColBERT, with
  the projection ``linear.weight`` among the weights and the settings in artifact.metadata.

Each layout is read as sentence-transformers 6.2 reads it.
"""

from __future__ import annotations

import string
from dataclasses import replace
from typing import TYPE_CHECKING, Any

import numpy as np

from encoder_engine.dataclass import dataclass
from encoder_engine.errors import CheckpointFileError, ConfigError, UnsupportedFeatureError
from encoder_engine.families.checkpoints.arrays import widen
from encoder_engine.families.checkpoints.files import open_tensors, resolve_directory
from encoder_engine.families.config import read_config
from encoder_engine.json_values import JsonSource, JsonValue
from encoder_engine.opening.expansion import QueryExpansion
from encoder_engine.opening.json_files import read_value
from encoder_engine.opening.modules import (
    LATE_INTERACTION_KEYS,
    MODULES,
    MULTI_VECTOR_ORDER,
)
from encoder_engine.opening.opening import ModelDirectory, open_directory
from encoder_engine.opening.recipe import CONFIG
from encoder_engine.opening.stack import TOKENS, read_stack
from encoder_engine.packing.module_stack import DenseModule, ModuleStack
from encoder_engine.text import Tokenizer
from encoder_engine.text.spec.tokenizer import AddedTokenSpec

if TYPE_CHECKING:
    import os
    from collections.abc import Mapping, Sequence
    from pathlib import Path

__all__ = [
    "LateInteraction",
    "TokenMask",
    "expansion_token",
    "is_stanford",
    "open_late_interaction",
    "register_markers",
    "token_ids",
]

METADATA = "artifact.metadata"
# The class of ColBERT's own checkpoints, and the name of the projection in them.
STANFORD_CLASS, STANFORD_PROJECTION = "HF_ColBERT", "linear.weight"
PYLATE_KEYS = (
    "query_prefix",
    "document_prefix",
    "do_query_expansion",
    "attend_to_expansion_tokens",
    "skiplist_words",
)
_MASK_KEYS = ("skiplist_words", "skiplist_tasks", "keep_only_token_ids")
_USUAL_LENGTH = 32


@dataclass(frozen=True, kw_only=True)
class TokenMask:
    """Which tokens get no vector in late interaction.

    skipped: the ids that get no vector in texts of ``tasks``: ``"query"``, ``"document"`` or both.
    kept: the only ids that get a vector in documents; empty: all.
    """

    skipped: frozenset[int] = frozenset()
    tasks: frozenset[str] = frozenset({"document"})
    kept: frozenset[int] = frozenset()


@dataclass(frozen=True, kw_only=True)
class LateInteraction:
    """A model directory of late interaction.

    opened: the directory, with the prompts in its settings.
    tokenizer: the tokenizer, with the markers of the prefixes as special tokens.
    modules: the modules after the encoder, for each token.
    normalized: whether token vectors are scaled to Euclidean length 1.
    query_length, document_length: the most tokens; None: the directory's limit.
    expansion: the padding of queries; None: they are not padded.
    """

    opened: ModelDirectory
    tokenizer: Tokenizer
    modules: ModuleStack
    mask: TokenMask
    normalized: bool
    query_length: int | None
    document_length: int | None
    expansion: QueryExpansion | None


@dataclass(frozen=True, kw_only=True)
class _Former:
    """The settings that formats before sentence-transformers 6 have outside the modules.

    prefixes: the texts put before queries and documents; a marker among them is one token.
    lengths: the lengths, as keys of a Transformer module, whose own keys take precedence.
    words: the tokens of documents that get no vector; None: punctuation.
    appends_modules: whether a token mask and Normalize follow the modules, without being listed.
    """

    prefixes: dict[str, str]
    lengths: dict[str, Any]
    words: list[str] | None = None
    appends_modules: bool = False


def open_late_interaction(path_or_hub_id: str | os.PathLike[str]) -> LateInteraction:
    """Open a directory in one of the layouts that this module's docstring lists.

    Raises :class:`UnsupportedFeatureError` for a directory of another kind or with other modules,
    :class:`ConfigError` for malformed settings, and :class:`CheckpointError` for weights that are
    missing or do not fit.
    """
    directory = resolve_directory(path_or_hub_id)
    if not (directory / MODULES).is_file() and is_stanford(directory):
        return _open_stanford(directory)
    opened = open_directory(
        *(directory, "MultiVectorEncoder", MULTI_VECTOR_ORDER), plain=False, late_interaction=True
    )
    former = _read_pylate(directory)
    by_kind = {module.kind: module for module in opened.modules}
    skipped_kinds = ("Transformer", "MultiVectorMask", "Normalize")
    stack = [module for module in opened.modules if module.kind not in skipped_kinds]
    if former.appends_modules and not stack:
        raise UnsupportedFeatureError(f"{directory} has no Dense, the projection of token vectors")
    if "Normalize" in by_kind:
        read_stack([by_kind["Normalize"]], reads=TOKENS)
    tokenizer = register_markers(opened.read_tokenizer(), former.prefixes)
    mask = TokenMask()
    if "MultiVectorMask" in by_kind:
        mask = _read_mask(by_kind["MultiVectorMask"].folder, tokenizer)
    elif former.appends_modules:
        words = list(string.punctuation) if former.words is None else former.words
        mask = TokenMask(skipped=token_ids(words, tokenizer))
    stated = opened.transformer.late_interaction
    return LateInteraction(
        opened=_with_prefixes(opened, former.prefixes),
        tokenizer=tokenizer,
        modules=read_stack(stack, reads=TOKENS),
        mask=mask,
        normalized="Normalize" in by_kind or former.appends_modules,
        **_read_lengths(former.lengths, stated, tokenizer),
    )


def is_stanford(directory: Path) -> bool:
    """Return whether a directory holds a checkpoint of Stanford's ColBERT."""
    if not (directory / "config.json").is_file():
        return False
    return STANFORD_CLASS in (read_config(directory).get("architectures") or [])


def _open_stanford(directory: Path) -> LateInteraction:
    path = directory / METADATA
    metadata = read_value(path).object() if path.is_file() else {}
    prefixes = {
        "query": f"{metadata.get('query_token_id') or '[unused0]'} ",
        "document": f"{metadata.get('doc_token_id') or '[unused1]'} ",
    }
    lengths = {
        "document_length": metadata.get("doc_maxlen"),
        "query_expansion": {
            "strategy": "fixed",
            "attend": bool(metadata.get("attend_to_mask_tokens")),
            "length": metadata.get("query_maxlen") or _USUAL_LENGTH,
        },
    }
    opened = open_directory(
        *(directory, "MultiVectorEncoder", MULTI_VECTOR_ORDER), settings_of_plain=False
    )
    tokenizer = register_markers(opened.read_tokenizer(), prefixes)
    words = string.punctuation if metadata.get("mask_punctuation", True) else ""
    return LateInteraction(
        opened=_with_prefixes(opened, prefixes),
        tokenizer=tokenizer,
        modules=_read_stanford_projection(directory),
        mask=TokenMask(skipped=token_ids(list(words), tokenizer)),
        normalized=True,
        **_read_lengths(lengths, None, tokenizer),
    )


def _read_stanford_projection(directory: Path) -> ModuleStack:
    with open_tensors(directory) as tensors:
        found = tensors.get(STANFORD_PROJECTION)
        if found is None or len(found.shape) != 2:
            raise CheckpointFileError(
                f"{directory} is of the class {STANFORD_CLASS}, whose projection "
                f"{STANFORD_PROJECTION} is not among its weights"
            )
        weight = np.ascontiguousarray(widen(found.read()), dtype=np.float32)
    return ModuleStack((DenseModule(weight_NK=weight),))


def _read_pylate(directory: Path) -> _Former:
    """Read the keys that PyLate adds to config_sentence_transformers.json, if there are any."""
    path = directory / CONFIG
    if not path.is_file():
        return _Former(prefixes={}, lengths={})
    stated = read_value(path)
    present = stated.object()
    names = {"query_prefix": "query", "document_prefix": "document"}
    prefixes = {
        kind: stated.get(key).optional(JsonValue.string) or ""
        for key, kind in names.items()
        if key in present
    }
    is_pylate = present.get("model_type") == "ColBERT" or bool(prefixes)
    lengths = {
        key: present[key]
        for key in LATE_INTERACTION_KEYS
        if key in present and (present[key] is not None or key == "query_expansion")
    }
    marked = any(key in present for key in (*LATE_INTERACTION_KEYS, *PYLATE_KEYS))
    if marked and "query_expansion" not in lengths:
        if present.get("do_query_expansion") is False:
            lengths["query_expansion"] = None
        else:
            lengths["query_expansion"] = {
                "strategy": "fixed",
                "attend": bool(present.get("attend_to_expansion_tokens")),
                "length": lengths.pop("query_length", None) or _USUAL_LENGTH,
            }
    words = stated.get("skiplist_words")
    return _Former(
        prefixes=prefixes,
        lengths=lengths,
        words=[word.string() for word in words.items()] if words.value is not None else None,
        appends_modules=is_pylate,
    )


def _with_prefixes(opened: ModelDirectory, prefixes: dict[str, str]) -> ModelDirectory:
    """Return a model directory with prefixes put before its prompts of queries and documents."""
    prompts = dict(opened.settings.prompts)
    for kind, prefix in prefixes.items():
        prompts[kind] = prefix + (prompts.get(kind) or "").removeprefix(prefix)
    return replace(opened, settings=replace(opened.settings, prompts=prompts))


def register_markers(tokenizer: Tokenizer, prefixes: Mapping[str, str]) -> Tokenizer:
    """Return a tokenizer that always makes one token of each prefix, if the vocabulary has it.

    Of a prefix that is not in the vocabulary as a whole, its first word is taken.
    ColBERT inserts its markers as ids. As text, "[unused0]" would be cut into pieces, and an added
    "[Q] " is not found in text that is lower-cased.
    """
    added = {token.content: token for token in tokenizer.spec.added_tokens}
    changed = dict(added)
    for value in prefixes.values():
        if not value.strip():
            continue
        for marker in (value, value.split(None, 1)[0]):
            number = tokenizer.token_to_id(marker)
            if number is None:
                continue
            if tokenizer.encode(marker, add_special_tokens=False).tolist() != [number]:
                changed[marker] = AddedTokenSpec(content=marker, id=number)
            break
    if changed == added:
        return tokenizer
    tokens = tuple(sorted(changed.values(), key=lambda token: token.id))
    return Tokenizer(replace(tokenizer.spec, added_tokens=tokens))


def _read_mask(folder: Path, tokenizer: Tokenizer) -> TokenMask:
    path = folder / "config.json"
    if not path.is_file():
        return TokenMask()
    config = read_value(path)
    config.only_keys(_MASK_KEYS)
    words, tasks = config.get("skiplist_words"), config.get("skiplist_tasks")
    listed = [tasks] if isinstance(tasks.value, str) else tasks.items() if tasks.value else None
    kept = config.get("keep_only_token_ids")
    return TokenMask(
        skipped=token_ids([w.string() for w in words.items()] if words.value else [], tokenizer),
        tasks=frozenset({"document"} if listed is None else {task.string() for task in listed}),
        kept=frozenset(number.integer() for number in kept.items()) if kept.value else frozenset(),
    )


def token_ids(words: Sequence[str], tokenizer: Tokenizer) -> frozenset[int]:
    """Return the ids of those words that are a single token of the vocabulary."""
    found = (tokenizer.token_to_id(word) for word in words)
    return frozenset(number for number in found if number is not None)


def _read_lengths(
    former: dict[str, Any], stated: JsonValue | None, tokenizer: Tokenizer
) -> dict[str, Any]:
    """Return the fields of :class:`LateInteraction` for lengths and for the expansion of queries.

    ``former``: lengths in older formats; ``stated``: a Transformer module's, which take precedence.
    """
    own = {} if stated is None else stated.object()
    found = former | {key: own[key] for key in LATE_INTERACTION_KEYS if key in own}
    source = JsonValue(found, _source(stated))
    expansion = source.get("query_expansion")
    lengths: dict[str, Any] = {
        key: source.get(key).optional(lambda n: n.positive(most=None))
        for key in ("query_length", "document_length")
    }
    if expansion.is_null:
        return lengths | {"expansion": None}
    expansion.only_keys(("strategy", "attend", "token", "length"))
    fixed = expansion.get("strategy").one_of({"fixed": True, "min": False})
    length = expansion.get("length").positive(most=None)
    most = lengths["query_length"]
    if most is not None and most < length:
        raise ConfigError(
            f"{source.where}: query_length={most} is below the {length} tokens of the expansion"
        )
    token = expansion.get("token").optional(JsonValue.string)
    number = expansion_token(tokenizer) if token is None else tokenizer.token_to_id(token)
    if number is None:
        raise ConfigError(
            f"{expansion.where}: queries are padded with "
            f"{'the mask token' if token is None else repr(token)}, which the tokenizer lacks"
        )
    attended = expansion.get("attend").boolean(default=False)
    return lengths | {
        "expansion": QueryExpansion(length=length, token_id=number, fixed=fixed, attended=attended)
    }


def _source(stated: JsonValue | None) -> JsonSource:
    if stated is not None:
        return stated.source
    return JsonSource(name=METADATA, error=ConfigError, unknown=UnsupportedFeatureError)


def expansion_token(tokenizer: Tokenizer) -> int | None:
    """Return the token that pads queries: the mask token, or without one the end of a text.

    PyLate does the same. None: the tokenizer has neither token.
    """
    if tokenizer.mask_token_id is not None:
        return tokenizer.mask_token_id
    return tokenizer.sep_token_id
