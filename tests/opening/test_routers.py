"""A Router of dense models: queries by their modules, documents by others, at every door."""

from __future__ import annotations

import copy
import hashlib
import json
import pickle
from types import SimpleNamespace
from typing import TYPE_CHECKING, Any

import numpy as np
import pytest
import torch
from safetensors.numpy import load_file, save_file

from encoder_engine.analysis import standardise_embedder
from encoder_engine.cli.search import load_for
from encoder_engine.embedding import (
    Embedder,
    MultiVectorEmbedder,
    Ranker,
    SparseEmbedder,
    StaticEmbedder,
)
from encoder_engine.embedding.any_model import load_dense
from encoder_engine.errors import (
    ChecksumError,
    ConfigError,
    InputError,
    TruncationWarning,
    UnsupportedFeatureError,
)
from encoder_engine.integrations.mteb import MtebEncoder
from encoder_engine.integrations.sentence_transformers import accelerate, restore
from encoder_engine.opening.compiling import compile_directory
from encoder_engine.serving.models import CallOptions, ServedModel
from encoder_engine.serving.threads import shared_threads
from encoder_engine.vectors import load_vectors
from tests.embedding.test_breadth import TERMS
from tests.embedding.tiny_model import WIDTH, write_json, write_transformers_directory
from tests.opening.test_module_stacks import TEXTS, dense, draw
from tests.vectors.drawn import assert_vectors_agree

if TYPE_CHECKING:
    from collections.abc import Callable
    from pathlib import Path

library = pytest.importorskip("sentence_transformers")
pytestmark = pytest.mark.filterwarnings("ignore::DeprecationWarning", "ignore::FutureWarning")
ENGINES: tuple[Any, ...] = ("compiled", "torch")


def transformer(folder: Path, **config: Any) -> Any:
    from sentence_transformers.base.modules import Transformer

    plain = write_transformers_directory(folder / "plain")
    return Transformer(str(plain), max_seq_length=20, config_kwargs=config)


def pooling() -> Any:
    from sentence_transformers.sentence_transformer.modules import Pooling

    return Pooling(WIDTH, "mean")


def two_encoders(folder: Path, router: Any) -> list[Any]:
    """Give each route a whole model; the query's weights are others."""
    [query] = draw([transformer(folder)])
    return [router([query, pooling()], [transformer(folder), pooling()])]


def one_encoder(folder: Path, router: Any) -> list[Any]:
    """Put both routes behind one encoder and its pooling."""
    from sentence_transformers.base.modules import Normalize

    query, document = draw([dense(7, WIDTH), dense(7, WIDTH)])
    return [transformer(folder), pooling(), router([query], [document]), Normalize()]


def one_pooling(folder: Path, router: Any) -> list[Any]:
    """Lead both routes to one pooling."""
    [query] = draw([transformer(folder)])
    return [router([query], [transformer(folder)]), pooling()]


def static_queries(folder: Path, router: Any) -> list[Any]:
    """Compute queries by a table."""
    from sentence_transformers.base.modules import Normalize
    from sentence_transformers.sentence_transformer.modules import StaticEmbedding

    first = transformer(folder)
    generator = torch.Generator().manual_seed(3)
    backend = first.tokenizer.backend_tokenizer
    weights = torch.randn(backend.get_vocab_size(), WIDTH, generator=generator)
    table = StaticEmbedding(backend, embedding_weights=weights.numpy())
    return [router([table, Normalize()], [first, pooling(), Normalize()])]


LAYOUTS = (two_encoders, one_encoder, one_pooling, static_queries)


def save(
    folder: Path,
    layout: Callable[[Path, Any], list[Any]],
    default_route: str | None = "document",
    prompts: dict[str, str] | None = None,
) -> Any:
    """Save a model with a Router at ``folder/saved``, and return what the library loads there."""
    from sentence_transformers.base.modules import Router

    def router(query: list[Any], document: list[Any]) -> Any:
        return Router.for_query_document(query, document, default_route=default_route)

    modules = layout(folder, router)
    model = library.SentenceTransformer(modules=modules, device="cpu", prompts=prompts)
    model.save(str(folder / "saved"), create_model_card=False)
    return library.SentenceTransformer(str(folder / "saved"), device="cpu")


@pytest.mark.slow
@pytest.mark.parametrize("engine", ENGINES)
@pytest.mark.parametrize("layout", LAYOUTS)
@pytest.mark.parametrize("default", ["query", "document", None])
def test_vectors_of_each_route_are_those_of_sentence_transformers(
    default: str | None, layout: Any, engine: Any, tmp_path: Path
) -> None:
    model = save(tmp_path, layout, default, {"query": "the ", "document": "row "})
    ours = Embedder.from_pretrained(tmp_path / "saved", device="cpu", engine=engine)
    exact = copy.deepcopy(model).double()
    texts = [text for text in TEXTS if text]
    for name in ("encode", "encode_query", "encode_document"):
        found = getattr(ours, name)(texts, on_truncation="ignore")
        eager, truth = (getattr(one, name)(texts) for one in (model, exact))
        assert_vectors_agree(found, eager, truth, terms=TERMS)
    assert not np.allclose(ours.encode_query("the row"), ours.encode_document("the row"))


def test_the_routes_of_one_encoder_share_its_weights(tmp_path: Path) -> None:
    save(tmp_path, one_encoder)
    ours = Embedder.from_pretrained(tmp_path / "saved", device="cpu")
    assert isinstance(ours.queries, Embedder)
    assert ours.queries.encoder is ours.encoder


@pytest.fixture
def routed(tmp_path: Path) -> Embedder:
    """Return a model whose queries are those of a table, with the query's route by default."""
    save(tmp_path, static_queries, "query")
    return Embedder.from_pretrained(tmp_path / "saved", device="cpu")


def test_files_hold_documents_whatever_the_default_route_is(
    routed: Embedder, tmp_path: Path
) -> None:
    texts = ["the row", "a long text"]
    (tmp_path / "texts.txt").write_text("\n".join(texts), "utf-8")
    for name, options in (("one", {}), ("two", {"workers": 2, "shard_rows": 1})):
        routed.encode_dataset(tmp_path / "texts.txt", tmp_path / name, **options)  # type: ignore[arg-type]
        stored = load_vectors(tmp_path / name).vectors
        assert np.array_equal(stored, routed.encode_document(texts))


def test_a_server_takes_the_route_of_the_input_type(routed: Embedder) -> None:
    served = ServedModel("routed", routed)
    calls: list[tuple[Any, Callable[..., Any]]] = [
        ("query", routed.encode_query),
        ("document", routed.encode_document),
        (None, routed.encode),
    ]
    options = [(CallOptions(input_type=kind), encode) for kind, encode in calls]
    options += [(CallOptions(prompt_name=kind), encode) for kind, encode in calls[:2]]
    for option, encode in options:
        key = served.key("embed", option)
        rows = served.prepare(key, ["the row", "a text"])
        found = served.compute("embed", rows, key.options)
        assert np.array_equal(found, encode(["the row", "a text"]))


def test_a_server_cuts_the_end_that_a_request_names_on_both_routes(tmp_path: Path) -> None:
    save(tmp_path, two_encoders)
    served = ServedModel("routed", Embedder.from_pretrained(tmp_path / "saved", device="cpu"))
    text = "row " * 30 + "the long query"
    kinds: tuple[Any, ...] = ("query", "document")
    for kind in kinds:
        left, right = (
            served.prepare(
                served.key("embed", CallOptions(input_type=kind, truncation_side=side)), [text]
            ).ids
            for side in ("left", "right")
        )
        assert left[-2] != right[-2], kind


def test_lanes_share_the_threads_of_both_routes(tmp_path: Path) -> None:
    save(tmp_path, static_queries)
    model = Embedder.from_pretrained(tmp_path / "saved", device="cpu", num_threads=4)
    threads = shared_threads([ServedModel("routed", model)], lanes=2)
    threads.share()
    assert [one.engine.num_threads for one in model.routes.values()] == [2, 2]
    threads.restore()
    assert [one.engine.num_threads for one in model.routes.values()] == [4, 4]


def test_a_pickle_by_path_loads_both_routes(routed: Embedder) -> None:
    routed.pickle_by = "path"
    again = pickle.loads(pickle.dumps(routed))
    for name in ("encode", "encode_query", "encode_document"):
        assert np.array_equal(getattr(again, name)("the row"), getattr(routed, name)("the row"))


def layers_of_documents(folder: Path, router: Any) -> list[Any]:
    """Give the routes other poolings, and the document's one a mixing of layers."""
    from sentence_transformers.sentence_transformer.modules import Pooling, WeightedLayerPooling

    # Two layers and the embeddings.
    [mixing] = draw([WeightedLayerPooling(WIDTH, num_hidden_layers=2, layer_start=0)])
    document = [transformer(folder, output_hidden_states=True), mixing, pooling()]
    return [router([transformer(folder), Pooling(WIDTH, "cls")], document)]


def test_a_loading_again_and_a_search_keep_each_route_as_its_directory_has_it(
    tmp_path: Path,
) -> None:
    save(tmp_path, layers_of_documents)
    model = Embedder.from_pretrained(tmp_path / "saved", device="cpu")
    assert isinstance(model.queries, Embedder)
    assert (model.recipe.pooling, model.queries.recipe.pooling) == (("mean",), ("cls",))
    assert model.recipe.layers is not None
    assert model.queries.recipe.layers is None
    (tmp_path / "texts.txt").write_text("the row\na long text", "utf-8")
    model.encode_dataset(tmp_path / "texts.txt", tmp_path / "out")
    model.pickle_by = "path"
    searching = load_for(
        load_vectors(tmp_path / "out"),
        {"model": None, "device": "cpu", "pooling": None, "max_seq_length": None},
    )
    for again in (pickle.loads(pickle.dumps(model)), searching):
        for name in ("encode", "encode_query", "encode_document"):
            found, expected = (getattr(one, name)("the row") for one in (again, model))
            assert np.array_equal(found, expected), name


def change_default(folder: Path) -> None:
    path = folder / "router_config.json"
    config = json.loads(path.read_text("utf-8"))
    config["parameters"]["default_route"] = "document"
    write_json(path, config)


def change_tokenizer(folder: Path) -> None:
    [path] = folder.glob("query_0*/tokenizer.json")
    config = json.loads(path.read_text("utf-8"))
    config["normalizer"]["lowercase"] = not config["normalizer"]["lowercase"]
    write_json(path, config)


def change_weights(folder: Path) -> None:
    [path] = folder.glob("query_0*/model.safetensors")
    tensors = load_file(path)
    save_file({name: tensor + 1 for name, tensor in tensors.items()}, path)


@pytest.mark.parametrize("change", [change_default, change_tokenizer, change_weights])
def test_a_pickle_by_path_and_a_search_refuse_other_queries(
    change: Callable[[Path], None], routed: Embedder, tmp_path: Path
) -> None:
    (tmp_path / "texts.txt").write_text("the row", "utf-8")
    routed.encode_dataset(tmp_path / "texts.txt", tmp_path / "out")
    routed.pickle_by = "path"
    pickled = pickle.dumps(routed)
    change(tmp_path / "saved")
    with pytest.raises(ChecksumError, match="has changed"):
        pickle.loads(pickled)
    if change is not change_default:
        options = {"model": None, "device": "cpu", "pooling": None, "max_seq_length": None}
        with pytest.raises(ConfigError, match="models of queries"):
            load_for(load_vectors(tmp_path / "out"), options)


def test_the_limit_of_a_route_is_of_its_own(tmp_path: Path) -> None:
    save(tmp_path, two_encoders)
    model = Embedder.from_pretrained(tmp_path / "saved", device="cpu", max_seq_length=5)
    assert isinstance(model.queries, Embedder)
    assert (model.max_seq_length, model.queries.max_seq_length) == (5, 20)
    with pytest.warns(TruncationWarning):
        model.encode("row " * 9)
    model.encode_query("row " * 9)


def test_what_takes_one_encoder_refuses_a_router(routed: Embedder, tmp_path: Path) -> None:
    calls: list[Callable[[], Any]] = [
        lambda: routed.encode_long(["the row"]),
        lambda: routed.encode_tokens(["the row"]),
        lambda: MultiVectorEmbedder(routed),
        lambda: standardise_embedder(routed, ["the row", "a text"]),
        lambda: routed.save_pretrained(tmp_path / "again"),
    ]
    for call in calls:
        with pytest.raises(UnsupportedFeatureError, match=r"routes\['query'\]"):
            call()
    with pytest.raises(UnsupportedFeatureError, match="begins with a Router"):
        compile_directory(tmp_path / "saved", tmp_path / "compiled")
    documents = routed.routes["document"]
    documents.pickle_by = "path"
    with pytest.raises(UnsupportedFeatureError, match="made in memory"):
        pickle.dumps(documents)


def test_a_router_without_a_default_route_is_refused(tmp_path: Path) -> None:
    save(tmp_path, two_encoders)
    path = tmp_path / "saved" / "router_config.json"
    config = json.loads(path.read_text("utf-8"))
    config["parameters"] |= {"default_route": None, "allow_empty_key": False}
    write_json(path, config)
    with pytest.raises(UnsupportedFeatureError, match="set default_route"):
        Embedder.from_pretrained(tmp_path / "saved", device="cpu")


def test_the_routers_own_checksums_are_compared(tmp_path: Path) -> None:
    save(tmp_path, one_encoder)
    [folder] = (tmp_path / "saved").glob("2_*")
    path = folder / "router_config.json"
    digest = hashlib.sha256(path.read_bytes()).hexdigest()
    (folder / "SHA256SUMS").write_text(f"{digest}  {path.name}\n", "utf-8")
    Embedder.from_pretrained(tmp_path / "saved", device="cpu")
    path.write_text(path.read_text("utf-8") + " ", "utf-8")
    with pytest.raises(ChecksumError, match="router_config"):
        Embedder.from_pretrained(tmp_path / "saved", device="cpu")


def test_both_routes_of_the_librarys_model_are_accelerated(tmp_path: Path) -> None:
    model = save(tmp_path, two_encoders)
    names = ("encode_query", "encode_document")
    texts = [text for text in TEXTS if text]
    eager = [getattr(model, name)(texts) for name in names]
    truth = [getattr(copy.deepcopy(model).double(), name)(texts) for name in names]
    found = [getattr(accelerate(model), name)(texts) for name in names]
    for ours, plain, exact in zip(found, eager, truth, strict=True):
        assert not np.array_equal(ours, plain)
        assert_vectors_agree(ours, plain, exact, terms=TERMS)
    restore(model)
    for name, plain in zip(names, eager, strict=True):
        assert np.array_equal(getattr(model, name)(texts), plain)


def test_mteb_gets_the_route_of_its_prompt_type(routed: Embedder) -> None:
    encoder = MtebEncoder(routed)
    for kind, encode in (("query", routed.encode_query), ("document", routed.encode_document)):
        found = encoder.encode(
            [{"text": ["the row"]}], task_metadata=None, prompt_type=SimpleNamespace(value=kind)
        )
        assert np.array_equal(found, encode(["the row"]))


def test_what_a_router_cannot_be_is_refused(tmp_path: Path) -> None:
    def other_widths(folder: Path, router: Any) -> list[Any]:
        query, document = draw([dense(5, WIDTH), dense(7, WIDTH)])
        return [transformer(folder), pooling(), router([query], [document])]

    def static_documents(folder: Path, router: Any) -> list[Any]:
        [made] = static_queries(folder, lambda query, document: router(document, query))
        return [made]

    for number, (layout, error, words) in enumerate(
        [
            (other_widths, ConfigError, "queries have 5 features, documents 7"),
            (static_documents, UnsupportedFeatureError, "document's Transformer"),
        ]
    ):
        save(tmp_path / str(number), layout)
        with pytest.raises(error, match=words):
            Embedder.from_pretrained(tmp_path / str(number) / "saved", device="cpu")


def test_other_doors_point_to_embedder_and_each_route_is_saved(
    routed: Embedder, tmp_path: Path
) -> None:
    for kind in (SparseEmbedder, Ranker, StaticEmbedder):
        with pytest.raises(UnsupportedFeatureError, match="Embedder"):
            kind.from_pretrained(tmp_path / "saved")
    assert isinstance(load_dense(tmp_path / "saved", device="cpu"), Embedder)
    for name, one in routed.routes.items():
        one.save_pretrained(tmp_path / name)  # type: ignore[attr-defined]
        again = load_dense(tmp_path / name)
        assert np.array_equal(again.encode("the row"), one.encode("the row"))
    with pytest.raises(InputError, match="encode_query"):
        routed.encode("the row", task="query")  # type: ignore[call-overload]
