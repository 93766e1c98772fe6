"""What directories say of sparse encoders, token vectors and rankers is followed, or refused."""

from __future__ import annotations

import copy
import json
from typing import TYPE_CHECKING, Any

import pytest
import torch

from encoder_engine.embedding import Embedder, MultiVectorEmbedder, Ranker, SparseEmbedder
from encoder_engine.errors import (
    CheckpointFileError,
    ChecksumError,
    InputError,
    TextError,
    UnsupportedFeatureError,
)
from encoder_engine.ops.testing import assert_within_budget
from tests.embedding.test_breadth import TERMS, save_with_head, tensor
from tests.embedding.tiny_model import (
    WIDTH,
    write_json,
    write_sentence_directory,
    write_transformers_directory,
)
from tests.opening.test_checksums import damage, record

if TYPE_CHECKING:
    from pathlib import Path

library = pytest.importorskip("sentence_transformers")
pytestmark = pytest.mark.filterwarnings(
    "ignore::DeprecationWarning",
    "ignore::FutureWarning",
    "ignore::encoder_engine.errors.UnusedWeightsWarning",
)
TEXTS = ["The LONG Query", "", "a Row of text"]
PROMPTS = {"query": "Query: ", "document": "passage "}
CASED = {"do_lower_case": False, "model_max_length": 24}


def change(path: Path, **values: Any) -> None:
    write_json(path, json.loads(path.read_text("utf-8")) | values)


def save_sparse(folder: Path) -> Path:
    """Write a sparse encoder with a default prompt and few numbers, whose module lower-cases."""
    from sentence_transformers.base.modules import Transformer
    from sentence_transformers.sparse_encoder.modules import SpladePooling

    plain = save_with_head(folder / "plain", "BertForMaskedLM")
    write_json(plain / "tokenizer_config.json", CASED)
    modules = [Transformer(str(plain), transformer_task="fill-mask"), SpladePooling()]
    model = library.SparseEncoder(
        modules=modules, prompts=PROMPTS, default_prompt_name="query", max_active_dims=5
    )
    model.save(str(folder / "saved"))
    change(folder / "saved" / "sentence_bert_config.json", do_lower_case=True, max_seq_length=9)
    return folder / "saved"


def test_a_sparse_encoders_prompts_case_and_number_of_values_are_followed(tmp_path: Path) -> None:
    folder = save_sparse(tmp_path)
    model = library.SparseEncoder(str(folder), device="cpu")
    exact = copy.deepcopy(model).double()
    ours = SparseEmbedder.from_pretrained(folder, device="cpu")
    options = {"convert_to_sparse_tensor": False, "convert_to_tensor": True}
    calls: list[dict[str, Any]] = [
        {},
        {"prompt_name": "document"},
        {"prompt": ""},
        {"max_active_dims": 9},
    ]
    for call in calls:
        found = ours.encode(TEXTS, on_truncation="ignore", **call)
        eager, truth = (m.encode(TEXTS, **options, **call) for m in (model, exact))
        assert_within_budget(tensor(found.dense()), eager, truth, str(call), terms=TERMS)


def test_a_directory_of_another_type_is_no_sparse_encoder(tmp_path: Path) -> None:
    folder = save_sparse(tmp_path)
    change(folder / "config_sentence_transformers.json", model_type="SentenceTransformer")
    with pytest.raises(UnsupportedFeatureError, match="expected a SparseEncoder"):
        SparseEmbedder.from_pretrained(folder, device="cpu")


def save_multi_vector(folder: Path) -> Path:
    """Write a model of token vectors, whose projection has a folder of its own."""
    from sentence_transformers.base.modules import Dense, Normalize, Transformer
    from sentence_transformers.multi_vector_encoder.modules import MultiVectorMask

    plain = write_transformers_directory(folder / "plain")
    write_json(plain / "tokenizer_config.json", CASED)
    torch.manual_seed(2)
    dense = Dense(
        WIDTH, 6, bias=False, activation_function=torch.nn.Identity(),
        module_input_name="token_embeddings", module_output_name="token_embeddings",
    )  # fmt: skip
    norm = Normalize(module_input_name="token_embeddings")
    modules = [Transformer(str(plain)), dense, MultiVectorMask(skiplist_words=[]), norm]
    library.MultiVectorEncoder(modules=modules, device="cpu").save(str(folder / "saved"))
    return folder / "saved"


def test_token_vectors_are_of_lower_case_where_the_module_says_so(tmp_path: Path) -> None:
    save_multi_vector(tmp_path)
    change(tmp_path / "saved" / "sentence_bert_config.json", do_lower_case=True)
    model = library.MultiVectorEncoder(str(tmp_path / "saved"), device="cpu")
    ours = MultiVectorEmbedder.from_pretrained(tmp_path / "saved", device="cpu")
    found = ours.encode_documents(TEXTS)
    eager, truth = (m.encode_document(TEXTS) for m in (model, copy.deepcopy(model).double()))
    for rows, plain_rows, true_rows in zip(found, eager, truth, strict=True):
        values = tensor(rows), torch.as_tensor(plain_rows), torch.as_tensor(true_rows)
        assert_within_budget(*values, terms=TERMS)
    weights = tmp_path / "saved" / "1_Dense" / "model.safetensors"
    weights.write_bytes(weights.read_bytes()[:-1])
    with pytest.raises(CheckpointFileError, match="readable"):
        MultiVectorEmbedder.from_pretrained(tmp_path / "saved", device="cpu")


@pytest.mark.parametrize("nested", [False, True])
@pytest.mark.parametrize("kind", ["multi vector", "sparse", "ranker"])
def test_every_file_is_held_to_the_record_of_its_directory_or_folder(
    tmp_path: Path, kind: str, nested: bool
) -> None:
    """The projection of token vectors was compared with nothing."""
    makers: dict[str, Any] = {
        "multi vector": (save_multi_vector, MultiVectorEmbedder.from_pretrained),
        "sparse": (save_sparse, SparseEmbedder.from_pretrained),
        "ranker": (save_ranker, Ranker.from_pretrained),
    }
    save, load = makers[kind]
    folder = save(tmp_path)
    if nested:
        nest_encoder(folder)
    files = [p for p in folder.rglob("*") if p.suffix in (".json", ".safetensors")]
    homes = {folder, *(p.parent for p in files if p.parent.name.endswith(("Dense", "Pooling")))}
    assert len(homes) == (1 if kind == "ranker" else 2)
    for home in homes:
        record(home)
        load(folder, device="cpu")
        for path in (p for p in files if p.is_relative_to(home)):
            content = path.read_bytes()
            damage(path)
            with pytest.raises(ChecksumError, match=path.name):
                load(folder, device="cpu")
            path.write_bytes(content)
        (home / "SHA256SUMS").unlink()


def nest_encoder(folder: Path) -> None:
    """Move a model's transformer into a folder of its own, as older directories have it."""
    place = folder / "0_Transformer"
    place.mkdir()
    apart = ("modules.json", "config_sentence_transformers.json", "README.md")
    for path in [p for p in folder.iterdir() if p.is_file() and p.name not in apart]:
        path.rename(place / path.name)
    modules = json.loads((folder / "modules.json").read_text("utf-8"))
    modules[0]["path"] = place.name
    write_json(folder / "modules.json", modules)


def save_ranker(folder: Path) -> Path:
    """Write a ranker with a default prompt, whose module lower-cases and cuts."""
    plain = save_with_head(folder / "plain", "BertForSequenceClassification", num_labels=1)
    write_json(plain / "tokenizer_config.json", CASED)
    model = library.CrossEncoder(str(plain), prompts=PROMPTS, default_prompt_name="query")
    model.save(str(folder / "saved"))
    change(folder / "saved" / "sentence_bert_config.json", do_lower_case=True, max_seq_length=12)
    tokenizer = json.loads((folder / "saved" / "tokenizer_config.json").read_text("utf-8"))
    del tokenizer["model_max_length"]
    write_json(folder / "saved" / "tokenizer_config.json", tokenizer)
    return folder / "saved"


def test_a_rankers_prompts_case_and_limit_are_followed(tmp_path: Path) -> None:
    folder = save_ranker(tmp_path)
    model = library.CrossEncoder(str(folder), device="cpu")
    exact = copy.deepcopy(model).double()
    ours = Ranker.from_pretrained(folder, device="cpu")
    assert ours.max_seq_length == model.max_seq_length == 12
    pairs = [("The Query", text) for text in TEXTS]
    calls: list[dict[str, Any]] = [{}, {"prompt_name": "document"}, {"prompt": ""}]
    for call in calls:
        found = ours.score(pairs, on_truncation="ignore", **call)
        eager, truth = (m.predict(pairs, convert_to_tensor=True, **call) for m in (model, exact))
        assert_within_budget(tensor(found), eager, truth, str(call), terms=TERMS)
        ranked = ours.rank("The Query", TEXTS, on_truncation="ignore", **call)
        assert [one["score"] for one in ranked] == sorted(found.tolist(), reverse=True)
    with pytest.raises(TextError):
        ours.score([(None, "row")])  # type: ignore[list-item]
    with pytest.raises(InputError, match="passage"):
        ours.score(pairs, prompt_name="passage")


def test_a_ranker_with_more_than_a_transformer_is_refused(tmp_path: Path) -> None:
    folder = save_ranker(tmp_path)
    path = folder / "modules.json"
    more = {"idx": 1, "name": "1", "path": "1_Dense", "type": "sentence_transformers.models.Dense"}
    write_json(path, [*json.loads(path.read_text("utf-8")), more])
    with pytest.raises(UnsupportedFeatureError, match="Dense"):
        Ranker.from_pretrained(folder, device="cpu")
    path.write_text(json.dumps(json.loads(path.read_text("utf-8"))[:1]), encoding="utf-8")
    change(folder / "config_sentence_transformers.json", model_type="SparseEncoder")
    with pytest.raises(UnsupportedFeatureError, match="expected a CrossEncoder"):
        Ranker.from_pretrained(folder, device="cpu")


def test_a_directory_of_another_kind_says_who_loads_it(tmp_path: Path) -> None:
    folder = save_multi_vector(tmp_path / "tokens")
    with pytest.raises(UnsupportedFeatureError, match=r"; MultiVectorEmbedder\.from_pretrained"):
        SparseEmbedder.from_pretrained(folder, device="cpu")
    sentences = write_sentence_directory(tmp_path / "sentences")
    for loader in (Ranker, SparseEmbedder, MultiVectorEmbedder):
        with pytest.raises(UnsupportedFeatureError, match=r"which Embedder\.from_pretrained loads"):
            loader.from_pretrained(sentences, device="cpu")
    assert "bert, 16 features, max_seq_length=" in repr(Embedder.from_pretrained(sentences))
