"""BERT (Devlin et al. 2019), and all that kept its layout: MiniLM, BGE, E5, SciBERT."""

from encoder_engine.models.names import Rename
from encoder_engine.models.registry import Family

BLOCK = "encoder.layer.{block}"
RENAMES = (
    Rename("embedding.tokens", "embeddings.word_embeddings"),
    Rename("embedding.positions", "embeddings.position_embeddings"),
    Rename("embedding.segments", "embeddings.token_type_embeddings"),
    Rename("embedding.norm", "embeddings.LayerNorm"),
    Rename(
        "blocks.{block}.attention.qkv",
        (
            f"{BLOCK}.attention.self.query",
            f"{BLOCK}.attention.self.key",
            f"{BLOCK}.attention.self.value",
        ),
    ),
    Rename("blocks.{block}.attention.output", f"{BLOCK}.attention.output.dense"),
    Rename("blocks.{block}.attention_norm", f"{BLOCK}.attention.output.LayerNorm"),
    Rename("blocks.{block}.feed_forward.up", f"{BLOCK}.intermediate.dense"),
    Rename("blocks.{block}.feed_forward.down", f"{BLOCK}.output.dense"),
    Rename("blocks.{block}.feed_forward_norm", f"{BLOCK}.output.LayerNorm"),
)
POOLER = Rename("pooler.dense", "pooler.dense")

FAMILY = Family(
    model_type="bert",
    architecture="BertModel",
    prefix="bert.",
    renames=(*RENAMES, POOLER),
    padding_id=0,
    pooler=True,
    heads=("cls.", "classifier.", "qa_outputs."),
)
