"""Writes gliner_golden.json: directories that gliner saves, and the entities that it finds.

Run with gliner and its own transformers, beside this project:
``PYTHONPATH=. python tests/golden/gliner_golden.py``.
"""

from __future__ import annotations

import base64
import json
import string
import tempfile
import zlib
from importlib.metadata import version
from pathlib import Path
from typing import Any

import torch

TARGET = Path(__file__).parent / "gliner_golden.json"
TEXTS = [
    "Cristiano Ronaldo plays for Al Nassr in Saudi Arabia.",
    "New-York_city e-mail, 3.5%!",
    "Анна и Борис живут в Москве",
    "one",
    "",
    "  ",
    "the cat sat on the mat and the dog sat on the cat of the man who ran to the sea in May 1999",
]
# Labels, threshold, nested.
CALLS: list[tuple[list[str], float, bool]] = [
    (["person", "football club", "country"], 0.5, False),
    (["date"], 0.3, True),
    (["a", "b", "c", "d e f"], 0.55, True),
    (["animal", "place"], 0.45, False),
]
_SMALL = {
    "hidden_size": 8,
    "num_hidden_layers": 2,
    "num_attention_heads": 2,
    "intermediate_size": 16,
    "max_position_embeddings": 192,
}
_DEBERTA = {
    "model_type": "deberta-v2",
    "relative_attention": True,
    "position_buckets": 8,
    "max_relative_positions": -1,
    "norm_rel_ebd": "layer_norm",
    "share_att_key": True,
    "pos_att_type": ["p2c", "c2p"],
    "type_vocab_size": 0,
    "position_biased_input": False,
}
CASES: dict[str, tuple[dict[str, Any], dict[str, Any]]] = {
    "bert": ({"model_type": "bert"}, {"hidden_size": 8, "max_width": 4}),
    "deberta, projected": (_DEBERTA, {"hidden_size": 12, "num_rnn_layers": 2}),
    "mean, without an LSTM": (
        _DEBERTA,
        {"hidden_size": 8, "num_rnn_layers": 0, "subtoken_pooling": "mean", "max_width": 6},
    ),
    "max": ({"model_type": "bert"}, {"hidden_size": 8, "subtoken_pooling": "max"}),
    "last, of labels": (
        {"model_type": "bert"},
        {"hidden_size": 8, "subtoken_pooling": "last", "embed_ent_token": False},
    ),
}


def write_tokenizer(folder: Path) -> int:
    """Write a WordPiece tokenizer of letters, and return the size of its vocabulary."""
    from tokenizers import Tokenizer, models, normalizers, pre_tokenizers, processors
    from transformers import PreTrainedTokenizerFast

    special = ["[PAD]", "[UNK]", "[CLS]", "[SEP]", "[MASK]"]
    letters = string.ascii_lowercase + string.digits + "абвгдежзийклмнопрстуфхцчшщъыьэюя"
    pieces = [*special, *letters, *(f"##{letter}" for letter in letters), *".,!%-_", "the", "##at"]
    tokenizer = Tokenizer(models.WordPiece({p: n for n, p in enumerate(pieces)}, unk_token="[UNK]"))
    tokenizer.normalizer = normalizers.BertNormalizer()
    tokenizer.pre_tokenizer = pre_tokenizers.BertPreTokenizer()
    tokenizer.post_processor = processors.BertProcessing(("[SEP]", 3), ("[CLS]", 2))
    names = {f"{name.strip('[]').lower()}_token": name for name in special}
    make: Any = PreTrainedTokenizerFast
    make(tokenizer_object=tokenizer, model_max_length=192, **names).save_pretrained(folder)
    return len(pieces)


def draw(model: Any, seed: int) -> bool:
    """Draw weights; False where all scores are high, or all low.

    Labels are scaled so that no score is so near to 1 that several tie.
    """
    torch.manual_seed(seed)
    for name, weight in model.model.named_parameters():
        if weight.dim() > 1:
            torch.nn.init.normal_(weight, std=1.0 if "lstm" in name else 0.3)
    found = model.inference(TEXTS, CALLS[0][0], threshold=0.0, flat_ner=False, multi_label=True)
    scores = torch.tensor([one["score"] for row in found for one in row], dtype=torch.float64)
    logits = torch.logit(scores.clamp(1e-6, 1 - 1e-6))
    last = model.model.prompt_rep_layer[3]
    for weight in (last.weight, last.bias):
        weight.data *= 2.0 / float(logits.std())
    return abs(float(logits.mean())) < float(logits.std())


def make(folder: Path, encoder: dict[str, Any], settings: dict[str, Any]) -> dict[str, Any]:
    """Make a model by gliner, save it, and return its files and what it finds."""
    from gliner import GLiNER

    plain = folder / "plain"
    encoder = {**_SMALL, **encoder, "vocab_size": write_tokenizer(plain)}
    (plain / "config.json").write_text(json.dumps(encoder), encoding="utf-8")
    config = {"model_name": str(plain), "encoder_config": encoder, **settings}
    model = GLiNER.from_config(config, backbone_from_pretrained=False)
    assert any(draw(model, seed) for seed in range(100))
    model.config.model_name = "nowhere"
    model.save_pretrained(folder / "saved", safe_serialization=True)
    model = GLiNER.from_pretrained(str(folder / "saved"))
    files = {
        path.name: base64.b64encode(zlib.compress(path.read_bytes())).decode()
        for path in sorted((folder / "saved").iterdir())
    }
    found = []
    for labels, threshold, nested in CALLS:
        rows = model.inference(TEXTS, labels, threshold=threshold, flat_ner=not nested)
        entities = [
            [[one["label"], one["start"], one["end"], one["score"]] for one in row] for row in rows
        ]
        found.append(
            {"labels": labels, "threshold": threshold, "nested": nested} | {"found": entities}
        )
    return {"files": files, "calls": found}


def main() -> None:
    """Write the file."""
    cases = {}
    for name, options in CASES.items():
        with tempfile.TemporaryDirectory() as folder:
            cases[name] = make(Path(folder), *options)
    libraries = ("gliner", "transformers", "torch")
    golden = {"versions": {name: version(name) for name in libraries}, "texts": TEXTS}
    TARGET.write_text(json.dumps(golden | {"cases": cases}) + "\n", encoding="utf-8")


if __name__ == "__main__":
    main()
