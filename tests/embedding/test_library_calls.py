"""Calls as scripts for sentence-transformers write them: the same results, or a typed refusal."""

from __future__ import annotations

import warnings
from typing import TYPE_CHECKING, Any

import numpy as np
import pyarrow
import pytest
import torch

from encoder_engine import Embedder, StaticEmbedder
from encoder_engine.embedding import (
    HybridEmbedder,
    MultiVectorEmbedder,
    Ranker,
    SparseEmbedder,
)
from encoder_engine.errors import (
    CheckpointFileError,
    ConfigError,
    ImplementationError,
    InputError,
    OutputError,
    ShapeError,
    UnsupportedFeatureError,
)
from encoder_engine.families.checkpoints import files
from encoder_engine.models import MaskedLM, SequenceClassification
from encoder_engine.opening.compiling import compile_directory
from encoder_engine.vectors.similarity import SIMILARITIES, pairwise_similarities, similarities
from tests.embedding.hybrid_model import write_hybrid_directory
from tests.embedding.static.static_models import write_model2vec
from tests.embedding.tiny_model import write_head_directory, write_sentence_directory
from tests.opening.test_late_interaction import native

if TYPE_CHECKING:
    from pathlib import Path

TEXTS = ["the text", "a row of words", "query 7"]


@pytest.fixture(scope="module")
def directory(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return write_sentence_directory(
        tmp_path_factory.mktemp("calls"),
        settings={
            "prompts": {"query": "query: ", "document": "passage: "},
            "default_prompt_name": None,
            "similarity_fn_name": "dot",
        },
    )


@pytest.fixture(scope="module")
def embedder(directory: Path) -> Embedder:
    return Embedder.from_pretrained(directory, device="cpu")


@pytest.fixture(scope="module")
def library(directory: Path) -> Any:
    module = pytest.importorskip("sentence_transformers")
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        return module.SentenceTransformer(str(directory), device="cpu")


CALLS: dict[str, dict[str, Any]] = {
    "batch_size": {"batch_size": 1},
    "convert_to_numpy": {"convert_to_numpy": True},
    "convert_to_tensor": {"convert_to_tensor": True},
    "output_value": {"output_value": "sentence_embedding"},
    "show_progress_bar": {"show_progress_bar": False},
    "normalize_embeddings": {"normalize_embeddings": True},
    "truncate_dim": {"truncate_dim": 5, "normalize_embeddings": True},
    "prompt_name": {"prompt_name": "query"},
    "prompt": {"prompt": "row "},
    "device": {"device": "cpu"},
    "precision": {"precision": "ubinary"},
}


@pytest.mark.slow
@pytest.mark.parametrize("name", CALLS)
@pytest.mark.parametrize("method", ["encode", "encode_query", "encode_document"])
def test_calls_return_what_the_library_returns(
    embedder: Embedder, library: Any, name: str, method: str
) -> None:
    options = CALLS[name]
    expected = getattr(library, method)(TEXTS, **options)
    found = getattr(embedder, method)(TEXTS, **options)
    assert type(found) is type(expected)
    if options.get("precision") == "ubinary":
        np.testing.assert_array_equal(found, expected)
        return
    if options.get("convert_to_tensor"):
        found, expected = found.numpy(), expected.numpy()
    np.testing.assert_allclose(found, expected, atol=1e-5)


@pytest.mark.parametrize(
    ("options", "message"),
    [
        ({"output_value": "token_embeddings"}, r"encode_tokens\(texts\)"),
        ({"output_value": None}, "encode_tokens"),
        ({"convert_to_numpy": False}, "convert_to_tensor=True"),
        ({"device": "cuda"}, r"from_pretrained\(..., device=\)"),
        ({"pool": {}}, r"encode_dataset\(workers=\)"),
        ({"chunk_size": 4}, r"encode_dataset\(workers=\)"),
        ({"batch_size": 0}, "batch_size must be a positive"),
    ],
)
def test_other_meanings_are_refused_by_name(
    embedder: Embedder, options: dict[str, Any], message: str
) -> None:
    with pytest.raises(InputError, match=message):
        embedder.encode(TEXTS, **options)


def test_a_misspelt_keyword_is_no_option(embedder: Embedder) -> None:
    with pytest.raises(TypeError, match="did you mean 'batch_size'"):
        embedder.encode(TEXTS, batchsize=4)  # type: ignore[call-overload]


def test_a_batch_has_so_many_texts(embedder: Embedder, monkeypatch: pytest.MonkeyPatch) -> None:
    sizes = []
    run = type(embedder.engine).run

    def counted(self: Any, rows: Any, *outputs: Any) -> Any:
        sizes.append(len(rows))
        return run(self, rows, *outputs)

    monkeypatch.setattr(type(embedder.engine), "run", counted)
    whole = embedder.encode(TEXTS * 3)
    assert sizes == [9]
    sizes.clear()
    np.testing.assert_allclose(embedder.encode(TEXTS * 3, batch_size=4), whole, atol=1e-6)
    assert sizes == [4, 4, 1]


@pytest.mark.slow
@pytest.mark.parametrize("name", SIMILARITIES)
def test_similarities_are_those_of_the_library(library: Any, name: Any) -> None:
    from sentence_transformers.util import SimilarityFunction

    drawn = np.random.default_rng(0).normal(size=(2, 5, 7)).astype(np.float32)
    matrix = SimilarityFunction.to_similarity_fn(name)(drawn[0], drawn[1]).numpy()
    pairs = SimilarityFunction.to_similarity_pairwise_fn(name)(drawn[0], drawn[1]).numpy()
    np.testing.assert_allclose(similarities(drawn[0], drawn[1], name), matrix, atol=1e-5)
    np.testing.assert_allclose(pairwise_similarities(drawn[0], drawn[1], name), pairs, atol=1e-5)


def test_whole_numbers_are_compared_and_bytes_are_refused() -> None:
    assert similarities([[3, 0], [0, 2]], [0, 5]).tolist() == [[0.0], [1.0]]
    for wrong in (np.ones((2, 8), np.int8), torch.ones(2, 8).byte()):
        with pytest.raises(ShapeError, match="int8: quantized, or stored in bits"):
            similarities(wrong, wrong)


@pytest.mark.slow
def test_an_embedder_compares_as_its_directory_says(embedder: Embedder, library: Any) -> None:
    assert embedder.similarity_fn_name == library.similarity_fn_name == "dot"
    vectors = embedder.encode(TEXTS)
    expected = library.similarity(vectors, vectors).numpy()
    np.testing.assert_allclose(embedder.similarity(vectors, vectors), expected, atol=1e-5)
    one = embedder.similarity(embedder.encode(TEXTS, output="torch"), vectors[0])
    np.testing.assert_allclose(one, expected[:, :1], atol=1e-5)
    paired = embedder.similarity_pairwise(vectors, vectors)
    np.testing.assert_allclose(paired, np.diag(expected), atol=1e-5)
    with pytest.raises(ShapeError, match="stored in bits"):
        embedder.similarity(embedder.encode(TEXTS, precision="ubinary"), vectors)
    with pytest.raises(ShapeError, match="cannot be compared"):
        embedder.similarity(vectors[:, :4], vectors)
    for wrong in ([["a"]], [[1.0, 2.0], [1.0]], None):
        with pytest.raises(ShapeError, match="vectors must be"):
            embedder.similarity(wrong, vectors)


@pytest.mark.slow
@pytest.mark.parametrize("engine", ["compiled", "torch"])
@pytest.mark.parametrize("pooling", ["mean", "cls", "lasttoken", ("mean", "max")])
def test_a_saved_embedder_is_loaded_by_the_library(
    directory: Path, engine: Any, pooling: Any, tmp_path: Path
) -> None:
    module = pytest.importorskip("sentence_transformers")
    embedder = Embedder.from_pretrained(directory, device="cpu", engine=engine, pooling=pooling)
    embedder.max_seq_length = 9
    embedder.save_pretrained(tmp_path / "saved")
    again = Embedder.from_pretrained(tmp_path / "saved", device="cpu", engine=engine)
    texts = [*TEXTS, "long words " * 20]
    expected = embedder.encode(texts, on_truncation="ignore", prompt_name="query")
    np.testing.assert_array_equal(
        again.encode(texts, on_truncation="ignore", prompt_name="query"), expected
    )
    assert again.engine.fingerprint() == embedder.engine.fingerprint()
    assert "pipeline_tag: sentence-similarity" in (tmp_path / "saved" / "README.md").read_text()
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        model = module.SentenceTransformer(str(tmp_path / "saved"), device="cpu")
    np.testing.assert_allclose(model.encode(texts, prompt_name="query"), expected, atol=1e-5)
    assert model.similarity_fn_name == "dot"


def test_rounded_weights_are_saved_as_they_are(directory: Path, tmp_path: Path) -> None:
    for number, options in enumerate(({"dtype": "bfloat16"}, {"quantization": "int8"})):
        embedder = Embedder.from_pretrained(directory, device="cpu", **options)  # type: ignore[arg-type]
        embedder.save_pretrained(tmp_path / str(number))
        again = Embedder.from_pretrained(
            tmp_path / str(number), device="cpu", dtype=embedder.engine.dtype
        )
        assert again.engine.fingerprint() == embedder.engine.fingerprint()


def test_what_cannot_be_saved_is_refused(directory: Path, tmp_path: Path) -> None:
    embedder = Embedder.from_pretrained(directory, device="cpu")
    with pytest.raises(OutputError, match="files that this embedder reads"):
        embedder.save_pretrained(directory)
    layered = Embedder.from_pretrained(directory, device="cpu", layers=[-2, -1])
    with pytest.raises(UnsupportedFeatureError, match="layers="):
        layered.save_pretrained(tmp_path / "layers")


def test_a_compiled_directory_is_left_as_it_is(directory: Path, tmp_path: Path) -> None:
    embedder = Embedder.from_pretrained(directory, device="cpu")
    compile_directory(directory, tmp_path / "compiled")
    before = sorted(path.name for path in (tmp_path / "compiled").iterdir())
    with pytest.raises(OutputError, match="is loaded instead of the weights"):
        embedder.save_pretrained(tmp_path / "compiled")
    assert sorted(path.name for path in (tmp_path / "compiled").iterdir()) == before


def test_a_hub_id_is_fetched_as_it_is_asked_for(
    directory: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    hub = pytest.importorskip("huggingface_hub")
    calls: list[dict[str, Any]] = []

    def fetch(name: str, **options: Any) -> str:
        calls.append({"name": name, **options})
        return str(directory)

    monkeypatch.setattr(hub, "snapshot_download", fetch)
    options: dict[str, Any] = {
        "revision": "abc123",
        "token": "secret",
        "cache_dir": "/cache",
        "local_files_only": True,
    }
    Embedder.from_pretrained("someone/some-model", device="cpu", **options)
    assert calls[0] == {"name": "someone/some-model", **options} | {
        "allow_patterns": calls[0]["allow_patterns"]
    }
    with pytest.raises(ConfigError, match="has no revision 'abc123'"):
        Embedder.from_pretrained(directory, revision="abc123")
    with pytest.raises(TypeError, match="did you mean 'revision'"):
        files.resolve_directory(directory, revison="x")  # type: ignore[call-arg]
    Embedder.from_pretrained(directory, device="cpu", local_files_only=True)


def test_a_missing_revision_is_named(monkeypatch: pytest.MonkeyPatch) -> None:
    hub = pytest.importorskip("huggingface_hub")

    def fetch(name: str, **options: Any) -> str:
        raise OSError("not in the cache")

    monkeypatch.setattr(hub, "snapshot_download", fetch)
    with pytest.raises(CheckpointFileError, match="in revision v9: not in the cache"):
        Embedder.from_pretrained("someone/some-model", revision="v9")


def test_int8_is_for_every_embedder(directory: Path, tmp_path: Path) -> None:
    ranking = write_head_directory(tmp_path / "ranking", SequenceClassification, num_labels=1)
    masked = write_head_directory(tmp_path / "masked", MaskedLM)
    pairs = [("the query", text) for text in TEXTS]
    ranker = Ranker.from_pretrained(ranking, quantization="int8")
    assert ranker.engine.quantization == "int8"
    plain = Ranker.from_pretrained(ranking, activation="identity").score(pairs)
    rounded = ranker.score(pairs, activation="identity")
    assert np.abs(rounded - plain).max() < 0.2 * max(1.0, float(np.abs(plain).max()))
    sparse = SparseEmbedder.from_pretrained(masked, quantization="int8")
    assert sparse.engine.quantization == "int8"
    assert len(sparse.encode(TEXTS)) == len(TEXTS)
    many = MultiVectorEmbedder(Embedder.from_pretrained(directory, quantization="int8"))
    assert np.isfinite(many.encode_queries(TEXTS).vectors).all()
    for load in (Ranker.from_pretrained, SparseEmbedder.from_pretrained):
        source = ranking if load == Ranker.from_pretrained else masked
        with pytest.raises(ImplementationError, match="needs the compiled engine"):
            load(source, quantization="int8", engine="torch")


@pytest.mark.parametrize("mode", ["cls", "lasttoken"])
def test_modules_compute_the_last_block_of_pooled_rows_alone(
    directory: Path, mode: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    module = Embedder.from_pretrained(directory, device="cpu", engine="torch", pooling=mode)
    compiled = Embedder.from_pretrained(directory, device="cpu", pooling=mode)
    lengths = []
    forward = type(module.encoder.blocks[-1]).forward  # type: ignore[union-attr]

    def counted(self: Any, *arguments: Any, **options: Any) -> Any:
        found = forward(self, *arguments, **options)
        lengths.append(len(found[0]))
        return found

    monkeypatch.setattr(type(module.encoder.blocks[-1]), "forward", counted)  # type: ignore[union-attr]
    found = module.encode(TEXTS)
    assert lengths[-1] == len(TEXTS) < lengths[0]
    np.testing.assert_allclose(found, compiled.encode(TEXTS), atol=1e-5)


@pytest.mark.parametrize("engine", ["compiled", "torch"])
def test_a_column_of_arrow_is_read_as_its_list(
    directory: Path, tmp_path: Path, engine: Any
) -> None:
    """Its rows are StringScalars, which were refused."""
    columns = [
        pyarrow.array(TEXTS),
        pyarrow.array(TEXTS, pyarrow.large_string()),
        pyarrow.array(TEXTS).dictionary_encode(),
        pyarrow.chunked_array([TEXTS[:1], TEXTS[1:]]),
    ]
    embedder = Embedder.from_pretrained(directory, device="cpu", engine=engine)
    write_head_directory(tmp_path / "rank", SequenceClassification, num_labels=1)
    ranker = Ranker.from_pretrained(tmp_path / "rank", device="cpu", engine=engine)
    pairs = [[TEXTS[0], text] for text in TEXTS]
    for texts in columns:
        np.testing.assert_array_equal(embedder.encode(texts), embedder.encode(TEXTS))
        found = embedder.tokenizer.encode_batch(texts, texts)
        np.testing.assert_array_equal(found.ids, embedder.tokenizer.encode_batch(TEXTS, TEXTS).ids)
        assert ranker.rank("a row", texts) == ranker.rank("a row", TEXTS)
    listed: Any = pyarrow.array(pairs)
    np.testing.assert_array_equal(ranker.score(listed), ranker.score(pairs))  # type: ignore[arg-type]


@pytest.mark.parametrize("num_labels", [1, 3])
def test_a_single_pair_has_a_score(tmp_path: Path, num_labels: int) -> None:
    write_head_directory(tmp_path / "rank", SequenceClassification, num_labels=num_labels)
    ranker = Ranker.from_pretrained(tmp_path / "rank", device="cpu")
    pair = TEXTS[0], TEXTS[1]
    for call in (ranker.score, ranker.predict):
        np.testing.assert_array_equal(call(pair), call([pair])[0])
        np.testing.assert_array_equal(call(list(pair)), call([pair])[0])  # type: ignore[arg-type]


@pytest.fixture(scope="module")
def others(tmp_path_factory: pytest.TempPathFactory) -> dict[str, Any]:
    """Load a model of every other kind."""
    folder = tmp_path_factory.mktemp("others")
    write_head_directory(folder / "rank", SequenceClassification, num_labels=1)
    write_head_directory(folder / "splade", MaskedLM)
    return {
        "static": StaticEmbedder.from_pretrained(write_model2vec(folder / "static")),
        "ranker": Ranker.from_pretrained(folder / "rank", device="cpu"),
        "sparse": SparseEmbedder.from_pretrained(folder / "splade", device="cpu"),
        "tokens": MultiVectorEmbedder.from_pretrained(native(folder / "late"), device="cpu"),
        "hybrid": HybridEmbedder.from_pretrained(
            write_hybrid_directory(folder / "hybrid"), device="cpu"
        ),
    }


@pytest.mark.parametrize("engine", ["compiled", "torch"])
def test_names_of_the_library_have_its_values(directory: Path, library: Any, engine: Any) -> None:
    model = Embedder.from_pretrained(directory, device="cpu", engine=engine)
    assert model.device == str(library.device) == "cpu"
    assert model.get_embedding_dimension() == library.get_embedding_dimension()
    assert model.get_sentence_embedding_dimension() == library.get_embedding_dimension()
    assert dict(model.prompts) == library.prompts
    np.testing.assert_array_equal(model(TEXTS, truncate_dim=4), model.encode(TEXTS, truncate_dim=4))
    np.testing.assert_array_equal(model("a row"), model.encode("a row"))


def test_every_kind_of_model_has_them(others: dict[str, Any]) -> None:
    for name, model in others.items():
        assert model.device == "cpu"
        assert isinstance(dict(model.prompts), dict)
        if name != "ranker":
            assert model.get_embedding_dimension() == model.dimension
            assert type(model(TEXTS)) is type(model.encode(TEXTS))
            # KeyBERT and BERTopic choose by this text.
            assert "sentence_transformers" in str(type(model))


def test_langchain_gets_lists_with_the_prompts_of_queries_and_documents(
    embedder: Embedder, others: dict[str, Any]
) -> None:
    documents, query = embedder.embed_documents(TEXTS), embedder.embed_query(TEXTS[0])
    assert documents == embedder.encode(TEXTS, prompt="passage: ").tolist()
    assert query == embedder.encode(TEXTS[0], prompt="query: ").tolist()
    assert type(documents[0][0]) is type(query[0]) is float
    assert others["static"].embed_documents(iter(TEXTS)) == others["static"].encode(TEXTS).tolist()
    assert embedder.embed_documents(TEXTS[0]) == documents[:1]


ORDERS: list[tuple[tuple[Any, ...], str]] = [
    ((32, False), "pass batch_size=32, show_progress_bar=False"),
    ((32,), "pass batch_size=32"),
    ((None, None, 32, False), "pass batch_size=32, show_progress_bar=False"),
    (("query", None, 32), "pass prompt_name='query', batch_size=32"),
    ((8, None, "sentence_embedding"), "pass batch_size=8, the others by their names"),
]


@pytest.mark.parametrize(("values", "mend"), ORDERS)
@pytest.mark.parametrize("kind", ["dense", "static", "sparse", "tokens", "hybrid", "ranker"])
def test_arguments_in_the_order_of_the_library_are_named(
    embedder: Embedder, others: dict[str, Any], kind: str, values: Any, mend: str
) -> None:
    """They were taken for a prompt and its name."""
    model = {"dense": embedder, **others}[kind]
    texts: Any = [("a row", text) for text in TEXTS] if kind == "ranker" else TEXTS
    calls = ["predict"] if kind == "ranker" else ["encode", "encode_query", "encode_document"]
    for call in calls:
        with pytest.raises(InputError, match=f"the order of another library: {mend}") as caught:
            getattr(model, call)(texts, *values)
        assert call in str(caught.value)
    if "others" not in mend and "query" not in mend:
        options = dict(pair.split("=") for pair in mend.removeprefix("pass ").split(", "))
        given = {name: {"False": False}.get(value, 32) for name, value in options.items()}
        if kind != "dense":
            getattr(model, calls[0])(texts, **given)
        else:
            np.testing.assert_array_equal(model.encode(texts, **given), model.encode(texts))
