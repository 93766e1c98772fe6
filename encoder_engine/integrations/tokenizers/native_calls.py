"""The methods that replace those of a fast tokenizer of transformers.

How it works: ``tokenizer(...)``, ``encode`` and ``tokenize`` of transformers go through
``_encode_plus``. The first call reads the tokenizer of Hugging Face tokenizers ("the library") as
JSON and makes one of this engine. Each call compares a description of its parts (3 us for BERT), so
that normalizers, templates and added tokens may change later. Calls that the engine would not
compute in exactly the same way are left to transformers, which also raises its own errors.
"""

from __future__ import annotations

from functools import cache, partial
from operator import attrgetter
from pathlib import Path
from typing import TYPE_CHECKING, Any

from encoder_engine.errors import EncoderEngineError, UnsupportedFeatureError
from encoder_engine.text import Tokenizer
from encoder_engine.text.calls.batch_encoding import batch_class
from encoder_engine.text.calls.call import call
from encoder_engine.text.calls.options import (
    PADDING,
    SIDES,
    TENSORS,
    TRUNCATION,
    CallOptions,
    RememberedOptions,
    choose_columns,
    one_of,
)
from encoder_engine.text.calls.padding import pad_features
from encoder_engine.text.directory import check_added
from encoder_engine.text.formats.tokenizer_json import spec_from_content
from encoder_engine.text.spec.library import LibrarySpec
from encoder_engine.text.spec.unigram import UnigramSpec

if TYPE_CHECKING:
    from collections.abc import Callable

    from encoder_engine.text.spec.tokenizer import TokenizerSpec

__all__ = ["NativeCalls"]

# Settings of the library's models that may be changed in place.
PAD_SETTINGS = {
    "max_length",
    "pad_to_multiple_of",
    "padding_side",
    "return_attention_mask",
    "return_tensors",
    "verbose",
}
MODEL_SETTINGS = (
    *("unk_token", "unk_id", "continuing_subword_prefix", "max_input_chars_per_word", "dropout"),
    *("end_of_word_suffix", "fuse_unk", "byte_fallback", "ignore_merges"),
)
# The settings of a call that the engine computes.
COMPUTED = {
    *("add_special_tokens", "padding_strategy", "truncation_strategy", "max_length", "stride"),
    *("is_split_into_words", "pad_to_multiple_of", "padding_side", "return_tensors", "verbose"),
    *("return_token_type_ids", "return_attention_mask", "return_overflowing_tokens"),
    *("return_special_tokens_mask", "return_offsets_mapping", "return_length"),
    "split_special_tokens",
}


class NativeCalls:
    """The methods that replace a transformers tokenizer's own, and encode by this engine."""

    def __init__(self, tokenizer: Any) -> None:
        self._tokenizer = tokenizer
        self._native: Tokenizer | None = None
        self._description: tuple[Any, ...] | None = None
        self._odd: frozenset[int] = frozenset()
        self._remembered = RememberedOptions()

    def read(self) -> Tokenizer:
        """Make the engine's tokenizer from the present state of transformers'.

        Raises the exceptions of :meth:`Tokenizer.from_pretrained`.
        """
        place = Path(self._tokenizer.name_or_path or type(self._tokenizer).__name__)
        spec = spec_from_content(self._tokenizer._tokenizer.to_str().encode(), place)
        check_added(spec, place)
        if isinstance(spec.model, LibrarySpec):
            raise UnsupportedFeatureError(f"{place}: {spec.model.reason}; the library encodes it")
        self._native, self._odd = Tokenizer(spec), _oddly_named(spec)
        self._remembered = RememberedOptions()
        return self._native

    def _current(self) -> Tokenizer | None:
        """Return the engine's tokenizer, made again after changes; ``None``: it cannot be made."""
        description = _describe(self._tokenizer._tokenizer)
        if description != self._description:
            try:
                self.read()
            except EncoderEngineError:
                self._native = None
            self._description = description
        return self._native

    def encode(self, text: Any, text_pair: Any = None, **settings: Any) -> Any:
        """Encode texts as the tokenizer's ``_encode_plus`` does: same arguments, same results."""
        native = self._current()
        # transformers fails on an empty list, and takes no other iterables.
        if native is None or not (isinstance(text, str) or (type(text) in (list, tuple) and text)):
            return self._by_transformers(text, text_pair, settings)
        options = self._options(native, settings)
        if options is None:
            return self._by_transformers(text, text_pair, settings)
        try:
            made = call(
                native.encode_batch,
                text,
                text_pair,
                options,
                make=batch_class(),
                tokens_of=partial(self._tokens_of, text, text_pair, settings),
            )
        except EncoderEngineError:
            return self._by_transformers(text, text_pair, settings)
        if settings.get("max_length") is None:
            ids = made["input_ids"]
            rows = ids if len(ids) and hasattr(ids[0], "__len__") else [ids]
            verbose = settings.get("verbose", True)
            self._tokenizer._eventual_warn_about_too_long_sequence(
                max(rows, key=len), None, verbose
            )
        return made

    def _by_transformers(self, text: Any, text_pair: Any, settings: dict[str, Any]) -> Any:
        tokenizer = self._tokenizer
        return type(tokenizer)._encode_plus(tokenizer, text, text_pair, **settings)

    def _tokens_of(
        self, text: Any, text_pair: Any, settings: dict[str, Any], row: int, ids: list[int]
    ) -> list[str]:
        tokens: list[str]
        if self._odd.isdisjoint(ids):
            tokens = self._tokenizer.convert_ids_to_tokens(ids)
        else:
            tokens = self._by_transformers(text, text_pair, settings).tokens(row)
        return tokens

    def _options(self, native: Tokenizer, settings: dict[str, Any]) -> CallOptions | None:
        """Return a call's options for the engine, or ``None``: transformers has to encode it."""
        tokenizer = self._tokenizer
        key = (
            *settings,
            *settings.values(),
            tokenizer.padding_side,
            tokenizer.truncation_side,
            tokenizer.split_special_tokens,
            *tokenizer.model_input_names,
            tokenizer.pad_token_type_id,
            str(tokenizer._special_tokens_map.get("pad_token")),
        )
        options = self._remembered.get(key)
        if options is None:
            options = self._new_options(native, settings)
            if options is not None:
                self._remembered[key] = options
        return options

    def _new_options(self, native: Tokenizer, settings: dict[str, Any]) -> CallOptions | None:
        tokenizer, get = self._tokenizer, settings.get
        split = get("split_special_tokens")
        strategy = get("truncation_strategy", "do_not_truncate")
        cuts = strategy != "do_not_truncate"
        overflow, stride = get("return_overflowing_tokens", False), get("stride", 0)
        types = get("return_token_type_ids")
        types = "token_type_ids" in tokenizer.model_input_names if types is None else types
        mask = get("return_attention_mask")
        mask = "attention_mask" in tokenizer.model_input_names if mask is None else mask
        # The library gives the second text of overflow rows segment 1, whatever the template says;
        # and it compares stride with a row of one text and its template, whatever the row.
        other_types = overflow and types and "token_type_ids" not in native.model_input_names
        room = (get("max_length") or 0) - native.num_special_tokens_to_add()
        if (
            not settings.keys() <= COMPUTED
            or (tokenizer.split_special_tokens if split is None else split)
            or get("return_tensors") not in (None, *TENSORS)
            or (cuts and ((stride and not overflow) or stride >= room or other_types))
        ):
            return None
        return CallOptions(
            **self._layout(get("padding_strategy", "do_not_pad"), settings),
            truncation=one_of(strategy, TRUNCATION, "truncation"),
            columns=choose_columns(
                types=types,
                mask=mask,
                special=get("return_special_tokens_mask", False),
                offsets=get("return_offsets_mapping", False),
                length=get("return_length", False),
            ),
            max_length=get("max_length"),
            stride=stride,
            overflow=bool(overflow),
            add_special_tokens=get("add_special_tokens", True),
            words=get("is_split_into_words", False),
        )

    def _layout(self, padding: object, settings: dict[str, Any]) -> dict[str, Any]:
        """Return a call's fields of :class:`CallOptions` for padding and tensors.

        The padding token is the tokenizer's, and so is the side unless the call states one.
        """
        tokenizer, side = self._tokenizer, settings.get("padding_side")
        pads = padding != "do_not_pad"
        tensors = settings.get("return_tensors")
        return {
            "padding": one_of(padding, PADDING, "padding"),
            "padding_side": one_of(side or tokenizer.padding_side, SIDES, "padding_side"),
            "truncation_side": tokenizer.truncation_side,
            "multiple_of": settings.get("pad_to_multiple_of"),
            "pad_id": tokenizer.pad_token_id if pads else 0,
            "pad_type_id": tokenizer.pad_token_type_id,
            "tensors": None if tensors is None else one_of(tensors, TENSORS, "return_tensors"),
        }

    def pad(self, encoded_inputs: Any, padding: Any = True, *more: Any, **settings: Any) -> Any:
        """Pad encoded texts as the tokenizer's ``pad`` does: same arguments, same results."""
        tokenizer = self._tokenizer
        names, mask = tokenizer.model_input_names, settings.get("return_attention_mask")
        mask = "attention_mask" in names if mask is None else mask
        try:
            if more or names[0] != "input_ids" or not settings.keys() <= PAD_SETTINGS:
                raise UnsupportedFeatureError("the engine pads input_ids, with settings by name")
            strategy, _, max_length, _ = tokenizer._get_padding_truncation_strategies(
                padding=padding,
                max_length=settings.get("max_length"),
                verbose=settings.get("verbose", True),
            )
            options = CallOptions(
                **self._layout(strategy, settings),
                truncation="do_not_truncate",
                columns=choose_columns(types=False, mask=mask),
                max_length=max_length,
            )
            return batch_class()(pad_features(encoded_inputs, options))
        except EncoderEngineError:
            return type(tokenizer).pad(tokenizer, encoded_inputs, padding, *more, **settings)

    def add_tokens(self, new_tokens: Any, special_tokens: bool = False) -> int:
        """Add tokens by transformers' ``_add_tokens``; return the number of tokens added.

        The next call makes the engine's tokenizer anew.
        """
        self._description = None
        added: int = type(self._tokenizer)._add_tokens(
            self._tokenizer, new_tokens, special_tokens=special_tokens
        )
        return added


def _oddly_named(spec: TokenizerSpec) -> frozenset[int]:
    """Return the ids of tokens that Hugging Face tokenizers name by the text they match.

    They are added tokens that match spaces or normalized text too, and Unigram's unknown token.
    """
    odd = [t.id for t in spec.added_tokens if t.lstrip or t.rstrip or t.normalized]
    if isinstance(spec.model, UnigramSpec) and spec.model.unk_id is not None:
        odd.append(spec.model.unk_id)
    return frozenset(odd)


def _describe(library: Any) -> tuple[Any, ...]:
    """Return the state of a Hugging Face tokenizer's parts, without its vocabulary."""
    model = library.model
    return (
        library,
        _model_settings(model.__class__)(model),
        library.get_vocab_size(False),
        library.get_added_tokens_decoder(),
        _describe_part(library.normalizer),
        _describe_part(library.pre_tokenizer),
        _describe_part(library.post_processor),
    )


@cache
def _model_settings(kind: type) -> Callable[[Any], Any]:
    return attrgetter("__class__", *(name for name in MODEL_SETTINGS if hasattr(kind, name)))


def _describe_part(part: Any) -> Any:
    """Return the state of a part, such as the normalizer; of ``Precompiled`` its class's name."""
    name = type(part).__name__
    # Its state cannot be changed; XLM-R's has 300 KB, and reading it takes 175 us.
    if part is None or name == "Precompiled":
        return name
    if name == "Sequence" and type(part).__module__.endswith("normalizers"):
        return [_describe_part(step) for step in part]
    return part.__getstate__()
