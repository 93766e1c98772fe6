"""Every exception and warning the engine raises, as one tree.

::

    EncoderEngineError
    |-- InputError (ValueError)             the caller's data; .row names the offending row
    |   |-- TextError (TypeError)           a text is not a str, or holds a lone surrogate
    |   |-- TokenIdError                    a token id lies outside the vocabulary
    |   |-- BatchError                      a packed or padded batch contradicts itself
    |   |-- ShapeError                      a tensor's shape, dtype or device does not fit
    |   |-- SequenceLengthError             a sequence is longer than the model's position table
    |   `-- ReadError                       an input file or one of its rows cannot be read
    |       `-- RowError                    one row of it: .file, .number and .reason
    |-- ConfigError (ValueError)            a config.json or sentence-transformers file
    |   |-- UnknownModelTypeError           no family of that name
    |   `-- UnsupportedFeatureError         it asks for something the engine does not compute
    |-- CheckpointError (ValueError)        weights that do not fit their config
    |   |-- CheckpointFileError             missing, truncated, or not the format it claims
    |   |-- ChecksumError                   the bytes differ from the recorded SHA-256
    |   |-- TensorNamesError                .missing and .unexpected list the keys
    |   |-- TensorShapeError                .mismatched lists key, found, expected
    |   `-- NonFiniteWeightsError           NaN or infinity among the weights
    |-- NonFiniteVectorError (ArithmeticError)  NaN or infinity came out; .rows lists the texts
    |-- NonFiniteLossError (ArithmeticError)  training diverged: its loss is NaN or infinity
    |-- TokenizerFileError (ValueError)     a vocabulary or tokenizer.json that cannot be used
    |-- CorpusError (ValueError)            tokenized training text that is damaged or does not fit
    |-- ImplementationError (RuntimeError)  the named implementation of an operation refused
    |   `-- UnknownNameError (LookupError)  an operation, implementation or option nobody registered
    |-- OutputError (OSError)               an output that exists, or could not be completed
    |   |-- ResumeError                     it was begun otherwise; .changes lists what changed
    |   `-- LockedError                     another run is writing it
    |-- WorkerError (RuntimeError)          a worker process ended before its work was done
    |-- DeviceMemoryError (MemoryError)     one text alone does not fit; .row names it
    |-- MissingDependencyError (ImportError)  an optional library is needed; says how to get it
    `-- MissingExtensionError (ImportError)   the C++ extension is not built for this Python

    EncoderEngineWarning (UserWarning)
    |-- TruncationWarning                   .num_truncated texts lost tokens
    |-- UnusedWeightsWarning                .names: head tensors an Encoder has no use for
    |-- DefaultPoolingWarning               nothing says how to pool, so the mean is taken
    |-- MissingPoolerWarning                the checkpoint has no pooler; pooler_output is None
    |-- UnknownConfigKeyWarning             .names: config keys nobody reads
    |-- CorruptCheckpointWarning            a checkpoint is not whole; an older one is taken
    |-- DivergedWarning                     a trained model is far worse than guessing
    |-- SmallCorpusWarning                  a run reads the same few texts again and again
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
    "DefaultPoolingWarning",
    "DeviceMemoryError",
    "DivergedWarning",
    "EncoderEngineError",
    "EncoderEngineWarning",
    "ImplementationError",
    "InputError",
    "LockedError",
    "MissingDependencyError",
    "MissingExtensionError",
    "MissingPoolerWarning",
    "NonFiniteLossError",
    "NonFiniteVectorError",
    "NonFiniteWeightsError",
    "OutputError",
    "ReadError",
    "ResumeError",
    "RowError",
    "SequenceLengthError",
    "ShapeError",
    "SmallCorpusWarning",
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
    """The caller's data cannot be used; ``row`` is its index in the input, where one is known."""

    def __init__(self, message: str, *, row: int | None = None) -> None:
        super().__init__(message)
        self.row = row


class TextError(InputError, TypeError):
    """A text is not a ``str``, or is one that no UTF-8 encodes."""


class TokenIdError(InputError):
    """A token id lies outside the vocabulary."""


class BatchError(InputError):
    """A packed or padded batch contradicts itself."""


class ShapeError(InputError):
    """A tensor's shape, dtype or device does not fit the operation."""


class SequenceLengthError(InputError):
    """A sequence is longer than the model can place."""


class ReadError(InputError):
    """An input file, or one of its rows, cannot be read."""


class RowError(ReadError):
    """One row of an input file cannot be used: ``number`` is its line, or its row, from 1."""

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
    """The configuration asks for something the engine does not compute."""


class CheckpointError(EncoderEngineError, ValueError):
    """Weights that cannot be used."""


class CheckpointFileError(CheckpointError):
    """A weight file is missing, truncated, or not the format it claims to be."""


class ChecksumError(CheckpointError):
    """A file's bytes differ from the SHA-256 recorded for it."""


class TensorNamesError(CheckpointError):
    """The checkpoint lacks tensors, or has tensors the model has no place for."""

    def __init__(
        self, message: str, *, missing: Sequence[str] = (), unexpected: Sequence[str] = ()
    ) -> None:
        super().__init__(message)
        self.missing = tuple(missing)
        self.unexpected = tuple(unexpected)


class TensorShapeError(CheckpointError):
    """Tensors whose shapes differ from what the configuration says."""

    def __init__(
        self,
        message: str,
        *,
        mismatched: Sequence[tuple[str, tuple[int, ...], tuple[int, ...]]] = (),
    ) -> None:
        super().__init__(message)
        self.mismatched = tuple(mismatched)


class NonFiniteWeightsError(CheckpointError):
    """NaN or infinity among the weights."""


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
    """Tokenized training text is missing, damaged, or does not fit what is asked of it."""


class ImplementationError(EncoderEngineError, RuntimeError):
    """The implementation that was asked for refused, or none accepted."""


class UnknownNameError(ImplementationError, LookupError):
    """An operation, implementation or fact that nobody registered."""


class OutputError(EncoderEngineError, OSError):
    """An output exists already, or could not be completed."""


class ResumeError(OutputError):
    """An output was begun with another model, other options or other inputs than it is given."""

    def __init__(self, message: str, *, changes: Sequence[str] = ()) -> None:
        super().__init__(message)
        self.changes = tuple(changes)


class LockedError(OutputError):
    """Another run is writing the same output."""


class WorkerError(EncoderEngineError, RuntimeError):
    """A worker process ended before its work was done."""


class DeviceMemoryError(EncoderEngineError, MemoryError):
    """One text, alone in its batch, takes more memory than its device has; ``row`` names it."""

    def __init__(self, message: str, *, row: int) -> None:
        super().__init__(message)
        self.row = row

    def __reduce__(self) -> tuple[Any, ...]:
        return functools.partial(type(self), row=self.row), self.args


class MissingDependencyError(EncoderEngineError, ImportError):
    """An optional library is needed; the message says which commands bring it.

    ``extra``: the one of this package that names the library and its version, if there is one.
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
    """Say how to install a library: by itself, or with an extra from a checkout of this package."""
    command = f"pip install '{library}'"
    return command if extra is None else f"{command}, or in the checkout: pip install '.[{extra}]'"


class MissingExtensionError(EncoderEngineError, ImportError):
    """The C++ extension is not built for this Python; the message says how to build it."""


class EncoderEngineWarning(UserWarning):
    """Base of every warning the engine emits."""


class TruncationWarning(EncoderEngineWarning):
    """Texts were longer than the limit and lost their tails."""

    def __init__(self, message: str, *, num_truncated: int = 0) -> None:
        super().__init__(message)
        self.num_truncated = num_truncated


class _NamesWarning(EncoderEngineWarning):
    def __init__(self, message: str, *, names: Sequence[str] = ()) -> None:
        super().__init__(message)
        self.names = tuple(names)


class UnusedWeightsWarning(_NamesWarning):
    """Head tensors that an encoder has no use for were left in the file."""


class DefaultPoolingWarning(EncoderEngineWarning):
    """Nothing says how token vectors become one vector, so their mean is taken."""


class MissingPoolerWarning(EncoderEngineWarning):
    """The checkpoint has no pooler weights, so ``pooler_output`` is ``None``."""


class UnknownConfigKeyWarning(_NamesWarning):
    """Configuration keys that nobody reads."""


class CorruptCheckpointWarning(EncoderEngineWarning):
    """A training run's checkpoint is not whole, so an older one is taken."""


class SmallCorpusWarning(EncoderEngineWarning):
    """A training run reads the same few texts so often that a model learns them by heart."""


class DivergedWarning(EncoderEngineWarning):
    """A trained model predicts held-out text far worse than guessing would."""


class SuspiciousWeightsWarning(_NamesWarning):
    """Finite but implausibly large weights, as a flipped bit leaves behind."""
