"""The options of a tokenizer call, with defaults and conflicts resolved as in transformers."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from encoder_engine.dataclass import dataclass
from encoder_engine.errors import EncoderEngineWarning, InputError
from encoder_engine.text.arguments import check_integer
from encoder_engine.warn import warn_caller

if TYPE_CHECKING:
    from encoder_engine.text.spec.tokenizer import Side

__all__ = [
    "PADDING",
    "SIDES",
    "TENSORS",
    "TRUNCATION",
    "CallOptions",
    "RememberedOptions",
    "choose_columns",
    "choose_strategies",
    "one_of",
]

TENSORS = ("np", "pt")
SIDES = ("left", "right")
MOST_REMEMBERED = 64
PADDING = ("longest", "max_length", "do_not_pad")
TRUNCATION = ("longest_first", "only_first", "only_second", "do_not_truncate")


@dataclass(frozen=True, kw_only=True)
class CallOptions:
    """The settings of one tokenizer call.

    padding: one of :data:`PADDING`.
    truncation: one of :data:`TRUNCATION`.
    max_length: the most tokens of a row, and the width of the padding ``"max_length"``.
    multiple_of: round the width up to a multiple of this.
    columns: the names of the result's fields, in their order.
    tensors: ``"np"``, ``"pt"`` or ``None`` for lists.
    overflow: what truncation cuts off becomes further rows. words: each text is a list of words.
    """

    columns: tuple[str, ...]
    padding: str
    truncation: str
    max_length: int | None
    truncation_side: Side
    padding_side: Side
    pad_id: int
    pad_type_id: int
    stride: int = 0
    overflow: bool = False
    add_special_tokens: bool = True
    words: bool = False
    multiple_of: int | None = None
    tensors: str | None = None
    num_threads: int | None = None

    @property
    def fills(self) -> dict[str, int]:
        """The value of padding in each field of integers, by the field's name."""
        return {
            "input_ids": self.pad_id,
            "token_type_ids": self.pad_type_id,
            "attention_mask": 0,
            "special_tokens_mask": 1,
        }

    @property
    def truncates(self) -> bool:
        """True if texts longer than ``max_length`` are truncated."""
        return self.truncation != "do_not_truncate"

    @property
    def ignores_max_length(self) -> bool:
        """True if ``max_length`` was given and has no effect: it neither truncates nor pads."""
        return self.padding == "longest" and self.max_length is not None and not self.truncates


class RememberedOptions:
    """A cache of checked :class:`CallOptions`, by a call's arguments: checking takes 15 us."""

    def __init__(self) -> None:
        self._options: dict[object, CallOptions] = {}

    def get(self, key: tuple[Any, ...]) -> CallOptions | None:
        """Return the cached options of a call with these arguments; ``None``: there are none."""
        try:
            return self._options.get(_typed(key))
        except TypeError:
            # A list, for example, which is refused when it is checked.
            return None

    def __setitem__(self, key: tuple[Any, ...], options: CallOptions) -> None:
        if len(self._options) >= MOST_REMEMBERED:
            self._options.clear()
        self._options[_typed(key)] = options


def _typed(key: tuple[Any, ...]) -> tuple[Any, ...]:
    """Return a cache key that has its values' types too: 8 equals 8.0, but only 8 is accepted."""
    return (key, *map(type, key))


def choose_columns(
    *, types: bool, mask: bool, special: bool = False, offsets: bool = False, length: bool = False
) -> tuple[str, ...]:
    """Return the names of a call result's requested fields, in the order of transformers."""
    asked = {
        "input_ids": True,
        "token_type_ids": types,
        "attention_mask": mask,
        "special_tokens_mask": special,
        "offset_mapping": offsets,
        "length": length,
    }
    return tuple(name for name, wanted in asked.items() if wanted)


def one_of(value: object, known: tuple[str, ...], name: str) -> str:
    """Return the string in ``known`` that equals an argument, such as an enum of transformers.

    Raises :class:`InputError` if none does.
    """
    for word in known:
        if value == word:
            return word
    raise InputError(f"{name} is {value!r}; known are {', '.join(map(repr, known))}")


def choose_strategies(
    padding: object,
    truncation: object,
    max_length: int | None,
    *,
    limit: int | None,
    multiple_of: int | None = None,
    verbose: bool = True,
) -> tuple[str, str, int | None]:
    """Return padding strategy, truncation strategy and ``max_length`` by transformers' rules.

    ``limit``: the tokenizer's ``model_max_length``, the default of ``max_length``. Without both,
    padding to ``"max_length"`` does not pad, and nothing is truncated. ``verbose``: warn of a
    ``max_length`` without effect. Raises :class:`InputError` for an unknown strategy, and for
    truncation to a length that is no multiple of ``multiple_of``, to which rows are padded.
    """
    if max_length is not None:
        max_length = check_integer(max_length, "max_length", least=0)
        if padding is False and truncation is None:
            truncation = True
    cut = "do_not_truncate"
    if truncation is True:
        cut = "longest_first"
    elif truncation is not False and truncation is not None:
        cut = one_of(truncation, TRUNCATION, "truncation")
    pad = "do_not_pad"
    if padding is True:
        pad = "longest"
        if verbose and max_length is not None and cut == "do_not_truncate":
            message = "max_length changes nothing with padding=True and no truncation"
            advice = "to pad up to it, pass padding='max_length'"
            warn_caller(EncoderEngineWarning(f"{message}; {advice}"))
    elif padding is not False:
        pad = one_of(padding, PADDING, "padding")
    if max_length is None and (pad == "max_length" or cut != "do_not_truncate"):
        if limit is None:
            pad = "do_not_pad" if pad == "max_length" else pad
            cut = "do_not_truncate"
        max_length = limit
    both = cut != "do_not_truncate" and pad != "do_not_pad"
    if both and max_length is not None and multiple_of and max_length % multiple_of:
        raise InputError(
            f"max_length is {max_length}, which is no multiple of "
            f"pad_to_multiple_of={multiple_of}; make it one, or do not truncate"
        )
    return pad, cut, max_length
