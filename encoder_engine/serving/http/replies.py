"""The answers to requests, as bytes of JSON.

A vector of 384 float32 takes orjson 12 us and ``json.dumps`` 440 us. A long answer is written in
pieces of 12,288 numbers, 32 such vectors (0.5 ms), so that other requests are read in between. A
piece is written when the client has read the previous ones.
"""

from __future__ import annotations

import binascii
import io
from typing import TYPE_CHECKING, Any, NamedTuple

import numpy as np
import orjson

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator

    from encoder_engine.serving.request import Answer

__all__ = [
    "Reply",
    "base64_pieces",
    "dump",
    "embedding_pieces",
    "list_pieces",
    "matrix_pieces",
    "npy_pieces",
    "reply_of",
    "token_pieces",
]

# The numbers of a piece.
PIECE_NUMBERS = 12_288
NPY = b"application/x-npy"


class Reply(NamedTuple):
    """A response body with its headers; an iterator's pieces are sent one by one."""

    body: bytes | Iterator[bytes]
    headers: tuple[tuple[bytes, bytes], ...] = ()
    media_type: bytes = b"application/json"
    status: int = 200
    # The bytes of the results that the pieces are made of.
    num_bytes: int = 0


def dump(value: Any) -> bytes:
    """Return a value as JSON; float32 arrays get the shortest digits that give the same number."""
    return orjson.dumps(value, option=orjson.OPT_SERIALIZE_NUMPY)


def list_pieces(
    count: int,
    numbers_each: int,
    make: Callable[[int, int], list[Any]],
    before: bytes = b"",
    after: bytes = b"",
) -> Iterator[bytes]:
    """Yield the JSON of a list in pieces of about 12,288 numbers, for a streamed answer.

    count: the number of items in the list.
    numbers_each: about how many numbers an item has, which decides how many items a piece gets.
    make: ``make(start, stop)`` returns the items ``start`` to ``stop - 1``.
    before, after: bytes to send before and after the list.
    """
    step = max(1, PIECE_NUMBERS // max(numbers_each, 1))
    if count <= step:
        yield b"%b%b%b" % (before, dump(make(0, count)), after)
        return
    yield before + b"["
    for start in range(0, count, step):
        items = dump(make(start, min(start + step, count)))
        yield items[1:-1] if start + step >= count else b"%b," % items[1:-1]
    yield b"]" + after


def matrix_pieces(vectors: Any, before: bytes = b"", after: bytes = b"") -> Iterator[bytes]:
    """Yield the JSON of an array [N, D] as a list of lists, piece by piece."""
    rows = (len(vectors), vectors.shape[1])
    return list_pieces(*rows, lambda start, stop: list(vectors[start:stop]), before, after)


def base64_pieces(vectors: Any, before: bytes = b"", after: bytes = b"") -> Iterator[bytes]:
    """Yield the JSON of an array [N, D] as a list of base64 strings of little-endian float32."""
    rows = (len(vectors), vectors.shape[1])
    return list_pieces(*rows, lambda a, b: list(map(_base64, vectors[a:b])), before, after)


def token_pieces(found: list[Any]) -> Iterator[bytes]:
    """Yield the JSON of the token vectors [n, D] of texts as a list of lists of vectors."""
    yield b"["
    for number, vectors in enumerate(found):
        if number:
            yield b","
        yield from matrix_pieces(vectors)
    yield b"]"


def embedding_pieces(
    vectors: Any, *, encoded: bool, before: bytes, after: bytes
) -> Iterator[bytes]:
    """Yield OpenAI's list of embeddings as JSON; ``encoded``: base64 of little-endian float32.

    before, after: bytes that are sent before and after the list.
    """

    def make(start: int, stop: int) -> list[Any]:
        return [
            {
                "object": "embedding",
                "index": row,
                "embedding": _base64(vectors[row]) if encoded else vectors[row],
            }
            for row in range(start, stop)
        ]

    return list_pieces(len(vectors), vectors.shape[1], make, before, after)


def npy_pieces(vectors: Any) -> Iterator[bytes]:
    """Yield an array as NumPy's file format, little-endian float32."""
    array = np.ascontiguousarray(vectors, dtype="<f4")
    head = io.BytesIO()
    np.lib.format.write_array_header_1_0(head, np.lib.format.header_data_from_array_1_0(array))
    yield head.getvalue()
    step = max(1, 8 * PIECE_NUMBERS // max(array.shape[1], 1))
    for start in range(0, len(array), step):
        yield array[start : start + step].tobytes()


def _base64(vector: Any) -> str:
    values = np.ascontiguousarray(vector, dtype="<f4").data
    return binascii.b2a_base64(values, newline=False).decode("ascii")


def reply_of(
    pieces: Iterator[bytes] | bytes, answer: Answer, *, media_type: bytes = b"application/json"
) -> Reply:
    """Return a reply with this body, and headers that state times, tokens and truncated texts.

    The headers of times, tokens and characters are TEI's; ``x-truncated`` lists the indices of the
    texts that were truncated. The pieces of a short body are joined.
    """
    times = answer.seconds
    tokenize, queue, compute = (
        round(1000 * times["tokenize"]),
        round(1000 * times["queue"]),
        round(1000 * times["compute"]),
    )
    headers = [
        (b"x-compute-tokens", b"%d" % answer.num_tokens),
        (b"x-compute-characters", b"%d" % answer.num_characters),
        (b"x-total-time", b"%d" % (tokenize + queue + compute)),
        (b"x-tokenization-time", b"%d" % tokenize),
        (b"x-queue-time", b"%d" % queue),
        (b"x-inference-time", b"%d" % compute),
    ]
    if answer.truncated:
        numbers = ",".join(map(str, answer.truncated[:1000]))
        headers.append((b"x-truncated", numbers.encode()))
    num_bytes = answer.num_bytes
    if not isinstance(pieces, bytes) and num_bytes <= 4 * PIECE_NUMBERS:
        pieces = b"".join(pieces)
    return Reply(pieces, tuple(headers), media_type=media_type, num_bytes=num_bytes)
