"""Embeds, scores and classifies the texts of many callers together, in batches they share.

How it works: a request is tokenized (``intake.py``), and either enters the queue with all of its
texts or is refused at once (``admission.py``). Lanes compute the queue, in batches of all callers
(``dispatcher.py``). Results are those of a direct call, byte for byte on a CPU in float32, whatever
other texts share the batch. A request that is cancelled or late leaves the queue.
"""

from __future__ import annotations

import asyncio
import time
from concurrent.futures import ThreadPoolExecutor
from functools import partial
from typing import TYPE_CHECKING, Any, Self, TypeVar

from encoder_engine.errors import DeadlineError, DrainingError, InputError, UnknownNameError
from encoder_engine.json_values import nearest
from encoder_engine.serving.admission import Admission
from encoder_engine.serving.deadlines import Deadlines
from encoder_engine.serving.dispatcher import Dispatcher
from encoder_engine.serving.intake import Intake
from encoder_engine.serving.models import CallOptions, ServedModel
from encoder_engine.serving.options import ServingOptions
from encoder_engine.serving.request import ANSWERED, Request, size_of
from encoder_engine.serving.signals import Signals
from encoder_engine.serving.threads import shared_threads

if TYPE_CHECKING:
    from collections.abc import Callable, Hashable, Mapping, Sequence
    from types import TracebackType

    from encoder_engine.serving.request import Answer
    from encoder_engine.serving.tasks import Task, Text

__all__ = ["Service"]

Result = TypeVar("Result")
# Texts of more bytes are tokenized in a thread of their own, so that others do not wait for them.
INLINE_BYTES = 65_536
# The threads beside the lanes, for large texts: one may be busy with the texts of another caller.
POOL_THREADS = 2
# Texts of the warm-up: a lone one, a small batch, full ones, of which the last are measured. A GPU
# captures a batch when its like comes the second time.
WARM_TEXT = "a text of some words, as they are sent to be embedded, about twenty three tokens long"
WARM_COUNTS = (1, 16, 64, 64)
GPU_WARM_COUNTS = (1, 1, 16, 16, 64, 64, 64)
DEFAULTS = CallOptions()
# Seconds to send the errors of the requests that the shutdown fails.
FAIL_SECONDS = 5.0


class Service:
    """Serves models to the coroutines of one event loop.

    ``models``: an Embedder, StaticEmbedder, SparseEmbedder, MultiVectorEmbedder, HybridEmbedder,
    Ranker or :func:`~encoder_engine.pipeline` by name; the first is the default. Use it as ``async
    with Service(...) as service``, or call :meth:`start` and :meth:`stop`. Raises
    :class:`UnsupportedFeatureError` for a model that cannot be served, and :class:`InputError` for
    no model.

    drained: whether the service stopped with every accepted request answered.
    """

    def __init__(self, models: Mapping[str, Any], options: ServingOptions | None = None) -> None:
        if not models:
            raise InputError("no model given; a service needs at least one")
        self.options = ServingOptions() if options is None else options
        self.models = {name: ServedModel(name, model) for name, model in models.items()}
        self.signals = Signals()
        self.dispatcher = Dispatcher(self.models, self.options, self.signals)
        self.admission = Admission(self.options, self.dispatcher, self.signals)
        self._intake = Intake(self.models, self.admission, self.dispatcher, self.signals)
        self._pool: ThreadPoolExecutor | None = None
        self._threads = shared_threads(self.models.values(), self.options.lanes)
        self._requests: set[Request] = set()
        self._deadlines = Deadlines(self._expire)
        self._ending = self._abandoned = self.drained = False
        self._no_patience = asyncio.Event()
        self._stopping: asyncio.Task[None] | None = None

    async def __aenter__(self) -> Self:
        await self.start()
        return self

    async def __aexit__(
        self,
        _kind: type[BaseException] | None,
        _error: BaseException | None,
        _trace: TracebackType | None,
    ) -> None:
        await self.stop()

    async def start(self) -> None:
        """Start the lanes, and compute some texts by every model; metrics count from then on."""
        self._ending = self._abandoned = self.drained = self.admission.closed = False
        self._stopping = None
        self._no_patience.clear()
        self._deadlines.clear()
        self._threads.share()
        self._pool = ThreadPoolExecutor(POOL_THREADS, thread_name_prefix="tokenizer")
        self.dispatcher.start()
        try:
            for model in self.models.values():
                await self._warm_up(model)
        except BaseException:
            self._close()
            raise
        self.signals.reset()

    async def _warm_up(self, model: ServedModel) -> None:
        """Compute some texts by a model to warm it up, then measure its speed."""
        rate = self.dispatcher.rates[model.name]
        text, options = model.warm_up(WARM_TEXT)
        device = getattr(model.engine, "device", "cpu")
        for count in GPU_WARM_COUNTS if device.startswith("cuda") else WARM_COUNTS:
            texts = [text] * min(count, self.options.max_texts)
            rate.reset()
            try:
                await self._call(model.tasks[0], texts, model.name, options)
            except InputError:
                # More bytes than the limits of this service allow.
                if count == 1:
                    raise
                break

    def announce_end(self) -> None:
        """Report the service as not ready from now on; requests that still arrive are computed."""
        self._ending = True

    async def stop(self) -> None:
        """Refuse new requests, and compute the waiting ones.

        A request that is left after ``drain_timeout`` seconds gets a :class:`DrainingError`, and
        :attr:`drained` stays False.
        """
        if self._stopping is None:
            self._stopping = asyncio.ensure_future(self._stop())
        await asyncio.shield(self._stopping)

    def abandon(self) -> None:
        """Make :meth:`stop` fail the remaining requests now, instead of waiting for them."""
        self._no_patience.set()

    async def _stop(self) -> None:
        self._ending = self.admission.closed = True
        empty, hurry = (
            asyncio.ensure_future(event.wait())
            for event in (self.admission.empty, self._no_patience)
        )
        await asyncio.wait(
            (empty, hurry),
            timeout=self.options.drain_timeout,
            return_when=asyncio.FIRST_COMPLETED,
        )
        hurry.cancel()
        self.drained = self.admission.num_calls == 0
        if not self.drained:
            self.signals.rejected["drain_timeout"] += self.admission.num_calls
            self._abandon()
            await asyncio.wait((empty,), timeout=FAIL_SECONDS)
        empty.cancel()
        self._close()

    def _abandon(self) -> None:
        """Fail the remaining requests; one that is being tokenized fails once that has ended."""
        self._abandoned = True
        for request in list(self._requests):
            self.dispatcher.remove(request)
            if not request.done.done():
                request.done.set_exception(_ended())

    def _close(self) -> None:
        self.dispatcher.close()
        if self._pool is not None:
            self._pool.shutdown(wait=False, cancel_futures=True)
            self._pool = None
        self._threads.restore()

    @property
    def ready(self) -> bool:
        """Whether the service accepts new requests."""
        return not self._ending and self.stall_reason() is None

    @property
    def draining(self) -> bool:
        """Return whether the service is shutting down."""
        return self._ending

    def stall_reason(self) -> str | None:
        """Return why the service makes no progress; None: it makes progress, or is idle."""
        return self.dispatcher.stall_reason()

    def find(self, name: str | None, task: Task | None = None) -> ServedModel:
        """Return the model of this name; None: the first model with the task, else the first.

        Raises :class:`UnknownNameError`.
        """
        if name is None:
            first = next(iter(self.models.values()))
            return next((m for m in self.models.values() if task in m.tasks), first)
        if name not in self.models:
            raise UnknownNameError(
                f"no model {name!r}{nearest(name, self.models)}; there are {', '.join(self.models)}"
            )
        return self.models[name]

    async def embed(
        self,
        texts: Sequence[str],
        model: str | None = None,
        *,
        options: CallOptions | None = None,
        priority: int = 0,
        timeout: float | None = None,
        client: Hashable = None,
    ) -> Answer:
        """Embed texts: ``results`` are those of :meth:`Embedder.encode`, float32 [N, D] or [D].

        options: prompt, normalisation, dimensions.
        priority: 0 (most urgent) to 9; requests with a larger number get less of each batch.
        timeout: seconds; None: the service's.
        client: requests with the same value share one queue; the queues take turns. It must be
            hashable.

        Raises :class:`UnknownNameError` for another model, :class:`UnsupportedFeatureError` for a
        model that does not embed, :class:`InputError` for more than the service's limits allow,
        :class:`OverloadedError` for a full queue, :class:`DeadlineError` after the timeout,
        :class:`DrainingError` while the service is shutting down, and what the model's own method
        raises.
        """
        return await self._call("embed", texts, model, options, priority, timeout, client)

    async def sparse(self, texts: Sequence[str], model: str | None = None, **given: Any) -> Answer:
        """Embed texts to sparse vectors: pairs of ``(indices, values)``; see :meth:`embed`."""
        return await self._call("sparse", texts, model, **given)

    async def tokens(self, texts: Sequence[str], model: str | None = None, **given: Any) -> Answer:
        """Embed every token of texts: float32 [n, D] each; see :meth:`embed`."""
        return await self._call("tokens", texts, model, **given)

    async def rank(
        self, query: str, documents: Sequence[str], model: str | None = None, **given: Any
    ) -> Answer:
        """Score documents for a query: float32 [N], in the order given; see :meth:`embed`."""
        texts = [documents] if isinstance(documents, str) else documents
        answer = await self._call("rank", [(query, text) for text in texts], model, **given)
        return answer._replace(results=answer.results[:, 0])

    async def classify(
        self, texts: Sequence[Text], model: str | None = None, **given: Any
    ) -> Answer:
        """Classify texts or pairs: scores of labels, float32 [N, C]; see :meth:`embed`.

        As in transformers, the ``problem_type`` of config.json decides: sigmoid where a text may
        have several labels or the model has one, softmax for one of several labels, logits for
        regression.
        """
        return await self._call("classify", texts, model, **given)

    async def predict(
        self, inputs: Sequence[Text], model: str | None = None, **given: Any
    ) -> Answer:
        """Call a pipeline; ``results`` are a list of what the pipeline returns; see :meth:`embed`.

        ``options=CallOptions(parameters=...)``: keyword arguments of the pipeline's call, as JSON.
        """
        return await self._call("predict", inputs, model, **given)

    async def run_aside(
        self,
        work: Callable[[], Result],
        *,
        num_bytes: int,
        answer_bytes: int = 0,
        timeout: float | None = None,
    ) -> Result:
        """Call ``work``, such as tokenization, in a thread other than the event loop's.

        num_bytes: the size of the work's input.
        answer_bytes: an upper bound on the size of its result.
        Raises what :meth:`embed` raises for its limits, the queue, the timeout and a shutdown, and
        what ``work`` raises.
        """
        seconds = self.options.timeout if timeout is None else timeout
        admission, held = self.admission, 0
        admission.begin(num_bytes)
        try:
            admission.begin_answer(answer_bytes)
            held = answer_bytes
            return await self._in_pool(work, seconds)
        finally:
            admission.answer_bytes -= held
            admission.end(num_bytes)

    async def _call(
        self,
        task: Task,
        texts: Sequence[Text],
        model: str | None = None,
        options: CallOptions | None = None,
        priority: int = 0,
        timeout: float | None = None,
        client: Hashable = None,
    ) -> Answer:
        if isinstance(texts, str):
            answer = await self._call(task, [texts], model, options, priority, timeout, client)
            return answer._replace(results=answer.results[0])
        served = self.find(model, task)
        served.check_task(task)
        self._check(texts, priority, client)
        options = DEFAULTS if options is None else options
        if options.refuses_long is None:
            options = options._replace(refuses_long=self.options.truncation == "refuse")
        seconds = self.options.timeout if timeout is None else timeout
        num_bytes, admission = sum(map(size_of, texts)), self.admission
        key, expiring = served.key(task, options), set[Request]()
        request = Request(
            flow=client,
            key=key,
            priority=priority,
            texts=texts,
            seconds=seconds,
            arrived_at=time.monotonic(),
            done=asyncio.get_running_loop().create_future(),
        )
        admission.begin(num_bytes)
        try:
            # The queue may be full already: a refusal then costs no tokenizing.
            admission.check_wait(request, served.name, seconds)
            if num_bytes <= INLINE_BYTES:
                self._intake.add(request)
            else:
                prepare = partial(served.prepare, key, texts)
                self._intake.queue([request], await self._in_pool(prepare, seconds))
            self._requests.add(request)
            expiring = self._deadlines.add(request)
            await request.done
            return request.answer()
        except asyncio.CancelledError:
            self.signals.cancelled[request.stage] += 1
            raise
        finally:
            # First: whatever fails below, the service goes on taking requests.
            admission.answer_bytes -= request.num_bytes
            admission.end(num_bytes)
            expiring.discard(request)
            self._requests.discard(request)
            self.dispatcher.remove(request)
            request.done = ANSWERED

    def _check(self, texts: Sequence[Text], priority: int, client: Hashable) -> None:
        if not 0 <= priority <= 9:
            raise InputError(f"priority must be 0 to 9, got {priority!r}")
        if not len(texts):
            raise InputError("the request has no text; send at least one")
        if len(texts) > self.options.max_texts:
            raise InputError(
                f"the request has {len(texts)} texts; the limit is {self.options.max_texts}: "
                "split it"
            )
        try:
            hash(client)
        except TypeError:
            raise InputError(
                f"client must be hashable, such as a str, got {type(client).__name__}"
            ) from None

    async def _in_pool(self, work: Callable[[], Result], seconds: float) -> Result:
        if self._pool is None:
            raise _ended()
        deadline = asyncio.timeout(seconds)
        try:
            async with deadline:
                result = await asyncio.get_running_loop().run_in_executor(self._pool, work)
        except TimeoutError:
            if deadline.expired():
                raise self._late(seconds) from None
            raise
        if self._abandoned:
            raise _ended()
        return result

    def _expire(self, request: Request) -> None:
        if not request.done.done():
            request.done.set_exception(self._late(request.seconds))

    def _late(self, seconds: float) -> DeadlineError:
        self.signals.rejected["deadline"] += 1
        return DeadlineError(
            f"the request was not computed within {seconds:g} seconds; try again later, send fewer "
            "texts, or allow more time"
        )


def _ended() -> DrainingError:
    return DrainingError("the service shut down before the request was computed; send it again")
