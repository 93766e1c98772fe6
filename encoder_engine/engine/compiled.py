"""The engine of compiled encoders: on a CPU, without PyTorch.

How it works: in the usual case, pooling by one mode, a single native call goes from token ids to
vectors. For several modes, prompts that are left out and mixed layers, the hidden states of all
tokens are computed first, and the same kernels reduce them.

Dimensions: T packed tokens, B sequences, D features, N outputs, C labels, V vocabulary.
"""

from __future__ import annotations

from contextlib import contextmanager
from functools import partial
from typing import TYPE_CHECKING, ClassVar

import numpy as np

from encoder_engine.engine.limits import default_batch_tokens
from encoder_engine.engine.outputs import (
    LastLogits,
    Logits,
    LogProbabilities,
    Pooled,
    Scores,
    TokenStates,
    VocabularyWeights,
)
from encoder_engine.engine.protocol import OutOfDeviceMemoryError
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

    from encoder_engine.engine.outputs import LayerWeights, Output, SparseActivation
    from encoder_engine.engine.protocol import EngineName, Vectors
    from encoder_engine.families.checkpoints.vocabulary import OutputLayer
    from encoder_engine.families.facts.spec import EncoderSpec
    from encoder_engine.packing.module_stack import ModuleStack
    from encoder_engine.packing.token_rows import TokenRows

__all__ = ["CompiledCausalEngine", "CompiledEncoder", "CompiledEngine"]

# The most stacks of modules for token vectors whose packed weights are kept; a model has at most
# two.
MOST_STACKS = 2


class CompiledEngine:
    """An :class:`EncoderEngine` over a :class:`CompiledEncoder` and the modules after pooling."""

    name: ClassVar[EngineName] = "compiled"

    def __init__(self, encoder: CompiledEncoder, modules: ModuleStack = EMPTY_STACK) -> None:
        self.encoder = encoder
        self.modules = modules
        self._stack = CompiledStack(modules)
        # The stacks of modules for token vectors that were used last.
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
        """The device of the encoder: ``"cpu"``."""
        return self.encoder.device

    @property
    def quantization(self) -> str | None:
        """``"int8"`` if the dense layers of the encoder's blocks are quantized, else None."""
        return self.encoder.quantization

    @property
    def num_threads(self) -> int:
        """The number of threads that compute a call."""
        return self.encoder.num_threads

    @property
    def num_labels(self) -> int:
        """The number of labels of the encoder's head, C."""
        return self.encoder.num_labels

    @property
    def batch_tokens(self) -> int:
        """The most tokens of a batch by default."""
        return default_batch_tokens(self.spec, self.device, self.dtype)

    def fingerprint(self) -> str:
        """Return the SHA-256 of the architecture, every weight of the encoder, and the modules."""
        return self.modules.join_fingerprint(self.encoder.fingerprint())

    def save_encoder(self, directory: Path) -> None:
        """Write the encoder, and its head if it has one; see :class:`EncoderEngine`."""
        save_checkpoint(self.encoder, directory)

    def versions(self) -> dict[str, str]:
        """Return {}: besides NumPy and this package, results depend on no library's version."""
        return {}

    def run(self, rows: TokenRows, *outputs: Output) -> tuple[Vectors, ...]:
        """Compute the requested outputs of texts' token ids; see :meth:`Engine.run`."""
        with _memory():
            if len(outputs) == 1 and isinstance(outputs[0], Pooled):
                return (self._pooled(rows, outputs[0]),)
            states: dict[LayerWeights | None, Vectors] = {}
            return tuple(self._output(output, rows, states) for output in outputs)

    def _pooled(self, rows: TokenRows, output: Pooled) -> Vectors:
        """Return pooled vectors, [B, N].

        A single native call does all if one mode reads every row of the last layer.
        """
        if len(output.modes) > 1 or output.num_prompt_tokens or output.layers is not None:
            return self._pool(self._states(rows, output.layers), rows.cu_seqlens, output)
        at_once = self._is_pooling_alone(output)
        vectors_BD: Vectors = self.encoder.pooled(
            rows.ids, rows.cu_seqlens, rows.type_ids, mode=output.modes[0], normalized=at_once
        )
        return vectors_BD if at_once else self._finish(vectors_BD, output)

    def _output(
        self, output: Output, rows: TokenRows, states: dict[LayerWeights | None, Vectors]
    ) -> Vectors:
        """Compute one output; ``states`` caches hidden states by layer weights between outputs."""
        if isinstance(output, Pooled | TokenStates):
            if output.layers not in states:
                states[output.layers] = self._states(rows, output.layers)
            states_TD = states[output.layers]
            if isinstance(output, Pooled):
                return self._pool(states_TD, rows.cu_seqlens, output)
            vectors = self._packed(output.modules)(states_TD, num_threads=self.num_threads)
            return self._normalize(vectors) if output.normalized else vectors
        if isinstance(output, Logits):
            return self._logits(rows, output.chosen)
        if isinstance(output, Scores):
            return (
                _sigmoid(self._logits(rows))
                if output.activation == "sigmoid"
                else self._logits(rows)
            )
        if isinstance(output, VocabularyWeights):
            return self._vocabulary_weights(rows, output)
        raise TypeError(f"{self.spec.model_type} has no output {type(output).__name__}")

    def _logits(self, rows: TokenRows, chosen: npt.NDArray[np.integer] | None = None) -> Vectors:
        found: Vectors = self.encoder.logits(rows.ids, rows.cu_seqlens, rows.type_ids, rows=chosen)
        return found

    def _vocabulary_weights(self, rows: TokenRows, output: VocabularyWeights) -> Vectors:
        logits_TV = self._logits(rows)
        # The transformation is monotonic: the greatest logit has the greatest weight.
        if output.pooling == "max":
            largest_BV = self._reduce(logits_TV, rows.cu_seqlens, "max")
            return _sparse_weights(largest_BV, output.activation)
        weights_TV = _sparse_weights(logits_TV, output.activation)
        mean_BV = self._reduce(weights_TV, rows.cu_seqlens, "mean")
        mean_BV *= rows.lengths.astype(np.float32)[:, None]
        return mean_BV

    def _is_pooling_alone(self, output: Pooled) -> bool:
        """Return whether nothing follows the pooling but division by the norm."""
        full = self.spec.width * len(output.modes)
        is_cut = output.dimension is not None and output.dimension < full
        return output.normalized and not is_cut and not self.modules

    def _finish(self, vectors_BD: Vectors, output: Pooled) -> Vectors:
        """Apply the modules to pooled vectors, keep leading features, and divide by the norm."""
        vectors_BD = self._stack(vectors_BD, num_threads=self.num_threads)
        if output.dimension is not None and output.dimension < vectors_BD.shape[1]:
            vectors_BD = vectors_BD[:, : output.dimension]
        return self._normalize(vectors_BD) if output.normalized else vectors_BD

    def _states(self, rows: TokenRows, layers: LayerWeights | None) -> Vectors:
        found: Vectors = self.encoder.hidden(
            rows.ids, rows.cu_seqlens, rows.type_ids, layers=layers, unattended=rows.unattended
        )
        return found

    def _pool(
        self, states_TD: Vectors, cu_seqlens: npt.NDArray[np.int32], output: Pooled
    ) -> Vectors:
        """Pool each sequence, without its first rows, by every mode; finish the results."""
        left_out = output.num_prompt_tokens
        if left_out:
            lengths = cu_seqlens[1:] - cu_seqlens[:-1]
            assert (lengths > left_out).all(), "a sequence is nothing but its prompt"
            places = np.arange(len(states_TD)) - np.repeat(cu_seqlens[:-1], lengths)
            states_TD = states_TD[places >= left_out]
            cu_seqlens = cu_seqlens - np.arange(len(cu_seqlens), dtype=np.int32) * left_out
        lengths_B1: Vectors = np.diff(cu_seqlens).astype(np.float32)[:, None]
        reduce = partial(self._reduce, states_TD, cu_seqlens)
        parts = pool_modes(reduce, output.modes, lengths_B1, left_out)
        return self._finish(np.concatenate(parts, axis=1), output)

    def _reduce(self, rows: Vectors, cu_seqlens: npt.NDArray[np.int32], mode: str) -> Vectors:
        return pool_rows(rows, cu_seqlens, mode=mode, num_threads=self.num_threads)

    def _normalize(self, rows: Vectors) -> Vectors:
        return normalize_rows(rows, num_threads=self.num_threads)

    def _packed(self, modules: ModuleStack) -> CompiledStack:
        """Return the modules with weights packed for the kernels, kept for further calls."""
        # Another thread may replace them meanwhile: the attribute is read once.
        kept = self._token_stacks
        for packed in kept:
            if packed.stack is modules:
                return packed
        packed = CompiledStack(modules)
        self._token_stacks = (packed, *kept[: MOST_STACKS - 1])
        return packed


class CompiledCausalEngine(CompiledEngine):
    """The engine of a causal model: a compiled encoder and an output layer."""

    def __init__(self, encoder: CompiledEncoder, layer: OutputLayer) -> None:
        super().__init__(encoder)
        tokens, own = encoder.token_table, layer.weight_VD
        weight_VD = tokens if own is None else cast(own, encoder.dtype)
        self.vocabulary_layer = Vocabulary(weight_VD, softcap=layer.softcap)

    def fingerprint(self) -> str:
        """Return the SHA-256 of the encoder and of the output layer."""
        layer = self.vocabulary_layer
        return join_output_layer(super().fingerprint(), layer.weight, layer.softcap)

    def _output(
        self, output: Output, rows: TokenRows, states: dict[LayerWeights | None, Vectors]
    ) -> Vectors:
        if isinstance(output, LogProbabilities):
            return self._log_probabilities(rows)
        if isinstance(output, LastLogits):
            last_BD = self._pooled(rows, Pooled(modes=("lasttoken",)))
            return self.vocabulary_layer.logits(
                last_BD, list(output.token_ids), num_threads=self.num_threads
            )
        return super()._output(output, rows, states)

    def _log_probabilities(self, rows: TokenRows) -> Vectors:
        found = np.zeros(len(rows.ids), dtype=np.float32)
        is_first = np.zeros(len(rows.ids) + 1, dtype=bool)
        is_first[rows.cu_seqlens] = True
        counted = np.flatnonzero(~is_first[:-1])
        states_TD = self._states(rows, None)
        found[counted] = self.vocabulary_layer.log_probabilities(
            states_TD[counted - 1], rows.ids[counted], num_threads=self.num_threads
        )
        return found


def _sigmoid(logits_BC: Vectors) -> Vectors:
    # A logit below -709 has the score 0.
    with np.errstate(over="ignore"):
        scores_BC: Vectors = (1 / (1 + np.exp(-logits_BC.astype(np.float64)))).astype(np.float32)
    return scores_BC


def _sparse_weights(logits: Vectors, activation: SparseActivation) -> Vectors:
    """Turn logits into the weights of a sparse vector by ``activation``, in place; return them."""
    # NaN stays NaN, to be found.
    weights = np.log1p(np.maximum(logits, 0, out=logits), out=logits)
    return np.log1p(weights, out=weights) if activation == "log1p_relu" else weights


@contextmanager
def _memory() -> Iterator[None]:
    """Raise :class:`OutOfDeviceMemoryError` in place of a MemoryError within the context."""
    try:
        yield
    except MemoryError as error:
        message = f"a batch exceeds the memory of the CPU: {error}"
    else:
        return
    # Outside of the block, the frames that hold the arrays are gone.
    raise OutOfDeviceMemoryError(message)
