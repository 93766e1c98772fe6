"""Megatron-BERT (Shoeybi et al. 2019): BERT with the norm before attention and feed-forward."""

from dataclasses import replace

from encoder_engine.families.data import bert, roberta
from encoder_engine.families.facts.family import PLAIN_BLOCK, Family
from encoder_engine.families.facts.names import Rename

BLOCK = bert.BLOCK
FAMILY = Family(
    model_type="megatron-bert",
    architecture="MegatronBertModel",
    prefix="bert.",
    padding_id=0,
    pooler=True,
    block=replace(PLAIN_BLOCK, norm_first=True),
    embedding_norm=False,
    final_norm=True,
    renames=(
        *bert.WITHOUT_NORMS,
        Rename("blocks.{block}.attention_norm", f"{BLOCK}.attention.ln"),
        Rename("blocks.{block}.feed_forward_norm", f"{BLOCK}.ln"),
        Rename("final_norm", "encoder.ln"),
        bert.POOLER,
    ),
    heads=("cls.", "classifier.", "qa_outputs."),
    layouts=(
        replace(
            bert.CLASSIFIER,
            architecture="MegatronBertForSequenceClassification",
            dropouts=("hidden_dropout_prob",),
        ),
        replace(
            bert.TOKEN_CLASSIFIER,
            architecture="MegatronBertForTokenClassification",
            dropouts=("hidden_dropout_prob",),
        ),
        replace(bert.SPANS, architecture="MegatronBertForQuestionAnswering"),
        replace(roberta.CHOICES, architecture="MegatronBertForMultipleChoice"),
    ),
    in_place=False,
)
