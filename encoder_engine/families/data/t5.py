"""The encoder of T5 (Raffel et al. 2020) and T5 1.1: pre-norm with RMS norms, a relative bias.

Scores are not scaled, no layer has a bias or positions, and texts may have any length. T5 1.1 and
its successors (Flan-T5) gate the feed-forward layer with GELU in its tanh form.
"""

from dataclasses import replace

from encoder_engine.families.data.bert import TOKEN_CLASSIFIER
from encoder_engine.families.facts.distance_quirks import RelativeBuckets
from encoder_engine.families.facts.family import ConfigKeys, Family
from encoder_engine.families.facts.names import Rename
from encoder_engine.families.facts.quirks import FeedForwardName
from encoder_engine.families.facts.spec import AttentionSpec, BlockSpec, FeedForwardSpec, NormSpec

BLOCK = "encoder.block.{block}.layer"
FIRST_ATTENTION = "encoder.block.0.layer.0.SelfAttention"
ATTENTION, FEED_FORWARD = f"{BLOCK}.0.SelfAttention", f"{BLOCK}.1.DenseReluDense"
# T5's other heads belong to the decoder.
CLASSIFIER = replace(
    TOKEN_CLASSIFIER,
    architecture="T5ForTokenClassification",
    dropouts=("classifier_dropout",),
    dropout=0.0,
)
FAMILY = Family(
    model_type="t5",
    architecture="T5EncoderModel",
    prefix="transformer.",
    padding_id=0,
    pooler=False,
    block=BlockSpec(
        attention=AttentionSpec(num_heads=1, head_dim=1, bias=False, output_bias=False, scale=1.0),
        feed_forward=FeedForwardSpec(width=1, up_bias=False, down_bias=False),
        norm=NormSpec(epsilon=1e-6, bias=False, centred=False),
        norm_first=True,
    ),
    embedding_norm=False,
    final_norm=True,
    position_table=False,
    keys=ConfigKeys(
        width="d_model",
        num_blocks="num_layers",
        num_heads="num_heads",
        head_dim="d_kv",
        feed_forward_width="d_ff",
        num_positions=None,
        activation=None,
        norm_epsilon="layer_norm_epsilon",
        num_segments=None,
    ),
    dropouts={
        "dropout_rate": (
            "embedding.dropout",
            "blocks.attention.dropout",
            "blocks.attention.output_dropout",
            "blocks.feed_forward.dropout",
            "blocks.feed_forward.output_dropout",
            "final_dropout",
        )
    },
    quirks=(
        FeedForwardName(
            "feed_forward_proj",
            names=(
                ("relu", ("relu", False)),
                ("gated-gelu", ("gelu_tanh", True)),
                ("gated-silu", ("silu", True)),
                ("gelu", ("gelu", False)),
            ),
            activation_key="dense_act_fn",
            gate_key="is_gated_act",
        ),
        RelativeBuckets("relative_attention_num_buckets", "relative_attention_max_distance"),
    ),
    renames=(
        Rename("embedding.tokens", "shared"),
        Rename("relative_bias.table", f"{FIRST_ATTENTION}.relative_attention_bias"),
        Rename(
            "blocks.{block}.attention.qkv", (f"{ATTENTION}.q", f"{ATTENTION}.k", f"{ATTENTION}.v")
        ),
        Rename("blocks.{block}.attention.output", f"{ATTENTION}.o"),
        Rename("blocks.{block}.attention_norm", f"{BLOCK}.0.layer_norm"),
        Rename("blocks.{block}.feed_forward.up", f"{FEED_FORWARD}.wi"),
        Rename(
            "blocks.{block}.feed_forward.halves", (f"{FEED_FORWARD}.wi_0", f"{FEED_FORWARD}.wi_1")
        ),
        Rename("blocks.{block}.feed_forward.down", f"{FEED_FORWARD}.wo"),
        Rename("blocks.{block}.feed_forward_norm", f"{BLOCK}.1.layer_norm"),
        Rename("final_norm", "encoder.final_layer_norm"),
    ),
    copies={"encoder.embed_tokens.weight": "shared.weight"},
    heads=("decoder.", "lm_head.", "classification_head.", "classifier."),
    layouts=(CLASSIFIER,),
    # The decoder, where there is one, is left in the file.
    required={"is_encoder_decoder": (False, True)},
    ignored=(
        "classifier_dropout",
        "initializer_factor",
        "n_positions",
        "num_decoder_layers",
        "scale_decoder_outputs",
    ),
)
