"""Builds the model that fine-tuning begins with: the checkpoint, changed by the recipe."""

from __future__ import annotations

import warnings
from typing import TYPE_CHECKING, Any

import torch

from encoder_engine.errors import ConfigError, MissingPoolerWarning, UnusedWeightsWarning
from encoder_engine.families.config import spec_from_config
from encoder_engine.families.registry import find_family
from encoder_engine.models import Encoder
from encoder_engine.models.checkpoints.fingerprint import weights_sha256
from encoder_engine.models.init import draw_weights
from encoder_engine.models.lora.adapters import Adapter, add_adapters
from encoder_engine.models.norm import Norm

if TYPE_CHECKING:
    from pathlib import Path

    from encoder_engine.finetuning.recipe import ModelRecipe, TunedOptimizer
    from encoder_engine.tasks.models.task_model import TaskModel
    from encoder_engine.tasks.task import Task

__all__ = ["build_task_model"]


def build_task_model(
    checkpoint: Path,
    directory: Path,
    task: Task[Any, Any],
    recipe: ModelRecipe,
    optimizer: TunedOptimizer,
    *,
    seed: int,
) -> TaskModel:
    """Load the encoder, add the task's head, and freeze the weights that are not trained.

    ``directory``: the folder of the checkpoint's encoder.
    The same seed draws the same head. Raises :class:`ConfigError` for a number of blocks above the
    encoder's, and where nothing is left to train.
    """
    with warnings.catch_warnings():
        # The new head makes a pooler of its own where it needs one.
        warnings.simplefilter("ignore", MissingPoolerWarning)
        warnings.simplefilter("ignore", UnusedWeightsWarning)
        encoder = Encoder.from_pretrained(directory, device="cpu", dtype="float32")
    if recipe.dropout is not None:
        encoder = _with_dropout(encoder, recipe.dropout)
    num_blocks = len(encoder.blocks)
    for name in ("frozen_blocks", "reinit_blocks"):
        if getattr(recipe, name) > num_blocks:
            raise ConfigError(
                f"model.{name} is {getattr(recipe, name)}, the encoder has {num_blocks} blocks"
            )
    loaded = dict(encoder.state_dict())
    encoder_sha256 = weights_sha256(loaded) if recipe.train == "lora" else ""
    torch.manual_seed(seed)
    model = task.make_model(encoder)
    before = {name: tensor.clone() for name, tensor in _outside(model, encoder).items()}
    task.begin_with(model, checkpoint)
    changed = _outside(model, encoder)
    loaded |= {n: tensor for n, tensor in changed.items() if not torch.equal(tensor, before[n])}
    model.loaded_sha256, model.encoder_sha256 = weights_sha256(loaded), encoder_sha256
    _reinitialise(encoder, recipe.reinit_blocks)
    _freeze(model, recipe)
    if not any(parameter.requires_grad for parameter in model.parameters()):
        raise ConfigError(
            f"model.train is {recipe.train}, and no weight of the task {task.name} is left to "
            "train; set model.train to all, bias or lora, or freeze fewer blocks"
        )
    model.rate_factors = _rate_factors(model, optimizer)
    return model


def _outside(model: TaskModel, encoder: Encoder) -> dict[str, torch.Tensor]:
    """Return the weights of a model that do not belong to its encoder, by name."""
    inside = {id(parameter) for parameter in encoder.parameters()}
    return {
        f"head.{name}": parameter.detach()
        for name, parameter in model.named_parameters()
        if id(parameter) not in inside
    }


def _with_dropout(encoder: Encoder, dropout: float) -> Encoder:
    """Return a copy of the encoder with every dropout rate of its configuration replaced."""
    family = find_family(encoder.spec.model_type)
    keys = {*family.dropouts, *(key for layout in family.layouts for key in layout.dropouts)}
    config = {**encoder.config, **dict.fromkeys(keys, dropout)}
    changed = Encoder(spec_from_config(config), config=config)
    if encoder.pooler is None:
        changed.pooler = None
    changed.load_state_dict(encoder.state_dict())
    return changed


@torch.no_grad()
def _reinitialise(encoder: Encoder, num_blocks: int) -> None:
    if not num_blocks:
        return
    for block in list(encoder.blocks)[-num_blocks:]:
        draw_weights(block, encoder.spec.initializer_range)
        for part in block.modules():
            if isinstance(part, Norm):
                part.weight.fill_(1.0 - part.spec.offset)
                if part.bias is not None:
                    part.bias.zero_()
    if encoder.pooler is not None:
        draw_weights(encoder.pooler, encoder.spec.initializer_range)


def _freeze(model: TaskModel, recipe: ModelRecipe) -> None:
    encoder = model.encoder
    # The pooler is part of the head that reads it, and frozen already where none does.
    pooler = [] if encoder.pooler is None else list(encoder.pooler.parameters())
    read = [parameter for parameter in pooler if parameter.requires_grad]
    if recipe.train in ("head", "lora"):
        encoder.requires_grad_(False)
    elif recipe.train == "bias":
        for name, parameter in encoder.named_parameters():
            parameter.requires_grad_(name.endswith("bias"))
    if recipe.train != "all":
        for parameter in pooler:
            parameter.requires_grad_(any(parameter is one for one in read))
    if recipe.frozen_blocks or recipe.freeze_embeddings:
        encoder.embedding.requires_grad_(False)
    if recipe.train == "lora":
        add_adapters(
            encoder,
            Adapter(
                rank=recipe.lora_rank, alpha=recipe.lora_alpha, targets=tuple(recipe.lora_targets)
            ),
        )
    for block in list(encoder.blocks)[: recipe.frozen_blocks]:
        block.requires_grad_(False)


def _rate_factors(model: TaskModel, optimizer: TunedOptimizer) -> dict[str, float]:
    """Return factors of the learning rate by parameter name, without those that are 1.

    The head's factor is ``head_rate``; a block's or the embeddings' is a power of ``layer_decay``.
    """
    encoder = model.encoder
    num_blocks = len(encoder.blocks)
    depths = {id(p): num_blocks + 1 for p in encoder.parameters()}
    depths |= {id(p): 0 for p in encoder.embedding.parameters()}
    for number, block in enumerate(encoder.blocks):
        depths |= {id(p): number + 1 for p in block.parameters()}
    factors = {}
    for name, parameter in model.named_parameters():
        depth = depths.get(id(parameter))
        if depth is None:
            factors[name] = optimizer.head_rate
        else:
            factors[name] = optimizer.layer_decay ** (num_blocks + 1 - depth)
    return {name: factor for name, factor in factors.items() if factor != 1.0}
