"""CamemBERT (Martin et al. 2020): RoBERTa for French, with a SentencePiece vocabulary."""

from dataclasses import replace

from encoder_engine.families.data import roberta
from encoder_engine.families.data.bert import SPANS, TOKEN_CLASSIFIER

FAMILY = replace(
    roberta.FAMILY,
    model_type="camembert",
    architecture="CamembertModel",
    layouts=(
        replace(roberta.PREDICTIONS, architecture="CamembertForMaskedLM"),
        replace(roberta.CLASSIFIER, architecture="CamembertForSequenceClassification"),
        replace(TOKEN_CLASSIFIER, architecture="CamembertForTokenClassification"),
        replace(SPANS, architecture="CamembertForQuestionAnswering"),
        replace(roberta.CHOICES, architecture="CamembertForMultipleChoice"),
    ),
)
