"""The encoder of mT5 (Xue et al. 2021): T5 1.1 with a multilingual vocabulary."""

from dataclasses import replace

from encoder_engine.families.data import t5
from encoder_engine.families.facts.distance_quirks import RelativeBuckets
from encoder_engine.families.facts.quirks import FeedForwardName

FAMILY = replace(
    t5.FAMILY,
    model_type="mt5",
    architecture="MT5EncoderModel",
    quirks=(
        FeedForwardName(
            "feed_forward_proj",
            # The first is what a file without the key means.
            names=(
                ("gated-gelu", ("gelu_tanh", True)),
                ("relu", ("relu", False)),
                ("gated-silu", ("silu", True)),
                ("gelu", ("gelu", False)),
            ),
            activation_key="dense_act_fn",
            gate_key="is_gated_act",
        ),
        RelativeBuckets("relative_attention_num_buckets", "relative_attention_max_distance"),
    ),
    layouts=(replace(t5.CLASSIFIER, architecture="MT5ForTokenClassification"),),
    in_place=False,
)
