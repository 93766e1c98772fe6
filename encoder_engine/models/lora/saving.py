"""Writes LoRA adapters, and all weights trained outside the encoder, as a directory of peft."""

from __future__ import annotations

import json
from pathlib import Path
from typing import TYPE_CHECKING

from safetensors.torch import save as save_safetensors

from encoder_engine.families.checkpoints.adapters import ADAPTER, ADAPTER_WEIGHTS, PEFT_PREFIX
from encoder_engine.families.facts.names import Origin, origins
from encoder_engine.families.registry import find_family
from encoder_engine.files import write_atomically, write_checksums
from encoder_engine.models.checkpoints.stacking import unstack_parameter
from encoder_engine.models.lora.adapters import adapted_layers

if TYPE_CHECKING:
    import os
    from collections.abc import Iterator, Mapping

    from torch import Tensor, nn

    from encoder_engine.models.head_network import HeadNetwork
    from encoder_engine.models.network import Network

__all__ = ["save_adapter", "weights_outside"]

# peft's names of the heads' tasks.
_TASK_TYPES = {
    "sequence-classification": "SEQ_CLS",
    "token-classification": "TOKEN_CLS",
    "question-answering": "QUESTION_ANS",
}


def save_adapter(
    encoder: Network,
    head: HeadNetwork | None,
    directory: str | os.PathLike[str],
    *,
    base: str,
    others: Mapping[str, nn.Module] | None = None,
) -> None:
    """Write the adapters of an encoder, its head and other trained modules, as peft does.

    base: the directory or hub id of the checkpoint that the adapters are for.
    others: trained modules beside encoder and head, such as a CRF, by name.
    """
    layers = adapted_layers(encoder)
    family = find_family(encoder.spec.model_type)
    prefix = PEFT_PREFIX + ("" if head is None else family.prefix)
    tensors: dict[str, Tensor] = {}
    for layer in layers.values():
        for (module, _, _), down, up in zip(layer.parts, layer.down, layer.up, strict=True):
            tensors[f"{prefix}{module}.lora_A.weight"] = down.detach().cpu()
            tensors[f"{prefix}{module}.lora_B.weight"] = up.detach().cpu()
    saved: set[str] = set()
    for origin, weight in weights_outside(head, others or {}):
        for full, tensor in unstack_parameter(origin, weight.cpu()).items():
            tensors[f"{PEFT_PREFIX}{full}"] = tensor
            saved.add(full.partition(".")[0])
    if head is not None:
        pooler = {} if encoder.pooler is None else dict(encoder.pooler.named_parameters())
        if any(parameter.requires_grad for parameter in pooler.values()):
            names = {f"pooler.{name}": parameter for name, parameter in pooler.items()}
            for name, origin in origins(family.renames, names).items():
                for full, tensor in unstack_parameter(origin, names[name].detach().cpu()).items():
                    tensors[f"{prefix}{full}"] = tensor
                    saved.add(full.partition(".")[0])
    adapter = next(iter(layers.values())).adapter
    config = {
        "peft_type": "LORA",
        "task_type": "FEATURE_EXTRACTION" if head is None else _TASK_TYPES.get(head.task),
        "base_model_name_or_path": base,
        "r": adapter.rank,
        "lora_alpha": adapter.alpha,
        "lora_dropout": 0.0,
        # Whole names: the last parts alone would name poolers and heads as well.
        "target_modules": [module for layer in layers.values() for module, _, _ in layer.parts],
        "modules_to_save": sorted(saved) or None,
        "bias": "none",
        "inference_mode": True,
    }
    target = Path(directory)
    target.mkdir(parents=True, exist_ok=True)
    encoded = save_safetensors(
        {name: tensor.contiguous() for name, tensor in tensors.items()}, metadata={"format": "pt"}
    )
    write_atomically(target / ADAPTER_WEIGHTS[0], encoded)
    write_atomically(target / ADAPTER, (json.dumps(config, indent=1) + "\n").encode())
    write_checksums(target, [ADAPTER, ADAPTER_WEIGHTS[0]])


def weights_outside(
    head: HeadNetwork | None, others: Mapping[str, nn.Module]
) -> Iterator[tuple[Origin, Tensor]]:
    """Yield each weight of the head and of other modules, with its tensors' names in peft's file.

    The weights are those of the modules themselves, not copies.
    """
    if head is not None:
        state = head.head.state_dict()
        for name, origin in origins(head.layout.renames, state).items():
            yield origin, state[name]
    for module, part in others.items():
        for name, weight in part.state_dict().items():
            yield Origin((f"{module}.{name}",)), weight
