"""The PyTorch models of tasks, used in training and, on GPUs, for prediction.

Each name is imported at its first use, and raises :class:`MissingDependencyError` without PyTorch.
"""

from typing import TYPE_CHECKING

from encoder_engine.lazy import lazy_names

if TYPE_CHECKING:
    from encoder_engine.tasks.models.adapted import encoder_sha256, load_adapted_model
    from encoder_engine.tasks.models.answer_model import AnswerModel
    from encoder_engine.tasks.models.inputs import as_inputs
    from encoder_engine.tasks.models.list_model import ListModel
    from encoder_engine.tasks.models.sequence_model import (
        SequenceModel,
        class_loss,
        label_set_loss,
    )
    from encoder_engine.tasks.models.task_model import TaskModel

__all__ = [
    "AnswerModel",
    "ListModel",
    "SequenceModel",
    "TaskModel",
    "as_inputs",
    "class_loss",
    "encoder_sha256",
    "label_set_loss",
    "load_adapted_model",
]

__getattr__, __dir__ = lazy_names(
    __name__,
    {
        "AnswerModel": "answer_model",
        "ListModel": "list_model",
        "SequenceModel": "sequence_model",
        "TaskModel": "task_model",
        "as_inputs": "inputs",
        "class_loss": "sequence_model",
        "encoder_sha256": "adapted",
        "label_set_loss": "sequence_model",
        "load_adapted_model": "adapted",
    },
)
