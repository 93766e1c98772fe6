"""Gemma 3 (2025) as an encoder, and EmbeddingGemma: causal, or bidirectional attention.

RMS norms on both sides of attention and feed-forward, with the weight 1 + w; norms of each head of
query and key; embeddings times the square root of the width; windowed attention in five of six
layers.
"""

from dataclasses import replace

from encoder_engine.families.data import llama
from encoder_engine.families.facts.decoder_quirks import GemmaLayers
from encoder_engine.families.facts.names import Rename
from encoder_engine.families.facts.spec import NormSpec

BLOCK = llama.BLOCK
NORM = NormSpec(epsilon=1e-6, bias=False, centred=False, offset=1.0)
FAMILY = replace(
    llama.FAMILY,
    model_type="gemma3_text",
    architecture="Gemma3TextModel",
    layouts=(replace(llama.CLASSIFIER, architecture="Gemma3TextForSequenceClassification"),),
    padding_id=0,
    block=replace(
        llama.FAMILY.block,
        attention=replace(llama.FAMILY.block.attention, head_dim=256, query_key_norm=NORM),
        feed_forward=replace(llama.FAMILY.block.feed_forward, activation="gelu_tanh"),
        norm=NORM,
        output_norms=True,
    ),
    keys=replace(llama.KEYS, activation="hidden_activation"),
    flags={"attention_bias": ("blocks.attention.bias", "blocks.attention.output_bias")},
    quirks=(GemmaLayers(),),
    renames=(
        *(one for one in llama.RENAMES if one.ours != "blocks.{block}.feed_forward_norm"),
        Rename("blocks.{block}.attention.query_norm", f"{BLOCK}.self_attn.q_norm"),
        Rename("blocks.{block}.attention.key_norm", f"{BLOCK}.self_attn.k_norm"),
        Rename("blocks.{block}.attention_output_norm", f"{BLOCK}.post_attention_layernorm"),
        Rename("blocks.{block}.feed_forward_norm", f"{BLOCK}.pre_feedforward_layernorm"),
        Rename("blocks.{block}.feed_forward_output_norm", f"{BLOCK}.post_feedforward_layernorm"),
    ),
    vocabulary_tied=True,
    # Its own key is use_bidirectional_attention.
    required={"attn_logit_softcapping": (None,), "is_causal": (True,)},
    ignored=("final_logit_softcapping",),
)
