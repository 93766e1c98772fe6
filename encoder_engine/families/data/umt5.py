"""The encoder of umT5 (Chung et al. 2023): mT5 with a relative bias of its own in each block."""

from dataclasses import replace

from encoder_engine.families.data import mt5, t5
from encoder_engine.families.facts.distance_quirks import RelativeBuckets
from encoder_engine.families.facts.names import Rename

BUCKETS = "relative_attention_num_buckets"
SHARED_BIAS = "relative_bias.table"
FAMILY = replace(
    mt5.FAMILY,
    model_type="umt5",
    architecture="UMT5EncoderModel",
    quirks=(
        *(quirk for quirk in mt5.FAMILY.quirks if BUCKETS not in quirk.keys),
        RelativeBuckets(BUCKETS, "relative_attention_max_distance", by_block=True),
    ),
    renames=(
        *(rename for rename in t5.FAMILY.renames if rename.ours != SHARED_BIAS),
        Rename(
            "blocks.{block}.attention.relative_bias.table",
            f"{t5.ATTENTION}.relative_attention_bias",
        ),
    ),
    ignored=(*mt5.FAMILY.ignored, "scalable_attention"),
    layouts=(replace(t5.CLASSIFIER, architecture="UMT5ForTokenClassification"),),
)
