"""ELECTRA (Clark et al. 2020): BERT without pooler; narrower embeddings are projected."""

from encoder_engine.models.families.bert import RENAMES
from encoder_engine.models.names import Rename
from encoder_engine.models.registry import ConfigKeys, Family

FAMILY = Family(
    model_type="electra",
    architecture="ElectraModel",
    prefix="electra.",
    keys=ConfigKeys(embedding_width="embedding_size"),
    renames=(*RENAMES, Rename("embedding.projection", "embeddings_project")),
    padding_id=0,
    pooler=False,
    heads=("discriminator_predictions.", "generator_", "classifier.", "qa_outputs."),
    ignored=(
        "summary_activation",
        "summary_last_dropout",
        "summary_type",
        "summary_use_proj",
    ),
)
