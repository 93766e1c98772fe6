"""ALBERT (Lan et al. 2020): projected embeddings of small width; one block shared by all layers.

Published sizes have one group of layers. With several groups, each is a run of layers that share a
block.
"""

from dataclasses import replace

from encoder_engine.families.data.bert import CHOICES, CLASSIFIER, SPANS, TOKEN_CLASSIFIER
from encoder_engine.families.facts.family import PLAIN_BLOCK, ConfigKeys, Family
from encoder_engine.families.facts.head_layout import DenseLayout, HeadLayout
from encoder_engine.families.facts.names import Rename
from encoder_engine.families.facts.quirks import SharedGroups

BLOCK = "encoder.albert_layer_groups.{block}.albert_layers.0"
FAMILY = Family(
    model_type="albert",
    architecture="AlbertModel",
    prefix="albert.",
    padding_id=0,
    pooler=True,
    block=replace(
        PLAIN_BLOCK, feed_forward=replace(PLAIN_BLOCK.feed_forward, activation="gelu_tanh")
    ),
    embedding_projected=True,
    keys=ConfigKeys(embedding_width="embedding_size"),
    dropout=0.0,
    quirks=(SharedGroups("num_hidden_groups"),),
    renames=(
        Rename("embedding.tokens", "embeddings.word_embeddings"),
        Rename("embedding.positions", "embeddings.position_embeddings"),
        Rename("embedding.segments", "embeddings.token_type_embeddings"),
        Rename("embedding.norm", "embeddings.LayerNorm"),
        Rename("embedding.projection", "encoder.embedding_hidden_mapping_in"),
        Rename(
            "blocks.{block}.attention.qkv",
            (f"{BLOCK}.attention.query", f"{BLOCK}.attention.key", f"{BLOCK}.attention.value"),
        ),
        Rename("blocks.{block}.attention.output", f"{BLOCK}.attention.dense"),
        Rename("blocks.{block}.attention_norm", f"{BLOCK}.attention.LayerNorm"),
        Rename("blocks.{block}.feed_forward.up", f"{BLOCK}.ffn"),
        Rename("blocks.{block}.feed_forward.down", f"{BLOCK}.ffn_output"),
        Rename("blocks.{block}.feed_forward_norm", f"{BLOCK}.full_layer_layer_norm"),
        Rename("pooler.dense", "pooler"),
    ),
    heads=("predictions.", "sop_classifier.", "classifier.", "qa_outputs."),
    layouts=(
        HeadLayout(
            task="masked-lm",
            architecture="AlbertForMaskedLM",
            dense=DenseLayout(norm=True, to_embedding_width=True),
            renames=(
                Rename("dense", "predictions.dense"),
                Rename("norm", "predictions.LayerNorm"),
                Rename("output", "predictions"),
            ),
            copies={
                "predictions.decoder.weight": "embedding.tokens",
                "predictions.decoder.bias": "predictions.bias",
            },
        ),
        replace(
            CLASSIFIER,
            architecture="AlbertForSequenceClassification",
            dropouts=("classifier_dropout_prob",),
        ),
        replace(
            TOKEN_CLASSIFIER,
            architecture="AlbertForTokenClassification",
            dropouts=("classifier_dropout_prob", "hidden_dropout_prob"),
        ),
        replace(SPANS, architecture="AlbertForQuestionAnswering"),
        replace(
            CHOICES, architecture="AlbertForMultipleChoice", dropouts=("classifier_dropout_prob",)
        ),
    ),
    # No published checkpoint has a layer of several blocks.
    required={"inner_group_num": (1,)},
    ignored=("classifier_dropout_prob", "down_scale_factor", "gap_size", "net_structure_type"),
)
