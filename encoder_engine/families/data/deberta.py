"""DeBERTa v1 (He et al. 2021): disentangled attention, with a learned vector per distance.

Each block projects the distance vectors by matrices of its own. Keys have no bias. A checkpoint
stores query, key and value of a head side by side.
"""

from dataclasses import replace

from encoder_engine.families.data import deberta_v2
from encoder_engine.families.data.bert import PREDICTIONS, SPANS, TOKEN_CLASSIFIER
from encoder_engine.families.facts.distance_quirks import DisentangledAttention
from encoder_engine.families.facts.names import Rename

SECOND = deberta_v2.FAMILY
SELF = f"{deberta_v2.BLOCK}.attention.self"
LAYOUTS = {layout.task: layout for layout in SECOND.layouts}
FAMILY = replace(
    SECOND,
    model_type="deberta",
    architecture="DebertaModel",
    block=replace(
        SECOND.block,
        attention=replace(
            SECOND.block.attention, key_bias=False, stacked_by_head=True, distance_projections=True
        ),
    ),
    quirks=(DisentangledAttention(own_projections=True),),
    renames=(
        *(
            rename
            for rename in SECOND.renames
            if not rename.ours.endswith(("attention.qkv", "distance_vectors.norm"))
            and not rename.ours.startswith("convolution.")
        ),
        Rename(
            "blocks.{block}.attention.qkv",
            f"{SELF}.in_proj",
            biases=(f"{SELF}.q_bias", f"{SELF}.v_bias"),
        ),
        Rename("blocks.{block}.attention.distance_key", f"{SELF}.pos_proj"),
        Rename("blocks.{block}.attention.distance_query", f"{SELF}.pos_q_proj"),
    ),
    layouts=(
        replace(PREDICTIONS, architecture="DebertaForMaskedLM", required={"legacy": (True,)}),
        replace(
            LAYOUTS["sequence-classification"], architecture="DebertaForSequenceClassification"
        ),
        replace(
            TOKEN_CLASSIFIER,
            architecture="DebertaForTokenClassification",
            dropouts=("hidden_dropout_prob",),
        ),
        replace(SPANS, architecture="DebertaForQuestionAnswering"),
    ),
    ignored=(*SECOND.ignored, "padding_idx"),
    required={"talking_head": (False,)},
    in_place=False,
)
