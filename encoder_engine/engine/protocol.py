"""The protocol of an engine, which computes outputs of texts' token ids.

All values are NumPy arrays, so that nothing around an engine imports PyTorch. ``module.py`` runs
the PyTorch modules of ``models`` on any device, ``compiled.py`` the compiled encoder of
``inference`` on a CPU; ``choosing.py`` chooses between them.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, Literal, Protocol

import numpy as np

if TYPE_CHECKING:
    from pathlib import Path

    from encoder_engine.engine.outputs import Output
    from encoder_engine.families.facts.spec import EncoderSpec
    from encoder_engine.packing.token_rows import TokenRows

__all__ = [
    "EncoderEngine",
    "Engine",
    "EngineChoice",
    "EngineName",
    "OutOfDeviceMemoryError",
    "Vectors",
]

EngineName = Literal["compiled", "torch"]
EngineChoice = Literal["auto", "compiled", "torch"]
Vectors = np.ndarray[Any, np.dtype[np.float32]]


class OutOfDeviceMemoryError(Exception):
    """A batch did not fit into the device's memory, which is free again; a smaller one may fit."""


class Engine(Protocol):
    """Computes outputs, such as vectors or logits, of texts' token ids.

    name: ``"compiled"``, ``"torch"`` or ``"static"``.
    dtype: the name of the weights' dtype: ``"float32"``, ``"bfloat16"``, ...
    device: ``"cpu"``, ``"cuda:0"``, ...
    quantization: ``"int8"`` or None.
    num_threads: the threads of a call on a CPU.
    batch_tokens: the most tokens of a batch by default.
    """

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
    @property
    def batch_tokens(self) -> int: ...  # noqa: D102

    def run(self, rows: TokenRows, *outputs: Output) -> tuple[Vectors, ...]:
        """Compute the requested outputs of rows; return a float32 array for each.

        Raises :class:`OutOfDeviceMemoryError`, and ``TypeError`` for an output that this engine's
        model does not have.
        """

    def fingerprint(self) -> str:
        """Return the SHA-256 of the architecture and of every weight as it is in memory.

        Engines of the same weights in the same precision have the same fingerprint.
        """

    def versions(self) -> dict[str, str]:
        """Return the versions of libraries, besides NumPy, on which the bits of results depend."""


class EncoderEngine(Engine, Protocol):
    """An engine of an encoder, with or without a head.

    spec: the encoder's architecture.
    """

    @property
    def spec(self) -> EncoderSpec: ...  # noqa: D102

    def save_encoder(self, directory: Path) -> None:
        """Write the encoder, and its head if any, as they are in memory, in Hugging Face layout."""
