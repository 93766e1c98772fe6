"""ModernBERT (Warner et al. 2024): pre-norm, rotary positions, GeGLU, windows in most layers.

Every third layer has global attention. Published checkpoints have no biases. The first block has no
norm before attention, because the embedding's norm precedes it.
"""

from dataclasses import replace

from encoder_engine.families.facts.family import ConfigKeys, Family
from encoder_engine.families.facts.head_layout import DenseLayout, HeadLayout
from encoder_engine.families.facts.names import Rename
from encoder_engine.families.facts.rotary_quirks import LayerTypes
from encoder_engine.families.facts.spec import AttentionSpec, BlockSpec, FeedForwardSpec, NormSpec

BLOCK = "layers.{block}"
HEAD = (Rename("dense", "head.dense"), Rename("norm", "head.norm"))
DENSE = DenseLayout(activation="gelu", bias=False, norm=True)
AS_PUBLISHED = {"classifier_activation": ("gelu",), "classifier_bias": (False,)}
CLASSIFIER = HeadLayout(
    task="sequence-classification",
    architecture="ModernBertForSequenceClassification",
    rows="first",
    rows_keys=("classifier_pooling",),
    rows_names={"cls": "first", "mean": "mean"},
    dense=DENSE,
    dropouts=("classifier_dropout",),
    dropout=0.0,
    renames=(*HEAD, Rename("output", "classifier")),
    required=AS_PUBLISHED,
)
FAMILY = Family(
    model_type="modernbert",
    architecture="ModernBertModel",
    prefix="model.",
    padding_id=50283,
    pooler=False,
    block=BlockSpec(
        attention=AttentionSpec(num_heads=1, head_dim=1, bias=False, output_bias=False),
        feed_forward=FeedForwardSpec(width=1, gated=True, up_bias=False, down_bias=False),
        norm=NormSpec(epsilon=1e-5, bias=False),
        norm_first=True,
    ),
    final_norm=True,
    position_table=False,
    keys=ConfigKeys(activation="hidden_activation", norm_epsilon="norm_eps", num_segments=None),
    dropout=0.0,
    dropouts={
        "embedding_dropout": ("embedding.dropout",),
        "attention_dropout": ("blocks.attention.dropout", "blocks.attention.output_dropout"),
        "mlp_dropout": ("blocks.feed_forward.dropout",),
    },
    flags={
        "attention_bias": ("blocks.attention.bias", "blocks.attention.output_bias"),
        "mlp_bias": ("blocks.feed_forward.up_bias", "blocks.feed_forward.down_bias"),
        "norm_bias": ("blocks.norm.bias", "embedding.norm.bias", "final_norm.bias"),
    },
    quirks=(LayerTypes(),),
    renames=(
        Rename("embedding.tokens", "embeddings.tok_embeddings"),
        Rename("embedding.norm", "embeddings.norm"),
        Rename("blocks.{block}.attention.qkv", f"{BLOCK}.attn.Wqkv"),
        Rename("blocks.{block}.attention.output", f"{BLOCK}.attn.Wo"),
        Rename("blocks.{block}.attention_norm", f"{BLOCK}.attn_norm"),
        Rename("blocks.{block}.feed_forward.halves", f"{BLOCK}.mlp.Wi"),
        Rename("blocks.{block}.feed_forward.down", f"{BLOCK}.mlp.Wo"),
        Rename("blocks.{block}.feed_forward_norm", f"{BLOCK}.mlp_norm"),
        Rename("final_norm", "final_norm"),
    ),
    heads=("head.", "decoder.", "classifier."),
    layouts=(
        HeadLayout(
            task="masked-lm",
            architecture="ModernBertForMaskedLM",
            dense=DENSE,
            renames=(*HEAD, Rename("output", "decoder")),
            copies={"decoder.weight": "embedding.tokens"},
            required={**AS_PUBLISHED, "decoder_bias": (True,)},
        ),
        CLASSIFIER,
        replace(
            CLASSIFIER,
            task="multiple-choice",
            architecture="ModernBertForMultipleChoice",
            num_outputs=1,
        ),
        HeadLayout(
            task="token-classification",
            architecture="ModernBertForTokenClassification",
            dense=DENSE,
            dropouts=("classifier_dropout",),
            dropout=0.0,
            renames=(*HEAD, Rename("output", "classifier")),
            required=AS_PUBLISHED,
        ),
        HeadLayout(
            task="question-answering",
            architecture="ModernBertForQuestionAnswering",
            dense=DENSE,
            num_outputs=2,
            dropouts=("classifier_dropout",),
            dropout=0.0,
            renames=(*HEAD, Rename("output", "classifier")),
            required=AS_PUBLISHED,
        ),
    ),
    # Composer, in which mmBERT and Ettin were trained, writes "sans_pos": positions are rotary.
    required={
        "position_embedding_type": ("absolute", "sans_pos", None),
        "causal_mask": (False, None),
        "is_causal": (False, None),
        "rope_scaling": (None, {}),
    },
    ignored=(
        "classifier_activation",
        "classifier_bias",
        "classifier_pooling",
        "cls_token_id",
        "decoder_bias",
        "deterministic_flash_attn",
        "initializer_cutoff_factor",
        # Of its configuration's class, which reads norm_eps.
        "layer_norm_eps",
        "reference_compile",
        "repad_logits_with_grad",
        "sparse_pred_ignore_index",
        "sparse_prediction",
    ),
)
