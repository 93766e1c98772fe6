"""NomicBERT (Nussbaum et al. 2024): BERT with rotary positions and SwiGLU, few biases.

Tensor names are those of the published checkpoints, which transformers keeps when it saves.
"""

from dataclasses import replace

from encoder_engine.families.data import bert
from encoder_engine.families.facts.family import ConfigKeys, Family
from encoder_engine.families.facts.head_layout import DenseLayout, HeadLayout
from encoder_engine.families.facts.names import Rename
from encoder_engine.families.facts.rotary_quirks import RopeParameters
from encoder_engine.families.facts.spec import AttentionSpec, BlockSpec, FeedForwardSpec

BLOCK = "encoder.layers.{block}"
MEMORY_BLOCK = "layers.{block}"
# Parameter names of transformers' class in memory; GTE's are the same.
MEMORY_RENAMES = (
    Rename("embedding.tokens", "embeddings.word_embeddings"),
    Rename("embedding.segments", "embeddings.token_type_embeddings"),
    Rename("embedding.norm", "embeddings.LayerNorm"),
    Rename(
        "blocks.{block}.attention.qkv",
        (
            f"{MEMORY_BLOCK}.self_attn.q_proj",
            f"{MEMORY_BLOCK}.self_attn.k_proj",
            f"{MEMORY_BLOCK}.self_attn.v_proj",
        ),
    ),
    Rename("blocks.{block}.attention.output", f"{MEMORY_BLOCK}.self_attn.o_proj"),
    Rename("blocks.{block}.attention_norm", f"{MEMORY_BLOCK}.post_attention_layernorm"),
    Rename(
        "blocks.{block}.feed_forward.halves",
        (f"{MEMORY_BLOCK}.mlp.gate_proj", f"{MEMORY_BLOCK}.mlp.up_proj"),
    ),
    Rename("blocks.{block}.feed_forward.down", f"{MEMORY_BLOCK}.mlp.down_proj"),
    Rename("blocks.{block}.feed_forward_norm", f"{MEMORY_BLOCK}.post_mlp_layernorm"),
    bert.POOLER,
)

FAMILY = Family(
    model_type="nomic_bert",
    architecture="NomicBertModel",
    prefix="nomic_bert.",
    padding_id=0,
    pooler=False,
    block=BlockSpec(
        attention=AttentionSpec(num_heads=1, head_dim=1, bias=False, output_bias=False),
        feed_forward=FeedForwardSpec(
            width=1, activation="silu", gated=True, up_bias=False, down_bias=False
        ),
    ),
    position_table=False,
    keys=ConfigKeys(head_dim="head_dim"),
    dropout=0.0,
    quirks=(RopeParameters(default_base=1000.0),),
    required={"rope_scaling": (None, {})},
    renames=(
        Rename("embedding.tokens", "embeddings.word_embeddings"),
        Rename("embedding.segments", "embeddings.token_type_embeddings"),
        Rename("embedding.norm", "emb_ln"),
        Rename("blocks.{block}.attention.qkv", f"{BLOCK}.attn.Wqkv"),
        Rename("blocks.{block}.attention.output", f"{BLOCK}.attn.out_proj"),
        Rename("blocks.{block}.attention_norm", f"{BLOCK}.norm1"),
        Rename("blocks.{block}.feed_forward.halves", (f"{BLOCK}.mlp.fc12", f"{BLOCK}.mlp.fc11")),
        Rename("blocks.{block}.feed_forward.down", f"{BLOCK}.mlp.fc2"),
        Rename("blocks.{block}.feed_forward_norm", f"{BLOCK}.norm2"),
    ),
    memory_renames=MEMORY_RENAMES,
    heads=("cls.", "classifier.", "pooler."),
    layouts=(
        replace(
            bert.PREDICTIONS,
            architecture="NomicBertForMaskedLM",
            renames=(
                Rename("dense", "cls.predictions.transform.dense"),
                Rename("norm", "cls.predictions.transform.layer_norm"),
                Rename("output", "cls.predictions"),
            ),
        ),
        HeadLayout(
            task="sequence-classification",
            architecture="NomicBertForSequenceClassification",
            rows="first",
            dense=DenseLayout(activation="tanh"),
            dropouts=bert.CLASSIFIER_DROPOUTS,
            renames=(Rename("dense", "nomic_bert.pooler.dense"), Rename("output", "classifier")),
        ),
        replace(bert.TOKEN_CLASSIFIER, architecture="NomicBertForTokenClassification"),
    ),
)
