"""ColBERT in the layouts of its three libraries gives the vectors of sentence-transformers."""

from __future__ import annotations

import base64
import copy
import json
import shutil
import string
from typing import TYPE_CHECKING, Any

import numpy as np
import pytest
import torch
from safetensors.torch import load_file, save_file

from encoder_engine.cli import main
from encoder_engine.embedding import MultiVectorEmbedder
from encoder_engine.errors import (
    CheckpointFileError,
    ConfigError,
    EncoderEngineError,
    UnsupportedFeatureError,
)
from encoder_engine.opening.compiling import compile_directory
from encoder_engine.ops.testing import assert_within_budget
from encoder_engine.vectors.stored_vectors import load_vectors
from tests import ROOT
from tests.embedding.test_breadth import TERMS, tensor
from tests.embedding.tiny_model import VOCABULARY, WIDTH, write_json, write_transformers_directory

if TYPE_CHECKING:
    from collections.abc import Callable
    from pathlib import Path

library = pytest.importorskip("sentence_transformers")
pytestmark = pytest.mark.filterwarnings(
    "ignore::DeprecationWarning",
    "ignore::FutureWarning",
    "ignore::encoder_engine.errors.TruncationWarning",
)
TEXTS = ["the long query", "", "a row, of (text).", "words " * 9]
ENGINES = ("compiled", "torch")
PYLATE = {"model_type": "ColBERT", "similarity_fn_name": "MaxSim", "prompts": {}}


def plain(folder: Path) -> Path:
    """Write the tiny model with two words that stand for the markers of queries and documents."""
    write_transformers_directory(folder)
    marked = [*VOCABULARY]
    marked[marked.index("query")], marked[marked.index("passage")] = "[unused0]", "[unused1]"
    (folder / "vocab.txt").write_text("".join(f"{token}\n" for token in marked), "utf-8")
    return folder


def dense(folder: Path, rows: int, columns: int, **options: Any) -> Path:
    """Write a Dense as PyLate does, without the names of what it reads and writes."""
    config = {
        "in_features": columns,
        "out_features": rows,
        "bias": False,
        "activation_function": "torch.nn.modules.linear.Identity",
    } | options
    write_json(folder / "config.json", config)
    generator = torch.Generator().manual_seed(rows)
    tensors = {"linear.weight": torch.randn(rows, columns, generator=generator)}
    if config["bias"]:
        tensors["linear.bias"] = torch.randn(rows, generator=generator)
    if config.get("use_residual") and rows != columns:
        tensors["residual.weight"] = torch.randn(rows, columns, generator=generator)
    save_file(tensors, folder / "model.safetensors")
    return folder


def pylate(folder: Path, **settings: Any) -> Path:
    """Write a directory as PyLate saves it: a Transformer, Dense layers and settings."""
    plain(folder)
    dense(folder / "1_Dense", 12, WIDTH, use_residual=True)
    dense(folder / "2_Dense", 6, 12)
    modules = [
        ("", "sentence_transformers.models.Transformer"),
        ("1_Dense", "pylate.models.Dense.Dense"),
        ("2_Dense", "pylate.models.Dense.Dense"),
    ]
    listed = [
        {"idx": i, "name": str(i), "path": path, "type": kind}
        for i, (path, kind) in enumerate(modules)
    ]
    write_json(folder / "modules.json", listed)
    write_json(folder / "sentence_bert_config.json", {"max_seq_length": 23, "do_lower_case": False})
    write_json(folder / "config_sentence_transformers.json", PYLATE | settings)
    return folder


def stanford(folder: Path, **metadata: Any) -> Path:
    """Write a directory as ColBERT saves it: one file of weights, and artifact.metadata."""
    plain(folder)
    config = json.loads((folder / "config.json").read_text("utf-8"))
    write_json(folder / "config.json", config | {"architectures": ["HF_ColBERT"]})
    tensors = {f"bert.{n}": t for n, t in load_file(folder / "model.safetensors").items()}
    generator = torch.Generator().manual_seed(3)
    tensors["linear.weight"] = torch.randn(6, WIDTH, generator=generator)
    save_file(tensors, folder / "model.safetensors", metadata={"format": "pt"})
    (folder / "SHA256SUMS").unlink()
    write_json(folder / "artifact.metadata", metadata)
    return folder


def native(folder: Path, mask: dict[str, Any] | None = None, **options: Any) -> Path:
    """Write a directory as sentence-transformers 6 saves it."""
    from sentence_transformers.base.modules import Dense, Normalize, Transformer
    from sentence_transformers.multi_vector_encoder.modules import MultiVectorMask

    torch.manual_seed(2)
    layer = Dense(WIDTH, 6, module_input_name="token_embeddings")
    parts = [
        Transformer(str(plain(folder / "plain")), max_seq_length=24, **options),
        layer,
        MultiVectorMask(**(mask or {})),
        Normalize(module_input_name="token_embeddings"),
    ]
    prompts = {"query": "the ", "document": "row "}
    model = library.MultiVectorEncoder(modules=parts, prompts=prompts, device="cpu")
    model.save(str(folder / "saved"))
    return folder / "saved"


UNATTENDED = {"strategy": "fixed", "length": 14, "attend": False}
LAYOUTS: dict[str, Callable[[Path], Path]] = {
    "PyLate": lambda folder: pylate(
        folder, query_prefix="[unused0] ", document_prefix="[unused1] "
    ),
    "PyLate, all settings": lambda folder: pylate(
        folder,
        query_prefix="[Q] ",
        document_prefix="[unused1] ",
        prompts={"query": "the ", "document": "[unused1] row "},
        query_length=11,
        document_length=9,
        attend_to_expansion_tokens=True,
        skiplist_words=["the", ".", "nowhere"],
        do_query_expansion=True,
    ),
    "PyLate without expansion": lambda folder: pylate(
        folder, query_prefix="", do_query_expansion=False, query_length=8
    ),
    "ColBERT": lambda folder: stanford(folder, query_maxlen=13, doc_maxlen=12),
    "ColBERT, all settings": lambda folder: stanford(
        folder,
        query_token_id="[unused1]",
        doc_token_id="[unused0]",
        query_maxlen=12,
        doc_maxlen=20,
        mask_punctuation=False,
        attend_to_mask_tokens=True,
    ),
    "native, unattended": lambda folder: native(folder, query_expansion=UNATTENDED),
    "native, at least": lambda folder: native(
        folder, query_expansion={"strategy": "min", "length": 9}, query_length=15
    ),
    "native, another token": lambda folder: native(
        folder, query_expansion={"strategy": "min", "length": 9, "token": "[SEP]", "attend": True}
    ),
    "native, both skip": lambda folder: native(
        folder,
        {"skiplist_words": ["row", "the"], "skiplist_tasks": ["query", "document"]},
        document_length=7,
    ),
    "native, few ids": lambda folder: native(folder, {"keep_only_token_ids": [5, 6, 7, 8, 9]}),
}


@pytest.mark.parametrize(
    ("layout", "engine"),
    [
        pytest.param(layout, engine, marks=[pytest.mark.exhaustive] * (place % 2 != by))
        for place, layout in enumerate(LAYOUTS)
        for by, engine in enumerate(ENGINES)
    ],
)
def test_token_vectors_are_those_of_sentence_transformers(
    layout: str, engine: Any, tmp_path: Path
) -> None:
    folder = LAYOUTS[layout](tmp_path)
    model = library.MultiVectorEncoder(str(folder), device="cpu")
    exact = copy.deepcopy(model).double()
    ours = MultiVectorEmbedder.from_pretrained(folder, device="cpu", engine=engine)
    for kind, encode in (("query", ours.encode_queries), ("document", ours.encode_documents)):
        found = encode(TEXTS)
        eager, truth = (getattr(m, f"encode_{kind}")(TEXTS) for m in (model, exact))
        assert [len(rows) for rows in found] == [len(rows) for rows in eager], kind
        for rows, plain_rows, true_rows in zip(found, eager, truth, strict=True):
            values = tensor(rows), torch.as_tensor(plain_rows), torch.as_tensor(true_rows)
            assert_within_budget(*values, kind, terms=TERMS)


def test_the_command_line_normalizes_tokens_only_where_the_directory_does(tmp_path: Path) -> None:
    directory = native(tmp_path)
    modules = json.loads((directory / "modules.json").read_text("utf-8"))
    write_json(directory / "modules.json", modules[:-1])
    (tmp_path / "in.txt").write_text("the text\n", encoding="utf-8")
    files = [str(tmp_path / "in.txt"), "-o", f"{tmp_path / 'out'}/", "-m", str(directory)]
    assert main(["embed", *files, "--task", "tokens", "--quiet", "--device", "cpu"]) == 0
    expected = MultiVectorEmbedder.from_pretrained(directory, device="cpu").encode_documents(
        ["the text"]
    )
    np.testing.assert_array_equal(load_vectors(tmp_path / "out").tokens.vectors, expected.vectors)
    assert not np.allclose(np.linalg.norm(expected.vectors, axis=1), 1)


@pytest.mark.parametrize("engine", ENGINES)
def test_an_expanded_query_does_not_depend_on_its_batch(engine: Any, tmp_path: Path) -> None:
    ours = MultiVectorEmbedder.from_pretrained(stanford(tmp_path, query_maxlen=14), engine=engine)
    together = ours.encode_queries(TEXTS)
    for place, text in enumerate(TEXTS):
        assert together[place].tobytes() == ours.encode_queries(text)[0].tobytes()


def test_masked_tokens_are_seen_by_none(tmp_path: Path) -> None:
    """The vectors of a query's own tokens do not change with the number of masked ones."""
    found = []
    for length in (12, 20):
        folder = stanford(tmp_path / str(length), query_maxlen=length)
        embedder = MultiVectorEmbedder.from_pretrained(folder, engine="compiled")
        found.append(embedder.encode_queries("the row")[0])
    few, many = found
    assert (len(few), len(many)) == (12, 20)
    assert few.tobytes() == many[:12].tobytes()


def test_a_family_that_convolves_cannot_leave_tokens_unattended() -> None:
    import encoder_engine as ee
    from encoder_engine.packing import pack
    from tests.models.cases import CASES

    case = next(case for case in CASES if case.sizes.get("conv_kernel_size"))
    import tempfile
    from pathlib import Path

    with tempfile.TemporaryDirectory() as folder:
        case.save(Path(folder))
        encoder = ee.Encoder.from_pretrained(folder, device="cpu")
        batch = pack([[5, 6, 7]])
        with pytest.raises(UnsupportedFeatureError, match="unattended"):
            encoder.encode_unattended(batch, [1])
        compiled = ee.CompiledEncoder.from_pretrained(folder)
        ids, starts = batch.input_ids.numpy(), batch.cu_seqlens.numpy()
        with pytest.raises(UnsupportedFeatureError, match="unattended"):
            compiled.hidden(ids, starts, unattended=starts[1:] - 2)


def test_a_window_shorter_than_the_query_cannot_leave_tokens_unattended(tmp_path: Path) -> None:
    import encoder_engine as ee
    from encoder_engine.packing import pack
    from tests.models.cases import CASES

    case = next(case for case in CASES if case.sizes.get("local_attention") == 12)
    case.save(tmp_path)
    encoder = ee.Encoder.from_pretrained(tmp_path, device="cpu")
    compiled = ee.CompiledEncoder.from_pretrained(tmp_path)
    for length, fits in ((6, True), (7, False)):
        batch = pack([list(range(5, 5 + length))])
        ids, starts = batch.input_ids.numpy(), batch.cu_seqlens.numpy()
        calls = (
            lambda batch=batch: encoder.encode_unattended(batch, [2]),
            lambda ids=ids, starts=starts: compiled.hidden(
                ids, starts, unattended=np.array([2], np.int32)
            ),
        )
        for call in calls:
            if fits:
                assert len(call()) == length
            else:
                with pytest.raises(UnsupportedFeatureError, match="6 tokens to either side"):
                    call()


def without_dense(folder: Path) -> None:
    listed = json.loads((folder / "modules.json").read_text("utf-8"))
    write_json(folder / "modules.json", listed[:1])


def settings(**values: Any) -> Callable[[Path], None]:
    def change(folder: Path) -> None:
        path = folder / "config_sentence_transformers.json"
        write_json(path, json.loads(path.read_text("utf-8")) | values)

    return change


@pytest.mark.parametrize(
    ("damage", "error", "words"),
    [
        (without_dense, UnsupportedFeatureError, "no Dense"),
        (settings(model_type="SentenceTransformer"), UnsupportedFeatureError, "Embedder"),
        (settings(query_length=99), ConfigError, "padded to 99 tokens"),
        (settings(query_expansion={"strategy": "most"}), ConfigError, "strategy"),
        (
            settings(query_expansion={"strategy": "min", "length": 9, "token": "[X]"}),
            ConfigError,
            r"\[X\]",
        ),
        (
            settings(query_expansion={"strategy": "min", "length": 9, "bias": 1}),
            UnsupportedFeatureError,
            "bias",
        ),
        (settings(moonlight=1), UnsupportedFeatureError, "moonlight"),
        (lambda folder: shutil.rmtree(folder / "2_Dense"), EncoderEngineError, "2_Dense"),
    ],
)
def test_settings_that_are_not_followed_are_refused(
    damage: Callable[[Path], None], error: type[EncoderEngineError], words: str, tmp_path: Path
) -> None:
    folder = pylate(tmp_path, query_prefix="[unused0] ")
    damage(folder)
    with pytest.raises(error, match=words):
        MultiVectorEmbedder.from_pretrained(folder, device="cpu")


def test_a_checkpoint_of_colbert_without_its_projection_is_refused(tmp_path: Path) -> None:
    folder = stanford(tmp_path)
    tensors = load_file(folder / "model.safetensors")
    del tensors["linear.weight"]
    save_file(tensors, folder / "model.safetensors")
    with pytest.raises(CheckpointFileError, match=r"linear\.weight"):
        MultiVectorEmbedder.from_pretrained(folder, device="cpu")


def test_punctuation_is_left_out_of_documents_by_default(tmp_path: Path) -> None:
    folder = pylate(tmp_path, query_prefix="[unused0] ")
    embedder = MultiVectorEmbedder.from_pretrained(folder, device="cpu")
    ids = {embedder.embedder.tokenizer.token_to_id(mark) for mark in string.punctuation}
    assert embedder.skipped == ids - {None}
    assert not ids & set(embedder.encode_documents("a row, of (text).").ids.tolist())


GOLDEN = json.loads((ROOT / "tests" / "golden" / "pylate_golden.json").read_text("utf-8"))


@pytest.mark.parametrize("engine", ENGINES)
@pytest.mark.parametrize("case", GOLDEN["cases"])
def test_what_pylate_saves_gives_the_vectors_of_pylate(
    case: str, engine: Any, tmp_path: Path
) -> None:
    golden = GOLDEN["cases"][case]
    for name, content in golden["files"].items():
        (tmp_path / name).parent.mkdir(exist_ok=True)
        (tmp_path / name).write_bytes(base64.b64decode(content))
    ours = MultiVectorEmbedder.from_pretrained(tmp_path, device="cpu", engine=engine)
    for kind, encode in (("query", ours.encode_queries), ("document", ours.encode_documents)):
        found = encode(GOLDEN["texts"])
        eager, truth = golden[f"{kind}_float32"], golden[f"{kind}_float64"]
        assert [len(rows) for rows in found] == [len(rows) for rows in eager], kind
        for rows, plain_rows, true_rows in zip(found, eager, truth, strict=True):
            values = torch.tensor(plain_rows), torch.tensor(true_rows, dtype=torch.float64)
            assert_within_budget(tensor(rows), *values, kind, terms=TERMS)


def test_a_checkpoint_of_stanford_is_not_compiled_without_its_projection(tmp_path: Path) -> None:
    folder = stanford(tmp_path / "source")
    with pytest.raises(UnsupportedFeatureError, match="the projection of token vectors"):
        compile_directory(folder, tmp_path / "compiled")
    assert not (tmp_path / "compiled").exists()
