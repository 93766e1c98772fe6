"""Random-weight models of every family, made and saved by transformers."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

import torch

if TYPE_CHECKING:
    from pathlib import Path

VOCAB_SIZE = 120


@dataclass(frozen=True)
class Case:
    """One model: the family's class names in transformers and the sizes it gets."""

    model_type: str
    config_class: str
    model_class: str
    sizes: dict[str, Any]

    @property
    def id(self) -> str:
        """Name the case."""
        return f"{self.model_type}-{self.sizes.get('hidden_size', self.sizes.get('dim'))}"

    def build(self, seed: int = 0, **changes: Any) -> Any:
        """Make the transformers model, weights drawn wide enough that nothing is near zero."""
        import transformers

        torch.manual_seed(seed)
        config = getattr(transformers, self.config_class)(**(self.sizes | changes))
        model = getattr(transformers, self.model_class)(config)
        with torch.no_grad():
            for parameter in model.parameters():
                parameter.add_(0.05 * torch.randn_like(parameter))
        return model.eval()

    def save(self, directory: Path, **changes: Any) -> Any:
        """Make the model, save it, and return it."""
        model = self.build(**changes)
        model.save_pretrained(directory)
        return model


def _bert_sizes(width: int, heads: int, layers: int, **more: Any) -> dict[str, Any]:
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


# Odd head counts, head sizes that are no power of two, one and three layers.
CASES = [
    Case("bert", "BertConfig", "BertModel", _bert_sizes(30, 3, 3, hidden_act="gelu_new")),
    Case("bert", "BertConfig", "BertModel", _bert_sizes(80, 5, 1, type_vocab_size=3)),
    Case("roberta", "RobertaConfig", "RobertaModel", _bert_sizes(42, 7, 2)),
    Case(
        "roberta",
        "RobertaConfig",
        "RobertaModel",
        _bert_sizes(64, 1, 3, type_vocab_size=1, layer_norm_eps=1e-5),
    ),
    Case("xlm-roberta", "XLMRobertaConfig", "XLMRobertaModel", _bert_sizes(48, 3, 2)),
    Case("xlm-roberta", "XLMRobertaConfig", "XLMRobertaModel", _bert_sizes(72, 9, 1)),
    Case("distilbert", "DistilBertConfig", "DistilBertModel", _distilbert_sizes(40, 5, 2)),
    Case("distilbert", "DistilBertConfig", "DistilBertModel", _distilbert_sizes(64, 2, 3)),
    Case("electra", "ElectraConfig", "ElectraModel", _bert_sizes(36, 3, 2, embedding_size=20)),
    Case("electra", "ElectraConfig", "ElectraModel", _bert_sizes(56, 7, 3, embedding_size=56)),
]


def case_id(case: Case) -> str:
    """Name a case for pytest."""
    return case.id


def one_per_family() -> list[Case]:
    """Return the first case of every family."""
    return list({case.model_type: case for case in reversed(CASES)}.values())
