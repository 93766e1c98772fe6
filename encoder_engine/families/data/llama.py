"""Llama (Touvron et al. 2023) as an encoder: causal, pre-norm with RMS norms, rotary, SwiGLU.

Llama 2 and 3, and models of their layout, such as SmolLM. Query heads may share key heads.
"""

from encoder_engine.families.facts.family import ConfigKeys, Family
from encoder_engine.families.facts.head_layout import HeadLayout
from encoder_engine.families.facts.names import Rename
from encoder_engine.families.facts.scaled_rotary import ScaledRope
from encoder_engine.families.facts.spec import AttentionSpec, BlockSpec, FeedForwardSpec, NormSpec

BLOCK = "layers.{block}"
KEYS = ConfigKeys(
    num_key_heads="num_key_value_heads",
    head_dim="head_dim",
    norm_epsilon="rms_norm_eps",
    num_segments=None,
)
RENAMES = (
    Rename("embedding.tokens", "embed_tokens"),
    Rename(
        "blocks.{block}.attention.qkv",
        (f"{BLOCK}.self_attn.q_proj", f"{BLOCK}.self_attn.k_proj", f"{BLOCK}.self_attn.v_proj"),
    ),
    Rename("blocks.{block}.attention.output", f"{BLOCK}.self_attn.o_proj"),
    Rename("blocks.{block}.attention_norm", f"{BLOCK}.input_layernorm"),
    Rename(
        "blocks.{block}.feed_forward.halves", (f"{BLOCK}.mlp.gate_proj", f"{BLOCK}.mlp.up_proj")
    ),
    Rename("blocks.{block}.feed_forward.down", f"{BLOCK}.mlp.down_proj"),
    Rename("blocks.{block}.feed_forward_norm", f"{BLOCK}.post_attention_layernorm"),
    Rename("final_norm", "norm"),
)
# An embedder that was trained on a decoder may see later tokens too (KaLM).
CAUSAL = {"is_causal": ("blocks.attention.causal",)}
# The heads that transformers gives to decoders.
SCORE = (Rename("output", "score"),)
CLASSIFIER = HeadLayout(
    task="sequence-classification",
    architecture="LlamaForSequenceClassification",
    # transformers' last token that is not padding; a batch here has none.
    rows="last",
    output_bias=False,
    renames=SCORE,
)
TOKEN_CLASSIFIER = HeadLayout(
    task="token-classification",
    architecture="LlamaForTokenClassification",
    dropouts=("classifier_dropout", "hidden_dropout"),
    renames=SCORE,
    required={"token_classification_bias": (True,)},
)
FAMILY = Family(
    model_type="llama",
    architecture="LlamaModel",
    prefix="model.",
    padding_id=None,
    pooler=False,
    block=BlockSpec(
        attention=AttentionSpec(
            num_heads=1, head_dim=1, bias=False, output_bias=False, causal=True
        ),
        feed_forward=FeedForwardSpec(
            width=1, activation="silu", gated=True, up_bias=False, down_bias=False
        ),
        norm=NormSpec(epsilon=1e-6, bias=False, centred=False),
        norm_first=True,
    ),
    embedding_norm=False,
    final_norm=True,
    position_table=False,
    keys=KEYS,
    dropout=0.0,
    dropouts={"attention_dropout": ("blocks.attention.dropout",)},
    flags={
        "attention_bias": ("blocks.attention.bias", "blocks.attention.output_bias"),
        "mlp_bias": ("blocks.feed_forward.up_bias", "blocks.feed_forward.down_bias"),
        **CAUSAL,
    },
    quirks=(ScaledRope(),),
    renames=RENAMES,
    heads=("lm_head.", "score.", "classifier.", "qa_outputs."),
    layouts=(CLASSIFIER, TOKEN_CLASSIFIER),
    buffers=(r"layers\.\d+\.self_attn\.rotary_emb\.inv_freq",),
    vocabulary="lm_head",
    vocabulary_tied=False,
    in_place=False,
    ignored=("pretraining_tp",),
)
