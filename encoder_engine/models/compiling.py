"""Makes a :class:`CompiledEncoder` of an encoder's PyTorch modules, for inference on a CPU.

How it works: the compiled encoder computes what the specification says, with the module's weights.
A module that was changed may compute something else. The modules are therefore compared, before the
weights are taken, with those that the specification makes.
"""

from __future__ import annotations

from itertools import zip_longest
from typing import TYPE_CHECKING

import torch
from torch import nn

from encoder_engine.errors import MissingExtensionError, UnsupportedFeatureError
from encoder_engine.models.checkpoints.stacking import to_array
from encoder_engine.models.linear import Linear, QuantizedLinear
from encoder_engine.models.network import Network

if TYPE_CHECKING:
    from encoder_engine.inference import CompiledEncoder

__all__ = ["check_modules", "compile_network", "find_compiled_encoder"]


def find_compiled_encoder() -> type[CompiledEncoder]:
    """Import and return the class :class:`CompiledEncoder`.

    Raises :class:`MissingExtensionError` where the C++ extension is not built.
    """
    try:
        # Imported late: the modules work where the extension is not built.
        from encoder_engine.inference import CompiledEncoder
    except ImportError as error:
        if "_native" not in str(error):
            raise
        raise MissingExtensionError(
            "a compiled encoder needs the native extension, which is not built for this Python "
            f"({error}); build it with: pip install . (or, in a checkout, "
            "python setup.py build_ext --inplace)"
        ) from error
    return CompiledEncoder


def compile_network(
    network: Network, dtype: str | torch.dtype | None, quantization: str | None
) -> CompiledEncoder:
    """Return a :class:`CompiledEncoder` of a network; see :meth:`Encoder.compile_for_inference`."""
    check_modules(network, "compiled")
    dense = {f"{name}.weight" for name, m in network.named_modules() if isinstance(m, Linear)}
    # Packing copies dense weights; others would be shared with the module.
    arrays = {
        name: to_array(tensor.cpu() if name in dense else tensor.to("cpu", copy=True))
        for name, tensor in network.state_dict().items()
    }
    return find_compiled_encoder().from_parameters(
        network.spec,
        arrays,
        str(network.dtype if dtype is None else dtype),
        quantization,
        config=network.config,
    )


def check_modules(network: Network, purpose: str) -> None:
    """Raise :class:`UnsupportedFeatureError` unless the modules are those the specification makes.

    Quantized layers may replace dense ones. ``purpose``: ``"compiled"`` or
    ``"captured"``, for the message.
    """
    with torch.device("meta"):
        twin = Network(network.spec)
    if network.pooler is None:
        twin.pooler = None
    pairs = zip_longest(
        *(model.named_modules(remove_duplicate=False) for model in (network, twin)),
        fillvalue=("", None),
    )
    for (name, module), (expected_name, expected) in pairs:
        difference = None
        if name != expected_name:
            difference = f"there is {name or 'none'} where {expected_name or 'none'} is expected"
        elif name and not _is_expected(module, expected):
            difference = f"{name} is a {type(module).__name__}, not a {type(expected).__name__}"
        elif getattr(module, "spec", None) != getattr(expected, "spec", None):
            difference = f"{name} has the specification {getattr(module, 'spec', None)}"
        elif _computes_otherwise(module):
            difference = f"{name or 'the encoder'} has hooks or a forward of its own"
        if difference is not None:
            raise UnsupportedFeatureError(
                f"only the modules that a specification makes can be {purpose}: {difference}; undo "
                "that (remove hooks, merge adapters), or compute with the module"
            )


def _is_expected(module: nn.Module | None, expected: nn.Module | None) -> bool:
    return type(module) is type(expected) or (
        type(module) is QuantizedLinear and type(expected) is Linear
    )


def _computes_otherwise(module: nn.Module | None) -> bool:
    replaced = isinstance(module, Network) and type(module).forward is not Network.forward
    hooks = module is not None and (module._forward_hooks or module._forward_pre_hooks)
    return bool(replaced or hooks or "forward" in vars(module))
