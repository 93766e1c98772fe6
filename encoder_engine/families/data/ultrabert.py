"""UltraBERT (2026): EuroBERT's layers with windows in two of three, each kind with its own base."""

from dataclasses import replace

from encoder_engine.families.data import eurobert
from encoder_engine.families.facts.decoder_quirks import SlidingLayers

FAMILY = replace(
    eurobert.FAMILY,
    model_type="ultrabert",
    architecture="UltrabertModel",
    padding_id=0,
    block=replace(eurobert.FAMILY.block, norm=replace(eurobert.FAMILY.block.norm, epsilon=1e-6)),
    quirks=(SlidingLayers(full_base=2_560_000.0),),
    heads=("lm_head.", "head.", "classifier.", "qa_outputs."),
    required={"rope_scaling": (None, {})},
    ignored=("classifier_pooling", "prediction_head_size"),
    code=(),
)
