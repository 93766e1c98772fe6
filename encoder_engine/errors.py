"""Every exception and warning the engine raises, as one tree.

::

    EncoderEngineError
    |-- InputError (ValueError)             the caller's data; .row names the offending row
    |   |-- TextError (TypeError)           a text is not a str, or has a lone surrogate
    |   |-- TokenIdError                    a token id lies outside the vocabulary
    |   |-- BatchError                      a packed or padded batch contradicts itself
    |   |-- ShapeError                      a tensor's shape, dtype or device is wrong
    |   |-- RequestSizeError                a request alone is more than a service computes at once
    |   |-- SequenceLengthError             a sequence is longer than the model's position table
    |   `-- ReadError                       an input file or one of its rows cannot be read
    |       `-- RowError                    one row of it: .file, .number and .reason
    |-- ConfigError (ValueError)            a config.json or sentence-transformers file
    |   |-- UnknownModelTypeError           no family of that name
    |   `-- UnsupportedFeatureError         it needs something the engine does not compute
    |       `-- MissingLogitsError          logits that training on an accelerated model skips
    |-- CheckpointError (ValueError)        weights that do not match their config
    |   |-- CheckpointFileError             missing, truncated, or not the format it claims
    |   |-- ChecksumError                   the bytes differ from the recorded SHA-256
    |   |-- TensorNamesError                .missing and .unexpected list the keys
    |   |-- TensorShapeError                .mismatched lists key, found, expected
    |   `-- NonFiniteWeightsError           NaN or infinity among the weights
    |-- NonFiniteVectorError (ArithmeticError)  NaN or infinity came out; .rows lists the texts
    |-- NonFiniteLossError (ArithmeticError)  training diverged: its loss is NaN or infinity
    |-- TokenizerFileError (ValueError)     a vocabulary or tokenizer.json that cannot be used
    |-- CorpusError (ValueError)            tokenized training text that is damaged or unsuitable
    |-- ImplementationError (RuntimeError)  the requested implementation of an operation refused
    |   `-- UnknownNameError (LookupError)  an unknown operation, implementation or option
    |-- OutputError (OSError)               an output that exists, or could not be completed
    |   |-- ResumeError                     it was started with other settings; .changes has them
    |   `-- LockedError                     another run is writing it
    |-- WorkerError (RuntimeError)          a worker process ended before its work was done
    |-- ServiceError (RuntimeError)         a service did not compute a request
    |   |-- OverloadedError                 too much waits; .retry_after has seconds
    |   |-- DeadlineError (TimeoutError)    its time was over
    |   `-- DrainingError                   the service is shutting down
    |-- DeviceMemoryError (MemoryError)     one text alone exceeds the memory; .row names it
    |-- MissingDependencyError (ImportError)  an optional library is needed; says how to get it
    `-- MissingExtensionError (ImportError)   the C++ extension is not built for this Python

    EncoderEngineWarning (UserWarning)
    |-- TruncationWarning                   .num_truncated texts lost tokens
    |-- UnusedWeightsWarning                .names: head tensors an Encoder has no use for
    |-- MissingRowsWarning                  .names: tokens that the model's table lacks
    |-- DefaultPoolingWarning               the model names no pooling, so the mean is used
    |-- MissingPoolerWarning                the checkpoint has no pooler; pooler_output is None
    |-- UnknownConfigKeyWarning             .names: unknown keys of a config
    |-- MendedRowsWarning                   .num_mended places of a file, read as they are meant
    |-- CorruptCheckpointWarning            a checkpoint is damaged; an older one is used
    |-- DivergedWarning                     a trained model is far worse than guessing
    |-- SmallCorpusWarning                  a run repeats a small corpus too often
    |-- SuspiciousDataWarning               labelled rows that make scores doubtful
    `-- SuspiciousWeightsWarning            finite but implausible weights, as after a bit flip
"""

from __future__ import annotations

import functools
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from collections.abc import Sequence
    from typing import Any

__all__ = [
    "BatchError",
    "CheckpointError",
    "CheckpointFileError",
    "ChecksumError",
    "ConfigError",
    "CorpusError",
    "CorruptCheckpointWarning",
    "DeadlineError",
    "DefaultPoolingWarning",
    "DeviceMemoryError",
    "DivergedWarning",
    "DrainingError",
    "EncoderEngineError",
    "EncoderEngineWarning",
    "ImplementationError",
    "InputError",
    "LockedError",
    "MendedRowsWarning",
    "MissingDependencyError",
    "MissingExtensionError",
    "MissingLogitsError",
    "MissingPoolerWarning",
    "MissingRowsWarning",
    "NonFiniteLossError",
    "NonFiniteVectorError",
    "NonFiniteWeightsError",
    "OutputError",
    "OverloadedError",
    "ReadError",
    "RequestSizeError",
    "ResumeError",
    "RowError",
    "SequenceLengthError",
    "ServiceError",
    "ShapeError",
    "SmallCorpusWarning",
    "SuspiciousDataWarning",
    "SuspiciousWeightsWarning",
    "TensorNamesError",
    "TensorShapeError",
    "TextError",
    "TokenIdError",
    "TokenizerFileError",
    "TruncationWarning",
    "UnknownConfigKeyWarning",
    "UnknownModelTypeError",
    "UnknownNameError",
    "UnsupportedFeatureError",
    "UnusedWeightsWarning",
    "WorkerError",
]


class EncoderEngineError(Exception):
    """Base of every error the engine raises on purpose; it can be pickled."""


class InputError(EncoderEngineError, ValueError):
    """The caller's data cannot be used; ``row`` is its index in the input, if known."""

    def __init__(self, message: str, *, row: int | None = None) -> None:
        super().__init__(message)
        self.row = row


class TextError(InputError, TypeError):
    """A text is not a ``str``, or has a lone surrogate, which UTF-8 cannot encode."""


class TokenIdError(InputError):
    """A token id lies outside the vocabulary."""


class BatchError(InputError):
    """A packed or padded batch contradicts itself."""


class RequestSizeError(InputError):
    """A single request is larger than a service computes; the message says what would fit."""


class ShapeError(InputError):
    """A tensor's shape, dtype or device is wrong for the operation."""


class SequenceLengthError(InputError):
    """A sequence is longer than the model's maximum length."""


class ReadError(InputError):
    """An input file, or one of its rows, cannot be read."""


class RowError(ReadError):
    """One row of an input file cannot be used; ``number``: its line, or its row, counted from 1."""

    def __init__(
        self,
        message: str,
        *,
        row: int | None = None,
        file: str = "",
        number: int = 0,
        reason: str = "",
    ) -> None:
        super().__init__(message, row=row)
        self.file = file
        self.number = number
        self.reason = reason


class ConfigError(EncoderEngineError, ValueError):
    """A configuration file is missing, malformed, or contradicts itself."""


class UnknownModelTypeError(ConfigError):
    """No family is registered under the configuration's ``model_type``."""


class UnsupportedFeatureError(ConfigError):
    """The configuration needs something the engine does not compute."""


class MissingLogitsError(UnsupportedFeatureError, AttributeError):
    """Logits were read that an accelerated model does not compute in training."""


class CheckpointError(EncoderEngineError, ValueError):
    """The weights of a checkpoint cannot be used."""


class CheckpointFileError(CheckpointError):
    """A weight file is missing, truncated, or not the format it claims to be."""


class ChecksumError(CheckpointError):
    """A file's bytes differ from the SHA-256 recorded for it."""


class TensorNamesError(CheckpointError):
    """The checkpoint lacks tensors, or has tensors that the model does not have."""

    def __init__(
        self, message: str, *, missing: Sequence[str] = (), unexpected: Sequence[str] = ()
    ) -> None:
        super().__init__(message)
        self.missing = tuple(missing)
        self.unexpected = tuple(unexpected)


class TensorShapeError(CheckpointError):
    """A checkpoint has tensors whose shapes differ from the configuration's."""

    def __init__(
        self,
        message: str,
        *,
        mismatched: Sequence[tuple[str, tuple[int, ...], tuple[int, ...]]] = (),
    ) -> None:
        super().__init__(message)
        self.mismatched = tuple(mismatched)


class NonFiniteWeightsError(CheckpointError):
    """There is NaN or infinity among a checkpoint's weights."""


class NonFiniteVectorError(EncoderEngineError, ArithmeticError):
    """NaN or infinity among the vectors computed for texts; ``rows`` are their indices."""

    def __init__(self, message: str, *, rows: Sequence[int] = ()) -> None:
        super().__init__(message)
        self.rows = tuple(rows)


class NonFiniteLossError(EncoderEngineError, ArithmeticError):
    """Training diverged: its loss is NaN or infinity."""


class TokenizerFileError(EncoderEngineError, ValueError):
    """A tokenizer file is missing, malformed, or asks for an unsupported feature."""


class CorpusError(EncoderEngineError, ValueError):
    """Tokenized training text is missing, damaged, or unsuitable for its use."""


class ImplementationError(EncoderEngineError, RuntimeError):
    """The requested implementation of an operation cannot take a call, or none can."""


class UnknownNameError(ImplementationError, LookupError):
    """A name is unknown: of an operation, an implementation, a pooling mode or another option."""


class OutputError(EncoderEngineError, OSError):
    """An output exists already, or could not be completed."""


class ResumeError(OutputError):
    """An output was started with another model, other options or other inputs than now given."""

    def __init__(self, message: str, *, changes: Sequence[str] = ()) -> None:
        super().__init__(message)
        self.changes = tuple(changes)


class LockedError(OutputError):
    """Another process is writing the same output."""


class WorkerError(EncoderEngineError, RuntimeError):
    """A worker process ended before its work was done."""


class ServiceError(EncoderEngineError, RuntimeError):
    """A service did not compute a request; the request may be right."""


class OverloadedError(ServiceError):
    """Too many requests are waiting; ``retry_after``: seconds after which to try again."""

    def __init__(self, message: str, *, retry_after: float = 1.0) -> None:
        super().__init__(message)
        self.retry_after = retry_after


class DeadlineError(ServiceError, TimeoutError):
    """A request's time limit passed before it was computed."""


class DrainingError(ServiceError):
    """The service is shutting down and takes no further requests."""


class DeviceMemoryError(EncoderEngineError, MemoryError):
    """One text, alone in its batch, needs more memory than the device has; ``row`` names it."""

    def __init__(self, message: str, *, row: int) -> None:
        super().__init__(message)
        self.row = row

    def __reduce__(self) -> tuple[Any, ...]:
        return functools.partial(type(self), row=self.row), self.args


class MissingDependencyError(EncoderEngineError, ImportError):
    """An optional library is missing; the message has the commands that install it.

    ``extra``: the extra of this package that pins the library, if there is one.
    """

    def __init__(self, purpose: str, *, library: str, extra: str | None = None) -> None:
        super().__init__(
            f"{purpose} needs {library}, which is not installed; install it with: "
            f"{install_command(library, extra)}"
        )
        self.purpose = purpose
        self.library = library
        self.extra = extra

    def __reduce__(self) -> tuple[Any, ...]:
        return functools.partial(type(self), library=self.library, extra=self.extra), (
            self.purpose,
        )


def install_command(library: str, extra: str | None = None) -> str:
    """Return the command that installs a library, and with ``extra`` also that for a checkout."""
    command = f"pip install '{library}'"
    return command if extra is None else f"{command}, or in the checkout: pip install '.[{extra}]'"


class MissingExtensionError(EncoderEngineError, ImportError):
    """The C++ extension is not built for this Python; the message has the build command."""


class EncoderEngineWarning(UserWarning):
    """Base of every warning the engine emits."""


class TruncationWarning(EncoderEngineWarning):
    """Texts were longer than the maximum length and were truncated."""

    def __init__(self, message: str, *, num_truncated: int = 0) -> None:
        super().__init__(message)
        self.num_truncated = num_truncated


class _NamesWarning(EncoderEngineWarning):
    def __init__(self, message: str, *, names: Sequence[str] = ()) -> None:
        super().__init__(message)
        self.names = tuple(names)


class UnusedWeightsWarning(_NamesWarning):
    """A checkpoint's tensors of heads, which an encoder does not use, were not loaded."""


class MissingRowsWarning(_NamesWarning):
    """The tokenizer has more tokens than the embedding table; texts that need them are refused."""


class DefaultPoolingWarning(EncoderEngineWarning):
    """The model names no pooling, so the mean of the token vectors is used."""


class MissingPoolerWarning(EncoderEngineWarning):
    """The checkpoint has no pooler weights, so ``pooler_output`` is ``None``."""


class UnknownConfigKeyWarning(_NamesWarning):
    """A config.json has unknown keys, which are ignored."""


class MendedRowsWarning(EncoderEngineWarning):
    """A file breaks its format, but the meaning is clear; ``num_mended`` places were repaired."""

    def __init__(self, message: str, *, num_mended: int = 0) -> None:
        super().__init__(message)
        self.num_mended = num_mended


class CorruptCheckpointWarning(EncoderEngineWarning):
    """A training run's checkpoint is damaged, so an older one is used."""


class SmallCorpusWarning(EncoderEngineWarning):
    """A training run repeats a small corpus so often that the model memorises it."""


class SuspiciousDataWarning(EncoderEngineWarning):
    """Scores are doubtful: the training set holds dev rows, for example, or labels contradict."""


class DivergedWarning(EncoderEngineWarning):
    """A trained model predicts held-out text far worse than guessing would."""


class SuspiciousWeightsWarning(_NamesWarning):
    """A checkpoint has finite but implausibly large weights, as after a bit flip."""
