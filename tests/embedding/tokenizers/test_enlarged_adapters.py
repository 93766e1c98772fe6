"""Adapters whose tokenizer has more tokens than their base model load as peft loads them."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import numpy as np
import pytest
import torch

from encoder_engine.embedding import Embedder, Ranker
from encoder_engine.engine.outputs import Logits
from encoder_engine.models import Encoder, MaskedLM
from encoder_engine.packing.token_rows import TokenRows
from encoder_engine.prediction.mask_filler import MaskFiller
from tests.embedding.library_models import assert_agree
from tests.embedding.tiny_model import (
    write_head_directory,
    write_json,
    write_transformers_directory,
)

if TYPE_CHECKING:
    from pathlib import Path

pytestmark = [
    pytest.mark.slow,
    pytest.mark.filterwarnings("ignore::encoder_engine.errors.MissingPoolerWarning"),
    pytest.mark.filterwarnings("ignore:Setting `save_embedding_layers`:UserWarning"),
    pytest.mark.filterwarnings("ignore:`is_gradient_checkpointing`:FutureWarning"),
]
TEXTS = ["newword [X1] the text", "a row", "[X1][X1]"]
ADAPTERS: dict[str, dict[str, Any]] = {
    "plain": {"target_modules": ["query"]},
    "modules_to_save": {"target_modules": ["query"], "modules_to_save": ["word_embeddings"]},
    "adapted table": {"target_modules": ["query", "word_embeddings"]},
}


MASKED_LM = ADAPTERS | {
    "the head": {"target_modules": ["query"], "modules_to_save": ["cls"]},
    "its output": {"target_modules": ["query"], "modules_to_save": ["decoder"]},
    "trained tokens": {"target_modules": ["query"], "trainable_token_indices": [-1, -2]},
}
# Its table is adapted, and the output layer that repeats it is not.
del MASKED_LM["adapted table"]


def train(
    folder: Path, kind: str, labels: int | None = None, *, masked: bool = False
) -> tuple[Any, Any, Path]:
    """Save an adapter over an enlarged vocabulary: its model, its tokenizer and its directory."""
    peft = pytest.importorskip("peft", reason="peft is not installed")
    import transformers

    if masked:
        base = write_head_directory(folder / "base", MaskedLM)
        (base / "SHA256SUMS").unlink()
    else:
        base = write_transformers_directory(folder / "base")
    config = {"do_lower_case": True, "model_max_length": 24, "tokenizer_class": "BertTokenizer"}
    write_json(base / "tokenizer_config.json", config)
    tokenizer = transformers.AutoTokenizer.from_pretrained(base)
    tokenizer.add_tokens(["[X1]", "newword"])
    with torch.random.fork_rng():
        torch.manual_seed(1)
        if masked:
            model: Any = transformers.AutoModelForMaskedLM.from_pretrained(base)
            model.cls.predictions.bias.data.normal_()
        elif labels is None:
            model = transformers.AutoModel.from_pretrained(base)
        else:
            loaded = transformers.AutoModelForSequenceClassification
            model = loaded.from_pretrained(base, num_labels=labels)
        model.resize_token_embeddings(len(tokenizer))
        settings = MASKED_LM[kind] if masked else ADAPTERS[kind]
        tokens = settings.get("trainable_token_indices")
        if tokens is not None:
            tokens = [place + len(tokenizer) for place in tokens]
            settings = settings | {"trainable_token_indices": tokens}
        settings = settings | ({} if labels is None else {"task_type": "SEQ_CLS"})
        lora = peft.LoraConfig(r=4, init_lora_weights=False, **settings)
        model = peft.get_peft_model(model, lora).eval()
    model.save_pretrained(folder / "adapter")
    tokenizer.save_pretrained(folder / "adapter")
    return model, tokenizer, folder / "adapter"


def means(model: Any, tokenizer: Any) -> torch.Tensor:
    """Average the token vectors of each text."""
    with torch.no_grad():
        rows = [model(**tokenizer(text, return_tensors="pt")) for text in TEXTS]
    return torch.cat([row.last_hidden_state.mean(1) for row in rows])


@pytest.mark.parametrize("kind", ADAPTERS)
def test_embedders_have_the_vectors_of_peft(kind: str, tmp_path: Path) -> None:
    model, tokenizer, adapter = train(tmp_path, kind)
    eager = means(model, tokenizer)
    truth = means(model.double(), tokenizer)
    engines: tuple[Any, ...] = ("compiled", "torch")
    for engine in engines:
        embedder = Embedder.from_pretrained(adapter, pooling="mean", device="cpu", engine=engine)
        assert_agree(embedder.encode(TEXTS), eager, truth)
        # Saved, the model is whole, and states its vocabulary.
        embedder.save_pretrained(tmp_path / engine)
        again = Embedder.from_pretrained(tmp_path / engine, device="cpu")
        assert_agree(again.encode(TEXTS), eager, truth)
    spec = Encoder.from_pretrained(adapter, device="cpu").spec
    assert spec.embedding.vocab_size == len(tokenizer)


@pytest.mark.parametrize("kind", MASKED_LM)
def test_masked_language_models_have_the_logits_of_the_merged_model(
    kind: str, tmp_path: Path
) -> None:
    model, tokenizer, adapter = train(tmp_path, kind, masked=True)
    # Unmerged, peft computes an output layer with trained tokens without its bias.
    model = model.merge_and_unload()
    text = "the [MASK] newword"

    def logits() -> torch.Tensor:
        with torch.no_grad():
            found: torch.Tensor = model(**tokenizer(text, return_tensors="pt")).logits[0]
        return found

    eager = logits()
    model.double()
    truth = logits()
    engines: tuple[Any, ...] = ("compiled", "torch")
    for engine in engines:
        filler = MaskFiller.from_pretrained(adapter, device="cpu", engine=engine)
        rows = TokenRows.of(filler.tokenizer.encode_batch([text]))
        found = filler.engine.run(rows, Logits(chosen=np.arange(len(rows.ids), dtype=np.int32)))[0]
        assert_agree(found, eager, truth)


@pytest.mark.parametrize("labels", [1, 3])
def test_a_head_over_a_model_without_one_has_the_labels_of_the_adapter(
    labels: int, tmp_path: Path
) -> None:
    model, tokenizer, adapter = train(tmp_path, "plain", labels)
    pairs = [(text, "a query") for text in TEXTS]

    def logits() -> torch.Tensor:
        with torch.no_grad():
            found = [model(**tokenizer(*pair, return_tensors="pt")).logits for pair in pairs]
        return torch.cat(found)

    eager = logits()
    model.double()
    truth = logits()
    engines: tuple[Any, ...] = ("compiled", "torch")
    for engine in engines:
        ranker = Ranker.from_pretrained(adapter, device="cpu", engine=engine, activation="identity")
        assert_agree(ranker.score(pairs).reshape(eager.shape), eager, truth)
