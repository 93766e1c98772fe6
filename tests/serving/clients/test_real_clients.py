"""Real clients get the vectors of ``encode``; see :mod:`tests.serving.clients.run`."""

from __future__ import annotations

from typing import TYPE_CHECKING

import pytest

from encoder_engine.embedding import Embedder, Ranker
from encoder_engine.models import SequenceClassification
from tests.embedding.tiny_model import write_head_directory
from tests.serving.clients.run import clients_folder, main
from tests.serving.clients.scripts import CLIENTS

if TYPE_CHECKING:
    from pathlib import Path


@pytest.mark.exhaustive
@pytest.mark.parametrize("name", CLIENTS)
def test_a_real_client_gets_the_vectors_of_encode(name: str, minilm: Path, tmp_path: Path) -> None:
    if not (clients_folder() / name / "bin" / "python").is_file():
        pytest.skip(f"python -m tests.serving.clients.run {name} makes its environment")
    write_head_directory(tmp_path, SequenceClassification, num_labels=1)
    main(
        Embedder.from_pretrained(minilm, device="cpu"),
        Ranker.from_pretrained(tmp_path, device="cpu", max_seq_length=32),
        [name],
    )
