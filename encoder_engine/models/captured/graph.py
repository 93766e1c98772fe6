"""A CUDA graph of one computation of an encoder, with input buffers at fixed addresses.

Dimensions: T rows of a bucket, B sequences, D width.
"""

from __future__ import annotations

import threading
import weakref
from typing import TYPE_CHECKING, Any, NamedTuple, TypeVar

import torch

from encoder_engine import ops
from encoder_engine.packing.bucket import Bucket, BucketBatch, BucketSequences

if TYPE_CHECKING:
    from collections.abc import Callable

    from torch import Tensor
    from torch.cuda import CUDAGraph

    from encoder_engine.models.network import Network
    from encoder_engine.packing import PackedBatch
    from encoder_engine.packing.pooling_modes import PoolingMode

__all__ = ["CapturePool", "Computation", "Graph", "Results", "capture"]

Result = TypeVar("Result")

# Calls before a capture: they compile kernels, and make the handles of libraries.
NUM_WARM_UPS = 2
# PyTorch has a pool of so many streams for a device.
NUM_STREAMS = 32
_HELD: weakref.WeakSet[torch.cuda.Stream] = weakref.WeakSet()
# PyTorch allows one capture at a time in a process.
_CAPTURE = threading.Lock()


class Computation(NamedTuple):
    """The computation of a graph; each combination of these fields has a graph of its own.

    has_positions: the batch gives positions.
    output_pooled: the pooler's output is computed beside the hidden state.
    pooling: mode and normalization of the vectors that are computed in place of the hidden state.
    """

    bucket: Bucket
    has_positions: bool
    output_pooled: bool = False
    pooling: tuple[PoolingMode, bool] | None = None


class Results(NamedTuple):
    """A graph's hidden state [T, D] or None, and pooled vectors [B + 1, D] or None.

    The graph's next call overwrites them.
    """

    hidden_TD: Tensor | None
    pooled_BD: Tensor | None


class CapturePool(NamedTuple):
    """The memory pool and the stream of an encoder's graphs, which never run concurrently.

    memory: the pool for the graphs' results and intermediate tensors.
    stream: used only by captures. The workspace of a library belongs to a stream, and is therefore
        allocated in ``memory`` by the first capture. PyTorch frees it with any graph of the stream:
        graphs of one pool are dropped together.
    """

    memory: Any
    stream: torch.cuda.Stream

    @classmethod
    def new(cls) -> CapturePool:
        """Make a memory pool and a stream on the current CUDA device."""
        return cls(torch.cuda.graph_pool_handle(), _free_stream())


def _free_stream() -> torch.cuda.Stream:
    """Return a CUDA stream that no other capture uses: PyTorch reuses a fixed set of streams."""
    for _ in range(NUM_STREAMS):
        stream = torch.cuda.Stream()  # type: ignore[no-untyped-call]
        if stream not in _HELD:
            break
    _HELD.add(stream)
    return stream


def capture(
    compute: Callable[[], Result], pool: CapturePool, *, num_warm_ups: int = NUM_WARM_UPS
) -> tuple[Result, CUDAGraph]:
    """Run a computation a few times, then capture it; its tensors must keep their addresses.

    Returns the result of the capture, which each replay overwrites, and the graph.
    """
    with _CAPTURE:
        current = torch.cuda.current_stream()
        warm_up = _free_stream()
        warm_up.wait_stream(current)
        with torch.cuda.stream(warm_up):
            for _ in range(num_warm_ups):
                compute()
        current.wait_stream(warm_up)
        graph = torch.cuda.CUDAGraph()
        try:
            # Other threads may allocate memory meanwhile.
            with torch.cuda.graph(graph, *pool, capture_error_mode="thread_local"):
                results = compute()
        except BaseException:
            # A capture that fails as it ends leaves its stream the current one.
            torch.cuda.set_stream(current)
            raise
        return results, graph


class Graph:
    """A computation over inputs at fixed addresses, and its CUDA graph once that is captured.

    The inputs are one tensor, so that one copy fills them: token ids, types and positions, [T] each
    with zeros beyond the batch, and offsets [B + 2], int32.
    """

    def __init__(self, computation: Computation, network: Network) -> None:
        self._computation = computation
        self._network = network
        bucket = computation.bucket
        size = 3 * bucket.num_tokens + bucket.num_offsets
        self._memory = torch.zeros(size, dtype=torch.int32, device=network.device)
        self._graph: torch.cuda.CUDAGraph | None = None
        self._results: Results | None = None

    @property
    def is_captured(self) -> bool:
        """True once the computation was recorded as a CUDA graph, which calls then replay."""
        return self._graph is not None

    @property
    def cu_seqlens(self) -> Tensor:
        """The offsets of the batch and of the empty sequences after it, int32 [B + 2]."""
        return self._memory[3 * self._computation.bucket.num_tokens :]

    def fill(self, batch: PackedBatch) -> None:
        """Copy a batch on the CPU to the graph's input buffer, and zeros after the batch."""
        bucket = self._computation.bucket
        # New for every call: the allocator keeps pinned memory until the device has read it.
        staged = torch.zeros_like(self._memory, device="cpu", pin_memory=self._memory.is_cuda)
        values = staged.numpy()
        columns = (batch.input_ids, batch.token_type_ids, batch.position_ids)
        for place, column in enumerate(columns):
            if column is not None:
                first = place * bucket.num_tokens
                values[first : first + len(column)] = column.numpy()
        bucket.write_offsets(batch.sequences, values[3 * bucket.num_tokens :])
        self._memory.copy_(staged, non_blocking=True)
        if self._memory.is_cuda:
            # Dropped with the graph, it is not reused before this stream has read it.
            self._memory.record_stream(torch.cuda.current_stream())

    def compute(self) -> Results:
        """Compute the batch in the input buffers without a graph."""
        pooling = self._computation.pooling
        batch = self._batch()
        # forward itself, since calling a compiled module would compile it for this bucket.
        output = self._network.forward(batch, output_pooled=self._computation.output_pooled)
        if pooling is None:
            return Results(output.last_hidden_state, output.pooler_output)
        mode, normalize = pooling
        hidden_TD = output.last_hidden_state
        pooled_BD = ops.pooling(hidden_TD, batch.sequences, mode=mode, normalize=normalize)
        return Results(None, pooled_BD)

    def capture(self, pool: CapturePool) -> None:
        """Capture the graph's computation as a CUDA graph, with memory of ``pool``."""
        self._results, self._graph = capture(self.compute, pool)

    def replay(self) -> Results:
        """Compute the batch in the input buffers by replaying the captured graph."""
        assert self._graph is not None
        assert self._results is not None
        self._graph.replay()
        return self._results

    def _batch(self) -> BucketBatch:
        bucket = self._computation.bucket
        ids, types, positions = self._memory[: 3 * bucket.num_tokens].view(3, -1)
        return BucketBatch(
            input_ids=ids,
            sequences=BucketSequences.from_offsets(self.cu_seqlens, bucket),
            token_type_ids=types if self._network.spec.embedding.num_segments else None,
            position_ids=positions if self._computation.has_positions else None,
        )
