"""Pretraining of encoders by recipes, exactly resumable, on one process or many."""

from encoder_engine.dependencies import require_torch

require_torch("encoder_engine.training")

from encoder_engine.training.pretraining.trainer import Trainer
from encoder_engine.training.recipe import (
    BatchRecipe,
    DataRecipe,
    ModelRecipe,
    ObjectivesRecipe,
    OptimizerRecipe,
    RunRecipe,
    ScheduleRecipe,
    TrainingRecipe,
)

__all__ = [
    "BatchRecipe",
    "DataRecipe",
    "ModelRecipe",
    "ObjectivesRecipe",
    "OptimizerRecipe",
    "RunRecipe",
    "ScheduleRecipe",
    "Trainer",
    "TrainingRecipe",
]
