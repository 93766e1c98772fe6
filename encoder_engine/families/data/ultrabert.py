"""UltraBERT (2026): EuroBERT's layers; two of three have a window, with another rotary base."""

from dataclasses import replace

from encoder_engine.families.data import eurobert
from encoder_engine.families.facts.decoder_quirks import SlidingLayers
from encoder_engine.families.facts.head_layout import HeadLayout
from encoder_engine.families.facts.names import Rename

FAMILY = replace(
    eurobert.FAMILY,
    model_type="ultrabert",
    architecture="UltrabertModel",
    prefix="ultrabert.",
    padding_id=0,
    block=replace(eurobert.FAMILY.block, norm=replace(eurobert.FAMILY.block.norm, epsilon=1e-6)),
    quirks=(SlidingLayers(full_base=2_560_000.0),),
    heads=("lm_head.", "head.", "classifier.", "qa_outputs."),
    layouts=(
        HeadLayout(
            task="sequence-classification",
            architecture="UltrabertForSequenceClassification",
            rows="first",
            rows_keys=("classifier_pooling",),
            rows_names={"cls": "first", "mean": "mean"},
            dropouts=("classifier_dropout",),
            dropout=0.0,
            renames=(Rename("output", "classifier"),),
        ),
        HeadLayout(
            task="token-classification",
            architecture="UltrabertForTokenClassification",
            dropouts=("classifier_dropout",),
            dropout=0.0,
            renames=(Rename("output", "classifier"),),
        ),
    ),
    required={"rope_scaling": (None, {})},
    ignored=("classifier_pooling", "prediction_head_size"),
    code=(),
)
