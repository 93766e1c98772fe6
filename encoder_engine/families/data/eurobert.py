"""EuroBERT (Boizard et al. 2025): Llama's layers with attention in both directions."""

from dataclasses import replace

from encoder_engine.families.data import llama
from encoder_engine.families.facts.head_layout import DenseLayout, HeadLayout
from encoder_engine.families.facts.names import Rename

FAMILY = replace(
    llama.FAMILY,
    model_type="eurobert",
    architecture="EuroBertModel",
    padding_id=128_001,
    block=replace(
        llama.FAMILY.block,
        attention=replace(llama.FAMILY.block.attention, causal=False),
        norm=replace(llama.FAMILY.block.norm, epsilon=1e-5),
    ),
    flags={key: paths for key, paths in llama.FAMILY.flags.items() if key not in llama.CAUSAL},
    ignored=(
        "bos_token",
        # Of a classifier's head.
        "classifier_pooling",
        "clf_pooling",
        "eos_token",
        "hidden_dropout",
        "mask_token",
        "pad_token",
        "pretraining_tp",
    ),
    vocabulary=None,
    heads=(*llama.FAMILY.heads, "dense."),
    layouts=(
        HeadLayout(
            task="sequence-classification",
            architecture="EuroBertForSequenceClassification",
            rows="late",
            # The second is that of the authors' code.
            rows_keys=("classifier_pooling", "clf_pooling"),
            rows_names={"bos": "first", "mean": "mean", "late": "late"},
            dense=DenseLayout(activation="gelu"),
            renames=(Rename("dense", "dense"), Rename("output", "classifier")),
        ),
        HeadLayout(
            task="token-classification",
            architecture="EuroBertForTokenClassification",
            renames=(Rename("output", "classifier"),),
        ),
    ),
    code=("EuroBERT/EuroBERT-", "configuration_eurobert.", "modeling_eurobert."),
)
