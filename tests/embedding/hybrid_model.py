"""A small directory as BGE-M3's: an XLM-R with random weights, and two files of linear layers."""

from __future__ import annotations

from typing import TYPE_CHECKING

import torch

from tests.embedding.test_families import save_tokenizer
from tests.embedding.tiny_model import write_json
from tests.models.cases import VOCAB_SIZE, Case

if TYPE_CHECKING:
    from pathlib import Path

TEXTS = ["a b a", "b", "b a b a b"]
HIDDEN = 24


def write_hybrid_directory(folder: Path) -> Path:
    """Write the directory; every call writes the same weights."""
    tokenizer = save_tokenizer("xlm-roberta", folder)
    sizes = {
        "vocab_size": VOCAB_SIZE,
        "hidden_size": HIDDEN,
        "num_attention_heads": 3,
        "num_hidden_layers": 2,
        "intermediate_size": 50,
        "max_position_embeddings": 40,
        "pad_token_id": tokenizer.pad_token_id,
    }
    model = Case("xlm-roberta", "XLMRobertaConfig", "XLMRobertaModel", sizes).build()
    generator = torch.Generator().manual_seed(8)
    # Drawn by name: another version of transformers draws in another order.
    for name, parameter in sorted(model.named_parameters()):
        with torch.no_grad():
            drawn = 0.3 * torch.randn(parameter.shape, generator=generator)
            parameter.copy_(drawn + (1.0 if name.endswith("LayerNorm.weight") else 0.0))
    model.save_pretrained(folder)
    torch.manual_seed(8)
    for name, rows in (("sparse_linear", 1), ("colbert_linear", HIDDEN)):
        torch.save(torch.nn.Linear(HIDDEN, rows).state_dict(), folder / f"{name}.pt")
    pooling = {"word_embedding_dimension": HIDDEN, "pooling_mode_cls_token": True}
    write_json(folder / "1_Pooling" / "config.json", pooling)
    kinds = {"": "Transformer", "1_Pooling": "Pooling", "2_Normalize": "Normalize"}
    listed = [
        {"idx": i, "name": str(i), "path": path, "type": f"sentence_transformers.models.{kind}"}
        for i, (path, kind) in enumerate(kinds.items())
    ]
    write_json(folder / "modules.json", listed)
    return folder
