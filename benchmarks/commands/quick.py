"""Chooses the cases of the quick run: the first questions of each kind of user."""

CASES = (
    "embedding/minilm-float32-skewed",
    "embedding/minilm-bfloat16-skewed",
    "embedding/minilm-int8-skewed",
    "tokenizer/wordpiece-english",
    "tokenizer/wordpiece-batch-lists",
    "tokenizer/xlmr-multilingual",
    "encoder/mixed",
    "attention/forward",
    "layer_norm/forward",
    "bias_gelu/forward",
    "masked_cross_entropy/training",
    "pretraining/tiny",
)
