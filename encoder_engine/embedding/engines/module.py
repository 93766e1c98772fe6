"""The engine of PyTorch modules, on any device: the one file of embedding that imports torch.

How it works: rows become a :class:`PackedBatch` on the module's device, without a copy on a CPU.
The module runs in inference mode and evaluation mode; pooling, projection and normalization run on
the device too, so that a GPU sends [B, D] to the host instead of [T, D]. On a GPU short batches are
captured as CUDA graphs (``models/captured``): without, one text takes the host ten times as long.

Dimensions: T packed tokens, B sequences, D features, C labels, V vocabulary.
"""

from __future__ import annotations

import warnings
from contextlib import suppress
from functools import partial
from typing import TYPE_CHECKING, Any, ClassVar, Generic, Literal, TypeVar

import torch
import torch.nn.functional as F  # noqa: N812
from torch import Tensor

from encoder_engine import ops
from encoder_engine.embedding.engines.engine import OutOfDeviceMemoryError
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

    import numpy as np

    from encoder_engine.embedding.engines.engine import (
        EngineName,
        SparseActivation,
        SparsePooling,
        Vectors,
    )
    from encoder_engine.families.checkpoints.vocabulary import OutputLayer
    from encoder_engine.families.facts.spec import EncoderSpec
    from encoder_engine.models import EncoderOutput
    from encoder_engine.packing.module_stack import ModuleStack
    from encoder_engine.packing.pooling_modes import PoolingMode
    from encoder_engine.packing.token_rows import TokenRows

    Layers = tuple[tuple[int, float], ...]

HeadType = TypeVar("HeadType", bound=MaskedLM | SequenceClassification)
Computed = TypeVar("Computed")
# Tokens of the vocabulary whose logits are computed at a time.
PIECE_TOKENS = 8192

__all__ = [
    "CausalModule",
    "EncoderModule",
    "MaskedLMModule",
    "ModuleEngine",
    "SequenceClassificationModule",
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
    """The facts of an encoder's module, and the running of a batch."""

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

    def fingerprint(self) -> str:
        """Return the SHA-256 of the architecture and of every weight; see :class:`Engine`."""
        return weights_sha256(self.encoder.state_dict(), repr(self.spec))

    def versions(self) -> dict[str, str]:
        """Return the version of PyTorch."""
        return {"torch": str(torch.__version__)}

    def _batch(self, rows: TokenRows, device: str | torch.device | None = None) -> PackedBatch:
        return PackedBatch.from_numpy(
            input_ids=rows.ids,
            cu_seqlens=rows.cu_seqlens,
            token_type_ids=rows.type_ids,
            device=self.encoder.device if device is None else device,
        )

    def _captured(self, rows: TokenRows, *, output_pooled: bool = False) -> EncoderOutput | None:
        """Encode a short batch on a GPU as a CUDA graph; None: the encoder has to."""
        if not self.short.takes(len(rows.ids)):
            return None
        return self.short.encode(self._batch(rows, "cpu"), output_pooled=output_pooled)

    def _run(self, compute: Callable[[], Tensor]) -> Vectors:
        """Compute a float32 result and copy it to the host; see :meth:`_within_memory`."""
        (found,) = self._run_all(lambda: (compute(),))
        assert found is not None
        return found

    def _run_all(
        self, compute: Callable[[], tuple[Tensor | None, ...]]
    ) -> tuple[Vectors | None, ...]:
        """Compute float32 results and copy them to the host; None stays None."""

        def infer() -> tuple[Vectors | None, ...]:
            with torch.inference_mode():
                return tuple(None if x is None else x.cpu().numpy() for x in compute())

        return self._within_memory(infer)

    def _within_memory(self, compute: Callable[[], Computed]) -> Computed:
        """Return what a function computes.

        Raises :class:`OutOfDeviceMemoryError`, with all tensors freed.
        """
        # The error holds the frames, and those hold tensors: both are gone after this block.
        with suppress(torch.OutOfMemoryError):
            return compute()
        if self.encoder.device.type == "cuda":
            self.short.release()
            torch.cuda.empty_cache()
        raise OutOfDeviceMemoryError(f"a batch exceeds the memory of {self.device}")


class EncoderModule(ModuleEngine):
    """A :class:`VectorEngine` over an :class:`Encoder`, which it puts into evaluation mode."""

    def __init__(self, encoder: Encoder, modules: ModuleStack = EMPTY_STACK) -> None:
        super().__init__(encoder.eval())
        self.modules = modules
        self._apply = StackComputer()

    def fingerprint(self) -> str:
        """Return the SHA-256 of the architecture and of every weight; see :class:`Engine`."""
        return self.modules.join_fingerprint(super().fingerprint())

    def save_encoder(self, directory: Path) -> None:
        """Implement :meth:`VectorEngine.save_encoder`."""
        self.encoder.save_pretrained(directory)

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
        alone = modes in _ONE_ROW and not num_prompt_tokens and layers is None

        def compute() -> Tensor:
            return self._pooled(
                *self._encode(rows, layers, modes[0] if alone else None),
                modes,
                num_prompt_tokens=num_prompt_tokens,
                normalized=normalized,
                dimension=dimension,
            )

        return self._run(compute)

    def _pooled(
        self,
        hidden_TD: Tensor,
        sequences: Sequences,
        modes: tuple[PoolingMode, ...],
        *,
        num_prompt_tokens: int,
        normalized: bool,
        dimension: int | None,
    ) -> Tensor:
        """Pool, apply the modules, keep the leading features, and divide by the norm."""
        full = self.modules.width(self.spec.width * len(modes))
        is_cut = dimension is not None and dimension < full
        at_once = normalized and not is_cut and not self.modules
        vectors_BD = pool(
            *(hidden_TD, sequences, modes), num_prompt_tokens=num_prompt_tokens, normalized=at_once
        )
        vectors_BD = self._apply(self.modules, vectors_BD)[:, :dimension]
        return normalize(vectors_BD) if normalized and not at_once else vectors_BD

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

        def compute() -> tuple[Tensor | None, ...]:
            hidden_TD, sequences = self._encode(rows)
            pooled = None
            if wanted[0]:
                pooled = self._pooled(
                    *(hidden_TD, sequences, modes),
                    num_prompt_tokens=num_prompt_tokens,
                    normalized=normalized,
                    dimension=dimension,
                )
            tokens = (
                self._apply(stack, hidden_TD).float() if is_wanted else None
                for stack, is_wanted in zip(stacks, wanted[1:], strict=True)
            )
            return (pooled, *tokens)

        return self._run_all(compute)

    def token_vectors(
        self,
        rows: TokenRows,
        *,
        layers: Layers | None = None,
        modules: ModuleStack = EMPTY_STACK,
        normalized: bool = False,
    ) -> Vectors:
        """Implement :meth:`VectorEngine.token_vectors`."""

        def compute() -> Tensor:
            if rows.unattended is None:
                hidden_TD, _ = self._encode(rows, layers)
            else:
                assert layers is None
                unattended = rows.unattended.tolist()
                hidden_TD = self.encoder.eval().encode_unattended(self._batch(rows), unattended)
            hidden_TD = self._apply(modules, hidden_TD).float()
            return normalize(hidden_TD) if normalized else hidden_TD.contiguous()

        return self._run(compute)

    def _encode(
        self, rows: TokenRows, layers: Layers | None = None, alone: PoolingMode | None = None
    ) -> tuple[Tensor, Sequences]:
        """Return the last hidden state or a weighted sum of several, and its rows' layout.

        ``alone``: the pooling of which one row of each sequence is wanted. Where that saves time,
        there are no others.
        """
        # An encoder that was trained meanwhile would still apply dropout.
        encoder = self.encoder
        if any(module.training for module in encoder.modules()):
            encoder.eval()
        captured = self._captured(rows) if layers is None else None
        if captured is not None:
            return captured.last_hidden_state, captured.sequences
        batch = self._batch(rows)
        output: EncoderOutput = encoder(
            batch,
            output_pooled=False,
            output_hidden_states=layers is not None,
            # The last block computes no others.
            rows=None if alone is None else pooled_rows(batch.sequences, alone),
        )
        hidden_TD = output.last_hidden_state if layers is None else mix_layers(output, layers)
        return hidden_TD, output.sequences


class CausalModule(EncoderModule):
    """A :class:`CausalEngine`. Logits are computed for 8,192 tokens at a time, and never kept."""

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

    def log_probabilities(self, rows: TokenRows) -> Vectors:
        """Implement :meth:`CausalEngine.log_probabilities`."""

        def compute() -> Tensor:
            hidden_TD, sequences = self._encode(rows)
            counted_M = torch.nonzero(sequences.positions > 0)[:, 0]
            targets_M = torch.from_numpy(rows.ids).to(hidden_TD.device)[counted_M].long()
            hidden_MD = hidden_TD[counted_M - 1]
            largest_M = torch.full_like(targets_M, -torch.inf, dtype=torch.float32)
            sums_M, of_targets_M = torch.zeros_like(largest_M), torch.zeros_like(largest_M)
            for first in range(0, len(self.weight_VD), PIECE_TOKENS):
                logits_MP = self._logits(hidden_MD, self.weight_VD[first : first + PIECE_TOKENS])
                larger_M = torch.maximum(largest_M, logits_MP.amax(1))
                sums_M = sums_M * (largest_M - larger_M).exp()
                sums_M += (logits_MP - larger_M[:, None]).exp().sum(1)
                largest_M = larger_M
                places_M = targets_M - first
                here_M = (places_M >= 0) & (places_M < logits_MP.shape[1])
                chosen_M = logits_MP.gather(1, places_M.clamp(0, logits_MP.shape[1] - 1)[:, None])
                of_targets_M = torch.where(here_M, chosen_M[:, 0], of_targets_M)
            found_T = hidden_TD.new_zeros(len(hidden_TD), dtype=torch.float32)
            return found_T.index_copy(0, counted_M, of_targets_M - largest_M - sums_M.log())

        return self._run(compute)

    def last_logits(self, rows: TokenRows, token_ids: tuple[int, ...]) -> Vectors:
        """Implement :meth:`CausalEngine.last_logits`."""

        def compute() -> Tensor:
            hidden_TD, sequences = self._encode(rows, alone="lasttoken")
            hidden_BD = F.embedding(sequences.cu_seqlens[1:] - 1, hidden_TD)
            return self._logits(hidden_BD, self.weight_VD[[*token_ids]])

        return self._run(compute)

    def _logits(self, rows_MD: Tensor, weight_PD: Tensor) -> Tensor:
        logits_MP = ops.linear(rows_MD, weight_PD).float()
        if self.softcap is None:
            return logits_MP
        return torch.tanh(logits_MP / self.softcap) * self.softcap


class _HeadEngine(ModuleEngine, Generic[HeadType]):
    """An engine of an encoder with a head, which it puts into evaluation mode."""

    def __init__(self, model: HeadType) -> None:
        super().__init__(model.eval().encoder)
        self.model = model

    def fingerprint(self) -> str:
        """Return the SHA-256 of the architecture and of every weight; see :class:`Engine`."""
        model = self.model
        arrays = [(n, to_array(t.cpu().contiguous())) for n, t in model.head.state_dict().items()]
        return join_fingerprint(super().fingerprint(), model.layout, model.rows, arrays)

    def save_encoder(self, directory: Path) -> None:
        """Write the encoder and its head; see :meth:`ScoringEngine.save_encoder`."""
        self.model.save_pretrained(directory)

    def _captured_for_head(self, rows: TokenRows) -> EncoderOutput | None:
        """Encode a short batch on a GPU with what the head reads; None: the model has to."""
        model = self.model
        if model.layout.sees_all is not None or model._forward_hooks or model._forward_pre_hooks:
            return None
        return self._captured(rows, output_pooled=model.rows == "pooled")


class SequenceClassificationModule(_HeadEngine[SequenceClassification]):
    """A :class:`ScoringEngine` over a classifier."""

    @property
    def num_labels(self) -> int:
        """The number of labels."""
        return len(self.model.id2label)

    def scores(self, rows: TokenRows, *, activation: Literal["identity", "sigmoid"]) -> Vectors:
        """Implement :meth:`ScoringEngine.scores`."""
        self.model.eval()

        def compute() -> Tensor:
            model, output = self.model, self._captured_for_head(rows)
            numbers = model(self._batch(rows)) if output is None else model.numbers(output)
            logits_BC: Tensor = numbers.float()
            return torch.sigmoid(logits_BC) if activation == "sigmoid" else logits_BC

        return self._run(compute)


class MaskedLMModule(_HeadEngine[MaskedLM]):
    """A :class:`VocabularyEngine` over a masked LM."""

    def vocabulary(
        self, rows: TokenRows, *, pooling: SparsePooling, activation: SparseActivation
    ) -> Vectors:
        """Implement :meth:`VocabularyEngine.vocabulary`."""
        self.model.eval()
        return self._run(partial(self._weights, rows, pooling, activation))

    def logits(self, rows: TokenRows, chosen: np.ndarray[Any, np.dtype[np.int32]]) -> Vectors:
        """Implement :meth:`VocabularyEngine.logits`; the last block computes no other rows."""
        self.model.eval()

        def compute() -> Tensor:
            batch = self._batch(rows)
            wanted = SelectedRows(torch.from_numpy(chosen).to(self.device), batch.sequences)
            output = self.encoder(batch, output_pooled=False, rows=wanted)
            return self.model.logits_of(output.last_hidden_state).float()

        return self._run(compute)

    def _weights(
        self, rows: TokenRows, pooling: SparsePooling, activation: SparseActivation
    ) -> Tensor:
        output = self._captured_for_head(rows)
        if output is None:
            batch = self._batch(rows)
            sequences, logits_TV = batch.sequences, self.model(batch).float()
        else:
            sequences = output.sequences
            logits_TV = self.model.logits_of(output.last_hidden_state).float()
        # The transformation never falls, so it keeps the greatest.
        if pooling == "max":
            return _sparse_weights(ops.pooling(logits_TV, sequences, mode="max"), activation)
        weights_TV = _sparse_weights(logits_TV, activation)
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
    """Load a causal model, whose output layer was read."""
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
    """Count the CUDA devices."""
    return torch.cuda.device_count()


def make_current(device: str) -> None:
    """Make a GPU the current one."""
    torch.cuda.set_device(device)


def set_num_threads(num_threads: int) -> None:
    """Set the threads of this process's CPU kernels."""
    torch.set_num_threads(num_threads)
