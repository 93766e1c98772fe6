"""Reads the companions of a tokenizer: tokenizer_config.json and special_tokens_map.json."""

from __future__ import annotations

from dataclasses import field, replace
from typing import TYPE_CHECKING, Any

from encoder_engine.dataclass import dataclass
from encoder_engine.json_values import JsonValue
from encoder_engine.text.formats.classes import TYPED_CLASSES, find_class
from encoder_engine.text.formats.companion_tokens import CompanionTokens, read_companion_tokens
from encoder_engine.text.formats.json_reading import read_json, value_of
from encoder_engine.text.spec.tokenizer import AddedTokenSpec, Side, SpecialTokenNames

if TYPE_CHECKING:
    from pathlib import Path

__all__ = ["TokenizerConfig", "read_config"]

PARTS = ("unk", "cls", "sep", "pad", "mask")
# transformers writes int(1e30) where there is no limit.
NO_LIMIT = 10**18
# Classes whose vocab.txt means what BERT's does, less the suffix "Fast".
BERT_LIKE = frozenset(
    {
        "BertTokenizer",
        "ConvBertTokenizer",
        "DPRContextEncoderTokenizer",
        "DPRQuestionEncoderTokenizer",
        "DPRReaderTokenizer",
        "DistilBertTokenizer",
        "ElectraTokenizer",
        "LayoutLMTokenizer",
        "LxmertTokenizer",
        "MobileBertTokenizer",
        "PreTrainedTokenizer",
        "RetriBertTokenizer",
        "SqueezeBertTokenizer",
        "TokenizersBackend",
    }
)


@dataclass(frozen=True, kw_only=True)
class TokenizerConfig:
    """The settings of tokenizer_config.json and special_tokens_map.json; ``None``: not stated.

    where: the file's name, for messages.
    kind: the tokenizer class that the directory states or implies.
    input_names: ``model_input_names``.
    added_tokens: those of ``added_tokens_decoder``. companions: the special tokens of both files.
    old_added: the content of added_tokens.json, null without it.
    """

    where: str
    do_lower_case: bool | None = None
    strip_accents: bool | None = None
    tokenize_chinese_chars: bool | None = None
    add_prefix_space: bool | None = None
    trim_offsets: bool | None = None
    tokenizer_class: str | None = None
    kind: str | None = None
    input_names: tuple[str, ...] | None = None
    model_max_length: int | None = None
    truncation_side: Side | None = None
    padding_side: Side | None = None
    names: SpecialTokenNames = field(default_factory=SpecialTokenNames)
    added_tokens: tuple[AddedTokenSpec, ...] | None = None  # with their ids
    companions: CompanionTokens = field(default_factory=CompanionTokens)
    old_added: JsonValue = field(default_factory=lambda: value_of(None, "added_tokens.json"))

    @property
    def gives_types(self) -> bool:
        """Whether transformers' class has ``token_type_ids``; without, all tokens have type 0."""
        if self.input_names is not None:
            return "token_type_ids" in self.input_names
        return self.kind is None or self.kind in TYPED_CLASSES


def read_config(folder: Path) -> TokenizerConfig:
    """Read tokenizer_config.json and special_tokens_map.json, whichever exist."""
    path = folder / "tokenizer_config.json"
    config = TokenizerConfig(where=path.name)
    node, special = value_of(None, path.name), value_of(None, "special_tokens_map.json")
    if path.is_file():
        node = read_json(path)
        config = _read_tokenizer_config(node)
    if (folder / special.where).is_file():
        special = read_json(folder / special.where)
        config = _merge_names(config, _read_names(special), special.where)
    old = folder / "added_tokens.json"
    return replace(
        config,
        kind=find_class(folder, config.tokenizer_class),
        companions=read_companion_tokens(node, special, numbered=config.added_tokens is not None),
        old_added=read_json(old) if old.is_file() else config.old_added,
    )


def _read_tokenizer_config(node: JsonValue) -> TokenizerConfig:
    if not node.get("do_basic_tokenize").boolean(default=True):
        raise node.fail("do_basic_tokenize=false is not supported")
    never = node.get("never_split")
    if never.value:
        raise never.fail("never_split is not supported; make them added tokens in tokenizer.json")
    return TokenizerConfig(
        where=node.where,
        do_lower_case=node.get("do_lower_case").optional(JsonValue.boolean),
        strip_accents=node.get("strip_accents").optional(JsonValue.boolean),
        tokenize_chinese_chars=node.get("tokenize_chinese_chars").optional(JsonValue.boolean),
        add_prefix_space=node.get("add_prefix_space").optional(JsonValue.boolean),
        trim_offsets=node.get("trim_offsets").optional(JsonValue.boolean),
        tokenizer_class=node.get("tokenizer_class").optional(JsonValue.string),
        input_names=_read_input_names(node.get("model_input_names")),
        model_max_length=_read_limit(node.get("model_max_length")),
        truncation_side=_optional_side(node.get("truncation_side")),
        padding_side=_optional_side(node.get("padding_side")),
        names=_read_names(node),
        added_tokens=_read_added_tokens(node.get("added_tokens_decoder")),
    )


def _read_input_names(node: JsonValue) -> tuple[str, ...] | None:
    return None if node.is_null else tuple(item.string() for item in node.items())


def _read_limit(node: JsonValue) -> int | None:
    """Read the model_max_length, a float in some versions; ``None`` for no limit."""
    limit = None if node.is_null else node.number(least=0)
    return None if limit is None or limit >= NO_LIMIT else int(limit)


def _optional_side(node: JsonValue) -> Side | None:
    side: Side | None = None
    if not node.is_null:
        side = node.one_of({"left": "left", "right": "right"})
    return side


def _read_names(node: JsonValue) -> SpecialTokenNames:
    """Read a file's special tokens by role, each a string or an object with ``content``."""
    names: dict[str, str | None] = {}
    for part in PARTS:
        item = node.get(f"{part}_token")
        if isinstance(item.value, dict):
            item = item.get("content")
        names[part] = item.optional(JsonValue.string)
    return SpecialTokenNames(**names)


def _merge_names(config: TokenizerConfig, names: SpecialTokenNames, where: str) -> TokenizerConfig:
    """Add a second file's special tokens to a config's, which they must not contradict."""
    merged: dict[str, Any] = {}
    for part in PARTS:
        known, value = getattr(config.names, part), getattr(names, part)
        if known is not None and value is not None and known != value:
            raise value_of(None, where).fail(
                f"{part}_token is {value!r} here but {known!r} in {config.where}"
            )
        merged[part] = value if known is None else known
    return replace(config, names=SpecialTokenNames(**merged))


def _read_added_tokens(node: JsonValue) -> tuple[AddedTokenSpec, ...] | None:
    if node.is_null:
        return None
    out: list[AddedTokenSpec] = []
    for key in node.object():
        item = node.get(key)
        flags = ("single_word", "lstrip", "rstrip", "normalized", "special")
        item.only_keys(("content", *flags))
        if not key.isdecimal():
            raise item.fail("expected a token id as the key")
        content = item.get("content").string()
        if not content:
            raise item.fail("an added token is empty")
        values = {flag: item.get(flag).boolean(default=flag == "special") for flag in flags}
        out.append(AddedTokenSpec(content=content, id=int(key), **values))
    return tuple(out)
