"""The engine of compiled encoders: on a CPU, without PyTorch.

How it works: a text pooled by one mode, the usual case, is one native call from token ids to its
vector. Several modes, prompts left out and mixed layers take the rows of all tokens first and
reduce them by the same kernels.

Dimensions: T packed tokens, B sequences, D features, N outputs, C labels, V vocabulary.
"""

from __future__ import annotations

from contextlib import contextmanager
from functools import partial
from typing import TYPE_CHECKING, ClassVar, Literal

import numpy as np

from encoder_engine.embedding.engines.engine import OutOfDeviceMemoryError
from encoder_engine.families.checkpoints.arrays import cast
from encoder_engine.families.checkpoints.vocabulary import join_output_layer
from encoder_engine.inference import CompiledEncoder
from encoder_engine.inference.module_stack import CompiledStack
from encoder_engine.inference.rows import normalize_rows, pool_rows
from encoder_engine.inference.saving import save_checkpoint
from encoder_engine.inference.vocabulary import Vocabulary
from encoder_engine.packing.module_stack import EMPTY_STACK
from encoder_engine.packing.pooling_modes import pool_modes

if TYPE_CHECKING:
    from collections.abc import Iterator
    from pathlib import Path

    import numpy.typing as npt

    from encoder_engine.embedding.engines.engine import (
        EngineName,
        SparseActivation,
        SparsePooling,
        Vectors,
    )
    from encoder_engine.families.checkpoints.vocabulary import OutputLayer
    from encoder_engine.families.facts.spec import EncoderSpec
    from encoder_engine.packing.module_stack import ModuleStack
    from encoder_engine.packing.pooling_modes import PoolingMode
    from encoder_engine.packing.token_rows import TokenRows

    Layers = tuple[tuple[int, float], ...]

__all__ = ["CompiledCausalEngine", "CompiledEncoder", "CompiledEngine"]

# Stacks of token vectors whose packed weights are kept: a model has two at most.
MOST_STACKS = 2


class CompiledEngine:
    """An engine over a :class:`CompiledEncoder`.

    It implements :class:`VectorEngine`, and with the head of a classifier or of a masked LM
    :class:`ScoringEngine` or :class:`VocabularyEngine`.
    """

    name: ClassVar[EngineName] = "compiled"

    def __init__(self, encoder: CompiledEncoder, modules: ModuleStack = EMPTY_STACK) -> None:
        self.encoder = encoder
        self.modules = modules
        self._stack = CompiledStack(modules)
        # The last stacks of token vectors.
        self._token_stacks: tuple[CompiledStack, ...] = ()

    @property
    def spec(self) -> EncoderSpec:
        """The encoder's architecture."""
        return self.encoder.spec

    @property
    def dtype(self) -> str:
        """The name of the weights' dtype."""
        return self.encoder.dtype

    @property
    def device(self) -> str:
        """``"cpu"``."""
        return self.encoder.device

    @property
    def quantization(self) -> str | None:
        """``"int8"`` or None."""
        return self.encoder.quantization

    @property
    def num_threads(self) -> int:
        """The number of threads of a call."""
        return self.encoder.num_threads

    @property
    def num_labels(self) -> int:
        """The number of labels, C."""
        return self.encoder.num_labels

    def fingerprint(self) -> str:
        """Return the SHA-256 of the architecture and of every weight."""
        return self.modules.join_fingerprint(self.encoder.fingerprint())

    def save_encoder(self, directory: Path) -> None:
        """Write the encoder, and its head if it has one; see :meth:`VectorEngine.save_encoder`."""
        save_checkpoint(self.encoder, directory)

    def versions(self) -> dict[str, str]:
        """Return no versions: NumPy and the extension decide the bits."""
        return {}

    def pooled(
        self,
        rows: TokenRows,
        *,
        modes: tuple[PoolingMode, ...],
        num_prompt_tokens: int = 0,
        normalized: bool = False,
        dimension: int | None = None,
        layers: Layers | None = None,
    ) -> Vectors:
        """Implement :meth:`VectorEngine.pooled`."""
        full = self.modules.width(self.spec.width * len(modes))
        is_cut = dimension is not None and dimension < full
        at_once = normalized and not is_cut and not self.modules
        with _memory():
            if len(modes) == 1 and not num_prompt_tokens and layers is None:
                vectors_BD: Vectors = self.encoder.pooled(
                    *(rows.ids, rows.cu_seqlens, rows.type_ids),
                    mode=modes[0],
                    normalized=at_once,
                )
                return vectors_BD if at_once else self._finish(vectors_BD, normalized, dimension)
            return self._pool_and_finish(
                *(self._hidden(rows, layers), rows, modes),
                num_prompt_tokens=num_prompt_tokens,
                normalized=normalized,
                dimension=dimension,
            )

    def several(
        self,
        rows: TokenRows,
        *,
        modes: tuple[PoolingMode, ...],
        stacks: tuple[ModuleStack, ...],
        wanted: tuple[bool, ...],
        num_prompt_tokens: int = 0,
        normalized: bool = False,
        dimension: int | None = None,
    ) -> tuple[Vectors | None, ...]:
        """Implement :meth:`VectorEngine.several`."""
        with _memory():
            hidden_TD = self._hidden(rows, None)
            pooled = None
            if wanted[0]:
                pooled = self._pool_and_finish(
                    *(hidden_TD, rows, modes),
                    num_prompt_tokens=num_prompt_tokens,
                    normalized=normalized,
                    dimension=dimension,
                )
            tokens = (
                self._packed(stack)(hidden_TD, num_threads=self.num_threads) if is_wanted else None
                for stack, is_wanted in zip(stacks, wanted[1:], strict=True)
            )
            return (pooled, *tokens)

    def _pool_and_finish(
        self,
        hidden_TD: Vectors,
        rows: TokenRows,
        modes: tuple[PoolingMode, ...],
        *,
        num_prompt_tokens: int,
        normalized: bool,
        dimension: int | None,
    ) -> Vectors:
        at_once = normalized and dimension is None and not self.modules
        vectors_BD = self._pool(
            *(hidden_TD, rows.cu_seqlens, modes),
            num_prompt_tokens=num_prompt_tokens,
            normalized=at_once,
        )
        return vectors_BD if at_once else self._finish(vectors_BD, normalized, dimension)

    def _finish(self, vectors_BD: Vectors, normalized: bool, dimension: int | None) -> Vectors:
        """Apply the modules, keep the leading features, and divide by the norm."""
        vectors_BD = self._stack(vectors_BD, num_threads=self.num_threads)
        if dimension is not None and dimension < vectors_BD.shape[1]:
            vectors_BD = vectors_BD[:, :dimension]
        return self._normalize(vectors_BD) if normalized else vectors_BD

    def token_vectors(
        self,
        rows: TokenRows,
        *,
        layers: Layers | None = None,
        modules: ModuleStack = EMPTY_STACK,
        normalized: bool = False,
    ) -> Vectors:
        """Implement :meth:`VectorEngine.token_vectors`."""
        with _memory():
            vectors = self._hidden(rows, layers)
            vectors = self._packed(modules)(vectors, num_threads=self.num_threads)
            return self._normalize(vectors) if normalized else vectors

    def logits(self, rows: TokenRows, chosen: npt.NDArray[np.integer] | None = None) -> Vectors:
        """Return the head's logits: [B, C] of texts, [T, C] of tokens, or [M, C] of ``chosen``.

        ``chosen``: ascending places of tokens. Raises :class:`OutOfDeviceMemoryError`.
        """
        with _memory():
            found: Vectors = self.encoder.logits(
                rows.ids, rows.cu_seqlens, rows.type_ids, rows=chosen
            )
        return found

    def scores(self, rows: TokenRows, *, activation: Literal["identity", "sigmoid"]) -> Vectors:
        """Implement :meth:`ScoringEngine.scores`."""
        logits_BC = self.logits(rows)
        if activation == "identity":
            return logits_BC
        # A logit below -709 has the score 0.
        with np.errstate(over="ignore"):
            scores_BC: Vectors = (1 / (1 + np.exp(-logits_BC.astype(np.float64)))).astype(
                np.float32
            )
        return scores_BC

    def vocabulary(
        self, rows: TokenRows, *, pooling: SparsePooling, activation: SparseActivation
    ) -> Vectors:
        """Implement :meth:`VocabularyEngine.vocabulary`."""
        with _memory():
            logits_TV: Vectors = self.encoder.logits(rows.ids, rows.cu_seqlens, rows.type_ids)
            # The transformation never falls, so it keeps the greatest.
            if pooling == "max":
                return _sparse_weights(self._reduce(logits_TV, rows.cu_seqlens, "max"), activation)
            weights_TV = _sparse_weights(logits_TV, activation)
            mean_BV = self._reduce(weights_TV, rows.cu_seqlens, "mean")
            mean_BV *= rows.lengths.astype(np.float32)[:, None]
            return mean_BV

    def _hidden(self, rows: TokenRows, layers: Layers | None) -> Vectors:
        found: Vectors = self.encoder.hidden(
            *(rows.ids, rows.cu_seqlens, rows.type_ids),
            layers=layers,
            unattended=rows.unattended,
        )
        return found

    def _pool(
        self,
        hidden_TD: Vectors,
        cu_seqlens: npt.NDArray[np.int32],
        modes: tuple[PoolingMode, ...],
        *,
        num_prompt_tokens: int,
        normalized: bool,
    ) -> Vectors:
        """Pool each sequence, without its first rows, by every mode; concatenate the results."""
        if num_prompt_tokens:
            lengths = cu_seqlens[1:] - cu_seqlens[:-1]
            assert (lengths > num_prompt_tokens).all(), "a sequence is nothing but its prompt"
            places = np.arange(len(hidden_TD)) - np.repeat(cu_seqlens[:-1], lengths)
            hidden_TD = hidden_TD[places >= num_prompt_tokens]
            cu_seqlens = cu_seqlens - np.arange(len(cu_seqlens), dtype=np.int32) * num_prompt_tokens
        lengths_B1: Vectors = np.diff(cu_seqlens).astype(np.float32)[:, None]
        reduce = partial(self._reduce, hidden_TD, cu_seqlens)
        parts = pool_modes(reduce, modes, lengths_B1, num_prompt_tokens)
        pooled_BD: Vectors = np.concatenate(parts, axis=1)
        return self._normalize(pooled_BD) if normalized else pooled_BD

    def _reduce(self, rows: Vectors, cu_seqlens: npt.NDArray[np.int32], mode: str) -> Vectors:
        return pool_rows(rows, cu_seqlens, mode=mode, num_threads=self.num_threads)

    def _normalize(self, rows: Vectors) -> Vectors:
        return normalize_rows(rows, num_threads=self.num_threads)

    def _packed(self, modules: ModuleStack) -> CompiledStack:
        """Return a stack with packed weights."""
        # Another thread may replace them meanwhile: the attribute is read once.
        kept = self._token_stacks
        for packed in kept:
            if packed.stack is modules:
                return packed
        packed = CompiledStack(modules)
        self._token_stacks = (packed, *kept[: MOST_STACKS - 1])
        return packed


class CompiledCausalEngine(CompiledEngine):
    """A :class:`CausalEngine` over a :class:`CompiledEncoder` and an output layer."""

    def __init__(self, encoder: CompiledEncoder, layer: OutputLayer) -> None:
        super().__init__(encoder)
        tokens, own = encoder.token_table, layer.weight_VD
        weight_VD = tokens if own is None else cast(own, encoder.dtype)
        self.vocabulary_layer = Vocabulary(weight_VD, softcap=layer.softcap)

    def fingerprint(self) -> str:
        """Return the SHA-256 of the encoder and of the output layer."""
        layer = self.vocabulary_layer
        return join_output_layer(super().fingerprint(), layer.weight, layer.softcap)

    def log_probabilities(self, rows: TokenRows) -> Vectors:
        """Implement :meth:`CausalEngine.log_probabilities`."""
        found = np.zeros(len(rows.ids), dtype=np.float32)
        is_first = np.zeros(len(rows.ids) + 1, dtype=bool)
        is_first[rows.cu_seqlens] = True
        counted = np.flatnonzero(~is_first[:-1])
        with _memory():
            hidden_TD = self._hidden(rows, None)
            found[counted] = self.vocabulary_layer.log_probabilities(
                hidden_TD[counted - 1], rows.ids[counted], num_threads=self.num_threads
            )
        return found

    def last_logits(self, rows: TokenRows, token_ids: tuple[int, ...]) -> Vectors:
        """Implement :meth:`CausalEngine.last_logits`."""
        with _memory():
            last_BD = self.pooled(rows, modes=("lasttoken",))
            return self.vocabulary_layer.logits(
                last_BD, list(token_ids), num_threads=self.num_threads
            )


def _sparse_weights(logits: Vectors, activation: SparseActivation) -> Vectors:
    """Return ``log(1 + relu(logits))`` in the memory of the logits."""
    # NaN stays NaN, to be found.
    weights = np.log1p(np.maximum(logits, 0, out=logits), out=logits)
    return np.log1p(weights, out=weights) if activation == "log1p_relu" else weights


@contextmanager
def _memory() -> Iterator[None]:
    """Turn a lack of memory into :class:`OutOfDeviceMemoryError`."""
    try:
        yield
    except MemoryError as error:
        message = f"a batch exceeds the memory of the CPU: {error}"
    else:
        return
    # Outside of the block, the frames that hold the arrays are gone.
    raise OutOfDeviceMemoryError(message)
