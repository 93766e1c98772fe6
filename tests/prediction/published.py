"""Models that transformers saved, of random weights, as others publish them."""

from __future__ import annotations

import json
from typing import TYPE_CHECKING, Any

from tests.embedding.test_families import save_tokenizer
from tests.models.all_cases import ALL_CASES
from tests.models.cases import VOCAB_SIZE, Case, one_per_family

if TYPE_CHECKING:
    from pathlib import Path

FAMILIES = {case.model_type: case for case in one_per_family(ALL_CASES)}
TEXTS = ["a b", "", "b b a", "a " * 60, "b a b a a"]


def publish(
    folder: Path, model_type: str, architecture: str, labels: list[str], **config: Any
) -> Any:
    """Write a directory, and return transformers' model; ``labels``: by number."""
    tokenizer = save_tokenizer(model_type, folder)
    named: dict[str, Any] = {
        "id2label": dict(enumerate(labels)),
        "label2id": {n: i for i, n in enumerate(labels)},
    }
    case = FAMILIES[model_type]
    vocabulary: dict[str, Any] = {
        "pad_token_id": tokenizer.pad_token_id,
        "vocab_size": max(len(tokenizer), VOCAB_SIZE),
    }
    with_head = Case(model_type, case.config_class, architecture, case.sizes)
    model = with_head.build(**vocabulary, **named, **config)
    model.save_pretrained(folder)
    return model


def edit_config(folder: Path, **changes: Any) -> None:
    """Change config.json; None removes a key."""
    path = folder / "config.json"
    config = json.loads(path.read_text()) | changes
    path.write_text(json.dumps({k: v for k, v in config.items() if v is not None}))
