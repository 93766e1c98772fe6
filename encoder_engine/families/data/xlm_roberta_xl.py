"""XLM-R XL and XXL (Goyal et al. 2021): XLM-R with the norm before attention and feed-forward."""

from dataclasses import replace

from encoder_engine.families.data import bert, roberta
from encoder_engine.families.facts.family import DROPOUTS, PLAIN_BLOCK
from encoder_engine.families.facts.names import Rename
from encoder_engine.families.facts.spec import NormSpec

BLOCK = bert.BLOCK
FAMILY = replace(
    roberta.FAMILY,
    model_type="xlm-roberta-xl",
    architecture="XLMRobertaXLModel",
    block=replace(PLAIN_BLOCK, norm=NormSpec(epsilon=1e-5), norm_first=True),
    embedding_norm=False,
    final_norm=True,
    dropouts={
        "hidden_dropout_prob": ("embedding.dropout", "blocks.attention.output_dropout"),
        "attention_probs_dropout_prob": DROPOUTS["attention_probs_dropout_prob"],
    },
    renames=(
        *bert.WITHOUT_NORMS,
        Rename("blocks.{block}.attention_norm", f"{BLOCK}.attention.self_attn_layer_norm"),
        Rename("blocks.{block}.feed_forward_norm", f"{BLOCK}.LayerNorm"),
        Rename("final_norm", "encoder.LayerNorm"),
        bert.POOLER,
    ),
    layouts=(
        replace(roberta.CLASSIFIER, architecture="XLMRobertaXLForSequenceClassification"),
        replace(bert.TOKEN_CLASSIFIER, architecture="XLMRobertaXLForTokenClassification"),
        replace(bert.SPANS, architecture="XLMRobertaXLForQuestionAnswering"),
        replace(roberta.CHOICES, architecture="XLMRobertaXLForMultipleChoice"),
    ),
    in_place=False,
)
