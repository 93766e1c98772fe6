"""DeBERTa v2 (He et al. 2021) and v3 (He et al. 2023): disentangled attention.

Scores add products of queries and keys with distance vectors, which the block's own query and key
projections project; buckets of distances widen with the distance. The embeddings have no positions.
In v2 a convolution of the embeddings is added to the first block's result.
"""

from dataclasses import replace

from encoder_engine.families.data.bert import PREDICTIONS, SPANS, TOKEN_CLASSIFIER
from encoder_engine.families.facts.distance_quirks import DisentangledAttention
from encoder_engine.families.facts.family import PLAIN_BLOCK, Family
from encoder_engine.families.facts.head_layout import DenseLayout, HeadLayout
from encoder_engine.families.facts.names import Rename
from encoder_engine.families.facts.quirks import FirstConvolution
from encoder_engine.families.facts.spec import NormSpec

BLOCK = "encoder.layer.{block}"
CLASSIFIER = HeadLayout(
    task="sequence-classification",
    architecture="DebertaV2ForSequenceClassification",
    rows="first",
    dense=DenseLayout(activation="gelu"),
    dropouts=("cls_dropout", "hidden_dropout_prob"),
    renames=(Rename("dense", "pooler.dense"), Rename("output", "classifier")),
    required={"pooler_dropout": (0, 0.0), "pooler_hidden_act": ("gelu",)},
)
FAMILY = Family(
    model_type="deberta-v2",
    architecture="DebertaV2Model",
    prefix="deberta.",
    padding_id=0,
    pooler=False,
    block=replace(PLAIN_BLOCK, norm=NormSpec(epsilon=1e-7)),
    position_table=False,
    segments_optional=True,
    quirks=(DisentangledAttention(), FirstConvolution()),
    renames=(
        Rename("embedding.tokens", "embeddings.word_embeddings"),
        Rename("embedding.segments", "embeddings.token_type_embeddings"),
        Rename("embedding.norm", "embeddings.LayerNorm"),
        Rename("convolution.kernel", "encoder.conv.conv"),
        Rename("convolution.norm", "encoder.conv.LayerNorm"),
        Rename("distance_vectors.table", "encoder.rel_embeddings"),
        Rename("distance_vectors.norm", "encoder.LayerNorm"),
        Rename(
            "blocks.{block}.attention.qkv",
            (
                f"{BLOCK}.attention.self.query_proj",
                f"{BLOCK}.attention.self.key_proj",
                f"{BLOCK}.attention.self.value_proj",
            ),
        ),
        Rename("blocks.{block}.attention.output", f"{BLOCK}.attention.output.dense"),
        Rename("blocks.{block}.attention_norm", f"{BLOCK}.attention.output.LayerNorm"),
        Rename("blocks.{block}.feed_forward.up", f"{BLOCK}.intermediate.dense"),
        Rename("blocks.{block}.feed_forward.down", f"{BLOCK}.output.dense"),
        Rename("blocks.{block}.feed_forward_norm", f"{BLOCK}.output.LayerNorm"),
    ),
    heads=("cls.", "lm_predictions.", "mask_predictions.", "pooler.", "classifier.", "qa_outputs."),
    layouts=(
        replace(PREDICTIONS, architecture="DebertaV2ForMaskedLM", required={"legacy": (True,)}),
        CLASSIFIER,
        replace(
            CLASSIFIER,
            task="multiple-choice",
            architecture="DebertaV2ForMultipleChoice",
            num_outputs=1,
        ),
        replace(
            TOKEN_CLASSIFIER,
            architecture="DebertaV2ForTokenClassification",
            dropouts=("hidden_dropout_prob",),
        ),
        replace(SPANS, architecture="DebertaV2ForQuestionAnswering"),
    ),
    required={"conv_groups": (1,)},
    ignored=(
        "cls_dropout",
        "legacy",
        "pooler_dropout",
        "pooler_hidden_act",
        "pooler_hidden_size",
        "summary_activation",
        "summary_last_dropout",
        "summary_type",
        "summary_use_proj",
    ),
)
