"""Qwen2 (Yang et al. 2024) as an encoder: Llama with biases of query, key and value.

Used by gte-Qwen2, and as the text model of embedders such as Jina's. If the configuration enables
windows, the last layers have them.
"""

from dataclasses import replace

from encoder_engine.families.data import llama
from encoder_engine.families.facts.decoder_quirks import CausalWindows
from encoder_engine.families.facts.family import ConfigKeys
from encoder_engine.families.facts.scaled_rotary import ScaledRope

BLOCK = llama.FAMILY.block
FAMILY = replace(
    llama.FAMILY,
    model_type="qwen2",
    architecture="Qwen2Model",
    layouts=(
        replace(llama.CLASSIFIER, architecture="Qwen2ForSequenceClassification"),
        replace(llama.TOKEN_CLASSIFIER, architecture="Qwen2ForTokenClassification"),
    ),
    block=replace(BLOCK, attention=replace(BLOCK.attention, bias=True)),
    keys=ConfigKeys(
        num_key_heads="num_key_value_heads", norm_epsilon="rms_norm_eps", num_segments=None
    ),
    flags=llama.CAUSAL,
    quirks=(ScaledRope(), CausalWindows(switch="use_sliding_window")),
)
