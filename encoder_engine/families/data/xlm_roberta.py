"""XLM-R (Conneau et al. 2020): RoBERTa with a multilingual vocabulary."""

from dataclasses import replace

from encoder_engine.families.data import roberta
from encoder_engine.families.data.bert import SPANS, TOKEN_CLASSIFIER

FAMILY = replace(
    roberta.FAMILY,
    model_type="xlm-roberta",
    architecture="XLMRobertaModel",
    layouts=(
        replace(roberta.PREDICTIONS, architecture="XLMRobertaForMaskedLM"),
        replace(roberta.CLASSIFIER, architecture="XLMRobertaForSequenceClassification"),
        replace(TOKEN_CLASSIFIER, architecture="XLMRobertaForTokenClassification"),
        replace(SPANS, architecture="XLMRobertaForQuestionAnswering"),
        replace(roberta.CHOICES, architecture="XLMRobertaForMultipleChoice"),
    ),
)
