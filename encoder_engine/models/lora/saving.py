"""Writes adapters and their head as peft's directories."""

from __future__ import annotations

import json
from pathlib import Path
from typing import TYPE_CHECKING

from safetensors.torch import save as save_safetensors

from encoder_engine.families.checkpoints.adapters import ADAPTER, ADAPTER_WEIGHTS
from encoder_engine.families.facts.names import origins
from encoder_engine.families.registry import find_family
from encoder_engine.files import write_atomically
from encoder_engine.models.checkpoints.stacking import unstack_parameter
from encoder_engine.models.lora.adapters import adapted_layers

if TYPE_CHECKING:
    import os

    from torch import Tensor

    from encoder_engine.models.head_network import HeadNetwork
    from encoder_engine.models.network import Network

__all__ = ["save_adapter"]

# peft's names of the heads' tasks.
_TASK_TYPES = {
    "sequence-classification": "SEQ_CLS",
    "token-classification": "TOKEN_CLS",
    "question-answering": "QUESTION_ANS",
}


def save_adapter(
    encoder: Network, head: HeadNetwork | None, directory: str | os.PathLike[str], *, base: str
) -> None:
    """Write the adapters of an encoder, and its head, as peft does; without adapters, nothing.

    base: the directory or hub id of the checkpoint that the adapters are for.
    """
    layers = adapted_layers(encoder)
    if not layers:
        return
    family = find_family(encoder.spec.model_type)
    prefix = "base_model.model." + ("" if head is None else family.prefix)
    tensors: dict[str, Tensor] = {}
    for layer in layers.values():
        for (module, _, _), down, up in zip(layer.parts, layer.down, layer.up, strict=True):
            tensors[f"{prefix}{module}.lora_A.weight"] = down.detach().cpu()
            tensors[f"{prefix}{module}.lora_B.weight"] = up.detach().cpu()
    saved: list[str] = []
    if head is not None:
        state = head.head.state_dict()
        for name, origin in origins(head.layout.renames, state).items():
            for full, tensor in unstack_parameter(origin, state[name].detach().cpu()).items():
                tensors[f"base_model.model.{full}"] = tensor
                saved.append(full.partition(".")[0])
        pooler = {} if encoder.pooler is None else dict(encoder.pooler.named_parameters())
        if any(parameter.requires_grad for parameter in pooler.values()):
            names = {f"pooler.{name}": parameter for name, parameter in pooler.items()}
            for name, origin in origins(family.renames, names).items():
                for full, tensor in unstack_parameter(origin, names[name].detach().cpu()).items():
                    tensors[f"{prefix}{full}"] = tensor
                    saved.append(full.partition(".")[0])
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
        "modules_to_save": sorted(set(saved)) or None,
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
