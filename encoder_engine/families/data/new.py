"""GTE as its authors publish it: Alibaba-NLP/new-impl (gte-base-en-v1.5, gte-multilingual-base).

The same model as transformers' GTE, with other configuration keys: the rotary base is
``rope_theta``, scaled by ``rope_scaling``. The layout follows ``NewModel`` of modeling.py there.
"""

from dataclasses import replace

from encoder_engine.families.data import gte
from encoder_engine.families.facts.names import Rename
from encoder_engine.families.facts.rotary_quirks import RopeTheta

GTE_PREDICTIONS, GTE_CLASSIFIER, GTE_TOKEN_CLASSIFIER = gte.FAMILY.layouts
FAMILY = replace(
    gte.FAMILY,
    model_type="new",
    architecture="NewModel",
    prefix="new.",
    padding_id=0,
    layouts=(
        replace(GTE_PREDICTIONS, architecture="NewForMaskedLM"),
        replace(
            GTE_CLASSIFIER,
            architecture="NewForSequenceClassification",
            renames=(Rename("dense", "new.pooler.dense"), Rename("output", "classifier")),
        ),
        replace(GTE_TOKEN_CLASSIFIER, architecture="NewForTokenClassification"),
    ),
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
