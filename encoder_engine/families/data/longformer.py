"""Longformer (Beltagy et al. 2020): RoBERTa with a window, and global tokens that see beyond it.

Global tokens have query, key and value projections of their own. transformers pads a text to whole
windows; here nothing is padded.
"""

from dataclasses import replace

from encoder_engine.families.data import roberta
from encoder_engine.families.data.bert import BLOCK, SPANS, TOKEN_CLASSIFIER
from encoder_engine.families.facts.family import PLAIN_BLOCK
from encoder_engine.families.facts.names import Rename
from encoder_engine.families.facts.quirks import LayerWindows

ATTENTION = f"{BLOCK}.attention.self"
FAMILY = replace(
    roberta.FAMILY,
    model_type="longformer",
    architecture="LongformerModel",
    prefix="longformer.",
    block=replace(
        PLAIN_BLOCK, attention=replace(PLAIN_BLOCK.attention, window=1, global_projections=True)
    ),
    quirks=(LayerWindows("attention_window"),),
    renames=(
        *roberta.FAMILY.renames,
        Rename("blocks.{block}.attention.global_query", f"{ATTENTION}.query_global"),
        Rename(
            "blocks.{block}.attention.global_key_value",
            (f"{ATTENTION}.key_global", f"{ATTENTION}.value_global"),
        ),
    ),
    layouts=(
        replace(roberta.PREDICTIONS, architecture="LongformerForMaskedLM"),
        replace(
            roberta.CLASSIFIER,
            architecture="LongformerForSequenceClassification",
            dropouts=("hidden_dropout_prob",),
            sees_all="first",
        ),
        replace(
            TOKEN_CLASSIFIER,
            architecture="LongformerForTokenClassification",
            dropouts=("hidden_dropout_prob",),
        ),
        replace(SPANS, architecture="LongformerForQuestionAnswering", sees_all="question"),
    ),
    ignored=("attention_mode", "ignore_attention_mask", "onnx_export"),
)
