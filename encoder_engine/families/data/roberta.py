"""RoBERTa (Liu et al. 2019): BERT's layers; positions begin at the padding id + 1."""

from dataclasses import replace

from encoder_engine.families.data import bert
from encoder_engine.families.data.bert import (
    CLASSIFIER_DROPOUTS,
    POOLER,
    RENAMES,
    SPANS,
    TOKEN_CLASSIFIER,
)
from encoder_engine.families.facts.family import Family
from encoder_engine.families.facts.head_layout import DenseLayout, HeadLayout
from encoder_engine.families.facts.names import Rename

PREDICTIONS = HeadLayout(
    task="masked-lm",
    architecture="RobertaForMaskedLM",
    dense=DenseLayout(activation="gelu", norm=True),
    renames=(
        Rename("dense", "lm_head.dense"),
        Rename("norm", "lm_head.layer_norm"),
        Rename("output", "lm_head"),
    ),
    copies={"lm_head.decoder.weight": "embedding.tokens", "lm_head.decoder.bias": "lm_head.bias"},
)
CHOICES = replace(
    bert.CHOICES, architecture="RobertaForMultipleChoice", dropouts=("hidden_dropout_prob",)
)
CLASSIFIER = HeadLayout(
    task="sequence-classification",
    architecture="RobertaForSequenceClassification",
    rows="first",
    dense=DenseLayout(activation="tanh", dropout_before=True),
    dropouts=CLASSIFIER_DROPOUTS,
    renames=(Rename("dense", "classifier.dense"), Rename("output", "classifier.out_proj")),
)
FAMILY = Family(
    model_type="roberta",
    architecture="RobertaModel",
    prefix="roberta.",
    renames=(*RENAMES, POOLER),
    padding_id=1,
    positions_follow_padding_id=True,
    pooler=True,
    heads=("lm_head.", "classifier.", "qa_outputs."),
    layouts=(
        PREDICTIONS,
        CLASSIFIER,
        replace(TOKEN_CLASSIFIER, architecture="RobertaForTokenClassification"),
        replace(SPANS, architecture="RobertaForQuestionAnswering"),
        CHOICES,
    ),
)
