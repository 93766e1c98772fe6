"""Dense, sparse and token vectors from one pass of an encoder, as BGE-M3 has them.

How it works: the encoder's hidden states [T, D] are computed once for a batch. The dense vector is
pooled from them. A linear layer gives each token a weight; where a text has a token several times,
its greatest weight counts. Another linear layer projects the tokens for late interaction (Chen et
al. 2024).

Dimensions: T packed tokens, D features, V vocabulary.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, Literal, get_args

import numpy as np

from encoder_engine.dataclass import dataclass
from encoder_engine.engine.outputs import TokenStates
from encoder_engine.errors import InputError
from encoder_engine.kinds.dense import Dense
from encoder_engine.kinds.kind import refuse_non_finite
from encoder_engine.kinds.options import Options
from encoder_engine.kinds.sparse import join_rows
from encoder_engine.kinds.tokens import collect_states
from encoder_engine.vectors.sparse_vectors import SparseVectors, join_sparse
from encoder_engine.vectors.token_vectors import TokenVectors, join_tokens

if TYPE_CHECKING:
    from collections.abc import Sequence

    from encoder_engine.engine.outputs import Output
    from encoder_engine.engine.protocol import Vectors
    from encoder_engine.kinds.kind import Batches
    from encoder_engine.kinds.windows import TokenizedWindow
    from encoder_engine.opening.recipe import PoolingRecipe
    from encoder_engine.packing.module_stack import ModuleStack

__all__ = ["OUTPUTS", "Hybrid", "HybridOptions", "HybridOutput", "HybridVectors"]

HybridOutput = Literal["dense", "sparse", "tokens"]
OUTPUTS: tuple[HybridOutput, ...] = get_args(HybridOutput)


@dataclass(frozen=True, kw_only=True, eq=False)
class HybridVectors:
    """The dense, sparse and token vectors of N texts; None for those that were not requested.

    dense: float32 [N, D].
    sparse: a weight for each entry of the vocabulary.
    tokens: the vectors of all tokens but the first of each text, for :func:`max_similarity`.
    """

    dense: Vectors | None
    sparse: SparseVectors | None
    tokens: TokenVectors | None


@dataclass(frozen=True, kw_only=True)
class HybridOptions(Options):
    """The options of a call; ``outputs``: the vectors to compute, in the order of OUTPUTS."""

    outputs: tuple[HybridOutput, ...] = OUTPUTS


class Hybrid(Dense):
    """The :class:`Kind` that computes dense, sparse and token vectors in one pass.

    outputs: those that a call computes by default.
    weigh, project: the modules after the encoder for sparse vectors and for vectors of tokens.
    special: ids of tokens that get no weight in sparse vectors.
    """

    name = "hybrid"
    requested = ("input_type",)
    noun = "sparse vectors and vectors of tokens of this model"

    def __init__(
        self,
        model: Any,
        recipe: PoolingRecipe,
        *,
        weigh: ModuleStack,
        project: ModuleStack,
        special: np.ndarray[Any, np.dtype[np.int32]],
        outputs: tuple[HybridOutput, ...] = OUTPUTS,
    ) -> None:
        super().__init__(model, recipe)
        self._stacks = {"sparse": weigh, "tokens": project}
        self._special, self._outputs = special, outputs

    def resolve(
        self, *, outputs: Sequence[HybridOutput] | None = None, **keywords: Any
    ) -> HybridOptions:
        """Validate the keywords of a call; ``outputs`` None: the vectors computed by default."""
        chosen = self._outputs if outputs is None else outputs
        unknown = [name for name in chosen if name not in OUTPUTS]
        if unknown or isinstance(chosen, str) or not chosen:
            raise InputError(f"outputs must list some of {', '.join(OUTPUTS)}, got {chosen!r}")
        ordered = tuple(name for name in OUTPUTS if name in chosen)
        return HybridOptions(**vars(super().resolve(**keywords)), outputs=ordered)

    def wanted(self, options: Any) -> tuple[Output, ...]:
        """Return what the engine computes for a batch: an entry for each of ``options.outputs``."""
        return tuple(
            super(Hybrid, self).wanted(options)[0]
            if name == "dense"
            else TokenStates(modules=self._stacks[name])
            for name in options.outputs
        )

    def finish(self, window: TokenizedWindow, batches: Batches, options: Any) -> HybridVectors:
        """Compute the requested vectors of consecutive texts."""
        del window
        rows, spec = batches.rows, self.model.engine.spec
        widths = {
            "sparse": (len(rows.ids), 1),
            "tokens": (len(rows.ids), self._stacks["tokens"].width(spec.width)),
            "dense": (len(rows), options.dimension),
        }
        found = {name: np.empty(widths[name], np.float32) for name in options.outputs}
        for batch, computed in batches:
            for name, part in zip(options.outputs, computed, strict=True):
                if name == "dense":
                    found[name][batch] = part
                else:
                    batches.scatter(batch, part, found[name])
        if "dense" in found:
            refuse_non_finite(np.isfinite(found["dense"]), batches.numbers)
        states = {
            name: collect_states(found[name], batches, np.asarray(rows.ids))
            for name in ("sparse", "tokens")
            if name in found
        }
        return HybridVectors(
            dense=found.get("dense"),
            sparse=self._greatest(states["sparse"]) if "sparse" in states else None,
            tokens=_without_first(states["tokens"]) if "tokens" in states else None,
        )

    def _greatest(self, weights: TokenVectors) -> SparseVectors:
        """Return each text's sparse vector: the greatest weight of each distinct token, if above 0.

        ``weights``: a weight for each token, [T, 1]. Special tokens are left out.
        """
        found = []
        for start, stop in zip(weights.cu_seqlens[:-1], weights.cu_seqlens[1:], strict=True):
            ids, values = weights.ids[start:stop], weights.vectors[start:stop, 0]
            counted = (values > 0) & ~np.isin(ids, self._special)
            indices, places = np.unique(ids[counted], return_inverse=True)
            greatest = np.zeros(len(indices), dtype=np.float32)
            np.maximum.at(greatest, places, values[counted])
            found.append((indices.astype(np.int32), greatest))
        return join_rows(found, self.model.engine.spec.embedding.vocab_size)

    def join(self, parts: list[HybridVectors], options: Any) -> HybridVectors:
        """Concatenate the vectors of successive parts of the input."""
        spec, outputs = self.model.engine.spec, options.outputs
        dense = [part.dense for part in parts]
        sparse = [part.sparse for part in parts if part.sparse is not None]
        tokens = [part.tokens for part in parts if part.tokens is not None]
        width = self._stacks["tokens"].width(spec.width)
        return HybridVectors(
            dense=super().join(dense, options) if "dense" in outputs else None,
            sparse=join_sparse(sparse, spec.embedding.vocab_size) if "sparse" in outputs else None,
            tokens=join_tokens(tokens, width) if "tokens" in outputs else None,
        )

    def each(self, results: HybridVectors) -> Any:
        """Return one result per text: its sparse vector, or else the vectors of its tokens.

        Not for calls that computed both, or dense vectors alone.
        """
        if results.sparse is not None:
            return [results.sparse.row(row) for row in range(len(results.sparse))]
        assert results.tokens is not None
        return [results.tokens[row] for row in range(len(results.tokens))]

    def of_request(self, request: Any) -> dict[str, Any]:
        """Return {}: a server's request has no options for sparse and token vectors."""
        del request
        return {}


def _without_first(states: TokenVectors) -> TokenVectors:
    """Return the token vectors of texts without the first token of each text."""
    starts = states.cu_seqlens
    kept = np.ones(len(states.ids), dtype=bool)
    kept[starts[:-1]] = False
    return TokenVectors(
        vectors=states.vectors[kept],
        ids=states.ids[kept],
        cu_seqlens=starts - np.arange(len(starts)),
    )
