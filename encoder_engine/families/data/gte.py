"""GTE (Zhang et al. 2024, mGTE): BERT with rotary positions and a gated feed-forward layer.

Tensor names are those of the published checkpoints (Alibaba-NLP/new-impl), which transformers keeps
when it saves; there the gate is the second half of the up projection.
"""

from dataclasses import replace

from encoder_engine.families.data.bert import CLASSIFIER_DROPOUTS, TOKEN_CLASSIFIER
from encoder_engine.families.data.nomic_bert import MEMORY_RENAMES
from encoder_engine.families.facts.family import DROPOUTS, Family
from encoder_engine.families.facts.head_layout import DenseLayout, HeadLayout
from encoder_engine.families.facts.names import Rename
from encoder_engine.families.facts.rotary_quirks import RopeParameters
from encoder_engine.families.facts.spec import AttentionSpec, BlockSpec, FeedForwardSpec

BLOCK = "encoder.layer.{block}"
FAMILY = Family(
    model_type="gte",
    architecture="GteModel",
    prefix="gte.",
    padding_id=1,
    pooler=False,
    block=BlockSpec(
        attention=AttentionSpec(num_heads=1, head_dim=1),
        feed_forward=FeedForwardSpec(width=1, gated=True, up_bias=False),
    ),
    position_table=False,
    segments_optional=True,
    dropouts={
        "hidden_dropout_prob": (*DROPOUTS["hidden_dropout_prob"], "blocks.feed_forward.dropout"),
        "attention_probs_dropout_prob": DROPOUTS["attention_probs_dropout_prob"],
    },
    quirks=(RopeParameters(default_base=160_000.0),),
    required={"rope_scaling": (None, {})},
    renames=(
        Rename("embedding.tokens", "embeddings.word_embeddings"),
        Rename("embedding.segments", "embeddings.token_type_embeddings"),
        Rename("embedding.norm", "embeddings.LayerNorm"),
        Rename("blocks.{block}.attention.qkv", f"{BLOCK}.attention.qkv_proj"),
        Rename("blocks.{block}.attention.output", f"{BLOCK}.attention.o_proj"),
        Rename("blocks.{block}.attention_norm", f"{BLOCK}.attn_ln"),
        Rename(
            "blocks.{block}.feed_forward.halves", f"{BLOCK}.mlp.up_gate_proj", halves_swapped=True
        ),
        Rename("blocks.{block}.feed_forward.down", f"{BLOCK}.mlp.down_proj"),
        Rename("blocks.{block}.feed_forward_norm", f"{BLOCK}.mlp_ln"),
    ),
    memory_renames=MEMORY_RENAMES,
    heads=("lm_head.", "classifier.", "pooler."),
    layouts=(
        HeadLayout(
            task="masked-lm",
            architecture="GteForMaskedLM",
            dense=DenseLayout(activation="gelu", norm=True),
            renames=(
                Rename("dense", "lm_head.dense"),
                Rename("norm", "lm_head.norm"),
                Rename("output", "lm_head.decoder"),
            ),
            copies={"lm_head.decoder.weight": "embedding.tokens"},
        ),
        HeadLayout(
            task="sequence-classification",
            architecture="GteForSequenceClassification",
            rows="first",
            dense=DenseLayout(activation="tanh"),
            dropouts=CLASSIFIER_DROPOUTS,
            renames=(Rename("dense", "gte.pooler.dense"), Rename("output", "classifier")),
        ),
        replace(TOKEN_CLASSIFIER, architecture="GteForTokenClassification"),
    ),
)
