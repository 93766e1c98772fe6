"""Pretraining: a recipe in, a trained encoder out, exactly resumable, on one process or many."""

from encoder_engine.training.recipe import (
    BatchRecipe,
    DataRecipe,
    ModelRecipe,
    ObjectivesRecipe,
    OptimizerRecipe,
    Recipe,
    RunRecipe,
    ScheduleRecipe,
)
from encoder_engine.training.trainer import Trainer

__all__ = [
    "BatchRecipe",
    "DataRecipe",
    "ModelRecipe",
    "ObjectivesRecipe",
    "OptimizerRecipe",
    "Recipe",
    "RunRecipe",
    "ScheduleRecipe",
    "Trainer",
]
