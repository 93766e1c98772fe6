"""MPNet (Song et al. 2020): BERT with RoBERTa's positions and T5's relative bias.

One table of 32 buckets serves all layers, and positions take 1 as the padding id: both are
constants in transformers, which ignores ``relative_attention_num_buckets``.
"""

from dataclasses import replace

from encoder_engine.families.data import roberta
from encoder_engine.families.data.bert import POOLER, SPANS, TOKEN_CLASSIFIER
from encoder_engine.families.facts.distance_quirks import RelativeBuckets
from encoder_engine.families.facts.family import ConfigKeys, Family
from encoder_engine.families.facts.names import Rename

BLOCK = "encoder.layer.{block}"
FAMILY = Family(
    model_type="mpnet",
    architecture="MPNetModel",
    prefix="mpnet.",
    padding_id=1,
    positions_follow_padding_id=True,
    pooler=True,
    keys=ConfigKeys(num_segments=None),
    quirks=(RelativeBuckets("relative_attention_num_buckets"),),
    renames=(
        Rename("embedding.tokens", "embeddings.word_embeddings"),
        Rename("embedding.positions", "embeddings.position_embeddings"),
        Rename("embedding.norm", "embeddings.LayerNorm"),
        Rename("relative_bias.table", "encoder.relative_attention_bias"),
        Rename(
            "blocks.{block}.attention.qkv",
            (f"{BLOCK}.attention.attn.q", f"{BLOCK}.attention.attn.k", f"{BLOCK}.attention.attn.v"),
        ),
        Rename("blocks.{block}.attention.output", f"{BLOCK}.attention.attn.o"),
        Rename("blocks.{block}.attention_norm", f"{BLOCK}.attention.LayerNorm"),
        Rename("blocks.{block}.feed_forward.up", f"{BLOCK}.intermediate.dense"),
        Rename("blocks.{block}.feed_forward.down", f"{BLOCK}.output.dense"),
        Rename("blocks.{block}.feed_forward_norm", f"{BLOCK}.output.LayerNorm"),
        POOLER,
    ),
    heads=("lm_head.", "classifier.", "qa_outputs."),
    layouts=(
        replace(roberta.PREDICTIONS, architecture="MPNetForMaskedLM"),
        replace(
            roberta.CLASSIFIER,
            architecture="MPNetForSequenceClassification",
            dropouts=("hidden_dropout_prob",),
        ),
        replace(
            TOKEN_CLASSIFIER,
            architecture="MPNetForTokenClassification",
            dropouts=("hidden_dropout_prob",),
        ),
        replace(SPANS, architecture="MPNetForQuestionAnswering"),
        replace(roberta.CHOICES, architecture="MPNetForMultipleChoice"),
    ),
    required={"relative_attention_num_buckets": (32,), "pad_token_id": (1, None)},
)
