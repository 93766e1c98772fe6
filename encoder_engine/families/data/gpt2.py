"""GPT-2 (Radford et al. 2019) as an encoder: causal, pre-norm, learned positions.

Dense weights are stored transposed: [inputs, outputs].
"""

from dataclasses import replace

from encoder_engine.families.facts.family import PLAIN_BLOCK, ConfigKeys, Family
from encoder_engine.families.facts.names import Rename
from encoder_engine.families.facts.spec import NormSpec

BLOCK = "h.{block}"
FAMILY = Family(
    model_type="gpt2",
    architecture="GPT2Model",
    prefix="transformer.",
    padding_id=None,
    pooler=False,
    block=replace(
        PLAIN_BLOCK,
        attention=replace(PLAIN_BLOCK.attention, causal=True),
        feed_forward=replace(PLAIN_BLOCK.feed_forward, activation="gelu_tanh"),
        norm=NormSpec(epsilon=1e-5),
        norm_first=True,
    ),
    feed_forward_factor=4,
    embedding_norm=False,
    final_norm=True,
    keys=ConfigKeys(
        width="n_embd",
        num_blocks="n_layer",
        num_heads="n_head",
        feed_forward_width="n_inner",
        num_positions="n_positions",
        activation="activation_function",
        norm_epsilon="layer_norm_epsilon",
        num_segments=None,
    ),
    dropouts={
        "embd_pdrop": ("embedding.dropout",),
        "attn_pdrop": ("blocks.attention.dropout",),
        "resid_pdrop": ("blocks.attention.output_dropout", "blocks.feed_forward.output_dropout"),
    },
    flags={"is_causal": ("blocks.attention.causal",)},
    renames=(
        Rename("embedding.tokens", "wte"),
        Rename("embedding.positions", "wpe"),
        Rename("blocks.{block}.attention.qkv", f"{BLOCK}.attn.c_attn", transposed=True),
        Rename("blocks.{block}.attention.output", f"{BLOCK}.attn.c_proj", transposed=True),
        Rename("blocks.{block}.attention_norm", f"{BLOCK}.ln_1"),
        Rename("blocks.{block}.feed_forward.up", f"{BLOCK}.mlp.c_fc", transposed=True),
        Rename("blocks.{block}.feed_forward.down", f"{BLOCK}.mlp.c_proj", transposed=True),
        Rename("blocks.{block}.feed_forward_norm", f"{BLOCK}.ln_2"),
        Rename("final_norm", "ln_f"),
    ),
    heads=("lm_head.", "score.", "multiple_choice_head.", "classifier.", "qa_outputs."),
    vocabulary="lm_head",
    in_place=False,
    buffers=(r"h\.\d+\.attn\.(masked_)?bias",),
    required={"scale_attn_weights": (True,), "scale_attn_by_inverse_layer_idx": (False,)},
    ignored=(
        "n_ctx",
        "reorder_and_upcast_attn",
        "summary_activation",
        "summary_first_dropout",
        "summary_proj_to_labels",
        "summary_type",
        "summary_use_proj",
    ),
)
