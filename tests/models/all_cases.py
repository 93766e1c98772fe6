"""Random-weight models of every family: those of cases.py, decoders, and encoders of few users."""

from __future__ import annotations

from itertools import product
from typing import TYPE_CHECKING, Any

from tests.models.cases import CASES, VOCAB_SIZE, Case, bert_sizes, t5_sizes
from tests.selection import covering

if TYPE_CHECKING:
    from collections.abc import Hashable, Iterable

__all__ = ["ALL_CASES", "MORE_CASES", "firsts", "with_each"]

# Scalings of rotary angles that differ from feature to feature at heads of 8.
LLAMA3 = {"rope_type": "llama3", "rope_theta": 500.0, "factor": 4.0} | {
    "low_freq_factor": 1.0,
    "high_freq_factor": 4.0,
    "original_max_position_embeddings": 48,
}
DISTANCES = {"relative_attention": True, "position_biased_input": False}
LINEAR = {"rope_type": "linear", "rope_theta": 300.0, "factor": 2.0}
YARN = {"rope_type": "yarn", "rope_theta": 700.0, "factor": 2.0} | {
    "original_max_position_embeddings": 48
}


def _decoder_sizes(
    width: int, heads: int, key_heads: int, layers: int, **more: Any
) -> dict[str, Any]:
    ids = {"pad_token_id": 0, "bos_token_id": 1, "eos_token_id": 2}
    return bert_sizes(width, heads, layers, num_key_value_heads=key_heads, **ids) | more


def _bart_sizes(width: int, heads: int, layers: int, **more: Any) -> dict[str, Any]:
    return {
        "vocab_size": VOCAB_SIZE,
        "d_model": width,
        "encoder_attention_heads": heads,
        "encoder_layers": layers,
        "encoder_ffn_dim": 3 * width + 2,
        "decoder_attention_heads": heads,
        "decoder_layers": 1,
        "decoder_ffn_dim": 8,
        "max_position_embeddings": 96,
        **more,
    }


MORE_CASES = [
    Case(
        "llama",
        "LlamaConfig",
        "LlamaModel",
        _decoder_sizes(48, 6, 2, 3, rope_parameters=LLAMA3),
    ),
    Case(
        "llama",
        "LlamaConfig",
        "LlamaModel",
        _decoder_sizes(40, 5, 5, 1, attention_bias=True, mlp_bias=True, head_dim=12),
    ),
    Case(
        "mistral",
        "MistralConfig",
        "MistralModel",
        _decoder_sizes(48, 6, 3, 2, sliding_window=12, rope_parameters=LINEAR),
    ),
    Case("mistral", "MistralConfig", "MistralModel", _decoder_sizes(40, 4, 1, 2)),
    Case(
        "qwen2",
        "Qwen2Config",
        "Qwen2Model",
        _decoder_sizes(48, 6, 2, 3, rope_parameters=YARN)
        | {"use_sliding_window": True, "sliding_window": 9, "max_window_layers": 1},
    ),
    Case("qwen2", "Qwen2Config", "Qwen2Model", _decoder_sizes(40, 5, 5, 1)),
    Case("qwen3", "Qwen3Config", "Qwen3Model", _decoder_sizes(48, 6, 2, 3, head_dim=16)),
    Case(
        "qwen3",
        "Qwen3Config",
        "Qwen3Model",
        _decoder_sizes(40, 4, 1, 2, head_dim=10, attention_bias=True, rms_norm_eps=1e-3),
    ),
    Case(
        "gemma3_text",
        "Gemma3TextConfig",
        "Gemma3TextModel",
        _decoder_sizes(48, 6, 2, 3, head_dim=12, sliding_window=10, query_pre_attn_scalar=20)
        | {"layer_types": ["sliding_attention", "full_attention", "sliding_attention"]},
    ),
    Case(
        "gemma3_text",
        "Gemma3TextConfig",
        "Gemma3TextModel",
        _decoder_sizes(40, 5, 1, 7, head_dim=8, sliding_window=12, rms_norm_eps=1e-3)
        | {"use_bidirectional_attention": True},
    ),
    Case(
        "gpt2",
        "GPT2Config",
        "GPT2Model",
        {"vocab_size": VOCAB_SIZE, "n_positions": 96, "pad_token_id": 0}
        | {"hidden_size": 48, "n_head": 3, "n_layer": 3},
    ),
    Case(
        "gpt2",
        "GPT2Config",
        "GPT2Model",
        {"vocab_size": VOCAB_SIZE, "n_positions": 96, "n_inner": 70, "pad_token_id": 0}
        | {"hidden_size": 40, "n_head": 5, "n_layer": 1, "activation_function": "relu"},
    ),
    Case(
        "eurobert",
        "EuroBertConfig",
        "EuroBertModel",
        _decoder_sizes(48, 6, 2, 3, mask_token_id=4),
    ),
    Case(
        "eurobert",
        "EuroBertConfig",
        "EuroBertModel",
        _decoder_sizes(40, 5, 5, 1, mask_token_id=4),
    ),
    Case(
        "ultrabert",
        "UltrabertConfig",
        "UltrabertModel",
        _decoder_sizes(48, 6, 2, 4, sliding_window=7),
    ),
    Case(
        "esm",
        "EsmConfig",
        "EsmModel",
        bert_sizes(42, 7, 3, position_embedding_type="rotary", token_dropout=True)
        | {"mask_token_id": 7, "pad_token_id": 1},
        extra=("contact_head.", "rotary_embeddings.", "encoder.layer.*"),
    ),
    Case(
        "esm",
        "EsmConfig",
        "EsmModel",
        bert_sizes(40, 5, 1, emb_layer_norm_before=True, pad_token_id=1),
        extra=("contact_head.",),
    ),
    Case(
        "mt5",
        "MT5Config",
        "MT5EncoderModel",
        t5_sizes(40, 3, 2, d_kv=12),
        is_half_of="MT5Model",
    ),
    Case(
        "umt5",
        "UMT5Config",
        "UMT5EncoderModel",
        t5_sizes(40, 3, 3, d_kv=12),
        is_half_of="UMT5Model",
    ),
    Case(
        "umt5",
        "UMT5Config",
        "UMT5EncoderModel",
        t5_sizes(64, 4, 1, d_kv=16, relative_attention_max_distance=40, feed_forward_proj="relu"),
        is_half_of="UMT5Model",
    ),
    Case(
        "rembert",
        "RemBertConfig",
        "RemBertModel",
        bert_sizes(36, 3, 2, input_embedding_size=20, output_embedding_size=24),
    ),
    Case("megatron-bert", "MegatronBertConfig", "MegatronBertModel", bert_sizes(42, 7, 2)),
    Case("xlm-roberta-xl", "XLMRobertaXLConfig", "XLMRobertaXLModel", bert_sizes(48, 3, 2)),
    Case(
        "deberta",
        "DebertaConfig",
        "DebertaModel",
        bert_sizes(36, 3, 3, pos_att_type="c2p|p2c", max_relative_positions=30) | DISTANCES,
    ),
    Case(
        "deberta",
        "DebertaConfig",
        "DebertaModel",
        bert_sizes(40, 5, 1, pos_att_type=["c2p"], type_vocab_size=2) | DISTANCES,
    ),
    Case(
        "roformer",
        "RoFormerConfig",
        "RoFormerModel",
        bert_sizes(36, 3, 2, embedding_size=20),
        extra=("encoder.embed_positions.",),
    ),
    Case(
        "roformer",
        "RoFormerConfig",
        "RoFormerModel",
        bert_sizes(40, 5, 1, rotary_value=True),
        extra=("encoder.embed_positions.",),
    ),
    Case("ernie", "ErnieConfig", "ErnieModel", bert_sizes(30, 3, 2)),
    Case("data2vec-text", "Data2VecTextConfig", "Data2VecTextModel", bert_sizes(42, 7, 2)),
    Case(
        "big_bird",
        "BigBirdConfig",
        "BigBirdModel",
        bert_sizes(40, 5, 2, attention_type="original_full", rescale_embeddings=True),
    ),
    *(
        Case(name.lower(), f"{name}Config", f"{name}EncoderModel", sizes, is_half_of=f"{name}Model")
        for name in ("Bart", "MBart")
        for sizes in (
            _bart_sizes(42, 7, 2, scale_embedding=True),
            _bart_sizes(40, 5, 1, activation_function="relu"),
        )
    ),
]
ALL_CASES = [*CASES, *MORE_CASES]


def firsts() -> list[Any]:
    """Return every case; in the usual run the first of every family."""
    return covering(((case,) for case in ALL_CASES), lambda case: [case.model_type])


def with_each(values: Iterable[Hashable], cases: Iterable[Case] = ALL_CASES) -> list[Any]:
    """Pair cases with values.

    In the usual run every case with the first value, and every family with every value.
    """
    first, *others = values
    return covering(
        product(cases, (first, *others)),
        lambda case, value: [(case.model_type, value), *([case.id] if value == first else [])],
    )
