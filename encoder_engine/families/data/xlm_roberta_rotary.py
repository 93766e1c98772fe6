"""XLM-R with rotary positions (jina-embeddings-v3, jina-colbert-v2): as Jina publishes it.

Tensors are those of :mod:`encoder_engine.families.data.xlm_roberta_flash`, without positions.
"""

from dataclasses import replace

from encoder_engine.families.data import xlm_roberta_flash
from encoder_engine.families.facts.rotary_quirks import RotaryBase

FAMILY = replace(
    xlm_roberta_flash.FAMILY,
    model_type="xlm_roberta_rotary",
    marks={"position_embedding_type": "rotary"},
    position_table=False,
    positions_follow_padding_id=False,
    renames=tuple(
        rename
        for rename in xlm_roberta_flash.FAMILY.renames
        if rename.ours != "embedding.positions"
    ),
    quirks=(RotaryBase("rotary_emb_base", default_base=10_000.0),),
    required={"position_embedding_type": ("rotary",)},
)
