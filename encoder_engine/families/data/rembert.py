"""RemBERT (Chung et al. 2021): BERT with embeddings of small width, which are projected."""

from dataclasses import replace

from encoder_engine.families.data.bert import (
    CHOICES,
    CLASSIFIER,
    POOLER,
    RENAMES,
    SPANS,
    TOKEN_CLASSIFIER,
)
from encoder_engine.families.facts.family import ConfigKeys, Family
from encoder_engine.families.facts.names import Rename

DROPOUTS = ("classifier_dropout_prob",)
FAMILY = Family(
    model_type="rembert",
    architecture="RemBertModel",
    prefix="rembert.",
    padding_id=0,
    pooler=True,
    embedding_projected=True,
    keys=ConfigKeys(embedding_width="input_embedding_size"),
    dropout=0.0,
    renames=(
        *RENAMES,
        Rename("embedding.projection", "encoder.embedding_hidden_mapping_in"),
        POOLER,
    ),
    # The output layer of masked tokens is a table of its own, which no embedder needs.
    heads=("cls.", "classifier.", "qa_outputs."),
    layouts=(
        replace(CLASSIFIER, architecture="RemBertForSequenceClassification", dropouts=DROPOUTS),
        replace(TOKEN_CLASSIFIER, architecture="RemBertForTokenClassification", dropouts=DROPOUTS),
        replace(SPANS, architecture="RemBertForQuestionAnswering"),
        replace(CHOICES, architecture="RemBertForMultipleChoice", dropouts=DROPOUTS),
    ),
    in_place=False,
    ignored=("classifier_dropout_prob", "output_embedding_size"),
)
