"""Derives the task of a model that was fine-tuned elsewhere from its config.json.

transformers' pipelines decide by the same values: the class in ``architectures``, ``problem_type``
and the labels.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from encoder_engine.errors import ConfigError, UnsupportedFeatureError
from encoder_engine.families.checkpoints.adapters import weights_directory
from encoder_engine.families.config import read_config, spec_from_config
from encoder_engine.families.gliner import GlinerSettings, is_gliner
from encoder_engine.families.heads import label_function, label_names
from encoder_engine.opening.recipe import tokenizer_limit
from encoder_engine.tasks.multiple_choice import MultipleChoiceTask
from encoder_engine.tasks.prompted_spans import PromptedSpanTask
from encoder_engine.tasks.question_answering import QuestionAnsweringTask
from encoder_engine.tasks.regression import RegressionTask
from encoder_engine.tasks.sequence_classification import SequenceClassificationTask
from encoder_engine.tasks.task import Windows
from encoder_engine.tasks.task_folder import SavedTask
from encoder_engine.tasks.token_classification import TokenClassificationTask
from encoder_engine.tasks.words.tags import OUTSIDE, is_bio

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence
    from pathlib import Path

    from encoder_engine.tasks.task import Task

__all__ = ["PREDICTORS", "read_published"]

# The ends of transformers' class names, and the tasks of their heads.
_ENDINGS = {
    "ForSequenceClassification": "sequence-classification",
    "ForTokenClassification": "token-classification",
    "ForQuestionAnswering": "question-answering",
    "ForMultipleChoice": "multiple-choice",
}
# The class that predicts a task.
PREDICTORS = {
    "sequence-classification": "Classifier",
    "regression": "Classifier",
    "token-classification": "Tagger",
    "span-classification": "SpanTagger",
    "question-answering": "Reader",
    "multiple-choice": "Chooser",
}
# Files of other libraries' models, and what loads them.
_OTHERS = {
    "model_head.pkl": "SetFit, whose head is a pickle of scikit-learn",
    "span_marker_config.json": "the library span_marker",
    "adapter_config.json": "peft, as an adapter without the settings of a task",
    "meta.json": "spaCy",
}
# The usual tokens and stride of models for SQuAD.
_QUESTION_TOKENS, _QUESTION_STRIDE = 384, 128


def read_published(directory: Path, wanted: Sequence[str]) -> SavedTask:
    """Return the task of a model directory that has no task.json, which this package writes.

    wanted: the tasks of the class that loads the directory; if config.json names no class of
        transformers, the first is assumed. Empty: any task.

    Raises :class:`UnsupportedFeatureError` for a model of another library or of another head, and
    :class:`ConfigError` if config.json does not tell the head's task.
    """
    if is_gliner(directory):
        return _read_gliner(directory, wanted)
    for name, loader in _OTHERS.items():
        if (directory / name).is_file() and not (directory / "config.json").is_file():
            raise UnsupportedFeatureError(
                f"{directory} has {name}: it is a model of {loader}; load it with that"
            )
    config = read_config(weights_directory(directory))
    named = _task_of(config)
    if named is None:
        classes = ", ".join(map(str, config.get("architectures") or ())) or "no class"
        if not wanted or config.get("architectures"):
            raise ConfigError(
                f"{directory} has no task.json, and config.json names {classes}, none of "
                f"*{', *'.join(_ENDINGS)}: name the folder 'model' of a run of finetune, or a "
                "model with such a head"
            )
        named = wanted[0]
    if wanted and named not in wanted:
        raise UnsupportedFeatureError(
            f"{directory} is a model for {named}; load it by {PREDICTORS[named]}.from_pretrained"
        )
    return SavedTask(_make_task(named, config), _windows(named, directory, config))


def _read_gliner(directory: Path, wanted: Sequence[str]) -> SavedTask:
    named = PromptedSpanTask.name
    if wanted and named not in wanted:
        raise UnsupportedFeatureError(
            f"{directory} is a GLiNER model; load it by {PREDICTORS[named]}.from_pretrained"
        )
    settings = GlinerSettings.read(directory)
    task = PromptedSpanTask(settings=settings, max_width=settings.max_width)
    return SavedTask(task, _windows(named, directory, read_config(directory)))


def _task_of(config: Mapping[str, Any]) -> str | None:
    for name in config.get("architectures") or ():
        for ending, task in _ENDINGS.items():
            if str(name).endswith(ending):
                return task
    return None


def _make_task(named: str, config: Mapping[str, Any]) -> Task[Any, Any]:
    labels = tuple(name for _, name in sorted(label_names(config).items()))
    if named == "sequence-classification":
        function: Any = label_function(config)
        if len(labels) == 1:
            return RegressionTask(label=labels[0], activation=function)
        if function == "identity":
            raise UnsupportedFeatureError(
                f"problem_type regression of {len(labels)} numbers has no labels to choose; "
                "Ranker.from_pretrained loads the model, and predict(activation='identity') gives "
                "the numbers"
            )
        return SequenceClassificationTask(labels=labels, multi_label=function == "sigmoid")
    if named == "token-classification":
        scheme: Any = "bio" if is_bio(labels) and OUTSIDE in labels else "plain"
        silent = OUTSIDE if OUTSIDE in labels else labels[0]
        return TokenClassificationTask(labels=labels, scheme=scheme, silent_tag=silent, spaced=True)
    if named == "question-answering":
        return QuestionAnsweringTask()
    return MultipleChoiceTask()


def _windows(named: str, directory: Path, config: Mapping[str, Any]) -> Windows:
    """Return a model's limit of tokens, and whether longer texts are truncated or cut into windows.

    Taggers and readers of questions cut; other models truncate.
    """
    limits = (tokenizer_limit(directory), spec_from_config(config).max_length)
    # Models of relative positions may have no limit at all.
    most = min((limit for limit in limits if limit is not None), default=2**20)
    if named == "question-answering":
        most = min(most, _QUESTION_TOKENS)
        return Windows(max_length=most, stride=min(most // 2, _QUESTION_STRIDE))
    return Windows(max_length=most, truncate=named != "token-classification")
