"""Random-weight models of the families that are accelerated in place, made by transformers."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

import torch

if TYPE_CHECKING:
    from pathlib import Path

VOCAB_SIZE = 120
DEBERTA = {"relative_attention": True, "share_att_key": True, "position_biased_input": False}


@dataclass(frozen=True)
class Case:
    """One model: the family's class names in transformers and the sizes it gets.

    ``is_half_of``: the class that transformers chooses by itself, which has a decoder as well.
    ``extra``: prefixes of tensors that its class holds and no encoder computes with.
    """

    model_type: str
    config_class: str
    model_class: str
    sizes: dict[str, Any]
    is_half_of: str | None = None
    extra: tuple[str, ...] = ()

    @property
    def id(self) -> str:
        """Name the case."""
        widths = [self.sizes[k] for k in ("hidden_size", "dim", "d_model") if k in self.sizes]
        return f"{self.model_type}-{widths[0]}"

    @property
    def transformers_class(self) -> Any:
        """The class of transformers, or the half of one in published/halves.py."""
        import transformers

        from tests.models.published import halves

        return getattr(transformers, self.model_class, None) or getattr(halves, self.model_class)

    def build(self, seed: int = 0, **changes: Any) -> Any:
        """Make the transformers model, weights drawn wide enough that nothing is near zero."""
        import transformers

        torch.manual_seed(seed)
        config = getattr(transformers, self.config_class)(**(self.sizes | changes))
        model = self.transformers_class(config)
        with torch.no_grad():
            for parameter in (one for one in model.parameters() if one.requires_grad):
                parameter.add_(0.05 * torch.randn_like(parameter))
        return model.eval()

    def save(self, directory: Path, **changes: Any) -> Any:
        """Make the model, save it, and return it."""
        model = self.build(**changes)
        model.save_pretrained(directory)
        return model


def bert_sizes(width: int, heads: int, layers: int, **more: Any) -> dict[str, Any]:
    return {
        "vocab_size": VOCAB_SIZE,
        "hidden_size": width,
        "num_attention_heads": heads,
        "num_hidden_layers": layers,
        "intermediate_size": 3 * width + 2,
        "max_position_embeddings": 96,
        **more,
    }


def _distilbert_sizes(width: int, heads: int, layers: int) -> dict[str, Any]:
    return {
        "vocab_size": VOCAB_SIZE,
        "dim": width,
        "n_heads": heads,
        "n_layers": layers,
        "hidden_dim": 3 * width + 2,
        "max_position_embeddings": 96,
    }


def t5_sizes(width: int, heads: int, layers: int, **more: Any) -> dict[str, Any]:
    return {
        "vocab_size": VOCAB_SIZE,
        "d_model": width,
        "num_heads": heads,
        "num_layers": layers,
        "d_ff": 3 * width + 2,
        **more,
    }


# Odd head counts, head sizes that are no power of two, one and three layers.
CASES = [
    Case("bert", "BertConfig", "BertModel", bert_sizes(30, 3, 3, hidden_act="gelu_new")),
    Case("bert", "BertConfig", "BertModel", bert_sizes(80, 5, 1, type_vocab_size=3)),
    Case("roberta", "RobertaConfig", "RobertaModel", bert_sizes(42, 7, 2)),
    Case(
        "roberta",
        "RobertaConfig",
        "RobertaModel",
        bert_sizes(64, 1, 3, type_vocab_size=1, layer_norm_eps=1e-5),
    ),
    Case("xlm-roberta", "XLMRobertaConfig", "XLMRobertaModel", bert_sizes(48, 3, 2)),
    Case("xlm-roberta", "XLMRobertaConfig", "XLMRobertaModel", bert_sizes(72, 9, 1)),
    Case("distilbert", "DistilBertConfig", "DistilBertModel", _distilbert_sizes(40, 5, 2)),
    Case("distilbert", "DistilBertConfig", "DistilBertModel", _distilbert_sizes(64, 2, 3)),
    Case("camembert", "CamembertConfig", "CamembertModel", bert_sizes(48, 3, 2)),
    Case("camembert", "CamembertConfig", "CamembertModel", bert_sizes(40, 5, 1)),
    Case(
        "albert",
        "AlbertConfig",
        "AlbertModel",
        bert_sizes(36, 3, 4, embedding_size=20, num_hidden_groups=2),
    ),
    Case("albert", "AlbertConfig", "AlbertModel", bert_sizes(56, 7, 3, embedding_size=56)),
    Case("electra", "ElectraConfig", "ElectraModel", bert_sizes(36, 3, 2, embedding_size=20)),
    Case("electra", "ElectraConfig", "ElectraModel", bert_sizes(56, 7, 3, embedding_size=56)),
    Case(
        "deberta-v2",
        "DebertaV2Config",
        "DebertaV2Model",
        bert_sizes(48, 3, 2, pos_att_type="p2c|c2p", conv_kernel_size=3, conv_act="gelu") | DEBERTA,
    ),
    Case("mpnet", "MPNetConfig", "MPNetModel", bert_sizes(42, 7, 3, max_position_embeddings=200)),
    Case(
        "deberta-v2",
        "DebertaV2Config",
        "DebertaV2Model",
        bert_sizes(36, 3, 3, pos_att_type=["p2c", "c2p"], norm_rel_ebd="layer_norm")
        | {"position_buckets": 8, "max_relative_positions": 30}
        | DEBERTA,
    ),
    Case(
        "deberta-v2",
        "DebertaV2Config",
        "DebertaV2Model",
        bert_sizes(40, 5, 1, pos_att_type=["c2p"], type_vocab_size=2) | DEBERTA,
    ),
    Case("mpnet", "MPNetConfig", "MPNetModel", bert_sizes(64, 4, 1)),
    Case(
        "modernbert",
        "ModernBertConfig",
        "ModernBertModel",
        bert_sizes(48, 3, 5, pad_token_id=0, local_attention=12),
    ),
    Case(
        "modernbert",
        "ModernBertConfig",
        "ModernBertModel",
        bert_sizes(40, 2, 2, pad_token_id=0)
        | {"attention_bias": True, "mlp_bias": True, "norm_bias": True},
    ),
    Case(
        "longformer",
        "LongformerConfig",
        "LongformerModel",
        bert_sizes(36, 3, 2, attention_window=[4, 12]),
    ),
    Case(
        "longformer",
        "LongformerConfig",
        "LongformerModel",
        bert_sizes(40, 5, 1, attention_window=32, layer_norm_eps=1e-5),
    ),
    Case(
        "t5",
        "T5Config",
        "T5EncoderModel",
        t5_sizes(40, 3, 3, d_kv=12, feed_forward_proj="gated-gelu"),
        is_half_of="T5Model",
    ),
    Case(
        "t5",
        "T5Config",
        "T5EncoderModel",
        t5_sizes(64, 4, 2, d_kv=16, relative_attention_max_distance=40),
        is_half_of="T5Model",
    ),
    Case("nomic_bert", "NomicBertConfig", "NomicBertModel", bert_sizes(48, 3, 2)),
    Case("nomic_bert", "NomicBertConfig", "NomicBertModel", bert_sizes(40, 10, 1)),
    Case("gte", "GteConfig", "GteModel", bert_sizes(36, 3, 2, hidden_act="gelu_new")),
    Case("gte", "GteConfig", "GteModel", bert_sizes(56, 7, 1, type_vocab_size=0)),
]


def case_id(value: Case | str) -> str:
    """Name a case, or what is beside it, for pytest."""
    return value if isinstance(value, str) else value.id


def one_per_family(cases: list[Case] | None = None) -> list[Case]:
    """Return the first case of every family; by default of those that are accelerated in place."""
    return list({case.model_type: case for case in reversed(cases or CASES)}.values())
