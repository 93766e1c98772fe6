"""JinaBERT for German, Spanish, Chinese and code: BERT with ALiBi, GeGLU and extra layer norms.

The models are jina-embeddings-v2-base-de, -es, -zh and -code. Query and key are normalised, each
over all heads together. Attention's output plus its input is normalised, and then added to the
input once more (``sum_norm``). Only ``auto_map`` tells their config.json from one of
:mod:`encoder_engine.families.data.jina_bert_v2`. The layout follows ``JinaBertModel`` of
modeling_bert.py in jinaai/jina-bert-v2-qk-post-norm; the gate is the second half of
``up_gated_layer``.
"""

from dataclasses import replace

from encoder_engine.families.data import jina_bert_v2
from encoder_engine.families.data.bert import BLOCK, POOLER
from encoder_engine.families.facts.distance_quirks import AlibiSlopes
from encoder_engine.families.facts.names import Rename
from encoder_engine.families.facts.quirks import OwnCode

PLAIN = jina_bert_v2.FAMILY.block
REPOSITORY = "jinaai/jina-bert-v2-qk-post-norm--"
FAMILY = replace(
    jina_bert_v2.FAMILY,
    model_type="jina_bert_v2_qk",
    block=replace(
        PLAIN,
        attention=replace(PLAIN.attention, query_key_norm=PLAIN.norm, norm_by_head=False),
        sum_norm=True,
    ),
    quirks=(
        AlibiSlopes(),
        OwnCode(
            (
                ("AutoConfig", f"{REPOSITORY}configuration_bert.JinaBertConfig"),
                ("AutoModel", f"{REPOSITORY}modeling_bert.JinaBertModel"),
            )
        ),
    ),
    renames=(
        *(
            rename
            for rename in jina_bert_v2.EMBEDDING_AND_ATTENTION
            if rename.ours != "blocks.{block}.attention_norm"
        ),
        Rename("blocks.{block}.attention.query_norm", f"{BLOCK}.attention.self.layer_norm_q"),
        Rename("blocks.{block}.attention.key_norm", f"{BLOCK}.attention.self.layer_norm_k"),
        Rename("blocks.{block}.attention_output_norm", f"{BLOCK}.attention.output.LayerNorm"),
        Rename("blocks.{block}.attention_norm", f"{BLOCK}.layer_norm_1"),
        Rename(
            "blocks.{block}.feed_forward.halves", f"{BLOCK}.mlp.up_gated_layer", halves_swapped=True
        ),
        Rename("blocks.{block}.feed_forward.down", f"{BLOCK}.mlp.down_layer"),
        Rename("blocks.{block}.feed_forward_norm", f"{BLOCK}.layer_norm_2"),
        POOLER,
    ),
    in_place=False,
    code=(REPOSITORY, "configuration_bert.Jina", "modeling_bert.Jina"),
)
