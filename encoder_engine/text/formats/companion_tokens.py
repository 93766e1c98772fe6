"""Collects the added tokens that tokenizer_config.json and special_tokens_map.json name.

Their order is that in which transformers adds them.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from encoder_engine.dataclass import dataclass
from encoder_engine.text.spec.tokenizer import AddedTokenSpec

if TYPE_CHECKING:
    from collections.abc import Iterable, Mapping

    from encoder_engine.json_values import JsonValue

__all__ = ["CompanionTokens", "NamedToken", "append_tokens", "read_companion_tokens"]

# The order in which transformers adds the parts; any other *_token follows, then the lists.
PARTS = ("bos", "eos", "unk", "sep", "pad", "cls", "mask")
LISTS = ("extra_special_tokens", "additional_special_tokens")
FLAGS = ("single_word", "lstrip", "rstrip", "normalized", "special")


@dataclass(frozen=True, kw_only=True)
class NamedToken:
    """A token that a file names without an id; ``where``: its JSON path in the file."""

    where: str
    content: str
    flags: Mapping[str, bool]

    def numbered(self, number: int) -> AddedTokenSpec:
        """Return this token as an added token with the id ``number``."""
        return AddedTokenSpec(content=self.content, id=number, **self.flags)


@dataclass(frozen=True, kw_only=True)
class CompanionTokens:
    """The special tokens that tokenizer_config.json and special_tokens_map.json name.

    wanted: tokens that become added tokens.
    passed_over: tokens in fields that transformers does not read.
    """

    wanted: tuple[NamedToken, ...] = ()
    passed_over: tuple[NamedToken, ...] = ()


def read_companion_tokens(
    config: JsonValue, special: JsonValue, *, numbered: bool
) -> CompanionTokens:
    """Collect the tokens of tokenizer_config.json and special_tokens_map.json.

    ``numbered``: tokenizer_config.json has an added_tokens_decoder, so special_tokens_map.json is
    ignored.
    """
    in_config, in_map = _Named(config, typed=True), _Named(special, typed=False)
    named = [*in_config.all(), *in_map.all()]
    lists = dict(in_config.lists)
    if not lists.get(LISTS[0]) and LISTS[1] in lists and not in_config.tables:
        lists[LISTS[0]] = lists.pop(LISTS[1])
    parts, loose, fixed = dict(in_config.parts), dict(in_config.objects), dict(in_config.strings)
    for table in in_config.tables.values():
        fixed |= table
    if not numbered:
        parts |= in_map.parts
        loose |= in_map.objects | in_map.strings
        fixed |= in_map.tables.get(LISTS[0], {})
        if LISTS[1] in in_map.lists:
            lists[LISTS[1]] = in_map.lists[LISTS[1]]
        if LISTS[0] in in_map.tables:
            lists.pop(LISTS[0], None)
        elif in_map.lists.get(LISTS[0]) is not None:
            lists[LISTS[0]] = [*(lists.get(LISTS[0]) or []), *(in_map.lists[LISTS[0]] or [])]
    extra = lists[LISTS[0]] if LISTS[0] in lists else lists.get(LISTS[1])
    ordered = [parts[part] for part in PARTS if part in parts]
    wanted: dict[str, NamedToken] = {}
    for token in [*ordered, *(loose | fixed).values(), *(extra or [])]:
        wanted.setdefault(token.content, token)
    passed_over = tuple(token for token in named if token.content not in wanted)
    return CompanionTokens(wanted=tuple(wanted.values()), passed_over=passed_over)


def append_tokens(
    added: tuple[AddedTokenSpec, ...], vocab: Mapping[str, int], wanted: Iterable[NamedToken]
) -> tuple[AddedTokenSpec, ...]:
    """Append the wanted tokens that are missing, with their vocabulary id or the next free id."""
    out = {token.content: token for token in added}
    for token in wanted:
        if token.content in out:
            continue
        following = max([len(vocab), *(known.id + 1 for known in out.values())])
        out[token.content] = token.numbered(vocab.get(token.content, following))
    return tuple(out.values())


class _Named:
    """The tokens that one of the two files names, by the kind of entry that names them."""

    def __init__(self, node: JsonValue, *, typed: bool) -> None:
        # Tokens of a file that writes their type (__type) also state whether they are special.
        self.typed = typed
        self.parts: dict[str, NamedToken] = {}
        self.strings: dict[str, NamedToken] = {}
        self.objects: dict[str, NamedToken] = {}
        self.tables: dict[str, dict[str, NamedToken]] = {}
        self.lists: dict[str, list[NamedToken] | None] = {}
        for key in {} if node.is_null else node.object():
            self._read(key, node.get(key))

    def _read(self, key: str, item: JsonValue) -> None:
        part = key.removesuffix("_token")
        if key in LISTS and isinstance(item.value, dict):
            self.tables[key] = {name: self._token(item.get(name), True) for name in item.object()}
        elif key in LISTS:
            self.lists[key] = (
                None if item.is_null else [self._token(one, False) for one in item.items()]
            )
        elif part == key or not isinstance(item.value, str | dict):
            return  # of another type it is no token: add_bos_token, say
        elif part in PARTS:
            self.parts[part] = self._token(item, True)
        elif isinstance(item.value, str):
            self.strings[key] = self._token(item, True)
        elif "content" in item.value:
            self.objects[key] = self._token(item, True)

    def _token(self, item: JsonValue, part: bool) -> NamedToken:
        """Read an entry as a token; ``part``: the entry gives it a role, so it is special."""
        flags = dict.fromkeys(FLAGS, False) | {"special": True}
        content = item
        if isinstance(item.value, dict):
            item.only_keys(("__type", "content", "id", *FLAGS))
            content = item.get("content")
            stated = item.get("special").boolean(default=not self.typed)
            special = stated or not self.typed
            flags = {flag: item.get(flag).boolean(default=False) for flag in FLAGS}
            flags["normalized"] = item.get("normalized").boolean(default=not special)
            flags["special"] = special or part
        if not content.string():
            raise item.fail("a special token is empty")
        return NamedToken(where=item.where, content=content.string(), flags=flags)

    def all(self) -> list[NamedToken]:
        """Return all tokens that the file names, in every kind of entry."""
        groups: list[Any] = [self.parts, self.strings, self.objects, *self.tables.values()]
        listed = [token for tokens in self.lists.values() for token in tokens or []]
        return [token for group in groups for token in group.values()] + listed
