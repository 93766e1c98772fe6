"""Qwen3 (Yang et al. 2025) as an encoder: Llama with RMS norms of each head of query and key.

Qwen3-Embedding pools the last token.
"""

from dataclasses import replace

from encoder_engine.families.data import llama
from encoder_engine.families.facts.decoder_quirks import CausalWindows
from encoder_engine.families.facts.names import Rename
from encoder_engine.families.facts.scaled_rotary import ScaledRope

BLOCK = llama.FAMILY.block
FAMILY = replace(
    llama.FAMILY,
    model_type="qwen3",
    architecture="Qwen3Model",
    layouts=(
        replace(llama.CLASSIFIER, architecture="Qwen3ForSequenceClassification"),
        replace(llama.TOKEN_CLASSIFIER, architecture="Qwen3ForTokenClassification"),
    ),
    block=replace(
        BLOCK, attention=replace(BLOCK.attention, head_dim=128, query_key_norm=BLOCK.norm)
    ),
    flags={
        "attention_bias": ("blocks.attention.bias", "blocks.attention.output_bias"),
        **llama.CAUSAL,
    },
    quirks=(ScaledRope(), CausalWindows(switch="use_sliding_window")),
    renames=(
        *llama.RENAMES,
        Rename("blocks.{block}.attention.query_norm", f"{llama.BLOCK}.self_attn.q_norm"),
        Rename("blocks.{block}.attention.key_norm", f"{llama.BLOCK}.self_attn.k_norm"),
    ),
)
