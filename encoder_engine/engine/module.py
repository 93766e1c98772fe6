"""The engine of PyTorch modules, on any device: the one file of this folder that imports torch.

How it works: rows become a :class:`PackedBatch` on the module's device, without a copy on a CPU.
The module runs in inference mode and evaluation mode; pooling, projection and normalization run on
the device too, so that a GPU sends [B, D] to the host instead of [T, D]. On a GPU short batches run
as CUDA graphs (``models/captured``); without graphs, one text takes the host ten times as long.

Dimensions: T packed tokens, B sequences, D features, C labels, V vocabulary.
"""

from __future__ import annotations

import warnings
from contextlib import suppress
from typing import TYPE_CHECKING, Any, ClassVar, TypeVar

import torch
import torch.nn.functional as F  # noqa: N812
from torch import Tensor

from encoder_engine import ops
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
from encoder_engine.errors import UnusedWeightsWarning
from encoder_engine.families.checkpoints.vocabulary import join_output_layer
from encoder_engine.families.heads import join_fingerprint
from encoder_engine.models import Encoder, MaskedLM, SequenceClassification
from encoder_engine.models.captured import ShortBatches
from encoder_engine.models.checkpoints import stacking
from encoder_engine.models.checkpoints.fingerprint import weights_sha256
from encoder_engine.models.checkpoints.stacking import to_array, to_tensor
from encoder_engine.models.module_stack import (
    StackComputer,
    mix_layers,
    normalize,
    pool,
    pooled_rows,
)
from encoder_engine.packing import PackedBatch, SelectedRows, Sequences
from encoder_engine.packing.module_stack import EMPTY_STACK

if TYPE_CHECKING:
    import os
    from collections.abc import Callable
    from pathlib import Path

    from encoder_engine.engine.outputs import LayerWeights, Output, SparseActivation
    from encoder_engine.engine.protocol import EngineName, Vectors
    from encoder_engine.families.checkpoints.vocabulary import OutputLayer
    from encoder_engine.families.facts.spec import EncoderSpec
    from encoder_engine.models import EncoderOutput
    from encoder_engine.packing.module_stack import ModuleStack
    from encoder_engine.packing.pooling_modes import PoolingMode
    from encoder_engine.packing.token_rows import TokenRows

Computed = TypeVar("Computed")
# Tokens of the vocabulary whose logits are computed at a time.
PIECE_TOKENS = 8192

__all__ = [
    "CausalModule",
    "EncoderModule",
    "HeadEngine",
    "ModuleEngine",
    "as_tensor",
    "count_gpus",
    "gpu_is_available",
    "load_causal",
    "make_current",
    "set_num_threads",
]

# Poolings that read one row of a sequence. The other rows of the last block are 6 % of the time of
# BGE-small, and 12 % of a model of 6 blocks.
_ONE_ROW = (("cls",), ("lasttoken",))


class ModuleEngine:
    """The base of engines of PyTorch modules: properties of the encoder, and running a batch."""

    name: ClassVar[EngineName] = "torch"

    def __init__(self, encoder: Encoder) -> None:
        self.encoder = encoder
        self.short = ShortBatches(encoder)

    @property
    def spec(self) -> EncoderSpec:  # noqa: D102
        return self.encoder.spec

    @property
    def dtype(self) -> str:  # noqa: D102
        return str(self.encoder.dtype).removeprefix("torch.")

    @property
    def device(self) -> str:  # noqa: D102
        return str(self.encoder.device)

    @property
    def quantization(self) -> str | None:  # noqa: D102
        return self.encoder.quantization

    @property
    def num_threads(self) -> int:  # noqa: D102
        return torch.get_num_threads()

    @property
    def batch_tokens(self) -> int:  # noqa: D102
        return default_batch_tokens(self.spec, self.device, self.dtype)

    def fingerprint(self) -> str:
        """Return the SHA-256 of the architecture and of every weight; see :class:`Engine`."""
        return weights_sha256(self.encoder.state_dict(), repr(self.spec))

    def versions(self) -> dict[str, str]:
        """Return the version of PyTorch, on which results depend; see :class:`Engine`."""
        return {"torch": str(torch.__version__)}

    def _batch(self, rows: TokenRows, device: str | torch.device | None = None) -> PackedBatch:
        return PackedBatch.from_numpy(
            input_ids=rows.ids,
            cu_seqlens=rows.cu_seqlens,
            token_type_ids=rows.type_ids,
            device=self.encoder.device if device is None else device,
        )

    def _captured(self, rows: TokenRows, *, output_pooled: bool = False) -> EncoderOutput | None:
        """Encode a short batch on a GPU by a CUDA graph; None: the encoder must do it without."""
        if not self.short.takes(len(rows.ids)):
            return None
        return self.short.encode(self._batch(rows, "cpu"), output_pooled=output_pooled)

    def run(self, rows: TokenRows, *outputs: Output) -> tuple[Vectors, ...]:
        """Compute outputs on the device, and copy them to the host; see :meth:`Engine.run`."""

        def infer() -> tuple[Vectors, ...]:
            with torch.inference_mode():
                return tuple(found.cpu().numpy() for found in self._compute(rows, outputs))

        return self._within_memory(infer)

    def _compute(self, rows: TokenRows, outputs: tuple[Output, ...]) -> tuple[Tensor, ...]:
        """Compute the requested outputs on the device; each subclass overrides this."""
        raise NotImplementedError(f"{type(self).__name__} has none of the outputs {outputs}")

    def _within_memory(self, compute: Callable[[], Computed]) -> Computed:
        """Return ``compute()``.

        If the device lacks memory, frees the tensors of ``compute`` and raises
        :class:`OutOfDeviceMemoryError`.
        """
        # The error holds the frames, and those hold tensors: both are gone after this block.
        with suppress(torch.OutOfMemoryError):
            return compute()
        if self.encoder.device.type == "cuda":
            self.short.release()
            torch.cuda.empty_cache()
        raise OutOfDeviceMemoryError(f"a batch exceeds the memory of {self.device}")


class EncoderModule(ModuleEngine):
    """The engine of an encoder, set to evaluation mode, and of the modules after pooling."""

    def __init__(self, encoder: Encoder, modules: ModuleStack = EMPTY_STACK) -> None:
        super().__init__(encoder.eval())
        self.modules = modules
        self._apply = StackComputer()

    def fingerprint(self) -> str:
        """Return the SHA-256 of the architecture, every weight and the modules; see Engine."""
        return self.modules.join_fingerprint(super().fingerprint())

    def save_encoder(self, directory: Path) -> None:
        """Write the encoder; see :meth:`EncoderEngine.save_encoder`."""
        self.encoder.save_pretrained(directory)

    def _compute(self, rows: TokenRows, outputs: tuple[Output, ...]) -> tuple[Tensor, ...]:
        states: dict[LayerWeights | None, tuple[Tensor, Sequences]] = {}
        return tuple(self._output(output, rows, states, len(outputs) == 1) for output in outputs)

    def _output(
        self,
        output: Output,
        rows: TokenRows,
        states: dict[LayerWeights | None, tuple[Tensor, Sequences]],
        is_alone: bool,
    ) -> Tensor:
        """Compute one output; ``states`` caches hidden states by layer weights between outputs."""
        if not isinstance(output, Pooled | TokenStates):
            raise TypeError(f"{self.spec.model_type} has no output {type(output).__name__}")
        layers = output.layers
        if isinstance(output, Pooled):
            one_row = output.modes in _ONE_ROW and not output.num_prompt_tokens and layers is None
            if is_alone and one_row:
                return self._pool(*self._encode(rows, alone=output.modes[0]), output)
        if layers not in states:
            states[layers] = self._encode(rows, layers)
        states_TD, sequences = states[layers]
        if isinstance(output, Pooled):
            return self._pool(states_TD, sequences, output)
        vectors = self._apply(output.modules, states_TD).float()
        return normalize(vectors) if output.normalized else vectors.contiguous()

    def _pool(self, states_TD: Tensor, sequences: Sequences, output: Pooled) -> Tensor:
        """Pool token vectors, apply the modules, keep leading features, and divide by the norm."""
        full = self.modules.width(self.spec.width * len(output.modes))
        is_cut = output.dimension is not None and output.dimension < full
        at_once = output.normalized and not is_cut and not self.modules
        vectors_BD = pool(
            states_TD,
            sequences,
            output.modes,
            num_prompt_tokens=output.num_prompt_tokens,
            normalized=at_once,
        )
        vectors_BD = self._apply(self.modules, vectors_BD)[:, : output.dimension]
        return normalize(vectors_BD) if output.normalized and not at_once else vectors_BD

    def _encode(
        self, rows: TokenRows, layers: LayerWeights | None = None, alone: PoolingMode | None = None
    ) -> tuple[Tensor, Sequences]:
        """Return the last hidden state, or a weighted sum of several, and its rows' sequences.

        ``alone``: the single pooling mode that reads the result, from one row per sequence. If that
        saves time, the other rows are not computed.
        """
        # An encoder that was trained meanwhile would still apply dropout.
        encoder = self.encoder
        if any(module.training for module in encoder.modules()):
            encoder.eval()
        if rows.unattended is not None:
            assert layers is None
            batch = self._batch(rows)
            unattended = rows.unattended.tolist()
            return encoder.encode_unattended(batch, unattended), batch.sequences
        captured = self._captured(rows) if layers is None else None
        if captured is not None:
            return captured.last_hidden_state, captured.sequences
        batch = self._batch(rows)
        output: EncoderOutput = encoder(
            batch,
            output_pooled=False,
            output_hidden_states=layers is not None,
            # The last block computes no other rows.
            rows=None if alone is None else pooled_rows(batch.sequences, alone),
        )
        hidden_TD = output.last_hidden_state if layers is None else mix_layers(output, layers)
        return hidden_TD, output.sequences


class CausalModule(EncoderModule):
    """The engine of a causal model; computes logits of 8,192 vocabulary tokens at a time."""

    def __init__(self, encoder: Encoder, layer: OutputLayer) -> None:
        super().__init__(encoder)
        weight_VD: Tensor = encoder.embedding.tokens.weight
        if layer.weight_VD is not None:
            weight_VD = to_tensor(layer.weight_VD).to(encoder.device, encoder.dtype)
        self.weight_VD, self.softcap = weight_VD, layer.softcap

    def fingerprint(self) -> str:
        """Return the SHA-256 of the encoder and of the output layer."""
        weight_VD = to_array(self.weight_VD.cpu().contiguous())
        return join_output_layer(super().fingerprint(), weight_VD, self.softcap)

    def _output(
        self,
        output: Output,
        rows: TokenRows,
        states: dict[LayerWeights | None, tuple[Tensor, Sequences]],
        is_alone: bool,
    ) -> Tensor:
        if isinstance(output, LogProbabilities):
            return self._log_probabilities(rows)
        if isinstance(output, LastLogits):
            states_TD, sequences = self._encode(rows, alone="lasttoken")
            last_BD = F.embedding(sequences.cu_seqlens[1:] - 1, states_TD)
            return self._logits(last_BD, self.weight_VD[[*output.token_ids]])
        return super()._output(output, rows, states, is_alone)

    def _log_probabilities(self, rows: TokenRows) -> Tensor:
        states_TD, sequences = self._encode(rows)
        counted_M = torch.nonzero(sequences.positions > 0)[:, 0]
        targets_M = torch.from_numpy(rows.ids).to(states_TD.device)[counted_M].long()
        states_MD = states_TD[counted_M - 1]
        largest_M = torch.full_like(targets_M, -torch.inf, dtype=torch.float32)
        sums_M, of_targets_M = torch.zeros_like(largest_M), torch.zeros_like(largest_M)
        for first in range(0, len(self.weight_VD), PIECE_TOKENS):
            logits_MP = self._logits(states_MD, self.weight_VD[first : first + PIECE_TOKENS])
            larger_M = torch.maximum(largest_M, logits_MP.amax(1))
            sums_M = sums_M * (largest_M - larger_M).exp()
            sums_M += (logits_MP - larger_M[:, None]).exp().sum(1)
            largest_M = larger_M
            places_M = targets_M - first
            here_M = (places_M >= 0) & (places_M < logits_MP.shape[1])
            chosen_M = logits_MP.gather(1, places_M.clamp(0, logits_MP.shape[1] - 1)[:, None])
            of_targets_M = torch.where(here_M, chosen_M[:, 0], of_targets_M)
        found_T = states_TD.new_zeros(len(states_TD), dtype=torch.float32)
        return found_T.index_copy(0, counted_M, of_targets_M - largest_M - sums_M.log())

    def _logits(self, rows_MD: Tensor, weight_PD: Tensor) -> Tensor:
        logits_MP = ops.linear(rows_MD, weight_PD).float()
        if self.softcap is None:
            return logits_MP
        return torch.tanh(logits_MP / self.softcap) * self.softcap


class HeadEngine(ModuleEngine):
    """The engine of an encoder with a head, set to evaluation mode."""

    def __init__(self, model: MaskedLM | SequenceClassification) -> None:
        super().__init__(model.eval().encoder)
        self.model: Any = model

    @property
    def num_labels(self) -> int:
        """The number of labels of the head, C."""
        return len(self.model.id2label)

    def fingerprint(self) -> str:
        """Return the SHA-256 of the architecture and of every weight; see :class:`Engine`."""
        model = self.model
        arrays = [(n, to_array(t.cpu().contiguous())) for n, t in model.head.state_dict().items()]
        return join_fingerprint(super().fingerprint(), model.layout, model.rows, arrays)

    def save_encoder(self, directory: Path) -> None:
        """Write the encoder and its head; see :class:`EncoderEngine`."""
        self.model.save_pretrained(directory)

    def _compute(self, rows: TokenRows, outputs: tuple[Output, ...]) -> tuple[Tensor, ...]:
        self.model.eval()
        return tuple(self._output(output, rows) for output in outputs)

    def _output(self, output: Output, rows: TokenRows) -> Tensor:
        if isinstance(output, Scores):
            logits_BC, _ = self._head(rows)
            return torch.sigmoid(logits_BC) if output.activation == "sigmoid" else logits_BC
        if isinstance(output, VocabularyWeights):
            return self._vocabulary_weights(*self._head(rows), output)
        if isinstance(output, Logits):
            return self._head(rows)[0] if output.chosen is None else self._chosen(rows, output)
        raise TypeError(f"{self.spec.model_type} has no output {type(output).__name__}")

    def _head(self, rows: TokenRows) -> tuple[Tensor, Sequences]:
        """Return the logits of all rows that the head reads, float32, and the batch's sequences."""
        model, output = self.model, self._captured_for_head(rows)
        if output is None:
            batch = self._batch(rows)
            return model(batch).float(), batch.sequences
        if isinstance(model, SequenceClassification):
            return model.numbers(output).float(), output.sequences
        return model.logits_of(output.last_hidden_state).float(), output.sequences

    def _captured_for_head(self, rows: TokenRows) -> EncoderOutput | None:
        """Encode a short batch by a CUDA graph, as the head needs it; None: there is no graph."""
        model = self.model
        if model.layout.sees_all is not None or model._forward_hooks or model._forward_pre_hooks:
            return None
        return self._captured(rows, output_pooled=model.rows == "pooled")

    def _chosen(self, rows: TokenRows, output: Logits) -> Tensor:
        """Return the head's logits at ``output.chosen``; the last block computes no other rows."""
        batch = self._batch(rows)
        chosen = torch.from_numpy(output.chosen).to(self.device)
        found = self.encoder(batch, output_pooled=False, rows=SelectedRows(chosen, batch.sequences))
        logits_MV: Tensor = self.model.logits_of(found.last_hidden_state).float()
        return logits_MV

    def _vocabulary_weights(
        self, logits_TV: Tensor, sequences: Sequences, output: VocabularyWeights
    ) -> Tensor:
        # The transformation is monotonic: the greatest logit has the greatest weight.
        if output.pooling == "max":
            largest_BV = ops.pooling(logits_TV, sequences, mode="max")
            return _sparse_weights(largest_BV, output.activation)
        weights_TV = _sparse_weights(logits_TV, output.activation)
        mean_BV = ops.pooling(weights_TV, sequences, mode="mean")
        return mean_BV * torch.from_numpy(sequences.lengths).to(mean_BV)[:, None]


def _sparse_weights(logits: Tensor, activation: SparseActivation) -> Tensor:
    weights = logits.relu().log1p()
    return weights.log1p() if activation == "log1p_relu" else weights


def load_causal(
    directory: str | os.PathLike[str],
    layer: OutputLayer,
    *,
    device: str,
    dtype: str,
    quantization: str | None,
) -> CausalModule:
    """Return the engine of a causal model; ``layer``: what ``read_output_layer`` returned."""
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", UnusedWeightsWarning)
        encoder = Encoder.from_pretrained(directory, device, dtype, quantization)
    return CausalModule(encoder, layer)


as_tensor, save_tensors = to_tensor, stacking.save_tensors
as_sparse_tensor = stacking.as_sparse_tensor


def gpu_is_available() -> bool:
    """Return whether there is a CUDA device."""
    return torch.cuda.is_available()


def count_gpus() -> int:
    """Return the number of CUDA devices."""
    return torch.cuda.device_count()


def make_current(device: str) -> None:
    """Make the GPU ``device`` PyTorch's current CUDA device."""
    torch.cuda.set_device(device)


def set_num_threads(num_threads: int) -> None:
    """Set the number of threads of PyTorch's operators on a CPU, for this process."""
    torch.set_num_threads(num_threads)
