"""Dense, sparse and token vectors of one pass of an encoder, as BGE-M3 has them.

How it works: the encoder's rows [T, D] are computed once a batch. The dense vector is pooled from
them; a linear layer gives each token a weight, the greatest of which a text keeps for each entry of
the vocabulary; another projects the tokens for late interaction (Chen et al. 2024).

Dimensions: T packed tokens, D features, N features of a token's vector, V vocabulary.
"""

from __future__ import annotations

from functools import partial
from typing import TYPE_CHECKING, Any, Literal, Self, get_args

import numpy as np

from encoder_engine.dataclass import dataclass
from encoder_engine.embedding.directory.modules import SPARSE_FILE, TOKENS_FILE
from encoder_engine.embedding.directory.stack import read_linear
from encoder_engine.embedding.embedder import Embedder
from encoder_engine.embedding.engines.choosing import torch_engine
from encoder_engine.embedding.library_keywords import (
    HybridKeywords,
    check_keywords,
    naming,
    refuse_forms,
)
from encoder_engine.embedding.options import EncodeCall
from encoder_engine.embedding.queries import QueryMethods
from encoder_engine.embedding.saving.sentence_directory import save_embedder
from encoder_engine.embedding.sparse import SparseVectors
from encoder_engine.embedding.steps.batch_loop import compute_batches
from encoder_engine.embedding.steps.progress import progress_bar
from encoder_engine.embedding.steps.texts import open_texts
from encoder_engine.embedding.steps.token_vectors import TokenVectors, max_similarity
from encoder_engine.embedding.steps.truncation import TruncationNotice
from encoder_engine.embedding.steps.window import tokenized_windows
from encoder_engine.errors import CheckpointFileError, ConfigError, InputError, NonFiniteVectorError
from encoder_engine.families.checkpoints.files import fetching, resolve_directory
from encoder_engine.packing.module_stack import DenseModule, ModuleStack, NormalizeModule
from encoder_engine.packing.token_rows import TokenRows

if TYPE_CHECKING:
    import os
    from collections.abc import Iterable, Mapping, Sequence
    from pathlib import Path
    from typing import Unpack

    import torch

    from encoder_engine.embedding.engines.engine import EngineChoice, VectorEngine, Vectors
    from encoder_engine.embedding.options import EncodeOptions, OnTruncation
    from encoder_engine.embedding.steps.window import TokenizedWindow
    from encoder_engine.families.checkpoints.files import HubKeywords

__all__ = ["HybridEmbedder", "HybridVectors"]

Output = Literal["dense", "sparse", "tokens"]
OUTPUTS: tuple[Output, ...] = get_args(Output)


@dataclass(frozen=True, kw_only=True, eq=False)
class HybridVectors:
    """The vectors of texts; None for an output that was not requested.

    dense: float32 [N, D].
    sparse: a weight for each entry of the vocabulary.
    tokens: the vectors of all tokens but the first of each text, for :func:`max_similarity`.
    """

    dense: Vectors | None
    sparse: SparseVectors | None
    tokens: TokenVectors | None


class HybridEmbedder(QueryMethods):
    """Turns texts into dense, sparse and token vectors in one pass.

    embedder: encodes and pools.
    weigh: gives each token its weight, which counts where it is above 0.
    project: projects each token.

    Raises :class:`ConfigError` for layers of another width than the encoder's.
    """

    def __init__(self, embedder: Embedder, weigh: DenseModule, project: DenseModule) -> None:
        self.embedder = embedder
        self._layers = {SPARSE_FILE: weigh, TOKENS_FILE: project}
        weighing = DenseModule(weight_NK=weigh.weight_NK, bias_N=weigh.bias_N, activation="relu")
        self._weigh = ModuleStack((weighing,))
        self._project = ModuleStack((project, NormalizeModule()))
        for stack in (self._weigh, self._project):
            mismatch = stack.mismatch(embedder.engine.spec.width)
            if mismatch is not None:
                raise ConfigError(f"{mismatch}; the files belong to different models")
        if weigh.width != 1:
            raise ConfigError(f"a token has one weight, the layer makes {weigh.width}")
        tokenizer = embedder.tokenizer
        special = (
            tokenizer.cls_token_id,
            tokenizer.sep_token_id,
            tokenizer.pad_token_id,
            tokenizer.unk_token_id,
        )
        self._special = np.array([number for number in special if number is not None], np.int32)

    @classmethod
    @fetching
    def from_pretrained(
        cls,
        path_or_hub_id: str | os.PathLike[str],
        device: str | torch.device = "auto",
        dtype: str | torch.dtype = "auto",
        quantization: str | None = None,
        *,
        num_threads: int | None = None,
        engine: EngineChoice = "auto",
        **hub: Unpack[HubKeywords],
    ) -> Self:
        """Load an embedder's directory with ``sparse_linear.pt`` and ``colbert_linear.pt``.

        Without ``modules.json``, as FlagEmbedding's training saves a model, the dense vector is the
        first token's, of length 1. Options and exceptions: see :meth:`Embedder.from_pretrained`.
        Raises :class:`CheckpointFileError` where one of the two is missing or damaged.
        """
        directory = resolve_directory(path_or_hub_id, **hub)
        missing = [n for n in (SPARSE_FILE, TOKENS_FILE) if not (directory / n).is_file()]
        if missing:
            raise CheckpointFileError(
                f"{directory} has no {' and no '.join(missing)}, which make sparse and token "
                "vectors; Embedder.from_pretrained loads the dense ones alone"
            )
        heads = (read_linear(directory / name) for name in (SPARSE_FILE, TOKENS_FILE))
        embedder = Embedder.from_pretrained(
            *(directory, device, dtype, quantization), num_threads=num_threads, engine=engine
        )
        return cls(embedder, *heads)

    @property
    def engine(self) -> VectorEngine:
        """The engine of the encoder."""
        return self.embedder.engine

    @property
    def prompts(self) -> Mapping[str, str]:
        """The named prompts of the directory."""
        return self.embedder.prompts

    @property
    def dimension(self) -> int:
        """Features of a dense vector."""
        return self.embedder.dimension

    @naming("texts")
    def encode(
        self,
        texts: str | Iterable[str],
        *,
        outputs: Sequence[Output] = OUTPUTS,
        prompt: str | None = None,
        prompt_name: str | None = None,
        batch_tokens: int | None = None,
        batch_size: int | None = None,
        on_truncation: OnTruncation = "warn",
        show_progress_bar: bool | None = False,
        **library: Unpack[HybridKeywords],
    ) -> HybridVectors:
        """Embed texts: the requested outputs, a row each in the order given.

        A single ``str`` gives outputs of one row. Other options and exceptions: see
        :meth:`Embedder.encode`; other keywords of sentence-transformers: see
        :class:`HybridKeywords`.
        """
        parts = self.embedder
        check_keywords("encode", library, HybridKeywords, device=parts.engine.device, job=None)
        refuse_forms(library, "found.dense, found.sparse.values and found.tokens.vectors")
        unknown = [name for name in outputs if name not in OUTPUTS]
        if unknown or isinstance(outputs, str) or not outputs:
            raise InputError(f"outputs must list some of {', '.join(OUTPUTS)}, got {outputs!r}")
        options = parts.resolve(
            EncodeCall(
                prompt=prompt,
                prompt_name=prompt_name,
                batch_tokens=batch_tokens,
                batch_size=batch_size,
                on_truncation=on_truncation,
            )
        )
        collected, opened = self._collected(options), open_texts(texts)
        notice = TruncationNotice.of(parts, on_truncation)
        with progress_bar(opened.count, shown=bool(show_progress_bar)) as advance:
            for window in tokenized_windows(
                parts.tokenizer,
                opened.rows,
                prompt=options.prompt,
                num_prompt_tokens=options.num_prompt_tokens,
                max_length=parts.max_seq_length,
                num_threads=parts.engine.num_threads,
                notice=notice,
            ):
                self._add_window(collected, window, options, outputs)
                advance(len(window.encoding))
        notice.warn()
        return collected.finish(outputs)

    def similarity(
        self,
        queries: HybridVectors,
        documents: HybridVectors,
        weights: Mapping[Output, float] | None = None,
    ) -> Vectors:
        """Return the weighted mean of the outputs' similarities, float32 [Q, N].

        Dense and sparse vectors are compared by inner products, tokens by :func:`max_similarity`
        divided by the number of the query's, as FlagEmbedding's ``compute_score`` does.

        weights: of some outputs; None: those that both have, equally.

        Raises :class:`InputError` for weights that do not fit, and for an output that is missing.
        """
        scores: dict[str, Vectors] = {}
        if queries.dense is not None and documents.dense is not None:
            scores["dense"] = queries.dense @ documents.dense.T
        if queries.sparse is not None and documents.sparse is not None:
            scores["sparse"] = queries.sparse.similarity(documents.sparse)
        if queries.tokens is not None and documents.tokens is not None:
            lengths = np.maximum(np.diff(queries.tokens.cu_seqlens), 1)
            found = max_similarity(queries.tokens, documents.tokens)
            scores["tokens"] = np.divide(found, lengths[:, None], dtype=np.float32)
        shares = dict.fromkeys(scores, 1.0) if weights is None else dict(weights)
        if not shares or not shares.keys() <= scores.keys():
            raise InputError(
                f"weights are of {', '.join(shares) or 'nothing'}, the outputs that queries and "
                f"documents both have are {', '.join(scores) or 'none'}"
            )
        total = sum(shares.values())
        if not all(0 <= share < float("inf") for share in shares.values()) or not total:
            raise InputError(f"weights must be finite numbers from 0, one above, got {weights!r}")
        mean = sum(scores[name] * np.float32(share / total) for name, share in shares.items())
        return np.asarray(mean, dtype=np.float32)

    def save_pretrained(self, directory: str | os.PathLike[str]) -> None:
        """Write an embedder's directory, with ``sparse_linear.pt`` and ``colbert_linear.pt``.

        sentence-transformers loads the dense vectors of it. Raises
        :class:`MissingDependencyError` without PyTorch, whose format the two files have. Other
        exceptions: see :meth:`Embedder.save_pretrained`.
        """
        engine = torch_engine("HybridEmbedder.save_pretrained")

        def write_layers(folder: Path) -> None:
            for name, layer in self._layers.items():
                engine.save_tensors(folder / name, layer.arrays())

        save_embedder(self.embedder, directory, write_layers=write_layers)

    def encode_window(
        self, window: TokenizedWindow, options: EncodeOptions, outputs: Sequence[Output]
    ) -> HybridVectors:
        """Compute the requested outputs of a tokenized window."""
        collected = self._collected(options)
        self._add_window(collected, window, options, outputs)
        return collected.finish(outputs)

    def _collected(self, options: EncodeOptions) -> _Collected:
        spec = self.embedder.engine.spec
        return _Collected(
            dimension=options.dimension,
            vocab_size=spec.embedding.vocab_size,
            token_width=self._project.width(spec.width),
            special=self._special,
        )

    def _add_window(
        self,
        collected: _Collected,
        window: TokenizedWindow,
        options: EncodeOptions,
        outputs: Sequence[Output],
    ) -> None:
        parts = self.embedder
        compute = partial(
            parts.engine.several,
            modes=parts.recipe.pooling,
            num_prompt_tokens=options.num_prompt_tokens,
            normalized=options.normalized,
            dimension=options.dimension,
            stacks=(self._weigh, self._project),
            wanted=("dense" in outputs, "sparse" in outputs, "tokens" in outputs),
        )
        rows = TokenRows.of(window.encoding)
        numbers = window.first_row + np.arange(len(rows))
        batches = compute_batches(
            *(parts.engine, rows, compute),
            batch_tokens=options.batch_tokens,
            batch_size=options.batch_size,
            limit=parts.memory_limit,
            numbers=numbers,
        )
        collected.add_window(rows, numbers, batches)


class _Collected:
    """The outputs of all windows."""

    def __init__(self, *, dimension: int, vocab_size: int, token_width: int, special: Any) -> None:
        self._vocab_size, self._special = vocab_size, special
        self._dense = [np.empty((0, dimension), np.float32)]
        self._indices = [np.empty(0, np.int32)]
        self._weights = [np.empty(0, np.float32)]
        self._entries = [np.zeros(1, np.int64)]
        self._vectors = [np.empty((0, token_width), np.float32)]
        self._ids = [np.empty(0, np.int32)]
        self._lengths = [np.zeros(1, np.int64)]

    def add_window(self, rows: TokenRows, numbers: Any, batches: Iterable[Any]) -> None:
        """Add the outputs of a window, whose batches come in any order."""
        dense: list[Any] = [None] * len(rows)
        sparse: list[Any] = [None] * len(rows)
        tokens: list[Any] = [None] * len(rows)
        for batch, (pooled, weights, vectors) in batches:
            own = rows.take(batch)
            for place, row in enumerate(batch):
                span = slice(own.cu_seqlens[place], own.cu_seqlens[place + 1])
                found = [part for part in (weights, vectors) if part is not None]
                if pooled is not None:
                    dense[row] = pooled[place]
                if not all(np.isfinite(part[span]).all() for part in found) or (
                    pooled is not None and not np.isfinite(pooled[place]).all()
                ):
                    number = int(numbers[row])
                    raise NonFiniteVectorError(
                        f"the vectors of text {number} are NaN or infinite: the model's numbers "
                        "overflow or are damaged",
                        rows=[number],
                    )
                ids = own.ids[span]
                if weights is not None:
                    sparse[row] = self._greatest(ids, weights[span, 0])
                if vectors is not None:
                    tokens[row] = ids[1:], vectors[span][1:]
        if len(rows) and dense[0] is not None:
            self._dense.append(np.stack(dense))
        if len(rows) and sparse[0] is not None:
            self._indices += [indices for indices, _ in sparse]
            self._weights += [weights for _, weights in sparse]
            self._entries.append(np.array([len(indices) for indices, _ in sparse]))
        if len(rows) and tokens[0] is not None:
            self._ids += [ids for ids, _ in tokens]
            self._vectors += [vectors for _, vectors in tokens]
            self._lengths.append(np.array([len(ids) for ids, _ in tokens]))

    def _greatest(self, ids: Any, weights: Any) -> tuple[Any, Any]:
        """Return the distinct tokens with a weight above 0, and the greatest weight of each."""
        counted = (weights > 0) & ~np.isin(ids, self._special)
        indices, places = np.unique(ids[counted], return_inverse=True)
        greatest = np.zeros(len(indices), dtype=np.float32)
        np.maximum.at(greatest, places, weights[counted])
        return indices.astype(np.int32), greatest

    def finish(self, outputs: Sequence[Output]) -> HybridVectors:
        """Join the windows."""
        return HybridVectors(
            dense=np.concatenate(self._dense) if "dense" in outputs else None,
            sparse=SparseVectors(
                indptr=np.cumsum(np.concatenate(self._entries)).astype(np.int64),
                indices=np.concatenate(self._indices),
                values=np.concatenate(self._weights),
                dimension=self._vocab_size,
            )
            if "sparse" in outputs
            else None,
            tokens=TokenVectors(
                vectors=np.concatenate(self._vectors),
                ids=np.concatenate(self._ids),
                cu_seqlens=np.cumsum(np.concatenate(self._lengths)).astype(np.int64),
            )
            if "tokens" in outputs
            else None,
        )
