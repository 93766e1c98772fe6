"""JinaBERT (Guenther et al. 2023, jina-embeddings-v2-*-en): BERT with ALiBi and GeGLU.

Its model_type is "bert"; ``position_embedding_type`` distinguishes it. The layout follows
``JinaBertModel`` of modeling_bert.py in jinaai/jina-bert-implementation: ALiBi in both directions;
the gate is the first half of ``gated_layers``.
"""

from dataclasses import replace

from encoder_engine.families.data.bert import BLOCK, POOLER, RENAMES
from encoder_engine.families.data.bert import FAMILY as BERT
from encoder_engine.families.facts.distance_quirks import AlibiSlopes
from encoder_engine.families.facts.family import DROPOUTS, PLAIN_BLOCK
from encoder_engine.families.facts.names import Rename

EMBEDDING_AND_ATTENTION = tuple(
    rename
    for rename in RENAMES
    if rename.ours != "embedding.positions" and "feed_forward" not in rename.ours
)
FAMILY = replace(
    BERT,
    model_type="jina_bert_v2",
    architecture="JinaBertModel",
    # Published checkpoints with a head (rerankers) have other keys.
    layouts=(),
    written_as="bert",
    marks={"position_embedding_type": "alibi", "feed_forward_type": "geglu"},
    block=replace(
        PLAIN_BLOCK, feed_forward=replace(PLAIN_BLOCK.feed_forward, gated=True, up_bias=False)
    ),
    position_table=False,
    dropouts={
        "hidden_dropout_prob": (
            "embedding.dropout",
            "blocks.attention.output_dropout",
            "blocks.feed_forward.dropout",
        ),
        "attention_probs_dropout_prob": DROPOUTS["attention_probs_dropout_prob"],
    },
    quirks=(AlibiSlopes(),),
    renames=(
        *EMBEDDING_AND_ATTENTION,
        Rename("blocks.{block}.feed_forward.halves", f"{BLOCK}.mlp.gated_layers"),
        Rename("blocks.{block}.feed_forward.down", f"{BLOCK}.mlp.wo"),
        Rename("blocks.{block}.feed_forward_norm", f"{BLOCK}.mlp.layernorm"),
        POOLER,
    ),
    required={"position_embedding_type": ("alibi",)},
    ignored=("emb_pooler", "model_max_length"),
    code=("jinaai/jina-bert-implementation--", "configuration_bert.Jina", "modeling_bert.Jina"),
)
