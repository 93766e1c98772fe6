"""A pipeline's calls as a kind of results, so that a server can batch their inputs."""

from __future__ import annotations

import json
import warnings
from collections.abc import Mapping
from typing import TYPE_CHECKING, Any

import numpy as np

from encoder_engine.dataclass import dataclass
from encoder_engine.errors import InputError, TruncationWarning
from encoder_engine.kinds.kind import Kind
from encoder_engine.kinds.options import Options
from encoder_engine.packing.token_rows import InputRows

if TYPE_CHECKING:
    from encoder_engine.kinds.kind import Batches
    from encoder_engine.kinds.windows import TokenizedWindow

__all__ = ["Calls"]


@dataclass(frozen=True, kw_only=True)
class _CallOptions(Options):
    """The options of a pipeline call; ``parameters``: the keywords of the call, as JSON."""

    parameters: str


class Calls(Kind):
    """The :class:`Kind` of a pipeline's results for its inputs: texts, or dicts of texts."""

    name = "calls"
    row_name = "input"
    requested = ("parameters",)
    noun = "predictions"

    def resolve(self, *, parameters: str | None = None, **common: Any) -> _CallOptions:
        """Validate the keywords of a pipeline's call, given as JSON in ``parameters``.

        Raises :class:`InputError` for an unknown keyword.
        """
        given = {} if parameters is None else json.loads(parameters)
        try:
            self.model.checked(given)
        except TypeError as error:
            raise InputError(str(error)) from None
        kept = json.dumps(given, sort_keys=True)
        return _CallOptions(**self.common_options(**common), dimension=1, parameters=kept)

    def of_request(self, request: Any) -> dict[str, Any]:
        """Return the pipeline's keywords that a server's request sends as its parameters."""
        return {"parameters": request.parameters}

    def needs_tokens(self, options: Any) -> bool:
        """Return False: an input without tokens has a result, or the pipeline refuses it."""
        del options
        return False

    def characters(self, row: Any) -> int:
        """Return the number of characters in all texts of an input."""
        return sum(map(len, _texts(row)))

    def tokenize(self, rows: list[Any], options: Any) -> InputRows:
        """Count the tokens of each input, by which inputs are batched.

        The pipeline itself tokenizes the texts again.
        """
        groups = [_texts(row) for row in rows]
        texts = [text for group in groups for text in group]
        encoded = self.tokenizer.encode_batch(texts, num_threads=self.model.engine.num_threads)
        ends = np.cumsum([0, *map(len, groups)])
        copies = self.model.rows_of_an_input(json.loads(options.parameters))
        offsets = (encoded.cu_seqlens[ends] * copies).astype(np.int32)
        none = np.zeros(len(rows), np.bool_)
        ids = np.zeros(offsets[-1], np.int32)
        return InputRows(ids=ids, cu_seqlens=offsets, truncated=none, inputs=rows)

    def wanted(self, options: Any) -> tuple[()]:
        """Return (): the engine is asked for nothing here, as the pipeline itself runs it."""
        del options
        return ()

    def finish(self, window: TokenizedWindow, batches: Batches, options: Any) -> list[Any]:
        """Return the pipeline's results for consecutive inputs."""
        del batches
        rows: Any = window.encoding
        merged = self.model.options | self.model.checked(json.loads(options.parameters))
        with warnings.catch_warnings():
            # The server's client would not see the warning.
            warnings.simplefilter("ignore", TruncationWarning)
            results: list[Any] = self.model.run(rows.inputs, merged)
        return results

    def join(self, parts: list[list[Any]], options: Any) -> list[Any]:
        """Concatenate the results of successive parts of the input."""
        del options
        return [result for part in parts for result in part]


def _texts(row: Any) -> list[str]:
    """Return the texts in a pipeline's input; other values, which it refuses, are left out."""
    values = row.values() if isinstance(row, Mapping) else [row]
    return [one for one in values if isinstance(one, str)]
