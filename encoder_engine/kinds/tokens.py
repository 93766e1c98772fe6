"""Token vectors: a vector for each token of a text, plain or projected for late interaction.

Dimensions: T tokens of all texts, D features.
"""

from __future__ import annotations

import hashlib
from typing import TYPE_CHECKING, Any

import numpy as np

from encoder_engine.engine.outputs import TokenStates
from encoder_engine.errors import InputError, NonFiniteVectorError
from encoder_engine.kinds.kind import Kind
from encoder_engine.kinds.options import Options, check_route
from encoder_engine.packing.module_stack import EMPTY_STACK, ModuleStack
from encoder_engine.packing.token_rows import TokenRows
from encoder_engine.vectors.token_vectors import TokenVectors, join_tokens

if TYPE_CHECKING:
    from encoder_engine.engine.outputs import LayerWeights
    from encoder_engine.engine.protocol import Vectors
    from encoder_engine.kinds.kind import Batches
    from encoder_engine.kinds.options import Route
    from encoder_engine.kinds.windows import TokenizedWindow
    from encoder_engine.opening.expansion import QueryExpansion
    from encoder_engine.opening.late_interaction import TokenMask
    from encoder_engine.packing.token_rows import WindowRows

__all__ = ["LateInteraction", "Tokens", "collect_states"]


class Tokens(Kind):
    """The :class:`Kind` of token vectors, of special tokens and the prompt's tokens too."""

    name = "tokens"
    requested = ("input_type", "normalize")
    noun = "vectors of tokens"
    takes_ids = True

    def __init__(
        self, model: Any, *, modules: ModuleStack = EMPTY_STACK, layers: LayerWeights | None = None
    ) -> None:
        super().__init__(model)
        self.modules, self._layers = modules, layers

    @property
    def width(self) -> int:
        """The number of features of a token's vector."""
        width: int = self.modules.width(self.model.engine.spec.width)
        return width

    def resolve(self, *, normalize_embeddings: bool = False, **common: Any) -> Options:
        """Validate the keywords of a call, and fill in defaults."""
        return Options(
            **self.common_options(**common),
            dimension=self.width,
            normalized=bool(normalize_embeddings),
        )

    def wanted(self, options: Options) -> tuple[TokenStates, ...]:
        """Return what the engine is asked to compute for a batch: the vectors of tokens."""
        return (
            TokenStates(modules=self.modules, normalized=options.normalized, layers=self._layers),
        )

    def finish(self, window: TokenizedWindow, batches: Batches, options: Options) -> TokenVectors:
        """Compute the vectors of the tokens of consecutive texts."""
        del window
        rows, found = batches.rows, np.empty((len(batches.rows.ids), options.dimension), np.float32)
        for batch, (computed,) in batches:
            batches.scatter(batch, computed, found)
        return collect_states(found, batches, np.asarray(rows.ids))

    def join(self, parts: list[TokenVectors], options: Options) -> TokenVectors:
        """Concatenate the token vectors of successive parts of the input."""
        return join_tokens(parts, options.dimension)

    def each(self, results: TokenVectors) -> list[Vectors]:
        """Return the token vectors of each text, [n, D]."""
        return [results[row] for row in range(len(results))]

    def of_request(self, request: Any) -> dict[str, Any]:
        """Return a server request's argument for :meth:`resolve`: whether to normalize."""
        return {"normalize_embeddings": bool(request.normalize)}


def collect_states(
    found_TN: Vectors, batches: Batches, ids: Any, *, what: str = "tokens' vectors"
) -> TokenVectors:
    """Return computed token vectors [T, N] as :class:`TokenVectors`, which divide them into texts.

    Raises :class:`NonFiniteVectorError`, which names the first text with NaN or infinity.
    """
    starts = np.asarray(batches.rows.cu_seqlens, dtype=np.int64)
    broken = np.flatnonzero(~np.isfinite(found_TN).all(axis=1))
    if len(broken):
        row = int(batches.numbers[int(np.searchsorted(starts, broken[0], side="right")) - 1])
        raise NonFiniteVectorError(
            f"{len(broken)} {what} are NaN or infinite, the first of text {row}: the "
            "model's numbers overflow or are damaged",
            rows=[row],
        )
    return TokenVectors(vectors=found_TN, ids=ids, cu_seqlens=starts)


class LateInteraction(Tokens):
    """The :class:`Kind` of projected token vectors, which late interaction compares.

    mask: the rule for tokens without a vector.
    lengths: the most tokens of queries and of documents; None: the model's limit.
    expansion: how queries are padded with mask tokens; None: not at all.
    """

    noun = "vectors of tokens of this model"

    def __init__(
        self,
        model: Any,
        *,
        modules: ModuleStack,
        normalized: bool,
        mask: TokenMask,
        lengths: dict[Route, int | None],
        expansion: QueryExpansion | None,
    ) -> None:
        super().__init__(model, modules=modules)
        self._normalized, self._mask = normalized, mask
        self._lengths, self._expansion = lengths, expansion

    def resolve(
        self, *, route: Route | None = None, normalize_embeddings: bool | None = None, **common: Any
    ) -> Options:
        """Validate the keywords of a call; ``route`` None: documents, with the model's limit."""
        check_route(route)
        normalized = self._normalized if normalize_embeddings is None else normalize_embeddings
        return Options(
            **self.common_options(**common),
            dimension=self.width,
            normalized=normalized,
            route=route,
        )

    def limit(self, options: Options) -> int | None:
        """Return the most tokens of a query or of a document, by the route; None: no limit."""
        return super().limit(options) if options.route is None else self.most_tokens(options.route)

    def most_tokens(self, route: Route) -> int | None:
        """Return the most tokens of a query or of a document; None: no limit.

        With query expansion, that of a query includes its mask tokens.
        """
        length, expansion = self._lengths[route], self._expansion
        if route == "query" and expansion is not None:
            if expansion.fixed:
                return expansion.length
            length = None if length is None else max(length, expansion.length)
        if length is None:
            limit: int | None = self.model.max_seq_length
            return limit
        positions = self.model.engine.spec.max_length
        return length if positions is None else min(length, positions)

    def rows(self, encoding: WindowRows, options: Options) -> TokenRows:
        """Return the token rows that the engine computes; mask tokens may be added to queries."""
        if self._expansion is not None and options.route == "query":
            return self._expansion.expand(encoding)
        return TokenRows.of(encoding)

    def finish(self, window: TokenizedWindow, batches: Batches, options: Any) -> TokenVectors:
        """Compute the vectors of consecutive texts' tokens that late interaction compares."""
        found, mask = super().finish(window, batches, options), self._mask
        route = options.route or "document"
        if mask.skipped and route in mask.tasks:
            found = found.without(mask.skipped)
        if mask.kept and route == "document":
            found = found.only(mask.kept)
        return found

    def describe(self, options: Any) -> dict[str, Any]:
        """Return a digest of modules, token rules and lengths, which a run over files records."""
        route: Route = options.route or "document"
        mask = self._mask
        expansion = self._expansion if route == "query" else None
        chosen = [sorted(mask.skipped) if route in mask.tasks else [], sorted(mask.kept)]
        after = self.modules.join_fingerprint("")
        facts = f"{chosen} {expansion} {self.most_tokens(route)} {after}"
        digest = hashlib.sha256(facts.encode()).hexdigest()
        return {**super().describe(options), "projection": digest}

    def of_request(self, request: Any) -> dict[str, Any]:
        """Return a request's arguments for :meth:`resolve`: the route, also as the prompt's name.

        Raises :class:`InputError` for another normalization than the model's, or another prompt.
        """
        if request.normalize is not None and request.normalize != self._normalized:
            raise InputError(
                f"this model's vectors are {'' if self._normalized else 'not '}normalized; leave "
                "normalize out"
            )
        named = {request.prompt_name, request.input_type} - {None} or {"document"}
        if len(named) > 1 or not named <= {"query", "document"}:
            raise InputError(
                "this model has the prompts query and document; give one, as prompt_name or "
                "input_type"
            )
        (route,) = named
        return {"route": route, "prompt_name": route}
