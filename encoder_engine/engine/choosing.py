"""Chooses the engine that computes a model, and imports PyTorch only if it is needed.

The compiled engine computes in float32, bfloat16 and int8 on a CPU. The modules of PyTorch compute
everything else: on GPUs, in float64 and float16, architectures without a compiled form, and modules
that the caller made.
"""

from __future__ import annotations

import ctypes
import sys
import warnings
from pathlib import Path
from typing import TYPE_CHECKING, Any, get_args

from encoder_engine.dataclass import dataclass
from encoder_engine.dependencies import require_torch
from encoder_engine.engine.protocol import EngineChoice
from encoder_engine.errors import (
    ConfigError,
    ImplementationError,
    MissingDependencyError,
    UnusedWeightsWarning,
)
from encoder_engine.families.checkpoints.adapters import weights_directory
from encoder_engine.families.checkpoints.files import COMPILED
from encoder_engine.families.checkpoints.vocabulary import read_output_layer
from encoder_engine.families.config import read_config, spec_from_config
from encoder_engine.packing.module_stack import EMPTY_STACK

if TYPE_CHECKING:
    from collections.abc import Sequence

    import torch

    from encoder_engine.engine.compiled import CompiledEngine
    from encoder_engine.engine.protocol import EncoderEngine
    from encoder_engine.families.facts.head_layout import Task
    from encoder_engine.inference import CompiledEncoder
    from encoder_engine.packing.module_stack import ModuleStack

__all__ = [
    "EngineRequest",
    "choose_modules",
    "compiled_engine",
    "engine_of",
    "is_compiled",
    "load_causal",
    "load_model",
    "refuse_compiled",
    "refuse_quantized_head",
    "torch_engine",
]

ENGINES: tuple[EngineChoice, ...] = get_args(EngineChoice)
DTYPES = ("float64", "float32", "float16", "bfloat16")
# Where PyTorch is installed, every device that it knows.
DEVICES = ("auto", "cpu", "cuda", "mps", "xpu")
COMPILED_DTYPES = ("auto", "float32", "bfloat16")


@dataclass(frozen=True, kw_only=True)
class EngineRequest:
    """The requested engine, device and precision of a model, by name.

    ``adapter``: the name of the adapter to merge, of a checkpoint with several.

    See :meth:`Embedder.from_pretrained`. Raises :class:`ConfigError` for an unknown name.
    """

    engine: str = "auto"
    device: str = "auto"
    dtype: str = "auto"
    quantization: str | None = None
    num_threads: int | None = None
    adapter: str | None = None

    def __post_init__(self) -> None:
        if self.engine not in ENGINES:
            raise ConfigError(f"engine must be one of {', '.join(ENGINES)}, got {self.engine!r}")
        if self.dtype not in ("auto", *DTYPES):
            choices = ", ".join(DTYPES)
            raise ConfigError(f"dtype must be 'auto' or one of {choices}, got {self.dtype!r}")
        if self.device.partition(":")[0] not in DEVICES:
            try:
                require_torch(f"device {self.device!r}")
            except MissingDependencyError as error:
                choices = ", ".join(DEVICES)
                raise ConfigError(
                    f"device must be one of {choices}, or one with a number as cuda:1, got "
                    f"{self.device!r}"
                ) from error

    def options(self, engine: str) -> dict[str, Any]:
        """Return the dtype, the quantization and ``engine`` as keywords of ``from_pretrained``."""
        return {"dtype": self.dtype, "quantization": self.quantization, "engine": engine}

    @classmethod
    def of(
        cls,
        engine: str,
        device: str | torch.device,
        dtype: str | torch.dtype,
        quantization: str | None = None,
        num_threads: int | None = None,
        adapter: str | None = None,
    ) -> EngineRequest:
        """Return a request; unlike the constructor, it takes devices and dtypes of PyTorch too."""
        return cls(
            engine=engine,
            device=str(device),
            dtype=str(dtype).removeprefix("torch."),
            quantization=quantization,
            num_threads=num_threads,
            adapter=adapter,
        )


def load_model(directory: Path, request: EngineRequest, head: Task | None = None) -> Any:
    """Load an encoder for inference, with a head if ``head`` names a task.

    Returns a :class:`CompiledEncoder`, or a module of PyTorch such as :class:`Encoder`. Raises
    :class:`ImplementationError` where a requested engine refuses, and
    :class:`MissingDependencyError` where only PyTorch could compute it. Other exceptions: see
    :meth:`Encoder.from_pretrained`.
    """
    module = choose_modules(directory, request)
    if module is None:
        return _load_compiled(directory, request, head)
    if head is None:
        return module.Encoder.from_pretrained(
            directory,
            device=request.device,
            dtype=request.dtype,
            quantization=request.quantization,
            adapter=request.adapter,
        )
    refuse_quantized_head(directory, request)
    kinds = {
        "masked-lm": module.MaskedLM,
        "sequence-classification": module.SequenceClassification,
    }
    return kinds[head].from_pretrained(directory, request.device, request.dtype)


def load_causal(directory: Path, request: EngineRequest) -> EncoderEngine:
    """Load a causal language model for inference.

    Raises :class:`UnsupportedFeatureError` for a model that is not causal. Other exceptions: see
    :func:`load_model`.
    """
    layer = read_output_layer(directory)
    module = choose_modules(directory, request)
    found: EncoderEngine
    if module is not None:
        found = module.load_causal(
            directory,
            layer,
            device=request.device,
            dtype=request.dtype,
            quantization=request.quantization,
        )
        return found
    with warnings.catch_warnings():
        # The output layer was read above.
        warnings.simplefilter("ignore", UnusedWeightsWarning)
        encoder = _load_compiled(directory, request)
    compiled = _import_compiled()
    assert compiled is not None
    found = compiled.CompiledCausalEngine(encoder, layer)
    return found


def engine_of(model: Any, modules: ModuleStack = EMPTY_STACK) -> Any:
    """Return the engine of a model: a compiled encoder, an Encoder, or an encoder with a head.

    modules: applied to each pooled vector.
    """
    compiled = _import_compiled()
    if compiled is not None and isinstance(model, compiled.CompiledEncoder):
        return compiled.CompiledEngine(model, modules)
    module = torch_engine(f"a {type(model).__name__}")
    if isinstance(model, module.Encoder):
        return module.EncoderModule(model, modules)
    return module.HeadEngine(model)


def refuse_compiled(directory: Path, request: EngineRequest) -> str | None:
    """Return why the compiled engine cannot compute the model of a directory; None: it can.

    Raises :class:`ConfigError` for a configuration that no engine can read.
    """
    device = request.device.partition(":")[0]
    if device not in ("auto", "cpu"):
        return f"it computes on a CPU, not on {request.device}"
    if request.dtype not in COMPILED_DTYPES:
        return f"it computes float32, bfloat16 and int8, not {request.dtype}"
    compiled = _import_compiled()
    if compiled is None:
        return "the extension is not built"
    with warnings.catch_warnings():
        # The loading that follows issues the warnings.
        warnings.simplefilter("ignore")
        spec = spec_from_config(read_config(weights_directory(directory)))
    refusal: str | None = compiled.CompiledEncoder.supports(spec)
    return refusal


def torch_engine(purpose: str) -> Any:
    """Import and return ``engine/module.py``, the engine of PyTorch modules.

    ``purpose``: what needs PyTorch, for the message of :class:`MissingDependencyError`.
    """
    try:
        from encoder_engine.engine import module
    except ImportError as error:
        if (error.name or "torch").partition(".")[0] != "torch":
            raise
        raise MissingDependencyError(purpose, library="torch", extra="torch") from None
    return module


def choose_modules(directory: Path, request: EngineRequest) -> Any | None:
    """Return ``engine/module.py`` if PyTorch computes a model; None: the compiled engine does.

    ``request.num_threads`` then sets PyTorch's threads for the whole process. Raises
    :class:`ConfigError` for a compiled directory that the request does not fit; other exceptions:
    see :func:`load_model`.
    """
    if request.engine == "torch":
        reason: str | None = "engine='torch' was requested"
    else:
        reason = refuse_compiled(directory, request)
    if reason is not None and is_compiled(directory):
        raise ConfigError(
            f"{directory} holds a compiled encoder, which has one engine: {reason}; load the "
            "directory that it was compiled from"
        )
    if request.engine == "compiled" and reason is not None:
        raise ImplementationError(
            f"the compiled engine cannot compute {directory}: {reason}; leave engine= out, or pass "
            "engine='torch'"
        )
    if reason is None:
        # int8 and compiled files are for CPUs.
        is_free = request.device == "auto" and request.quantization is None
        is_free = is_free and request.engine == "auto" and not is_compiled(directory)
        if not is_free or not _gpu_is_available():
            return None
        reason = "there is a GPU"
    module = torch_engine(f"{directory} is not for the compiled engine ({reason}) and")
    if request.num_threads is not None:
        module.set_num_threads(request.num_threads)
    return module


def refuse_quantized_head(directory: Path, request: EngineRequest) -> None:
    """Raise :class:`ImplementationError` if int8 is requested of a model with a head.

    Call this where PyTorch would compute the model, which has no int8 head.
    """
    if request.quantization is not None:
        raise ImplementationError(
            f"quantization={request.quantization!r} of a model with a head needs the compiled "
            f"engine, which does not compute {directory} as requested; leave engine=, device= and "
            "dtype= out"
        )


def is_compiled(directory: Path) -> bool:
    """Return whether a directory holds the file of a compiled encoder."""
    return (directory / COMPILED).is_file()


def compiled_engine(
    directory: Path,
    request: EngineRequest,
    head: Task | None = None,
    *,
    labels: Sequence[str] | None = None,
) -> CompiledEngine:
    """Return the compiled engine of a directory's encoder, with a head if ``head`` names a task.

    For models that :func:`choose_modules` leaves to this engine. labels: see
    :meth:`CompiledEncoder.from_pretrained`.
    """
    engine: CompiledEngine = engine_of(_load_compiled(directory, request, head, labels))
    return engine


def _load_compiled(
    directory: Path,
    request: EngineRequest,
    head: Task | None = None,
    labels: Sequence[str] | None = None,
) -> CompiledEncoder:
    compiled = _import_compiled()
    assert compiled is not None, "refuse_compiled found no reason against it"
    encoder: CompiledEncoder = compiled.CompiledEncoder.from_pretrained(
        directory,
        dtype=request.dtype,
        quantization=request.quantization,
        head=head,
        num_threads=request.num_threads,
        adapter=request.adapter,
        labels=labels,
    )
    return encoder


def _import_compiled() -> Any | None:
    """Import and return ``engine/compiled.py``; None: the extension is not built."""
    try:
        from encoder_engine.engine import compiled
    except ImportError as error:
        if "_native" not in str(error):
            raise
        return None
    return compiled


def _gpu_is_available() -> bool:
    """Return whether PyTorch would compute on a GPU.

    PyTorch takes a second to import; it is imported only where a GPU's driver can be loaded.
    """
    if not _gpu_driver_is_there():
        return False
    try:
        return bool(torch_engine("a GPU").gpu_is_available())
    except MissingDependencyError:
        return False


def _gpu_driver_is_there() -> bool:
    if Path("/dev/kfd").exists():
        return True
    try:
        ctypes.CDLL("nvcuda.dll" if sys.platform == "win32" else "libcuda.so.1")
    except OSError:
        return False
    return True
