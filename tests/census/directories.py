"""Writes the directory of a repository: its JSON files, and small files in place of weights.

Weights of modules are files of zeros that take no space on the disk; the encoder's are left out.
"""

from __future__ import annotations

import json
import struct
from pathlib import Path
from typing import Any

from tests.embedding.tiny_model import VOCABULARY, write_json

REPOSITORIES = Path(__file__).parent / "repositories.json"
SENTENCE = "sentence_transformers.models."
SPARSE = "sentence_transformers.sparse_encoder.models."
CROSS = "sentence_transformers.cross_encoder.modules.logit_score."
# The module of a class that is none of sentence_transformers.models.
PLACES = {
    "LogitScore": CROSS,
    "MLMTransformer": SPARSE,
    "SpladePooling": SPARSE,
    "SparseStaticEmbedding": SPARSE,
}
LOGITS = {"method": "forward", "method_output_name": "logits"}
MARKERS = ("[unused0]", "[unused1]", "[Q]", "[D]")
# What the published vocabularies of Chinese BERT have: white space that ends no line.
BLANKS = ("\u2028", "##\u2028", "\u2029", "\u3000", "\xa0")

Repository = dict[str, Any]


def read_repositories() -> dict[str, Repository]:
    """Return the repositories by their ids, each with its whole configuration."""
    table = json.loads(REPOSITORIES.read_text("utf-8"))
    found = {}
    for row in table["repositories"]:
        base = {} if row["base"] is None else table["bases"][row["base"]]
        found[row["id"]] = row | {"config": base | row.get("config", {})}
    return found


def write_zeros(path: Path, shapes: dict[str, tuple[int, ...]]) -> None:
    """Write a safetensors file of zeros in float16, as a hole in the file system."""
    header, end = {}, 0
    for name, shape in shapes.items():
        size = 2
        for number in shape:
            size *= number
        header[name] = {"dtype": "F16", "shape": list(shape), "data_offsets": [end, end + size]}
        end += size
    encoded = json.dumps(header).encode()
    path.parent.mkdir(parents=True, exist_ok=True)
    with path.open("wb") as file:
        file.write(struct.pack("<Q", len(encoded)) + encoded)
        file.truncate(8 + len(encoded) + end)


def write_directory(repository: Repository, folder: Path) -> Path:
    """Write the files of a repository."""
    folder.mkdir(parents=True, exist_ok=True)
    if repository["config"]:
        write_json(folder / "config.json", repository["config"])
    write_tokenizer(folder)
    if "settings" in repository:
        write_json(folder / "config_sentence_transformers.json", repository["settings"])
    if "stanford" in repository:
        width = repository["config"]["hidden_size"]
        write_json(folder / "artifact.metadata", repository["stanford"])
        write_zeros(folder / "model.safetensors", {"linear.weight": (128, width)})
    if "chat_template" in repository:
        (folder / "chat_template.jinja").write_text(repository["chat_template"], "utf-8")
    if repository.get("modules"):
        _write_modules(repository, folder)
    return folder


def write_tokenizer(folder: Path) -> None:
    """Write a small vocabulary with the markers of late interaction and pieces of white space."""
    tokens = [*VOCABULARY, *BLANKS, *MARKERS]
    folder.mkdir(parents=True, exist_ok=True)
    (folder / "vocab.txt").write_text("".join(f"{token}\n" for token in tokens), "utf-8")
    write_json(folder / "tokenizer_config.json", {"do_lower_case": True, "model_max_length": 512})


def _write_modules(repository: Repository, folder: Path) -> None:
    listed = []
    for place, text in enumerate(repository["modules"]):
        kind, *values = text.split(":")
        path = "" if place == 0 else f"{place}_{'Dense' if kind == 'pylate' else kind}"
        entry = {"idx": place, "name": str(place), "path": path, "type": _class_of(kind)}
        if kind == "custom_st.Transformer":
            entry["kwargs"] = ["task"]
        listed.append(entry)
        _write_module(kind, values, folder / path, repository["config"])
    write_json(folder / "modules.json", listed)


def _class_of(kind: str) -> str:
    if kind == "pylate":
        return "pylate.models.Dense.Dense"
    return kind if "." in kind else PLACES.get(kind, SENTENCE) + kind


def _write_module(kind: str, values: list[str], folder: Path, config: dict[str, Any]) -> None:
    width = config.get("hidden_size") or config.get("dim") or config.get("d_model")
    width = width or config.get("n_embd")
    if kind == "Pooling":
        flags = {"cls": "cls_token", "mean": "mean_tokens", "lasttoken": "lasttoken"}
        pooling = {"word_embedding_dimension": width, f"pooling_mode_{flags[values[0]]}": True}
        write_json(folder / "config.json", pooling)
    elif kind in ("Dense", "pylate"):
        columns, rows = int(values[0]), int(values[1])
        name = values[2] if len(values) > 2 else "Identity"
        place = "linear" if name == "Identity" else "activation"
        has_bias = kind == "Dense" and "nobias" not in values
        settings = {
            "in_features": columns,
            "out_features": rows,
            "bias": has_bias,
            "activation_function": f"torch.nn.modules.{place}.{name}",
        }
        write_json(folder / "config.json", settings)
        shapes: dict[str, tuple[int, ...]] = {"linear.weight": (rows, columns)}
        if has_bias:
            shapes["linear.bias"] = (rows,)
        write_zeros(folder / "model.safetensors", shapes)
    elif kind == "SpladePooling":
        write_json(
            folder / "config.json", {"pooling_strategy": "max", "activation_function": "relu"}
        )
    elif kind == "Transformer" and values:
        settings = {"transformer_task": values[0]}
        if values[0] == "text-generation":
            modalities = {"text": LOGITS, "message": {**LOGITS, "format": "flat"}}
            settings |= {"modality_config": modalities, "module_output_name": "causal_logits"}
        write_json(folder / "sentence_bert_config.json", settings)
    elif kind == "LogitScore":
        answers = {"true_token_id": int(values[0]), "false_token_id": int(values[1])}
        write_json(folder / "config.json", answers)
    elif kind == "Router":
        _write_router(folder, config)


def _write_router(folder: Path, config: dict[str, Any]) -> None:
    """Write the routes of an inference-free sparse encoder; its transformer is at the root."""
    query, document = "query_0_SparseStaticEmbedding", "document_1_SpladePooling"
    router = {
        "types": {
            query: f"{SPARSE}SparseStaticEmbedding",
            "": f"{SPARSE}MLMTransformer",
            document: f"{SPARSE}SpladePooling",
        },
        "structure": {"query": [query], "document": ["", document]},
        "parameters": {"default_route": "document", "allow_empty_key": True},
    }
    write_json(folder / "router_config.json", router)
    write_json(folder / query / "config.json", {"frozen": True})
    write_tokenizer(folder / query)
    write_zeros(folder / query / "model.safetensors", {"weight": (config["vocab_size"],)})
    _write_module("SpladePooling", [], folder / document, config)
