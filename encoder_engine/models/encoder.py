"""The public encoder class: a network with loading from and saving to checkpoints."""

from __future__ import annotations

from typing import TYPE_CHECKING, Self

from encoder_engine.families.config import check_quantization
from encoder_engine.models.checkpoints.loading import load_encoder
from encoder_engine.models.checkpoints.saving import save_encoder
from encoder_engine.models.compiling import compile_network
from encoder_engine.models.network import EncoderOutput, Network

if TYPE_CHECKING:
    import os

    import torch

    from encoder_engine.inference import CompiledEncoder

__all__ = ["Encoder", "EncoderOutput"]


class Encoder(Network):
    """A bidirectional transformer encoder over packed batches.

    ``Encoder(spec)`` is randomly initialized; :meth:`from_pretrained` loads weights. ``config``:
    the Hugging Face configuration of the checkpoint, kept for :meth:`save_pretrained`.
    """

    @classmethod
    def from_pretrained(
        cls,
        path_or_hub_id: str | os.PathLike[str],
        device: str | torch.device = "auto",
        dtype: str | torch.dtype = "auto",
        quantization: str | None = None,
        *,
        adapter: str | None = None,
    ) -> Self:
        """Load a checkpoint in Hugging Face layout: config.json with model.safetensors or .bin.

        A LoRA of peft (adapter_config.json) is merged into the weights, which are the directory's
        or those of the model that the adapter names.

        device: ``"auto"`` takes a CUDA device if there is one.
        dtype: ``"auto"`` is float32, and with int8 bfloat16 where the CPU computes it.
        quantization: ``"int8"`` calls :meth:`quantize`, on the CPU; a checkpoint that was saved
            quantized is always loaded quantized.
        adapter: the name of the adapter to merge, of a checkpoint that holds several; None: none.

        The encoder is in evaluation mode. Raises :class:`ConfigError` and :class:`CheckpointError`
        for missing, malformed or contradictory files, and :class:`UnsupportedFeatureError` for
        another quantization or int8 on a GPU; no weight is filled in or left out silently.
        """
        check_quantization(quantization)
        return load_encoder(
            *(cls, path_or_hub_id),
            device=device,
            dtype=dtype,
            quantized=quantization is not None,
            adapter=adapter,
        )

    def compile_for_inference(
        self, dtype: str | torch.dtype | None = None, quantization: str | None = None
    ) -> CompiledEncoder:
        """Return a :class:`CompiledEncoder` of the weights as they are now, on the CPU.

        The compiled encoder infers faster than this module, which stays unchanged. Later changes of
        the module do not affect the compiled encoder.

        dtype: ``"float32"`` or ``"bfloat16"``; None is the dtype of the weights.
        quantization: ``"int8"`` rounds the blocks' dense layers; layers that :meth:`quantize` has
            rounded stay as they are.

        Raises :class:`UnsupportedFeatureError` for an architecture of which
        :meth:`CompiledEncoder.supports` gives a reason, for modules that differ from those that the
        specification makes (hooks, adapters, other layers), and for another quantization,
        :class:`ConfigError` for another dtype, and :class:`MissingExtensionError` where the C++
        extension is not built.
        """
        return compile_network(self, dtype, quantization)

    def save_pretrained(self, directory: str | os.PathLike[str]) -> None:
        """Write config.json, model.safetensors and SHA256SUMS, in the layout of transformers.

        Raises :class:`OutputError`, also for a directory with an adapter or a compiled encoder.
        """
        save_encoder(self, directory)
