"""XLM-R XL and XXL (Goyal et al. 2021): XLM-R with the norm before attention and feed-forward."""

from dataclasses import replace

from encoder_engine.families.data import roberta
from encoder_engine.families.data.bert import POOLER, SPANS, TOKEN_CLASSIFIER
from encoder_engine.families.facts.family import DROPOUTS, PLAIN_BLOCK
from encoder_engine.families.facts.names import Rename
from encoder_engine.families.facts.spec import NormSpec

BLOCK = "encoder.layer.{block}"
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
        Rename("embedding.tokens", "embeddings.word_embeddings"),
        Rename("embedding.positions", "embeddings.position_embeddings"),
        Rename("embedding.segments", "embeddings.token_type_embeddings"),
        Rename(
            "blocks.{block}.attention.qkv",
            (
                f"{BLOCK}.attention.self.query",
                f"{BLOCK}.attention.self.key",
                f"{BLOCK}.attention.self.value",
            ),
        ),
        Rename("blocks.{block}.attention.output", f"{BLOCK}.attention.output.dense"),
        Rename("blocks.{block}.attention_norm", f"{BLOCK}.attention.self_attn_layer_norm"),
        Rename("blocks.{block}.feed_forward.up", f"{BLOCK}.intermediate.dense"),
        Rename("blocks.{block}.feed_forward.down", f"{BLOCK}.output.dense"),
        Rename("blocks.{block}.feed_forward_norm", f"{BLOCK}.LayerNorm"),
        Rename("final_norm", "encoder.LayerNorm"),
        POOLER,
    ),
    layouts=(
        replace(roberta.CLASSIFIER, architecture="XLMRobertaXLForSequenceClassification"),
        replace(TOKEN_CLASSIFIER, architecture="XLMRobertaXLForTokenClassification"),
        replace(SPANS, architecture="XLMRobertaXLForQuestionAnswering"),
    ),
    in_place=False,
)
