"""Dense, sparse and token vectors from one pass of an encoder, as BGE-M3 has them.

``kinds/hybrid.py`` defines the computation.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Self

import numpy as np

from encoder_engine.embedding.embedder import Embedder
from encoder_engine.embedding.library_keywords import (
    HybridKeywords,
    check_keywords,
    naming,
    refuse_forms,
)
from encoder_engine.embedding.over_embedder import OverEmbedder
from encoder_engine.embedding.saving.sentence_directory import save_embedder
from encoder_engine.engine.choosing import torch_engine
from encoder_engine.errors import CheckpointFileError, ConfigError, InputError
from encoder_engine.families.checkpoints.files import fetching, resolve_directory
from encoder_engine.kinds.dense import Dense
from encoder_engine.kinds.hybrid import OUTPUTS, Hybrid, HybridOutput, HybridVectors
from encoder_engine.kinds.texts import open_texts
from encoder_engine.opening.modules import SPARSE_FILE, TOKENS_FILE
from encoder_engine.opening.stack import read_linear
from encoder_engine.packing.module_stack import DenseModule, ModuleStack, NormalizeModule
from encoder_engine.vectors.token_vectors import max_similarity

if TYPE_CHECKING:
    import os
    from collections.abc import Iterable, Mapping, Sequence
    from pathlib import Path
    from typing import Unpack

    import torch

    from encoder_engine.engine.protocol import EngineChoice, Vectors
    from encoder_engine.families.checkpoints.files import HubKeywords
    from encoder_engine.kinds.kind import Kind
    from encoder_engine.kinds.options import OnTruncation

__all__ = ["HybridEmbedder", "HybridVectors"]


class HybridEmbedder(OverEmbedder):
    """Turns texts into dense, sparse and token vectors in one pass.

    embedder: the encoder with its pooling, for the dense vectors.
    weigh: the layer that computes each token's weight; weights above 0 are kept.
    project: the layer that projects each token for late interaction.

    Raises :class:`ConfigError` for layers of another width than the encoder's and for a ``weigh``
    that makes several weights, and :class:`UnsupportedFeatureError` for an embedder with a Router.
    """

    def __init__(self, embedder: Embedder, weigh: DenseModule, project: DenseModule) -> None:
        embedder.refuse_routes()
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
        first token's, normalised to length 1. Options and exceptions: see
        :meth:`Embedder.from_pretrained`. Raises :class:`CheckpointFileError` where one of the two
        files is missing or damaged.
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
            directory, device, dtype, quantization, num_threads=num_threads, engine=engine
        )
        return cls(embedder, *heads)

    def kinds(self) -> dict[str, Kind]:
        """Return the kinds of results ``hybrid``, ``dense``, ``sparse`` and ``tokens``, by name.

        ``hybrid`` computes the three others in one pass. See :meth:`Model.kinds`.
        """
        return {
            "hybrid": self._kind(OUTPUTS),
            "dense": Dense(self, self.embedder.recipe),
            "sparse": self._kind(("sparse",)),
            "tokens": self._kind(("tokens",)),
        }

    def _kind(self, outputs: tuple[HybridOutput, ...]) -> Hybrid:
        return Hybrid(
            self,
            self.embedder.recipe,
            weigh=self._weigh,
            project=self._project,
            special=self._special,
            outputs=outputs,
        )

    @property
    def dimension(self) -> int:
        """The number of features of a dense vector."""
        return self.embedder.dimension

    @naming("texts")
    def encode(
        self,
        texts: str | Iterable[str],
        *,
        outputs: Sequence[HybridOutput] = OUTPUTS,
        prompt: str | None = None,
        prompt_name: str | None = None,
        batch_tokens: int | None = None,
        batch_size: int | None = None,
        on_truncation: OnTruncation = "warn",
        show_progress_bar: bool | None = False,
        **library: Unpack[HybridKeywords],
    ) -> HybridVectors:
        """Embed texts: the requested outputs, each with a row per text, in the order given.

        A single ``str`` gives outputs of one row. Other options and exceptions: see
        :meth:`Embedder.encode`; other keywords of sentence-transformers: see
        :class:`HybridKeywords`.
        """
        check_keywords("encode", library, HybridKeywords, device=self.device, job=None)
        refuse_forms(library, "found.dense, found.sparse.values and found.tokens.vectors")
        kind, opened = self.kind, open_texts(texts)
        options = kind.resolve(
            outputs=outputs,
            prompt=prompt,
            prompt_name=prompt_name,
            batch_tokens=batch_tokens,
            batch_size=batch_size,
            on_truncation=on_truncation,
        )
        shown = bool(show_progress_bar)
        found: HybridVectors = kind.collect(opened.rows, options, count=opened.count, shown=shown)
        return found

    def similarity(
        self,
        queries: HybridVectors,
        documents: HybridVectors,
        weights: Mapping[HybridOutput, float] | None = None,
    ) -> Vectors:
        """Return the weighted mean of the outputs' similarities, float32 [Q, N].

        Dense and sparse vectors are compared by inner products, tokens by :func:`max_similarity`
        divided by the number of the query's tokens, as FlagEmbedding's ``compute_score`` does.

        weights: the weights of some outputs; None: equal weights of all outputs that both arguments
        have.

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

        sentence-transformers can load the directory, but computes only dense vectors. Raises
        :class:`MissingDependencyError` without PyTorch, whose format the two files have. Other
        exceptions: see :meth:`Embedder.save_pretrained`.
        """
        engine = torch_engine("HybridEmbedder.save_pretrained")

        def write_layers(folder: Path) -> None:
            for name, layer in self._layers.items():
                engine.save_tensors(folder / name, layer.arrays())

        save_embedder(self.embedder, directory, write_layers=write_layers)
