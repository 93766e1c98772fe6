"""XLM-R as Jina publishes it (jina-reranker-v2): one projection for query, key and value.

Its config.json has the model_type of XLM-R, "xlm-roberta". It is recognised by ``auto_map``, which
names Jina's model code. Tensor names are those of ``XLMRobertaModel`` in modeling_xlm_roberta.py of
jinaai/xlm-roberta-flash-implementation.
"""

from dataclasses import replace

from encoder_engine.families.data import xlm_roberta
from encoder_engine.families.data.bert import POOLER
from encoder_engine.families.facts.names import Rename

BLOCK = "encoder.layers.{block}"
TASKS = ("masked-lm", "sequence-classification")
FAMILY = replace(
    xlm_roberta.FAMILY,
    model_type="xlm_roberta_flash",
    written_as="xlm-roberta",
    marks={"position_embedding_type": "absolute"},
    recognised_by_code=True,
    layouts=tuple(layout for layout in xlm_roberta.FAMILY.layouts if layout.task in TASKS),
    renames=(
        Rename("embedding.tokens", "embeddings.word_embeddings"),
        Rename("embedding.positions", "embeddings.position_embeddings"),
        Rename("embedding.segments", "embeddings.token_type_embeddings"),
        Rename("embedding.norm", "emb_ln"),
        Rename("blocks.{block}.attention.qkv", f"{BLOCK}.mixer.Wqkv"),
        Rename("blocks.{block}.attention.output", f"{BLOCK}.mixer.out_proj"),
        Rename("blocks.{block}.attention_norm", f"{BLOCK}.norm1"),
        Rename("blocks.{block}.feed_forward.up", f"{BLOCK}.mlp.fc1"),
        Rename("blocks.{block}.feed_forward.down", f"{BLOCK}.mlp.fc2"),
        Rename("blocks.{block}.feed_forward_norm", f"{BLOCK}.norm2"),
        POOLER,
    ),
    ignored=(
        "emb_pooler",
        "load_trained_adapters",
        "lora_adaptations",
        "lora_alpha",
        "lora_dropout_p",
        "lora_main_params_trainable",
        "lora_rank",
        "matryoshka_dimensions",
        "task_instructions",
        "truncate_dim",
        "use_flash_attn",
        "use_reentrant",
    ),
    code=(
        "jinaai/xlm-roberta-flash-implementation--",
        "jinaai/jina-reranker-v2-base-multilingual--",
        "configuration_xlm_roberta.XLMRobertaFlash",
        "modeling_lora.XLMRobertaLoRA",
        "modeling_xlm_roberta.XLMRoberta",
    ),
)
