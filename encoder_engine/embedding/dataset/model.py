"""The protocol of a model whose results a job over files writes."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, Protocol

if TYPE_CHECKING:
    from collections.abc import Callable

    from encoder_engine.text import Tokenizer

__all__ = ["EngineFacts", "JobModel", "WindowResult"]


class EngineFacts(Protocol):
    """The facts of an engine that a plan records; see :class:`Engine`."""

    @property
    def name(self) -> str: ...  # noqa: D102
    @property
    def dtype(self) -> str: ...  # noqa: D102
    @property
    def device(self) -> str: ...  # noqa: D102
    @property
    def quantization(self) -> str | None: ...  # noqa: D102
    @property
    def num_threads(self) -> int: ...  # noqa: D102
    def fingerprint(self) -> str: ...  # noqa: D102
    def versions(self) -> dict[str, str]: ...  # noqa: D102


class WindowResult(Protocol):
    """The results of a window of rows; see :class:`EmbeddedWindow`.

    vectors: [n, D], or the sparse or token vectors of n rows.
    """

    @property
    def vectors(self) -> Any: ...  # noqa: D102
    @property
    def num_tokens(self) -> int: ...  # noqa: D102
    @property
    def num_padded_tokens(self) -> int: ...  # noqa: D102
    @property
    def num_truncated(self) -> int: ...  # noqa: D102
    @property
    def tokenize_seconds(self) -> float: ...  # noqa: D102
    @property
    def encode_seconds(self) -> float: ...  # noqa: D102


class JobModel(Protocol):
    """A model that embeds or scores windows of rows.

    ``call`` and ``options`` are the model's own types: options as given, and as resolved.
    """

    @property
    def engine(self) -> EngineFacts: ...  # noqa: D102
    @property
    def tokenizer(self) -> Tokenizer: ...  # noqa: D102
    @property
    def max_seq_length(self) -> int | None: ...  # noqa: D102
    @property
    def name(self) -> str:
        """The path that the model was loaded from."""

    def resolve(self, call: Any) -> Any:
        """Check the options of a call and fill in the model's settings."""

    def stored_dimension(self, options: Any) -> int:
        """Return the length of a stored vector: of a row, or of each token of a row."""

    def describe_model(self) -> dict[str, Any]:
        """Return what a plan records of the model beside its engine, as values of JSON."""

    def describe_options(self, options: Any) -> dict[str, Any]:
        """Return what a plan records of the options, as values of JSON."""

    def tokenize_window(self, texts: list[Any], first_row: int, options: Any) -> Any:
        """Tokenize a window, whose first row is ``first_row`` of the stream; needs no device."""

    def encode_window(self, tokenized: Any, options: Any) -> WindowResult:
        """Compute the results of a tokenized window."""

    def reload(self) -> Callable[[str, int], JobModel] | None:
        """Return a function, to be pickled, that loads the same model in another process.

        Its arguments are a device and a number of threads. None: the model was made in memory.
        """
