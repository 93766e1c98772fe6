"""Dense vectors: one vector for each text, pooled by an encoder or averaged from a table."""

from __future__ import annotations

from dataclasses import replace
from typing import TYPE_CHECKING, Any, ClassVar

import numpy as np

from encoder_engine.engine.outputs import Pooled
from encoder_engine.errors import InputError
from encoder_engine.kinds.kind import Kind, refuse_non_finite
from encoder_engine.kinds.options import Options, check_route, resolve_dimension, route_of
from encoder_engine.kinds.truncation import TruncationNotice
from encoder_engine.packing.token_rows import EncodedRows
from encoder_engine.vectors.precision import check_precision, quantize_vectors

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping

    from encoder_engine.engine.outputs import Output
    from encoder_engine.engine.protocol import Vectors
    from encoder_engine.kinds.kind import Batches
    from encoder_engine.kinds.options import Route
    from encoder_engine.kinds.windows import EmbeddedWindow, TokenizedWindow
    from encoder_engine.opening.recipe import PoolingRecipe
    from encoder_engine.packing.pooling_modes import PoolingMode
    from encoder_engine.packing.token_rows import WindowRows
    from encoder_engine.vectors.precision import Precision

__all__ = ["Dense", "RoutedDense", "StaticDense"]


class Dense(Kind):
    """The :class:`Kind` that computes dense vectors, [n, D], by a :class:`PoolingRecipe`."""

    name = "dense"
    requested: ClassVar[tuple[str, ...]] = ("input_type", "normalize", "dimensions")
    takes_ids = True

    def __init__(self, model: Any, recipe: PoolingRecipe) -> None:
        super().__init__(model)
        self.recipe = recipe

    @property
    def modes(self) -> tuple[PoolingMode, ...]:
        """The pooling modes, such as the mean; the vectors of several modes are concatenated."""
        return self.recipe.pooling

    def resolve(
        self,
        *,
        normalize_embeddings: bool | None = None,
        truncate_dim: int | None = None,
        precision: Precision = "float32",
        **common: Any,
    ) -> Options:
        """Validate the keywords of a call and fill in defaults; see :class:`EncodeKeywords`."""
        recipe, options = self.recipe, self.common_options(**common)
        normalized = recipe.normalized if normalize_embeddings is None else normalize_embeddings
        # Calls of sentence-transformers may pass batch_size at this position: 1 is not True.
        if normalized not in (True, False) or type(normalized) in (int, float):
            raise InputError(f"normalize_embeddings must be a bool or None, got {normalized!r}")
        check_precision(precision)
        dimension = resolve_dimension(truncate_dim, recipe.truncate_dim, self.model.dimension)
        return Options(
            **options,
            dimension=dimension,
            num_prompt_tokens=self._count_prompt_tokens(options["prompt"]),
            normalized=normalized,
            precision=precision,
        )

    def _count_prompt_tokens(self, prompt: str) -> int:
        """Return the number of leading tokens that pooling leaves out: opening [CLS] and prompt.

        0 without a prompt, or if the model pools it. Raises :class:`InputError` for a prompt that
        fills the limit of tokens.
        """
        if not prompt or self.recipe.include_prompt:
            return 0
        ids = self.tokenizer.encode(prompt)
        special = self.tokenizer.encode("")
        closed = len(special) > 0 and ids[-1] == special[-1]
        limit = self.model.max_seq_length
        if limit is not None and len(ids) >= limit:
            raise InputError(
                f"the prompt has {len(ids)} tokens and leaves no room for a text: "
                f"the limit is {limit}"
            )
        return len(ids) - int(closed)

    def notice(self, options: Options) -> TruncationNotice:
        """Return a counter of truncated texts, whose warning says how to embed them whole."""
        positions, limit = self.model.engine.spec.max_length, self.model.max_seq_length
        room = "" if positions is None else f" (the model has {positions} positions)"
        may_raise = positions is None or (limit or 0) < positions
        raised = f"raise max_seq_length{room} or " if may_raise else ""
        remedy = f"{raised}split them, embed them whole by encode_long"
        return TruncationNotice(options.on_truncation, limit=limit, remedy=remedy)

    def wanted(self, options: Any) -> tuple[Output, ...]:
        """Return what the engine is asked to compute for a batch of texts: pooled vectors."""
        return (
            Pooled(
                modes=self.recipe.pooling,
                num_prompt_tokens=options.num_prompt_tokens,
                normalized=options.normalized,
                dimension=options.dimension,
                layers=self.recipe.layers,
            ),
        )

    def finish(self, window: TokenizedWindow, batches: Batches, options: Options) -> Any:
        """Compute the vectors of consecutive texts, [n, D], in the precision of the call."""
        del window
        return quantize_vectors(self.vectors(batches, options), options.precision)

    def vectors(self, batches: Batches, options: Options) -> Vectors:
        """Compute the vectors of texts, [n, D], float32. Raises :class:`NonFiniteVectorError`."""
        vectors = np.empty((len(batches.rows), options.dimension), dtype=np.float32)
        for batch, (found,) in batches:
            vectors[batch] = found
        hint = "" if self.model.engine.dtype == "float32" else "; load it with dtype='float32'"
        refuse_non_finite(np.isfinite(vectors), batches.numbers, hint=hint)
        return vectors

    def join(self, parts: list[Any], options: Options) -> Any:
        """Concatenate the vectors of successive parts of the input; [0, D] if there is no part."""
        if len(parts) == 1:
            return parts[0]
        return np.concatenate([self.no_vectors(options), *parts])

    def no_vectors(self, options: Options) -> Any:
        """Return the result of a call without texts: [0, D] of the precision's type."""
        return quantize_vectors(np.zeros((0, options.dimension), np.float32), options.precision)

    def stored_dimension(self, options: Options) -> int:
        """Return the length of a stored vector: features, or bytes of packed bits."""
        return int(self.no_vectors(options).shape[1])

    def describe(self, options: Options) -> dict[str, Any]:
        """Return pooling modes, and layers with their weights, which a run over files records."""
        del options
        return {
            "pooling": list(self.recipe.pooling),
            "layers": [list(pair) for pair in self.recipe.layers or ()],
        }

    def of_request(self, request: Any) -> dict[str, Any]:
        """Return a server request's arguments for :meth:`resolve`: normalization and dimension."""
        return {"normalize_embeddings": request.normalize, "truncate_dim": request.dimensions}


class StaticDense(Dense):
    """The :class:`Kind` of static vectors, [n, D]: means of a table's rows.

    A text without a token gets a vector of zeros.

    cut: the most characters of a text; None: no limit.
    rules: the library whose treatment of long texts applies, see :class:`StaticSettings`.
    """

    takes_ids = False

    def __init__(self, model: Any, recipe: PoolingRecipe, *, rules: str, cut: int | None) -> None:
        super().__init__(model, recipe)
        self._rules, self._cut = rules, cut

    def needs_tokens(self, options: Options) -> bool:
        """Return False: a text without tokens gets a vector of zeros."""
        del options
        return False

    def notice(self, options: Options) -> TruncationNotice:
        """Return a counter of a call's truncated texts: see :meth:`Kind.notice`."""
        return TruncationNotice(options.on_truncation, limit=self.model.max_seq_length)

    def tokenize(self, rows: list[str], options: Options) -> WindowRows:
        """Cut texts to ``cut`` characters; tokenize and truncate them, without special tokens."""
        texts = [options.prompt + text for text in rows] if options.prompt else rows
        long: list[int] = []
        if self._cut is not None:
            long = [row for row, text in enumerate(texts) if len(text) > self._cut]
            texts = [text[: self._cut] for text in texts] if long else texts
        encoding = self.tokenizer.encode_batch(
            texts,
            add_special_tokens=False,
            max_length=self.model.max_seq_length,
            num_threads=self.model.engine.num_threads,
            truncation_side="right" if self._rules == "model2vec" else None,
        )
        if not long:
            return encoding
        truncated = np.array(encoding.truncated)
        truncated[long] = True
        return EncodedRows(ids=encoding.ids, cu_seqlens=encoding.cu_seqlens, truncated=truncated)

    def vectors(self, batches: Batches, options: Options) -> Vectors:
        """Compute the vectors of texts, [n, D], float32; they are finite, because the table is."""
        rows = batches.rows
        # A window is one batch, without padding.
        batches.num_padded_tokens = len(rows.ids)
        found: tuple[Vectors] = self.model.engine.run(rows, *self.wanted(options))
        return found[0]

    def describe(self, options: Options) -> dict[str, Any]:
        """Return the pooling, and the rules for long texts, which a run over files records."""
        return {**super().describe(options), "rules": self._rules}


class RoutedDense(Dense):
    """The :class:`Kind` of dense vectors, [n, D], with one model for queries, one for documents.

    queries: the kind that computes queries. route: whether the texts of a call are queries or
    documents if the call does not say.
    """

    takes_ids = False
    has_routes = True

    def __init__(self, model: Any, recipe: PoolingRecipe, *, queries: Kind, route: Route) -> None:
        super().__init__(model, recipe)
        self._routes: Mapping[Route, Kind] = {"query": queries, "document": Dense(model, recipe)}
        self._route = route

    def resolve(self, *, route: Route | None = None, **common: Any) -> Options:
        """Validate the keywords of a call, and fill in the defaults of the route's model."""
        check_route(route)
        route = route or self._route
        return replace(self._routes[route].resolve(**common), route=route)

    def _of(self, options: Options) -> Kind:
        return self._routes[options.route or self._route]

    def limit(self, options: Options) -> int | None:
        """Return the most tokens of a text, a query or a document; None: no limit."""
        return self._of(options).limit(options)

    def notice(self, options: Options) -> TruncationNotice:
        """Return a counter of a call's truncated texts: see :meth:`Kind.notice`."""
        return self._of(options).notice(options)

    def tokenize_window(
        self, rows: list[Any], first_row: int, options: Any, notice: TruncationNotice | None = None
    ) -> TokenizedWindow:
        """Tokenize consecutive texts for the model of queries or of documents, by the route."""
        return self._of(options).tokenize_window(rows, first_row, options, notice)

    def compute_window(
        self,
        window: TokenizedWindow,
        options: Any,
        advance: Callable[[int], None] = lambda _done: None,
    ) -> EmbeddedWindow:
        """Compute tokenized texts by the model of queries or of documents, by the route."""
        return self._of(options).compute_window(window, options, advance)

    def describe(self, options: Options) -> dict[str, Any]:
        """Return pooling, default route and the queries' model, which a run over files records."""
        # A first vector does not wait for what digests need.
        from encoder_engine.text.fingerprint import tokenizer_fingerprint

        queries = self._routes["query"]
        facts = {
            "fingerprint": queries.model.engine.fingerprint(),
            "tokenizer": tokenizer_fingerprint(queries.tokenizer),
            "max_seq_length": queries.limit(options),
            **queries.describe(options),
        }
        return {**super().describe(options), "default_route": self._route, "queries": facts}

    def of_request(self, request: Any) -> dict[str, Any]:
        """Return a request's arguments for :meth:`resolve`: normalization, dimension and route."""
        return {**super().of_request(request), "route": route_of(request)}
