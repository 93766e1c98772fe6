"""RoBERTa (Liu et al. 2019): BERT's layers; positions count on from the padding id."""

from encoder_engine.models.families.bert import POOLER, RENAMES
from encoder_engine.models.registry import Family

FAMILY = Family(
    model_type="roberta",
    architecture="RobertaModel",
    prefix="roberta.",
    renames=(*RENAMES, POOLER),
    padding_id=1,
    positions_follow_padding_id=True,
    pooler=True,
    heads=("lm_head.", "classifier.", "qa_outputs."),
)
