"""The methods that replace those of a fast tokenizer of transformers.

How it works: ``tokenizer(...)``, ``encode`` and ``tokenize`` of transformers go through
``_encode_plus``. The first call reads the library's tokenizer as JSON and makes one of this engine.
Each call compares a description of the library's parts (5 us for BERT), so that normalizers,
templates and added tokens may change later. transformers computes what the engine does not do in
exactly its way, and raises its own errors.
"""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING, Any

from encoder_engine.errors import EncoderEngineError, UnsupportedFeatureError
from encoder_engine.text import Tokenizer
from encoder_engine.text.calls.call import call
from encoder_engine.text.calls.options import (
    PADDING,
    SIDES,
    TENSORS,
    TRUNCATION,
    CallOptions,
    choose_columns,
    one_of,
)
from encoder_engine.text.calls.padding import pad_features
from encoder_engine.text.directory import check_added
from encoder_engine.text.formats.tokenizer_json import spec_from_content
from encoder_engine.text.spec.library import LibrarySpec
from encoder_engine.text.spec.unigram import UnigramSpec

if TYPE_CHECKING:
    from encoder_engine.text.spec.tokenizer import TokenizerSpec

__all__ = ["NativeCalls"]

# Settings of the library's models that may be changed in place.
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
    """The methods that replace those of a tokenizer; pickled without the engine's tokenizer."""

    def __init__(self, tokenizer: Any) -> None:
        self._tokenizer = tokenizer
        self._native: Tokenizer | None = None
        self._description: tuple[Any, ...] | None = None
        self._odd: frozenset[int] = frozenset()

    def read(self) -> Tokenizer:
        """Make the engine's tokenizer; raises what :meth:`Tokenizer.from_pretrained` does."""
        place = Path(self._tokenizer.name_or_path or type(self._tokenizer).__name__)
        spec = spec_from_content(self._tokenizer._tokenizer.to_str().encode(), place)
        check_added(spec, place)
        if isinstance(spec.model, LibrarySpec):
            raise UnsupportedFeatureError(f"{place}: {spec.model.reason}; the library encodes it")
        self._native, self._odd = Tokenizer(spec), _oddly_named(spec)
        return self._native

    def _current(self) -> Tokenizer | None:
        """Return the engine's tokenizer, made anew after changes; ``None`` where there is none."""
        description = _describe(self._tokenizer._tokenizer)
        if description != self._description:
            try:
                self.read()
            except EncoderEngineError:
                self._native = None
            self._description = description
        return self._native

    def encode(self, text: Any, text_pair: Any = None, **settings: Any) -> Any:
        """Encode as the tokenizer's ``_encode_plus``."""
        tokenizer = self._tokenizer

        def by_transformers() -> Any:
            return type(tokenizer)._encode_plus(tokenizer, text, text_pair, **settings)

        def tokens_of(row: int, ids: list[int]) -> list[str]:
            if self._odd.isdisjoint(ids):
                found: list[str] = tokenizer.convert_ids_to_tokens(ids)
                return found
            tokens: list[str] = by_transformers().tokens(row)
            return tokens

        native = self._current()
        options = None if native is None else self._options(native, text, settings)
        if native is None or options is None:
            return by_transformers()
        try:
            made = call(
                native.encode_batch, text, text_pair, options, make=_result, tokens_of=tokens_of
            )
        except EncoderEngineError:
            return by_transformers()
        if settings.get("max_length") is None:
            ids = made["input_ids"]
            rows = ids if len(ids) and hasattr(ids[0], "__len__") else [ids]
            verbose = settings.get("verbose", True)
            tokenizer._eventual_warn_about_too_long_sequence(max(rows, key=len), None, verbose)
        return made

    def _options(
        self, native: Tokenizer, text: Any, settings: dict[str, Any]
    ) -> CallOptions | None:
        """Return the options of a call, or ``None`` for one that the engine does not compute."""
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
            or not isinstance(text, str | list | tuple)
            or (not isinstance(text, str) and not text)
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
        """Return the options of padding, of which some are the tokenizer's own."""
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
        """Pad as the tokenizer's ``pad``."""
        tokenizer = self._tokenizer
        names, mask = tokenizer.model_input_names, settings.get("return_attention_mask")
        mask = "attention_mask" in names if mask is None else mask
        try:
            if more or names[0] != "input_ids":
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
            return _result(pad_features(encoded_inputs, options))
        except EncoderEngineError:
            return type(tokenizer).pad(tokenizer, encoded_inputs, padding, *more, **settings)

    def add_tokens(self, new_tokens: Any, special_tokens: bool = False) -> int:
        """Add tokens as the tokenizer's ``_add_tokens``, which may change flags alone."""
        self._description = None
        added: int = type(self._tokenizer)._add_tokens(
            self._tokenizer, new_tokens, special_tokens=special_tokens
        )
        return added

    def __getstate__(self) -> dict[str, Any]:
        """Return the tokenizer alone, of which the engine's is made again."""
        return {"tokenizer": self._tokenizer}

    def __setstate__(self, state: dict[str, Any]) -> None:
        """Restore the tokenizer."""
        self.__init__(state["tokenizer"])  # type: ignore[misc]


def _result(fields: dict[str, Any], rows: Any = None, *, n_sequences: int | None = None) -> Any:
    from transformers import BatchEncoding

    return BatchEncoding(fields, rows, n_sequences=n_sequences)


def _oddly_named(spec: TokenizerSpec) -> frozenset[int]:
    """Return the ids whose tokens the library names by the text: unknown, and with white space."""
    odd = [t.id for t in spec.added_tokens if t.lstrip or t.rstrip or t.normalized]
    if isinstance(spec.model, UnigramSpec) and spec.model.unk_id is not None:
        odd.append(spec.model.unk_id)
    return frozenset(odd)


def _describe(library: Any) -> tuple[Any, ...]:
    """Describe the parts of the library's tokenizer, without its vocabulary."""
    model = library.model
    return (
        library,
        type(model),
        *(getattr(model, name, None) for name in MODEL_SETTINGS),
        library.get_vocab_size(False),
        {number: str(token) for number, token in library.get_added_tokens_decoder().items()},
        _describe_part(library.normalizer),
        _describe_part(library.pre_tokenizer),
        _describe_part(library.post_processor),
    )


def _describe_part(part: Any) -> Any:
    """Return a part's state, of ``Precompiled`` its class alone."""
    name = type(part).__name__
    # Its state is 300 KB of XLM-R, 175 us, and nothing of it can be set.
    if part is None or name == "Precompiled":
        return name
    if name == "Sequence" and type(part).__module__.endswith("normalizers"):
        return [_describe_part(step) for step in part]
    return part.__getstate__()
