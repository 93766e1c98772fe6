"""ERNIE (Sun et al. 2019): BERT's layers; its task-type embeddings are not supported."""

from dataclasses import replace

from encoder_engine.families.data import bert

FAMILY = replace(
    bert.FAMILY,
    model_type="ernie",
    architecture="ErnieModel",
    prefix="ernie.",
    heads=("cls.", "classifier.", "qa_outputs."),
    layouts=(
        replace(bert.PREDICTIONS, architecture="ErnieForMaskedLM"),
        replace(bert.NEXT_SENTENCE, architecture="ErnieForNextSentencePrediction"),
        replace(bert.CLASSIFIER, architecture="ErnieForSequenceClassification"),
        replace(bert.TOKEN_CLASSIFIER, architecture="ErnieForTokenClassification"),
        replace(bert.SPANS, architecture="ErnieForQuestionAnswering"),
        replace(bert.CHOICES, architecture="ErnieForMultipleChoice"),
    ),
    in_place=False,
    required={"use_task_id": (False,)},
    ignored=("task_type_vocab_size",),
)
