"""The context in which a route answers a request: service, client and deadline."""

from __future__ import annotations

import difflib
import re
from typing import TYPE_CHECKING, Any, Literal, NamedTuple, TypeVar, get_args, get_origin

import msgspec
import msgspec.structs

from encoder_engine.serving.http.faults import RequestError
from encoder_engine.serving.tasks import CallOptions

if TYPE_CHECKING:
    from collections.abc import Hashable, Sequence

    from encoder_engine.serving.service import Service

__all__ = ["TOKENS_HINT", "Context", "check_count", "decode", "texts_of"]

Message = TypeVar("Message")
_CHOICE = re.compile(r"Invalid enum value .*", re.DOTALL)
_UNKNOWN = "Object contains unknown field"
TOKENS_HINT = (
    "; send texts, not token ids, which another tokenizer may have made: "
    "langchain-openai does so with check_embedding_ctx_length=False"
)


class Context(NamedTuple):
    """The service that a request is for, with the request's client and deadline.

    client: the name of the key, or the address of the connection; the service serves clients in
        turn.
    timeout: seconds; None: the service's.
    accept: the media types that the client accepts.
    rest: the part of the path after the route's, for routes that name a model.
    """

    service: Service
    client: Hashable
    timeout: float | None = None
    accept: bytes = b""
    rest: str = ""

    def call(self, *, priority: int | None = None, timeout_ms: int | None = None) -> dict[str, Any]:
        """Return the keyword arguments with which this request calls the service's methods."""
        seconds = self.timeout if timeout_ms is None else timeout_ms / 1000.0
        return {"client": self.client, "priority": priority or 0, "timeout": seconds}

    def options(
        self, *, truncate: bool | None, direction: str | None = None, **given: Any
    ) -> CallOptions:
        """Return the :class:`CallOptions` of this request.

        truncate: truncate long texts, or refuse them; None: the server's setting.
        direction: the side that is truncated, as TEI names it (``"Left"``); None: the tokenizer's.
        given: further fields of :class:`CallOptions`.
        """
        if truncate is None:
            truncate = self.service.options.truncation == "cut"
        side: Any = None if direction is None else direction.lower()
        return CallOptions(refuses_long=not truncate, truncation_side=side, **given)


def decode(body: bytes, kind: type[Message]) -> Message:
    """Decode a JSON body to a Struct; raises :class:`RequestError`, which names the wrong field."""
    try:
        return msgspec.json.decode(body, type=kind)
    except msgspec.ValidationError as error:
        raise _invalid(str(error), kind) from None
    except (msgspec.DecodeError, UnicodeDecodeError, RecursionError) as error:
        reason = "it is nested too deep" if isinstance(error, RecursionError) else _reason(error)
        raise RequestError("malformed", f"the body is not valid JSON: {reason}") from None


def _invalid(message: str, kind: type[Any]) -> RequestError:
    """Return the error for a body that msgspec refuses, without quoting the caller's text.

    Only the name of an unknown field is repeated, if it is short and an identifier: a misspelling.
    """
    reason, _, place = message.partition(" - at `$")
    param = place.rstrip("`").lstrip(".") or None
    # The message of an unknown choice would quote the choice.
    reason = _CHOICE.sub(f"unknown choice; there are {', '.join(_choices(kind, param))}", reason)
    reason = reason.replace("Expected `int | str | array`", "expected a text")
    if reason.startswith(_UNKNOWN):
        unknown = reason[len(_UNKNOWN) :].strip(" `")
        known = [field.encode_name for field in msgspec.structs.fields(kind)] if not param else []
        near = difflib.get_close_matches(unknown, known, n=1)
        hint = f"; did you mean {near[0]!r}?" if near else ""
        fields = f"; there are {', '.join(known)}" if known and not near else ""
        # A short identifier is a misspelt field, not a text.
        shown = f" {unknown!r}" if unknown.isidentifier() and len(unknown) <= 40 else ""
        return RequestError(
            "invalid", f"unknown field{shown}{hint}{fields}", param=param or shown[2:-1] or None
        )
    hint = ""
    if (
        param is not None
        and param.startswith("input")
        and ("got `int`" in reason or "got `array`" in reason)
    ):
        hint = TOKENS_HINT
    return RequestError("invalid", f"{reason}{hint}", param=param)


def _choices(kind: Any, param: str | None) -> list[str]:
    """Return the values of a field with ``Literal`` type, for messages; [] for other fields.

    kind: the body's type.
    param: the path of the field within the body, such as ``inputs[0]``.
    """
    for name in (param or "").split("."):
        structs = [kind, *get_args(kind)]
        fields = [
            one
            for struct in structs
            if isinstance(struct, type) and issubclass(struct, msgspec.Struct)
            for one in msgspec.structs.fields(struct)
        ]
        plain = name.partition("[")[0]
        kind = next((one.type for one in fields if one.encode_name == plain), kind)
    found, open_types = list[str](), [kind]
    while open_types:
        one = open_types.pop(0)
        found += get_args(one) if get_origin(one) is Literal else ()
        open_types += get_args(one) if get_origin(one) is not Literal else ()
    return found


def _reason(error: Exception) -> str:
    return "it is not UTF-8" if isinstance(error, UnicodeDecodeError) else str(error)


def texts_of(value: str | Sequence[str], context: Context, param: str) -> list[str]:
    """Return a field's texts as a list; raises :class:`RequestError` for none and for too many."""
    texts = [value] if isinstance(value, str) else list(value)
    check_count(len(texts), context, param)
    return texts


def check_count(count: int, context: Context, param: str) -> None:
    """Raise :class:`RequestError` for a field without texts, or with more than are allowed."""
    most = context.service.options.max_texts
    if count == 0:
        raise RequestError("empty", f"{param} is empty; send at least one text", param=param)
    if count > most:
        raise RequestError("too_many", f"{count} texts; the limit is {most}", param=param)
