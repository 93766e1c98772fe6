"""A text has its own vector whatever side the tokenizer's files pad."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import numpy as np
import pytest

from encoder_engine.embedding import Embedder
from tests.embedding.library_models import assert_agree, library_models
from tests.embedding.tiny_model import write_json, write_sentence_directory

if TYPE_CHECKING:
    from pathlib import Path

TEXTS = ["the text", "long words of a longer row", "7"]


@pytest.mark.slow
def test_padding_on_the_left_moves_no_position(tmp_path: Path) -> None:
    folder = write_sentence_directory(tmp_path)
    config = {"do_lower_case": True, "tokenizer_class": "BertTokenizer", "padding_side": "left"}
    write_json(folder / "tokenizer_config.json", config)
    (folder / "SHA256SUMS").unlink(missing_ok=True)
    models = library_models("SentenceTransformer", folder)
    eager, truth = (model.encode(TEXTS, batch_size=1, convert_to_tensor=True) for model in models)
    engines: tuple[Any, ...] = ("compiled", "torch")
    for engine in engines:
        embedder = Embedder.from_pretrained(folder, device="cpu", engine=engine)
        assert_agree(embedder.encode(TEXTS), eager, truth)
    # In a batch the library's vectors differ, which docs/embedding.md says.
    together = models[0].encode(TEXTS, batch_size=3)
    assert not np.allclose(together[0], eager[0].numpy(), atol=1e-3)
