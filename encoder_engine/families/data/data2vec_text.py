"""data2vec for text (Baevski et al. 2022): RoBERTa's layers, trained on its own targets."""

from dataclasses import replace

from encoder_engine.families.data import roberta
from encoder_engine.families.data.bert import SPANS, TOKEN_CLASSIFIER

FAMILY = replace(
    roberta.FAMILY,
    model_type="data2vec-text",
    architecture="Data2VecTextModel",
    prefix="data2vec_text.",
    layouts=(
        replace(roberta.PREDICTIONS, architecture="Data2VecTextForMaskedLM"),
        replace(roberta.CLASSIFIER, architecture="Data2VecTextForSequenceClassification"),
        replace(TOKEN_CLASSIFIER, architecture="Data2VecTextForTokenClassification"),
        replace(SPANS, architecture="Data2VecTextForQuestionAnswering"),
        replace(roberta.CHOICES, architecture="Data2VecTextForMultipleChoice"),
    ),
    in_place=False,
)
