"""BigBird (Zaheer et al. 2020) with full attention: BERT's layers, positions for 4,096 tokens.

A model with block-sparse attention loads if ``attention_type`` is set to ``original_full``.
"""

from dataclasses import replace

from encoder_engine.families.data import bert, roberta
from encoder_engine.families.facts.embedding_quirks import ScaledEmbedding
from encoder_engine.families.facts.family import PLAIN_BLOCK
from encoder_engine.families.facts.head_layout import DenseLayout, HeadLayout
from encoder_engine.families.facts.names import Rename
from encoder_engine.families.facts.quirks import StatedValue

FAMILY = replace(
    bert.FAMILY,
    model_type="big_bird",
    architecture="BigBirdModel",
    block=replace(
        PLAIN_BLOCK, feed_forward=replace(PLAIN_BLOCK.feed_forward, activation="gelu_tanh")
    ),
    flags={"use_bias": ("blocks.attention.bias",)},
    quirks=(
        ScaledEmbedding("rescale_embeddings"),
        StatedValue("attention_type", missing="block_sparse", supported="original_full"),
    ),
    renames=(*bert.RENAMES, Rename("pooler.dense", "pooler")),
    layouts=(
        replace(bert.PREDICTIONS, architecture="BigBirdForMaskedLM"),
        HeadLayout(
            task="sequence-classification",
            architecture="BigBirdForSequenceClassification",
            rows="first",
            dense=DenseLayout(dropout_before=True),
            dropouts=bert.CLASSIFIER_DROPOUTS,
            renames=(Rename("dense", "classifier.dense"), Rename("output", "classifier.out_proj")),
        ),
        replace(bert.TOKEN_CLASSIFIER, architecture="BigBirdForTokenClassification"),
        replace(roberta.CHOICES, architecture="BigBirdForMultipleChoice"),
    ),
    in_place=False,
    ignored=("block_size", "num_random_blocks"),
)
