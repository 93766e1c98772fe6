"""The encoder of BART (Lewis et al. 2020): BERT's post-norm blocks; positions start at row 2.

Token embeddings may be multiplied by the square root of the width. The decoder is not loaded.
"""

from dataclasses import replace

from encoder_engine.families.facts.embedding_quirks import OffsetPositions, ScaledEmbedding
from encoder_engine.families.facts.family import PLAIN_BLOCK, ConfigKeys, Family
from encoder_engine.families.facts.names import Rename
from encoder_engine.families.facts.spec import NormSpec

BLOCK = "encoder.layers.{block}"
ATTENTION = f"{BLOCK}.self_attn"
FAMILY = Family(
    model_type="bart",
    architecture="BartModel",
    prefix="model.",
    padding_id=1,
    pooler=False,
    block=replace(PLAIN_BLOCK, norm=NormSpec(epsilon=1e-5)),
    keys=ConfigKeys(
        width="d_model",
        num_blocks="encoder_layers",
        num_heads="encoder_attention_heads",
        feed_forward_width="encoder_ffn_dim",
        activation="activation_function",
        norm_epsilon=None,
        num_segments=None,
    ),
    dropouts={
        "dropout": (
            "embedding.dropout",
            "blocks.attention.output_dropout",
            "blocks.feed_forward.output_dropout",
        ),
        "attention_dropout": ("blocks.attention.dropout",),
        "activation_dropout": ("blocks.feed_forward.dropout",),
    },
    quirks=(
        OffsetPositions("max_position_embeddings", offset=2),
        ScaledEmbedding("scale_embedding"),
    ),
    renames=(
        Rename("embedding.tokens", "shared"),
        Rename("embedding.positions", "encoder.embed_positions"),
        Rename("embedding.norm", "encoder.layernorm_embedding"),
        Rename(
            "blocks.{block}.attention.qkv",
            (f"{ATTENTION}.q_proj", f"{ATTENTION}.k_proj", f"{ATTENTION}.v_proj"),
        ),
        Rename("blocks.{block}.attention.output", f"{ATTENTION}.out_proj"),
        Rename("blocks.{block}.attention_norm", f"{BLOCK}.self_attn_layer_norm"),
        Rename("blocks.{block}.feed_forward.up", f"{BLOCK}.fc1"),
        Rename("blocks.{block}.feed_forward.down", f"{BLOCK}.fc2"),
        Rename("blocks.{block}.feed_forward_norm", f"{BLOCK}.final_layer_norm"),
    ),
    copies={"encoder.embed_tokens.weight": "shared.weight"},
    heads=("decoder.", "lm_head.", "final_logits_bias", "classification_head.", "qa_outputs."),
    in_place=False,
    required={
        "is_encoder_decoder": (False, True),
        "normalize_before": (False,),
        "normalize_embedding": (True,),
        "add_final_layer_norm": (False,),
        "static_position_embeddings": (False,),
        "extra_pos_embeddings": (2,),
    },
    ignored=(
        "add_bias_logits",
        "classif_dropout",
        "decoder_attention_heads",
        "decoder_ffn_dim",
        "decoder_layerdrop",
        "decoder_layers",
        "early_stopping",
        "encoder_layerdrop",
        "force_bos_token_to_be_generated",
        "forced_bos_token_id",
        "forced_eos_token_id",
        "init_std",
        "length_penalty",
        "min_length",
        "no_repeat_ngram_size",
        "num_beams",
        "num_hidden_layers",
        "prefix",
        "save_step",
    ),
)
