"""An encoder whose batches are computed by CUDA graphs on a GPU.

How it works: launching an operation takes the host 14 to 70 us, and a short batch's kernels may
take less. A graph launches all of them at once. It repeats the shapes and addresses of its capture,
so every batch is copied into a bucket (``packing/bucket.py``): token ids, types, positions and
offsets in one copy of int32. Positions, owners of rows and lists of tiles are computed in the
graph. Results are cloned, because the next call overwrites them. Graphs read the weights where they
were at capture: changes in place take effect, and weights in other memory cause new captures.

A bucket's first batch is computed in its shapes without a graph, with the same kernels and bits: a
capture takes some four such calls, and waits for the device. On a CPU no batch has a graph.

Dimensions: T packed tokens, B sequences, D width.
"""

from __future__ import annotations

import threading
from contextlib import contextmanager
from typing import TYPE_CHECKING

import torch

from encoder_engine import ops
from encoder_engine.errors import ImplementationError, InputError, UnsupportedFeatureError
from encoder_engine.models.captured.graph import CapturePool, Computation, Graph, Results
from encoder_engine.models.captured.module_state import ModuleState
from encoder_engine.models.compiling import check_modules
from encoder_engine.models.network import EncoderOutput
from encoder_engine.ops.registry import requested
from encoder_engine.packing.bucket import Bucket
from encoder_engine.packing.sequences import assemble

if TYPE_CHECKING:
    from collections.abc import Iterator

    from torch import Tensor

    from encoder_engine.models.encoder import Encoder
    from encoder_engine.packing import PackedBatch
    from encoder_engine.packing.pooling_modes import PoolingMode

__all__ = ["MAX_TOKENS", "CapturedEncoder", "uses_graphs"]

# BERT-base in bfloat16 on an NVIDIA H200: so many tokens take 2.6 ms by a graph, and without one
# 18.6, the host's time. A GPU at an eighth of that speed takes as long for them as the host.
MAX_TOKENS = 4096


class CapturedEncoder:
    """An :class:`Encoder` for inference on a GPU, with one CUDA graph for each bucket of batches.

    A bucket is the number of tokens, the number of sequences and the length of the longest one,
    each rounded up to a power of two. Its graph is captured at its second batch: that call waits
    for the device and empties PyTorch's caches of memory. Batches on the CPU are best: the copy to
    the device is part of the call, and no check waits for the device.

    encoder: its modules must be those that its specification makes.
    max_tokens: batches of more tokens are computed by the encoder itself.
    max_graphs: the most buckets that are kept; when one more is needed, those without a graph are
        dropped, or all if each has one. A graph keeps its results, [tokens, D].

    Weights may change, in place or not. Settings of PyTorch that choose kernels, as its float32
    precision, hold for graphs that are captured after them. Hidden states of all blocks, attention
    probabilities, ``rows`` and ``global_rows`` are left to the encoder. Calls of several threads
    wait for each other; other threads must not draw random numbers on the device during a capture.
    Raises :class:`InputError` for ``max_graphs`` below 1; :class:`UnsupportedFeatureError` for
    changed modules (hooks, adapters), and at a call also for training mode, gradients and autocast;
    :class:`ImplementationError` at a call where an operation needs the lengths on the host, or
    where PyTorch cannot capture.
    """

    def __init__(
        self, encoder: Encoder, *, max_tokens: int = MAX_TOKENS, max_graphs: int = 256
    ) -> None:
        if max_graphs < 1:
            raise InputError(f"max_graphs must be at least 1, got {max_graphs}")
        self._encoder = encoder
        self.max_tokens = max_tokens
        self.max_graphs = max_graphs
        self._lock = threading.Lock()
        self._graphs: dict[Computation, Graph] = {}
        self._pool: CapturePool | None = None
        self._done: torch.cuda.Event | None = None
        self._read_modules()

    @property
    def encoder(self) -> Encoder:
        """The encoder whose batches this object computes."""
        return self._encoder

    @property
    def num_graphs(self) -> int:
        """The number of buckets that are kept; on a GPU, those used twice have a graph.

        A bucket counts once for each kind of call: with positions, with the pooler, each pooling.
        """
        return len(self._graphs)

    def __call__(self, batch: PackedBatch, *, output_pooled: bool = True) -> EncoderOutput:
        """Encode a packed batch as the encoder does; return new tensors on its device.

        output_pooled: False skips the pooler. Raises what :meth:`Encoder.forward` raises.
        """
        checked = self._check(batch)
        output_pooled = output_pooled and self.encoder.pooler is not None
        if checked.num_tokens > self.max_tokens:
            return self._compute_plainly(checked, output_pooled)
        (hidden_TD, pooled_BD), cu_seqlens = self._compute(checked, output_pooled, None)
        assert hidden_TD is not None
        sequences = checked.sequences
        return EncoderOutput(
            last_hidden_state=hidden_TD,
            sequences=assemble(cu_seqlens, sequences.host_offsets, sequences.num_tokens),
            pooler_output=pooled_BD,
        )

    def pooled(
        self, batch: PackedBatch, mode: PoolingMode = "mean", *, normalize: bool = False
    ) -> Tensor:
        """Encode a packed batch and pool its last hidden state, [B, D]; see ``ops.pooling``."""
        checked = self._check(batch)
        if checked.num_tokens > self.max_tokens:
            output = self._compute_plainly(checked, False)
            hidden_TD, sequences = output.last_hidden_state, output.sequences
            return ops.pooling(hidden_TD, sequences, mode=mode, normalize=normalize)
        (_, pooled_BD), _ = self._compute(checked, False, (mode, normalize))
        assert pooled_BD is not None
        return pooled_BD

    def _read_modules(self) -> None:
        """Record the encoder's modules and its weights' memory, on which later graphs depend."""
        check_modules(self.encoder, "captured")
        self._state = ModuleState(self.encoder)

    def _drop_graphs(self) -> None:
        self._graphs.clear()
        self._pool = None

    def _check(self, batch: PackedBatch) -> PackedBatch:
        """Return the checked batch; raise if a graph would compute something else for it."""
        encoder = self.encoder
        if self._state.has_changed():
            with self._lock, self._in_order():
                self._drop_graphs()
                self._read_modules()
        if self._state.any_training():
            raise UnsupportedFeatureError(
                "a captured encoder computes without dropout; call encoder.eval() first"
            )
        if torch.is_grad_enabled() and self._state.any_requires_grad():
            raise UnsupportedFeatureError(
                "a captured encoder has no gradients; call it under torch.no_grad() or "
                "torch.inference_mode(), or train with the encoder itself"
            )
        if torch.is_autocast_enabled(encoder.device.type):
            raise UnsupportedFeatureError(
                "a captured encoder computes in the dtype of its weights; leave autocast and cast "
                "the encoder, as in encoder.to(torch.bfloat16)"
            )
        return encoder.check_batch(batch)

    def _compute_plainly(self, batch: PackedBatch, output_pooled: bool) -> EncoderOutput:
        with torch.inference_mode(False), torch.no_grad():
            output: EncoderOutput = self.encoder(batch, output_pooled=output_pooled)
            return output

    def _compute(
        self, batch: PackedBatch, output_pooled: bool, pooling: tuple[PoolingMode, bool] | None
    ) -> tuple[Results, Tensor]:
        """Return the results of the batch's rows, and its offsets on the device, all cloned."""
        computation = Computation(
            bucket=Bucket.of(batch.sequences),
            has_positions=batch.position_ids is not None,
            output_pooled=output_pooled,
            pooling=pooling,
        )
        # Tensors made in inference mode could not be written outside of it, at the next call.
        with self._lock, torch.inference_mode(False), torch.no_grad(), self._in_order():
            graph = self._graphs.get(computation) or Graph(computation, self.encoder)
            graph.fill(batch.to("cpu"))
            hidden_TD, pooled_BD = self._run(graph, is_new=computation not in self._graphs)
            self._keep(computation, graph)
            results = Results(
                None if hidden_TD is None else hidden_TD[: batch.num_tokens].clone(),
                None if pooled_BD is None else pooled_BD[: len(batch)].clone(),
            )
            return results, graph.cu_seqlens[: len(batch) + 1].clone()

    def _run(self, graph: Graph, *, is_new: bool) -> Results:
        if is_new or not uses_graphs(self.encoder.device):
            return graph.compute()
        if not graph.is_captured:
            self._capture(graph)
        return graph.replay()

    def _capture(self, graph: Graph) -> None:
        if self._pool is None:
            self._pool = CapturePool.new()
        try:
            graph.capture(self._pool)
        except BaseException as error:
            # PyTorch captures nothing more into a pool whose only capture failed.
            self._drop_graphs()
            known = (torch.OutOfMemoryError, ImplementationError)
            if isinstance(error, RuntimeError) and not isinstance(error, known):
                raise ImplementationError(
                    f"PyTorch cannot capture this encoder as a CUDA graph ({error}); call the "
                    "encoder itself"
                ) from error
            raise

    def _keep(self, computation: Computation, graph: Graph) -> None:
        if computation not in self._graphs and len(self._graphs) >= self.max_graphs:
            captured = {key: kept for key, kept in self._graphs.items() if kept.is_captured}
            if len(captured) == len(self._graphs):
                self._drop_graphs()
            else:
                self._graphs = captured
        self._graphs[computation] = graph

    @contextmanager
    def _in_order(self) -> Iterator[None]:
        """Make the device wait for the previous call, on any stream: calls share memory."""
        device = self.encoder.device
        if device.type != "cuda":
            yield
            return
        with torch.cuda.device(device):
            if self._done is not None:
                self._done.wait()
            try:
                yield
            finally:
                self._done = torch.cuda.Event()  # type: ignore[no-untyped-call]
                self._done.record()


def uses_graphs(device: torch.device) -> bool:
    """Return whether batches on a device are computed by CUDA graphs.

    False while :func:`ops.use` requests an implementation, which a graph would keep beyond the
    request.
    """
    return device.type == "cuda" and not requested()
