"""RoFormer (Su et al. 2021): BERT's layers with rotary positions, of neighbouring features."""

from dataclasses import replace

from encoder_engine.families.data import bert
from encoder_engine.families.facts.family import ConfigKeys, Family
from encoder_engine.families.facts.head_layout import DenseLayout, HeadLayout
from encoder_engine.families.facts.names import Rename
from encoder_engine.families.facts.rotary_quirks import PairedRotary

FAMILY = Family(
    model_type="roformer",
    architecture="RoFormerModel",
    prefix="roformer.",
    padding_id=0,
    pooler=False,
    position_table=False,
    keys=ConfigKeys(embedding_width="embedding_size"),
    quirks=(PairedRotary(base=10_000.0, key="rotary_value"),),
    renames=(
        *(rename for rename in bert.RENAMES if rename.ours != "embedding.positions"),
        Rename("embedding.projection", "embeddings_project"),
    ),
    heads=("cls.", "classifier.", "sequence_summary.", "qa_outputs."),
    layouts=(
        replace(bert.PREDICTIONS, architecture="RoFormerForMaskedLM"),
        HeadLayout(
            task="sequence-classification",
            architecture="RoFormerForSequenceClassification",
            rows="first",
            dense=DenseLayout(dropout_before=True),
            dropouts=("hidden_dropout_prob",),
            renames=(Rename("dense", "classifier.dense"), Rename("output", "classifier.out_proj")),
        ),
        replace(
            bert.TOKEN_CLASSIFIER,
            architecture="RoFormerForTokenClassification",
            dropouts=("hidden_dropout_prob",),
        ),
        replace(bert.SPANS, architecture="RoFormerForQuestionAnswering"),
    ),
    # The table of sines and cosines, which follows from the sizes.
    buffers=(r"encoder\.embed_positions\.weight",),
    in_place=False,
)
