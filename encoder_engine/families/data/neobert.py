"""NeoBERT (Le Breton et al. 2025): deep and narrow, pre-norm with RMS norms, rotary, SwiGLU.

Names and layout follow ``NeoBERT`` of model.py in chandar-lab/NeoBERT: query, key and value of a
head side by side, rotary pairs of neighbouring features, the gate before the other half.
"""

from dataclasses import replace

from encoder_engine.families.data import llama
from encoder_engine.families.facts.family import ConfigKeys, Family
from encoder_engine.families.facts.names import Rename
from encoder_engine.families.facts.quirks import TwoThirds
from encoder_engine.families.facts.rotary_quirks import PairedRotary

BLOCK = "transformer_encoder.{block}"
FAMILY = Family(
    model_type="neobert",
    architecture="NeoBERT",
    prefix="model.",
    padding_id=0,
    pooler=False,
    block=replace(
        llama.FAMILY.block,
        attention=replace(llama.FAMILY.block.attention, causal=False, stacked_by_head=True),
    ),
    embedding_norm=False,
    final_norm=True,
    position_table=False,
    keys=ConfigKeys(
        num_positions="max_length", activation=None, norm_epsilon="norm_eps", num_segments=None
    ),
    dropout=0.0,
    dropouts={},
    quirks=(PairedRotary(base=10_000.0), TwoThirds("intermediate_size", multiple=8)),
    renames=(
        Rename("embedding.tokens", "encoder"),
        Rename("blocks.{block}.attention.qkv", f"{BLOCK}.qkv"),
        Rename("blocks.{block}.attention.output", f"{BLOCK}.wo"),
        Rename("blocks.{block}.attention_norm", f"{BLOCK}.attention_norm"),
        Rename("blocks.{block}.feed_forward.halves", f"{BLOCK}.ffn.w12"),
        Rename("blocks.{block}.feed_forward.down", f"{BLOCK}.ffn.w3"),
        Rename("blocks.{block}.feed_forward_norm", f"{BLOCK}.ffn_norm"),
        Rename("final_norm", "layer_norm"),
    ),
    heads=("decoder.", "dense.", "classifier."),
    buffers=("freqs_cis",),
    in_place=False,
    required={
        "hidden_act": ("SwiGLU", "swiglu"),
        "ngpt": (False,),
        "rms_norm": (True,),
        "rope": (True,),
    },
    ignored=(
        "base_scale",
        "decoder_init_range",
        "dim_head",
        "embedding_init_range",
        "flash_attention",
        "kwargs",
    ),
    code=("chandar-lab/NeoBERT--", "model.NeoBERT"),
)
