"""Computes the results of a run's windows in one process or several, with equal bytes."""

from __future__ import annotations

import os
import signal
import threading
from collections import deque
from contextlib import closing
from typing import TYPE_CHECKING, Any, Protocol

from encoder_engine.dataclass import dataclass
from encoder_engine.engine.choosing import torch_engine
from encoder_engine.errors import ConfigError, InputError, WorkerError
from encoder_engine.jobs.pipeline import ahead
from encoder_engine.kinds.plan import describe_results
from encoder_engine.records import describe_changes

if TYPE_CHECKING:
    from collections.abc import Callable, Generator, Iterator
    from concurrent.futures import Future
    from multiprocessing.queues import SimpleQueue

    from encoder_engine.jobs.windows import TextWindow
    from encoder_engine.kinds.kind import Kind
    from encoder_engine.kinds.windows import EmbeddedWindow

# Windows that wait for each worker: the next is there when one is done.
_WINDOWS_AHEAD = 2


class WindowEmbedder(Protocol):
    """Computes the results of windows of rows, in order."""

    def embed(
        self, windows: Iterator[TextWindow], done: Callable[[int], bool]
    ) -> Generator[tuple[TextWindow, EmbeddedWindow | None]]:
        """Yield each window with its results, or None if ``done`` says its shard is finished."""


class LocalEmbedder:
    """Embeds in this process, one window (consecutive rows of the inputs) at a time.

    ``overlapped``: a thread tokenizes the next window at the same time. This is faster if a GPU
    computes; on a CPU the encoder already uses all cores, and the thread would take time from it.
    """

    def __init__(self, kind: Kind, call: dict[str, Any], *, overlapped: bool) -> None:
        self._kind, self._options = kind, kind.resolve(**call)
        self._overlapped = overlapped

    def embed(
        self, windows: Iterator[TextWindow], done: Callable[[int], bool]
    ) -> Generator[tuple[TextWindow, EmbeddedWindow | None]]:
        """Yield each window with its results, or None if ``done`` says its shard is finished."""
        tokenized = self._tokenize(windows, done)
        with closing(ahead(tokenized) if self._overlapped else tokenized) as halves:
            for window, half in halves:
                embedded = None
                if half is not None:
                    embedded = compute_window(self._kind, half, self._options)
                yield window, embedded

    def _tokenize(
        self, windows: Iterator[TextWindow], done: Callable[[int], bool]
    ) -> Generator[tuple[TextWindow, Any]]:
        for window in windows:
            half = None
            if not done(window.shard):
                rows = window.texts
                half = self._kind.tokenize_window(rows, window.first_row, self._options)
            yield window, half


def compute_window(kind: Kind, tokenized: Any, options: Any) -> EmbeddedWindow:
    """Compute the results of a tokenized window (consecutive rows of the inputs)."""
    return kind.compute_window(tokenized, options)


class WorkerPool:
    """Computes windows in several processes, each with a copy of the model and perhaps a GPU."""

    def __init__(self, kind: Kind, call: dict[str, Any], num_workers: int) -> None:
        model = kind.model
        self._devices = worker_devices(model.engine.device.partition(":")[0], num_workers)
        reload = kind.reload()
        if reload is None:
            raise InputError(
                f"several workers need a model that {type(model).__name__}.from_pretrained loaded: "
                "each loads the same files"
            )
        self._task = _Task(
            name=model.name,
            reload=reload,
            embedding=describe_results(kind, kind.resolve(**call)),
            call=call,
            num_threads=max(1, model.engine.num_threads // num_workers),
        )

    def embed(
        self, windows: Iterator[TextWindow], done: Callable[[int], bool]
    ) -> Generator[tuple[TextWindow, EmbeddedWindow | None]]:
        """Yield each window with its results, or None if ``done`` says its shard is finished.

        Two windows per worker are computed in advance. An exception of ``windows`` is raised after
        the windows before it. Raises :class:`WorkerError` if a worker process ends, and
        :class:`ConfigError` if the files hold another model than the one in memory.
        """
        import multiprocessing
        from concurrent.futures import ProcessPoolExecutor
        from concurrent.futures.process import BrokenProcessPool

        # A forked child of a process with threads may deadlock; a spawned one starts afresh.
        context = multiprocessing.get_context("spawn")
        devices = context.SimpleQueue()
        for device in self._devices:
            devices.put(device)
        pool = ProcessPoolExecutor(
            len(self._devices),
            mp_context=context,
            initializer=_start_worker,
            initargs=(devices,),
        )
        waiting: deque[tuple[TextWindow, Future[EmbeddedWindow] | None]] = deque()
        failure: Exception | None = None
        try:
            while True:
                try:
                    window = next(windows)
                except StopIteration:
                    break
                except Exception as error:
                    failure = error
                    break
                future = None
                if not done(window.shard):
                    work = self._task, window.texts, window.first_row
                    future = pool.submit(_embed_in_worker, *work)
                waiting.append((window, future))
                while waiting and (
                    waiting[0][1] is None or len(waiting) > _WINDOWS_AHEAD * len(self._devices)
                ):
                    window, future = waiting.popleft()
                    yield window, None if future is None else future.result()
            while waiting:
                window, future = waiting.popleft()
                yield window, None if future is None else future.result()
            if failure is not None:
                raise failure
        except BrokenProcessPool as error:
            raise WorkerError(
                "a worker process was ended from outside, or had too little memory; finished "
                "shards are safe: run the same command again, with fewer workers if memory is "
                "short"
            ) from error
        finally:
            pool.shutdown(wait=True, cancel_futures=True)


def worker_devices(kind: str, num_workers: int) -> list[str]:
    """Return the device of each worker: "cpu" for all, or a GPU each; ``kind``: "cpu" or "cuda".

    Raises :class:`InputError` where there are fewer GPUs than workers.
    """
    if kind != "cuda":
        return [kind] * num_workers
    num_devices = torch_engine("a GPU").count_gpus()
    if num_workers > num_devices:
        raise InputError(
            f"{num_workers} workers need a CUDA device each, and there are {num_devices}; "
            f"ask for {num_devices} workers at most"
        )
    return [f"cuda:{index}" for index in range(num_workers)]


@dataclass(frozen=True, kw_only=True)
class _Task:
    """What a worker process needs to know once for all windows of a run.

    embedding: the description of model and options; that of the worker's own model must be equal.
    """

    name: str
    reload: Callable[[str, int], Kind]
    embedding: dict[str, Any]
    call: dict[str, Any]
    num_threads: int


_device = "cpu"
_loaded: tuple[Kind, Any] | None = None


def _start_worker(devices: SimpleQueue[str]) -> None:
    """Set up a worker: it ignores the interrupt key, and ends when its parent process ends."""
    from multiprocessing import connection, parent_process

    global _device  # one run, one worker
    signal.signal(signal.SIGINT, signal.SIG_IGN)
    parent = parent_process()
    assert parent is not None
    sentinel = parent.sentinel

    def follow() -> None:
        connection.wait([sentinel])
        os._exit(1)

    threading.Thread(target=follow, daemon=True).start()
    _device = devices.get()
    make_current(_device)


def make_current(device: str) -> None:
    """Make a worker's GPU PyTorch's current device, which it uses where none is named."""
    if device.startswith("cuda"):
        torch_engine("a GPU").make_current(device)


def _embed_in_worker(task: _Task, texts: list[Any], first_row: int) -> EmbeddedWindow:
    import warnings

    global _loaded
    if _loaded is None:
        with warnings.catch_warnings():
            # The parent has issued the same warnings.
            warnings.simplefilter("ignore")
            kind = task.reload(_device, task.num_threads)
        options = kind.resolve(**task.call)
        changes = describe_changes(task.embedding, describe_results(kind, options))
        if changes:
            raise ConfigError(
                f"{task.name} holds another model than the one in memory "
                f"({'; '.join(changes):.300}); save it, load it from there with these settings, or "
                "use one process"
            )
        _loaded = kind, options
    kind, options = _loaded
    return kind.compute_window(kind.tokenize_window(texts, first_row, options), options)
