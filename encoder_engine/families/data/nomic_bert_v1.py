"""NomicBERT as first published (nomic-embed-text-v1, nomic-bert-2048): GPT-2's configuration keys.

Tensors and their names are those of :mod:`encoder_engine.families.data.nomic_bert`. The layout
follows ``NomicBertModel`` of modeling_hf_nomic_bert.py in nomic-ai/nomic-bert-2048.
"""

from dataclasses import replace

from encoder_engine.families.data import nomic_bert
from encoder_engine.families.facts.family import ConfigKeys
from encoder_engine.families.facts.rotary_quirks import RotaryBase

FAMILY = replace(
    nomic_bert.FAMILY,
    model_type="nomic_bert_v1",
    # No published checkpoint with these keys has a head.
    layouts=(),
    written_as="nomic_bert",
    marks={"activation_function": "swiglu"},
    prefix="bert.",
    keys=ConfigKeys(
        width="n_embd",
        num_blocks="n_layer",
        num_heads="n_head",
        feed_forward_width="n_inner",
        num_positions="n_positions",
        activation=None,
        norm_epsilon="layer_norm_epsilon",
    ),
    dropouts={
        "embd_pdrop": ("embedding.dropout",),
        "attn_pdrop": ("blocks.attention.dropout",),
        "resid_pdrop": ("blocks.attention.output_dropout", "blocks.feed_forward.output_dropout"),
    },
    quirks=(RotaryBase("rotary_emb_base", default_base=1000.0),),
    required={
        "causal": (False,),
        "mlp_fc1_bias": (False,),
        "mlp_fc2_bias": (False,),
        "parallel_block": (False,),
        "parallel_block_tied_norm": (False,),
        "prenorm": (False,),
        "qkv_proj_bias": (False,),
        "rotary_emb_fraction": (1.0, 1),
        "rotary_emb_interleaved": (False,),
        "rotary_emb_scale_base": (None,),
        "rotary_scaling_factor": (None,),
        "use_rms_norm": (False, None),
    },
    ignored=(
        "dense_seq_output",
        "fused_bias_fc",
        "fused_dropout_add_ln",
        "last_layer_subset",
        "max_trained_positions",
        "mlp_checkpoint_lvl",
        "pad_vocab_size_multiple",
        "pad_vocab_to_multiple_of",
        "reorder_and_upcast_attn",
        "scale_attn_by_inverse_layer_idx",
        "scale_attn_weights",
        "summary_activation",
        "summary_first_dropout",
        "summary_proj_to_labels",
        "summary_type",
        "summary_use_proj",
        "use_flash_attn",
        "use_xentropy",
    ),
    code=("nomic-ai/nomic-bert-2048--", "configuration_hf_nomic_bert.", "modeling_hf_nomic_bert."),
)
