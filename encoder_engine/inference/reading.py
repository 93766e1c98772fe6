"""Reads a checkpoint, and a task's head, as the layers of a compiled encoder."""

from __future__ import annotations

from contextlib import ExitStack
from typing import TYPE_CHECKING, NamedTuple

from encoder_engine.errors import UnsupportedFeatureError
from encoder_engine.families.checkpoints.assembling import warn_of_suspicious
from encoder_engine.families.checkpoints.files import mapped_files
from encoder_engine.families.checkpoints.memory import trim_heap
from encoder_engine.families.checkpoints.opening import open_checkpoint, warn_of_unused
from encoder_engine.families.heads import count_outputs, find_layout, read_rows
from encoder_engine.inference.compiled_file import Description
from encoder_engine.inference.layers import LayerReader
from encoder_engine.inference.memory import MappedFiles
from encoder_engine.inference.network import CompiledHead, CompiledNetwork
from encoder_engine.inference.options import resolve_dtype

if TYPE_CHECKING:
    from collections.abc import Callable, Sequence
    from pathlib import Path

    from encoder_engine.families.facts.head_layout import Task
    from encoder_engine.families.facts.spec import EncoderSpec

__all__ = ["ReadCheckpoint", "read_checkpoint"]


class ReadCheckpoint(NamedTuple):
    """The layers of a checkpoint, and its mapped files; None: no weight is memory-mapped."""

    network: CompiledNetwork
    head: CompiledHead | None
    description: Description
    mapped_files: MappedFiles | None


def read_checkpoint(
    directory: Path,
    dtype: str,
    quantization: str | None,
    *,
    head: Task | None,
    labels: Sequence[str] | None,
    adapter: str | None,
    supports: Callable[[EncoderSpec], str | None],
) -> ReadCheckpoint:
    """Read a checkpoint layer by layer; see :meth:`CompiledEncoder.from_pretrained`.

    ``supports``: a function that returns why an architecture cannot be compiled, or None.
    """
    with ExitStack() as files:
        checkpoint = open_checkpoint(directory, files, adapter=adapter)
        opened = MappedFiles(mapped_files(checkpoint.directory))
        quantized = quantization is not None or checkpoint.quantized
        resolved = resolve_dtype(dtype, quantized=quantized)
        reason = supports(checkpoint.spec)
        if reason is not None:
            raise UnsupportedFeatureError(f"{checkpoint.directory}: {reason}")
        if labels is not None:
            checkpoint.config["id2label"] = {str(n): name for n, name in enumerate(labels)}
            checkpoint.config["label2id"] = {name: n for n, name in enumerate(labels)}
            checkpoint.config.pop("num_labels", None)
        assembly = checkpoint.assemble()
        reader = LayerReader(
            assembly, dtype=resolved, quantized=quantized, saved=checkpoint.quantized
        )
        network = CompiledNetwork.read(checkpoint.spec, reader, pooler=checkpoint.has_pooler)
        suspicious = assembly.suspicious
        compiled_head = None
        if head is None:
            why = "only the encoder was loaded, whose vectors need no head"
            warn_of_unused(checkpoint.heads, why, stacklevel=4)
        else:
            layout = find_layout(checkpoint.spec.model_type, head)
            assembly = checkpoint.assemble_head(
                layout,
                count_outputs(layout, checkpoint.spec, checkpoint.config),
                reads_pooler=read_rows(layout, checkpoint.config) == "pooled",
                hint="a compiled encoder has no new heads: train one with the extra torch",
            )
            reader = LayerReader(assembly, dtype=resolved, quantized=False, saved=False)
            compiled_head = CompiledHead.read(checkpoint.config, head, network, reader)
            suspicious += assembly.suspicious
    warn_of_suspicious(suspicious, stacklevel=4)
    trim_heap()
    description = Description(
        config=checkpoint.config,
        dtype=resolved,
        quantization="int8" if quantized else None,
        has_pooler=checkpoint.has_pooler,
        head=head,
    )
    mapped = opened if network.is_mapped else None
    return ReadCheckpoint(network, compiled_head, description, mapped)
