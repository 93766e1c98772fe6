"""The methods that make :class:`Tokenizer` a drop-in for transformers' fast tokenizers."""

from __future__ import annotations

from abc import ABC, abstractmethod
from typing import TYPE_CHECKING, Any

from encoder_engine.errors import BatchError, InputError
from encoder_engine.text.arguments import check_integer
from encoder_engine.text.calls.batch_encoding import batch_class
from encoder_engine.text.calls.call import call
from encoder_engine.text.calls.options import (
    SIDES,
    TENSORS,
    CallOptions,
    RememberedOptions,
    choose_columns,
    choose_strategies,
    one_of,
)
from encoder_engine.text.calls.padding import pad_features

if TYPE_CHECKING:
    from collections.abc import Iterable, Sequence
    from os import PathLike

    from encoder_engine.text.encoding import Encoding
    from encoder_engine.text.spec.tokenizer import Side, TokenizerSpec

__all__ = ["CallableTokenizer"]


class CallableTokenizer(ABC):
    """Makes a tokenizer callable as transformers' fast tokenizers are, with the same results."""

    is_fast = True
    _call_options: RememberedOptions

    @property
    @abstractmethod
    def spec(self) -> TokenizerSpec:
        """The specification that the tokenizer is built from."""

    @property
    @abstractmethod
    def pad_token_id(self) -> int | None:
        """Id of the padding token."""

    @property
    @abstractmethod
    def unk_token_id(self) -> int | None:
        """Id of the unknown token."""

    @abstractmethod
    def encode_batch(self, texts: Any, pairs: Any = None, /) -> Encoding:
        """Encode texts or pairs into rows of token ids, end to end in one array."""

    @abstractmethod
    def decode(self, ids: Iterable[int], skip_special_tokens: bool = True) -> str:
        """Decode the token ids of one text to the text."""

    @abstractmethod
    def token_to_id(self, token: str) -> int | None:
        """Return the id of a token; ``None`` for an unknown one."""

    @abstractmethod
    def id_to_token(self, token_id: int) -> str | None:
        """Return the token with an id; ``None`` if there is none."""

    @abstractmethod
    def save(self, directory: str | PathLike[str]) -> None:
        """Write the tokenizer's files into a directory."""

    def __call__(
        self,
        text: Any = None,
        text_pair: Any = None,
        text_target: Any = None,
        text_pair_target: Any = None,
        *,
        add_special_tokens: bool = True,
        padding: bool | str = False,
        truncation: bool | str | None = None,
        max_length: int | None = None,
        stride: int = 0,
        is_split_into_words: bool = False,
        pad_to_multiple_of: int | None = None,
        padding_side: Side | None = None,
        truncation_side: Side | None = None,
        return_tensors: str | None = None,
        return_token_type_ids: bool | None = None,
        return_attention_mask: bool | None = None,
        return_overflowing_tokens: bool = False,
        return_special_tokens_mask: bool = False,
        return_offsets_mapping: bool = False,
        return_length: bool = False,
        verbose: bool = True,
        num_threads: int | None = None,
    ) -> Any:
        """Encode a text, a pair, or a batch of either, as transformers' fast tokenizers do.

        ``text``: a str; a list of str; pairs as a list of tuples; with ``is_split_into_words`` a
            list of words, or of such lists.
        ``padding``: ``True`` or ``"longest"``, ``"max_length"``, ``False``.
        ``truncation``: ``True`` or ``"longest_first"``, ``"only_first"``, ``"only_second"``,
            ``False``. A ``max_length`` without ``truncation`` and ``padding`` cuts too.
        ``return_tensors``: ``"np"`` or ``"pt"``, int64; ``None`` for lists.
        ``text_target``: texts whose ids become ``labels``.

        Returns a mapping: transformers' BatchEncoding if transformers is imported, or this
        package's, which has the same fields and methods.

        Raises the errors of :meth:`encode_batch`, :class:`InputError` for settings that contradict
        each other or rows that no tensor holds, and :class:`BatchError` for padding without a
        padding token.
        """
        if text is None and text_target is None:
            raise InputError("there is neither text nor text_target; pass one of them")
        key = (
            add_special_tokens,
            padding,
            truncation,
            max_length,
            stride,
            is_split_into_words,
            pad_to_multiple_of,
            padding_side,
            truncation_side,
            return_tensors,
            return_token_type_ids,
            return_attention_mask,
            return_overflowing_tokens,
            return_special_tokens_mask,
            return_offsets_mapping,
            return_length,
            num_threads,
        )
        options = self._call_options.get(key)
        if options is None:
            names = self.model_input_names
            types, mask = return_token_type_ids, return_attention_mask
            side = self.truncation_side if truncation_side is None else truncation_side
            options = self._options(
                padding,
                truncation,
                max_length,
                pad_to_multiple_of,
                padding_side,
                return_tensors,
                verbose=verbose,
                truncation_side=side,
                columns=choose_columns(
                    types="token_type_ids" in names if types is None else types,
                    mask=mask is None or mask,
                    special=return_special_tokens_mask,
                    offsets=return_offsets_mapping,
                    length=return_length,
                ),
                stride=check_integer(stride, "stride", least=0),
                overflow=bool(return_overflowing_tokens),
                add_special_tokens=add_special_tokens,
                words=is_split_into_words,
                num_threads=num_threads,
            )
            # Every such call warns.
            if not options.ignores_max_length:
                self._call_options[key] = options
        results = [
            call(
                self.encode_batch,
                first,
                second,
                options,
                make=batch_class(),
                tokens_of=self._tokens_of,
            )
            for first, second in ((text, text_pair), (text_target, text_pair_target))
            if first is not None
        ]
        if len(results) == 2:
            results[0]["labels"] = results[1]["input_ids"]
        return results[0]

    def _options(
        self,
        padding: bool | str,
        truncation: bool | str | None,
        max_length: int | None,
        multiple_of: int | None,
        padding_side: str | None,
        tensors: str | None,
        *,
        verbose: bool,
        **settings: Any,
    ) -> CallOptions:
        """Check a call's arguments of padding and truncation; return all options of the call."""
        if multiple_of is not None:
            multiple_of = check_integer(multiple_of, "pad_to_multiple_of", least=0) or None
        pad, cut, length = choose_strategies(
            padding,
            truncation,
            max_length,
            limit=self.model_max_length,
            multiple_of=multiple_of,
            verbose=verbose,
        )
        if pad != "do_not_pad" and self.pad_token_id is None:
            raise BatchError("the tokenizer has no padding token, so rows cannot be padded")
        asked = self.padding_side if padding_side is None else padding_side
        side: Side = "left" if one_of(asked, SIDES, "padding_side") == "left" else "right"
        return CallOptions(
            padding=pad,
            truncation=cut,
            max_length=length,
            multiple_of=multiple_of,
            padding_side=side,
            tensors=None if tensors is None else one_of(tensors, TENSORS, "return_tensors"),
            pad_id=self.pad_token_id or 0,
            pad_type_id=self.pad_token_type_id,
            **settings,
        )

    def _tokens_of(self, _: int, ids: list[int]) -> list[str]:
        return [self.id_to_token(number) or "" for number in ids]

    def pad(
        self,
        encoded_inputs: Any,
        padding: bool | str = True,
        max_length: int | None = None,
        pad_to_multiple_of: int | None = None,
        padding_side: Side | None = None,
        return_attention_mask: bool | None = None,
        return_tensors: str | None = None,
        verbose: bool = True,
    ) -> Any:
        """Pad rows that were encoded before; other fields stay as they are.

        ``encoded_inputs``: a list of mappings, one a row, or a mapping of lists.
        Returns a mapping, as a call does. Raises :class:`InputError` for rows without
        ``input_ids`` or above ``max_length``, and where fields of a row differ in length.
        """
        mask = return_attention_mask is None or return_attention_mask
        options = self._options(
            padding,
            None,
            max_length,
            pad_to_multiple_of,
            padding_side,
            return_tensors,
            verbose=verbose,
            truncation_side=self.truncation_side,
            columns=choose_columns(types=False, mask=mask),
        )
        return batch_class()(pad_features(encoded_inputs, options))

    def tokenize(
        self, text: Any, pair: Any = None, add_special_tokens: bool = False, **settings: Any
    ) -> list[str]:
        """Return the tokens of a text or pair as strings; ``settings``: keywords of a call."""
        found = self(text, pair, add_special_tokens=add_special_tokens, **settings)
        tokens: list[str] = found.tokens()
        return tokens

    def batch_decode(
        self, sequences: Iterable[Iterable[int]], skip_special_tokens: bool = True
    ) -> list[str]:
        """Decode many rows of token ids to texts, as :meth:`decode` does one."""
        return [self.decode(ids, skip_special_tokens) for ids in sequences]

    def convert_tokens_to_ids(self, tokens: str | Sequence[str]) -> Any:
        """Return a token's id, or a list of ids; unknown tokens get the unknown token's id."""
        if not isinstance(tokens, str):
            return [self.convert_tokens_to_ids(token) for token in tokens]
        found = self.token_to_id(tokens)
        return self.unk_token_id if found is None else found

    def convert_ids_to_tokens(
        self, ids: int | Iterable[int], skip_special_tokens: bool = False
    ) -> Any:
        """Return the token of an id, or a list of tokens; ``None`` for an id without one."""
        if isinstance(ids, int):
            return self.id_to_token(ids)
        skipped = set(self.all_special_ids) if skip_special_tokens else set()
        return [self.id_to_token(int(number)) for number in ids if int(number) not in skipped]

    def get_special_tokens_mask(
        self, token_ids: Iterable[int], *, already_has_special_tokens: bool = True
    ) -> list[int]:
        """Return, for the ids of an encoded row, 1 for each special token and 0 for others.

        Raises :class:`InputError` for ``already_has_special_tokens=False``, transformers' default.
        """
        if not already_has_special_tokens:
            raise InputError("rows without a template have no mask; encode texts instead")
        special = set(self.all_special_ids)
        return [int(int(number) in special) for number in token_ids]

    def num_special_tokens_to_add(self, pair: bool = False) -> int:
        """Return the number of special tokens that are added to a text, or to a pair of texts."""
        template = self.spec.pair if pair else self.spec.single
        return sum(len(piece.ids) for piece in template)

    def get_vocab(self) -> dict[str, int]:
        """Return all tokens and their ids, added tokens included."""
        added = {token.content: token.id for token in self.spec.added_tokens}
        return dict(self.spec.model.vocab.items()) | added

    def __len__(self) -> int:
        """Return the size of the vocabulary, added tokens included."""
        vocab = self.spec.model.vocab
        return len(vocab) + sum(token.content not in vocab for token in self.spec.added_tokens)

    def __bool__(self) -> bool:
        """Return True, although the length of a tokenizer may be 0."""
        return True

    def save_pretrained(self, save_directory: str | PathLike[str]) -> None:
        """Write the tokenizer's files, as :meth:`save` does."""
        self.save(save_directory)

    @property
    def all_special_tokens(self) -> list[str]:
        """The unknown, separator, padding, class and mask token, if there are such."""
        special = self.spec.special
        names = (special.unk, special.sep, special.pad, special.cls, special.mask)
        return list(dict.fromkeys(name for name in names if name is not None))

    @property
    def all_special_ids(self) -> list[int]:
        """The ids of the unknown, separator, padding, class and mask token, if there are such."""
        found: list[int] = self.convert_tokens_to_ids(self.all_special_tokens)
        return found

    @property
    def model_input_names(self) -> list[str]:
        """The names of the fields in a call's result by default, such as ``input_ids``."""
        return list(self.spec.input_names)

    @property
    def model_max_length(self) -> int | None:
        """The most tokens of a row that the tokenizer's files state; None if they state none."""
        return self.spec.model_max_length

    @property
    def padding_side(self) -> Side:
        """The side of rows to which a call adds padding by default: ``"right"`` or ``"left"``."""
        return self.spec.padding_side

    @property
    def truncation_side(self) -> Side:
        """The side of texts that a call truncates by default: ``"right"`` or ``"left"``."""
        return self.spec.truncation_side

    @property
    def pad_token_type_id(self) -> int:
        """The token type id that padding tokens get."""
        return 0 if self.spec.padding is None else self.spec.padding.pad_type_id

    @property
    def pad_token(self) -> str | None:
        """The padding token."""
        return self.spec.special.pad

    @property
    def unk_token(self) -> str | None:
        """The unknown token."""
        return self.spec.special.unk

    @property
    def cls_token(self) -> str | None:
        """The first token of a row, such as ``[CLS]``."""
        return self.spec.special.cls

    @property
    def sep_token(self) -> str | None:
        """The token after each text, such as ``[SEP]``."""
        return self.spec.special.sep

    @property
    def mask_token(self) -> str | None:
        """The mask token."""
        return self.spec.special.mask
