"""An encoder whose batches a GPU computes by CUDA graphs.

How it works: launching an operation takes the host 14 to 70 us, and a short batch's kernels may
take less. A graph launches all of them at once. It repeats the shapes and addresses of its capture,
so every batch is copied into a bucket (``packing/bucket.py``): token ids, types, positions and
offsets in one copy of int32. Positions, owners of rows and lists of tiles are computed in the
graph.
Results are cloned, because the next call overwrites them. Graphs read the weights where they were
at capture: changes in place are seen, and other storage makes the graphs anew.

On a CPU the same layout is computed without a graph. No GPU has run this class yet.

Dimensions: T packed tokens, B sequences, D width.
"""

from __future__ import annotations

import threading
from contextlib import contextmanager
from typing import TYPE_CHECKING

import torch

from encoder_engine import ops
from encoder_engine.errors import UnsupportedFeatureError
from encoder_engine.models.captured.graph import Computation, Graph, Results, Shared
from encoder_engine.models.captured.watched import Watched
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

__all__ = ["CapturedEncoder"]


class CapturedEncoder:
    """An :class:`Encoder` for inference on a GPU, with one CUDA graph for each bucket of batches.

    A bucket holds batches of as many tokens, as many sequences, and sequences as long, each rounded
    up to a power of two. Its graph is captured at its first batch, which takes as long as some
    plain calls. Batches on the CPU are best: the copy to the device is part of the call, and no
    check waits for it.

    encoder: with the modules that its specification makes.
    max_tokens: batches of more are computed by the encoder itself, as kernels then outlast their
        launches.
    max_graphs: graphs that are kept, the latest used.

    Weights may change, in place or not. Hidden states of all blocks, attention probabilities,
    ``rows`` and ``global_rows`` are left to the encoder. Calls of several threads wait for each
    other. Raises :class:`UnsupportedFeatureError` for changed modules (hooks, adapters), and at a
    call also for training mode, gradients and autocast; :class:`ImplementationError` at a call
    where an operation needs the lengths on the host.
    """

    def __init__(self, encoder: Encoder, *, max_tokens: int = 4096, max_graphs: int = 64) -> None:
        self.encoder = encoder
        self.max_tokens = max_tokens
        self.max_graphs = max_graphs
        self._lock = threading.Lock()
        self._graphs: dict[Computation, Graph] = {}
        self._done: torch.cuda.Event | None = None
        self._begin()

    @property
    def num_graphs(self) -> int:
        """The number of graphs that are kept; on a CPU, of buckets."""
        return len(self._graphs)

    def __call__(self, batch: PackedBatch, *, output_pooled: bool = True) -> EncoderOutput:
        """Encode a packed batch, as the encoder does: new tensors on its device.

        output_pooled: False skips the pooler. Raises what :meth:`Encoder.forward` raises.
        """
        given = self._check(batch)
        output_pooled = output_pooled and self.encoder.pooler is not None
        if given.num_tokens > self.max_tokens:
            with torch.no_grad():
                output: EncoderOutput = self.encoder(batch, output_pooled=output_pooled)
            return output
        (hidden_TD, pooled_BD), cu_seqlens = self._compute(given, output_pooled, None)
        assert hidden_TD is not None
        sequences = given.sequences
        return EncoderOutput(
            last_hidden_state=hidden_TD,
            sequences=assemble(cu_seqlens, sequences.host_offsets, sequences.num_tokens),
            pooler_output=pooled_BD,
        )

    def pooled(
        self, batch: PackedBatch, mode: PoolingMode = "mean", *, normalize: bool = False
    ) -> Tensor:
        """Encode a packed batch and pool its last hidden state, [B, D]; see ``ops.pooling``."""
        given = self._check(batch)
        if given.num_tokens > self.max_tokens:
            with torch.no_grad():
                output: EncoderOutput = self.encoder(batch, output_pooled=False)
                hidden_TD, sequences = output.last_hidden_state, output.sequences
                return ops.pooling(hidden_TD, sequences, mode=mode, normalize=normalize)
        (_, pooled_BD), _ = self._compute(given, False, (mode, normalize))
        assert pooled_BD is not None
        return pooled_BD

    def _begin(self) -> None:
        """Forget all graphs, and note what the next ones read of the encoder."""
        check_modules(self.encoder, "captured")
        self._graphs.clear()
        self._shared: Shared | None = None
        self._watched = Watched(self.encoder)

    def _check(self, batch: PackedBatch) -> PackedBatch:
        """Return the checked batch on the CPU; raise for what a graph would compute otherwise."""
        encoder = self.encoder
        if self._watched.has_changed():
            with self._lock:
                self._begin()
        if self._watched.any_training():
            raise UnsupportedFeatureError(
                "a captured encoder computes without dropout; call encoder.eval() first"
            )
        if torch.is_grad_enabled() and any(p.requires_grad for p in encoder.parameters()):
            raise UnsupportedFeatureError(
                "a captured encoder has no gradients; call it under torch.no_grad() or "
                "torch.inference_mode(), or train with the encoder itself"
            )
        if torch.is_autocast_enabled(encoder.device.type):
            raise UnsupportedFeatureError(
                "a captured encoder computes in the dtype of its weights; leave autocast and cast "
                "the encoder, as in encoder.to(torch.bfloat16)"
            )
        return encoder.check_batch(batch).to("cpu")

    def _compute(
        self, batch: PackedBatch, output_pooled: bool, pooling: tuple[PoolingMode, bool] | None
    ) -> tuple[Results, Tensor]:
        """Return the results of the batch's rows and the offsets on the device, all cloned."""
        computation = Computation(
            bucket=Bucket.of(batch.sequences),
            has_positions=batch.position_ids is not None,
            output_pooled=output_pooled,
            pooling=pooling,
        )
        # Tensors made in inference mode could not be written outside of it, at the next call.
        with self._lock, torch.inference_mode(False), torch.no_grad(), self._in_order():
            graph = self._find(computation)
            graph.fill(batch)
            hidden_TD, pooled_BD = self._run(graph)
            results = Results(
                None if hidden_TD is None else hidden_TD[: batch.num_tokens].clone(),
                None if pooled_BD is None else pooled_BD[: len(batch)].clone(),
            )
            return results, graph.cu_seqlens[: len(batch) + 1].clone()

    def _find(self, computation: Computation) -> Graph:
        """Return a computation's graph, now the latest used; drop the oldest beyond the most."""
        graph = self._graphs.pop(computation, None)
        if graph is None:
            graph = Graph(computation, self.encoder)
        self._graphs[computation] = graph
        while len(self._graphs) > self.max_graphs:
            del self._graphs[next(iter(self._graphs))]
        return graph

    def _run(self, graph: Graph) -> Results:
        if not uses_graphs(self.encoder.device):
            return graph.compute()
        if self._shared is None:
            self._shared = Shared.new()
        return graph.replay(self._shared)

    @contextmanager
    def _in_order(self) -> Iterator[None]:
        """Begin after the last call, on whatever stream that was: calls share memory."""
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
    """Return whether a device's batches are computed by graphs.

    Not while an implementation is requested: the request ends, and a graph would keep it.
    """
    return device.type == "cuda" and not requested()
