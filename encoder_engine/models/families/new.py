"""GTE as its authors publish it: Alibaba-NLP/new-impl (gte-base-en-v1.5, gte-multilingual-base).

What transformers calls GTE, under another configuration: the base of the angles is
``rope_theta``, stretched where ``rope_scaling`` says so. The layout follows ``NewModel`` of
modeling.py there.
"""

from dataclasses import replace

from encoder_engine.models.families import gte
from encoder_engine.models.quirks import RopeTheta

FAMILY = replace(
    gte.FAMILY,
    model_type="new",
    architecture="NewModel",
    prefix="new.",
    padding_id=0,
    quirks=(RopeTheta(default_base=10_000.0),),
    required={
        "position_embedding_type": ("rope",),
        "layer_norm_type": ("layer_norm",),
        "logn_attention_scale": (False,),
        "pack_qkv": (True,),
    },
    ignored=("logn_attention_clip1", "unpad_inputs", "use_memory_efficient_attention"),
    code=("Alibaba-NLP/new-impl--", "configuration.New", "modeling.New"),
)
