"""Megatron-BERT (Shoeybi et al. 2019): BERT with the norm before attention and feed-forward."""

from dataclasses import replace

from encoder_engine.families.data.bert import (
    CLASSIFIER,
    POOLER,
    SPANS,
    TOKEN_CLASSIFIER,
)
from encoder_engine.families.facts.family import PLAIN_BLOCK, Family
from encoder_engine.families.facts.names import Rename

BLOCK = "encoder.layer.{block}"
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
        Rename("embedding.tokens", "embeddings.word_embeddings"),
        Rename("embedding.positions", "embeddings.position_embeddings"),
        Rename("embedding.segments", "embeddings.token_type_embeddings"),
        Rename(
            "blocks.{block}.attention.qkv",
            (
                f"{BLOCK}.attention.self.query",
                f"{BLOCK}.attention.self.key",
                f"{BLOCK}.attention.self.value",
            ),
        ),
        Rename("blocks.{block}.attention.output", f"{BLOCK}.attention.output.dense"),
        Rename("blocks.{block}.attention_norm", f"{BLOCK}.attention.ln"),
        Rename("blocks.{block}.feed_forward.up", f"{BLOCK}.intermediate.dense"),
        Rename("blocks.{block}.feed_forward.down", f"{BLOCK}.output.dense"),
        Rename("blocks.{block}.feed_forward_norm", f"{BLOCK}.ln"),
        Rename("final_norm", "encoder.ln"),
        POOLER,
    ),
    heads=("cls.", "classifier.", "qa_outputs."),
    layouts=(
        replace(
            CLASSIFIER,
            architecture="MegatronBertForSequenceClassification",
            dropouts=("hidden_dropout_prob",),
        ),
        replace(
            TOKEN_CLASSIFIER,
            architecture="MegatronBertForTokenClassification",
            dropouts=("hidden_dropout_prob",),
        ),
        replace(SPANS, architecture="MegatronBertForQuestionAnswering"),
    ),
    in_place=False,
)
