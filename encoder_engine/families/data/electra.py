"""ELECTRA (Clark et al. 2020): BERT without pooler; embeddings of smaller width are projected."""

from dataclasses import replace

from encoder_engine.families.data.bert import CLASSIFIER_DROPOUTS, RENAMES, SPANS, TOKEN_CLASSIFIER
from encoder_engine.families.facts.family import ConfigKeys, Family
from encoder_engine.families.facts.head_layout import DenseLayout, HeadLayout
from encoder_engine.families.facts.names import Rename

FAMILY = Family(
    model_type="electra",
    architecture="ElectraModel",
    prefix="electra.",
    keys=ConfigKeys(embedding_width="embedding_size"),
    renames=(*RENAMES, Rename("embedding.projection", "embeddings_project")),
    padding_id=0,
    pooler=False,
    heads=(
        "discriminator_predictions.",
        "generator_",
        "classifier.",
        "qa_outputs.",
        "sequence_summary.",
    ),
    layouts=(
        HeadLayout(
            task="masked-lm",
            architecture="ElectraForMaskedLM",
            dense=DenseLayout(activation="gelu", norm=True, to_embedding_width=True),
            renames=(
                Rename("dense", "generator_predictions.dense"),
                Rename("norm", "generator_predictions.LayerNorm"),
                Rename("output", "generator_lm_head"),
            ),
            copies={"generator_lm_head.weight": "embedding.tokens"},
        ),
        HeadLayout(
            task="replaced-tokens",
            architecture="ElectraForPreTraining",
            dense=DenseLayout(),
            num_outputs=1,
            renames=(
                Rename("dense", "discriminator_predictions.dense"),
                Rename("output", "discriminator_predictions.dense_prediction"),
            ),
        ),
        HeadLayout(
            task="sequence-classification",
            architecture="ElectraForSequenceClassification",
            rows="first",
            dense=DenseLayout(activation="gelu", dropout_before=True),
            dropouts=CLASSIFIER_DROPOUTS,
            renames=(Rename("dense", "classifier.dense"), Rename("output", "classifier.out_proj")),
        ),
        replace(TOKEN_CLASSIFIER, architecture="ElectraForTokenClassification"),
        replace(SPANS, architecture="ElectraForQuestionAnswering"),
        HeadLayout(
            task="multiple-choice",
            architecture="ElectraForMultipleChoice",
            rows="first",
            dense=DenseLayout(activation="gelu"),
            num_outputs=1,
            dropouts=("summary_last_dropout",),
            renames=(Rename("dense", "sequence_summary.summary"), Rename("output", "classifier")),
            required={
                "summary_activation": ("gelu",),
                "summary_type": ("first",),
                "summary_use_proj": (True,),
            },
        ),
    ),
    ignored=("summary_activation", "summary_last_dropout", "summary_type", "summary_use_proj"),
)
