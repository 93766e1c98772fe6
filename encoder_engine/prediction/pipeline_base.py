"""The base of pipelines: options for all calls or for one; single inputs, lists and iterators."""

from __future__ import annotations

from abc import abstractmethod
from collections.abc import Iterable, Iterator, Mapping, Set
from itertools import islice
from typing import TYPE_CHECKING, Any, ClassVar

from encoder_engine.engine.limits import MemoryLimit
from encoder_engine.errors import InputError
from encoder_engine.json_values import nearest
from encoder_engine.kinds.model import Model
from encoder_engine.prediction.calls import Calls
from encoder_engine.strings import from_arrow

if TYPE_CHECKING:
    from collections.abc import Sequence

    from encoder_engine.kinds.kind import Kind

    Options = dict[str, Any]

__all__ = ["HINTS", "Pipeline", "check_keywords"]

# Keywords about speed: the engine forms its own batches, and needs no processes to tokenize.
HINTS = ("batch_size", "num_workers")
# Rows of an iterator that are drawn and computed together.
_STREAMED_ROWS = 256


class Pipeline(Model):
    """A model that is called as transformers' pipelines are.

    The options that it was made with hold for all calls; a call's own options override them.
    ``model``: the :class:`Classifier`, :class:`Tagger`, ... that computes.
    """

    # The class of the model, the keywords of a call, and the types of a single input.
    loads: ClassVar[type[Any]]
    keywords: ClassVar[tuple[str, ...]]
    single: ClassVar[tuple[type, ...]] = (str,)

    def __init__(self, task: str, model: Any, options: Options) -> None:
        self.task, self.model = task, model
        self.engine, self.tokenizer = model.engine, model.tokenizer
        self.max_seq_length = None
        self.memory_limit = MemoryLimit()
        self.options = self.checked(options)

    def __repr__(self) -> str:
        return f"Pipeline({self.task!r}, {self.model!r})"

    def __call__(self, *inputs: Any, **options: Any) -> Any:
        """Return the result for an input; a list for a list, an iterator for an iterator.

        Raises ``TypeError`` for an unknown keyword, and :class:`InputError` with the row of an
        input that cannot be used.
        """
        if len(inputs) != 1:
            raise TypeError(f"{self!r} takes a text or a list of texts, got {len(inputs)} inputs")
        return self.results(inputs[0], options)

    def results(self, inputs: Any, options: Options) -> Any:
        """Return the result for one input, or a list or an iterator of results for several."""
        merged = self.options | self.checked(options)
        if isinstance(inputs, Iterator):
            return self._stream(inputs, merged)
        if isinstance(inputs, self.single):
            return self.unwrapped(inputs, self.run([inputs], merged)[0], options)
        rows = from_arrow(inputs)
        unordered = isinstance(rows, (Mapping, Set, bytes)) or not isinstance(rows, Iterable)
        # Iterating a data frame yields the names of its columns.
        if unordered or getattr(rows, "ndim", 1) != 1:
            raise InputError(
                f"{self!r} takes a {self.single[0].__name__}, or a list of them, got "
                f"{type(inputs).__name__} {inputs!r:.60}"
            )
        return self.run(list(rows), merged)

    def _stream(self, inputs: Iterator[Any], options: Options) -> Iterator[Any]:
        while rows := list(islice(inputs, _STREAMED_ROWS)):
            yield from self.run(rows, options)

    def checked(self, options: Options) -> Options:
        """Return the keywords of a call, without those that only affect speed.

        Raises ``TypeError`` for unknown ones.
        """
        check_keywords(f"pipeline({self.task!r})", options, (*self.keywords, *HINTS))
        return {name: value for name, value in options.items() if name not in HINTS}

    @property
    def prompts(self) -> dict[str, str]:
        """Return no prompts: texts are read without a prompt."""
        return {}

    def kinds(self) -> dict[str, Kind]:
        """Return the kind of results by which a server computes calls; see :meth:`Model.kinds`."""
        return {"calls": Calls(self)}

    def sample(self, text: str) -> tuple[Any, Options]:
        """Return an example input that contains a text, and the keywords that its call needs."""
        return text, {}

    def rows_of_an_input(self, options: Options) -> int:
        """Return how many sequences the model computes for one input of a call."""
        del options
        return 1

    @abstractmethod
    def run(self, inputs: Sequence[Any], options: Options) -> list[Any]:
        """Return the result for each input of a list; ``options``: those of the call."""

    def unwrapped(self, inputs: Any, result: Any, given: Options) -> Any:
        """Return a single input's result in transformers' shape; ``given``: the call's options."""
        del inputs, given
        return result


def check_keywords(name: str, options: Iterable[str], known: Sequence[str]) -> None:
    """Raise ``TypeError`` for an unknown keyword, with the nearest known one."""
    for option in options:
        if option not in known:
            raise TypeError(
                f"{name} got an unexpected keyword argument {option!r}{nearest(option, known)}; "
                f"it takes {', '.join(known)}"
            )
