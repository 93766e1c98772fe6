"""The protocols of an engine, which computes vectors and scores of token rows.

All values are NumPy arrays, so that nothing around an engine imports PyTorch. ``module.py`` runs
the PyTorch modules of ``models`` on any device, ``compiled.py`` the compiled encoder of
``inference`` on a CPU; ``choosing.py`` chooses between them.

Dimensions: T packed tokens, B sequences, D features, C labels, V vocabulary.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, Literal, Protocol

import numpy as np

from encoder_engine.packing.module_stack import EMPTY_STACK, ScoreActivation

if TYPE_CHECKING:
    from pathlib import Path

    from encoder_engine.families.facts.spec import EncoderSpec
    from encoder_engine.packing.module_stack import ModuleStack
    from encoder_engine.packing.pooling_modes import PoolingMode
    from encoder_engine.packing.token_rows import TokenRows

__all__ = [
    "Activation",
    "CausalEngine",
    "Engine",
    "EngineChoice",
    "EngineFacts",
    "EngineName",
    "OutOfDeviceMemoryError",
    "ScoringEngine",
    "SparseActivation",
    "SparsePooling",
    "VectorEngine",
    "Vectors",
    "VocabularyEngine",
]

EngineName = Literal["compiled", "torch"]
EngineChoice = Literal["auto", "compiled", "torch"]
# Of a cross-encoder's scores: those of torch.nn that need no parameters.
Activation = ScoreActivation
SparsePooling = Literal["max", "sum"]
SparseActivation = Literal["relu", "log1p_relu"]
Vectors = np.ndarray[Any, np.dtype[np.float32]]


class OutOfDeviceMemoryError(Exception):
    """A batch does not fit into the device's memory; all of it is freed, and it may be split."""


class EngineFacts(Protocol):
    """The facts of an engine.

    name: ``"compiled"`` or ``"torch"``.
    spec: the encoder's architecture.
    dtype: the name of the weights' dtype: ``"float32"``, ``"bfloat16"``, ...
    device: ``"cpu"``, ``"cuda:0"``, ...
    quantization: ``"int8"`` or None.
    num_threads: the threads of a call on a CPU.
    """

    @property
    def name(self) -> EngineName: ...  # noqa: D102
    @property
    def spec(self) -> EncoderSpec: ...  # noqa: D102
    @property
    def dtype(self) -> str: ...  # noqa: D102
    @property
    def device(self) -> str: ...  # noqa: D102
    @property
    def quantization(self) -> str | None: ...  # noqa: D102
    @property
    def num_threads(self) -> int: ...  # noqa: D102


class Engine(EngineFacts, Protocol):
    """An engine whose weights and libraries a job records."""

    def fingerprint(self) -> str:
        """Return the SHA-256 of the architecture and of every weight as it is in memory.

        Engines of the same weights in the same precision return the same.
        """

    def versions(self) -> dict[str, str]:
        """Return the versions of the libraries, beside NumPy, that decide the bits."""


class VectorEngine(Engine, Protocol):
    """An engine of an encoder and of the modules after pooling.

    modules: what is computed of each pooled vector.

    Methods raise :class:`OutOfDeviceMemoryError`.
    """

    modules: ModuleStack

    def save_encoder(self, directory: Path) -> None:
        """Write the encoder as it is in memory as a checkpoint in Hugging Face layout."""

    def pooled(
        self,
        rows: TokenRows,
        *,
        modes: tuple[PoolingMode, ...],
        num_prompt_tokens: int = 0,
        normalized: bool = False,
        dimension: int | None = None,
        layers: tuple[tuple[int, float], ...] | None = None,
    ) -> Vectors:
        """Pool each sequence by every mode, concatenate the results, and apply the modules: [B, N].

        num_prompt_tokens: leading rows of each sequence to leave out; every sequence has more.
            ``weightedmean`` still counts positions from the start, as sentence-transformers does.
        normalized: divide by the Euclidean norm.
        dimension: keep so many leading features, before the division; None: all.
        layers: pool the weighted sum of these hidden states, 0 the embeddings; None: the last.
        """

    def token_vectors(
        self,
        rows: TokenRows,
        *,
        layers: tuple[tuple[int, float], ...] | None = None,
        modules: ModuleStack = EMPTY_STACK,
        normalized: bool = False,
    ) -> Vectors:
        """Return the vector of each token, [T, D], or [T, N] after ``modules``."""

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
        """Return :meth:`pooled` and :meth:`token_vectors` of each stack, of one pass.

        ``wanted``: which of these to compute; the others are None.
        """


class ScoringEngine(Engine, Protocol):
    """An engine of a classifier. Methods raise :class:`OutOfDeviceMemoryError`."""

    @property
    def num_labels(self) -> int:
        """The number of labels, C."""

    def save_encoder(self, directory: Path) -> None:
        """Write the encoder and its head as they are in memory, in Hugging Face layout."""

    def scores(self, rows: TokenRows, *, activation: Literal["identity", "sigmoid"]) -> Vectors:
        """Return the activated logits of each sequence, [B, C]."""


class VocabularyEngine(Engine, Protocol):
    """An engine of a masked-language model. Methods raise :class:`OutOfDeviceMemoryError`."""

    def save_encoder(self, directory: Path) -> None:
        """Write the encoder and its head as they are in memory, in Hugging Face layout."""

    def vocabulary(
        self, rows: TokenRows, *, pooling: SparsePooling, activation: SparseActivation
    ) -> Vectors:
        """Return the weight of every token of the vocabulary for each sequence, [B, V].

        A weight is ``log(1 + relu(logit))``, and its logarithm once more with ``"log1p_relu"``,
        pooled over the sequence's positions.
        """

    def logits(self, rows: TokenRows, chosen: np.ndarray[Any, np.dtype[np.int32]]) -> Vectors:
        """Return the logits of the vocabulary at some tokens, ascending places: [M, V]."""


class CausalEngine(Engine, Protocol):
    """An engine of a causal language model. Methods raise :class:`OutOfDeviceMemoryError`."""

    def log_probabilities(self, rows: TokenRows) -> Vectors:
        """Return the log-probability of each token after those before it, [T]; 0 of a first one."""

    def last_logits(self, rows: TokenRows, token_ids: tuple[int, ...]) -> Vectors:
        """Return the logits of some tokens after each sequence, [B, K]."""
