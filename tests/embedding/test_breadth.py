"""Layers, token vectors, sparse vectors, ranking and long texts, against sentence-transformers."""

from __future__ import annotations

import copy
from typing import TYPE_CHECKING, Any

import numpy as np
import pytest
import torch

from encoder_engine.embedding import (
    Embedder,
    MultiVectorEmbedder,
    Ranker,
    SparseEmbedder,
    max_similarity,
)
from encoder_engine.errors import (
    InputError,
    NonFiniteVectorError,
    SequenceLengthError,
    ShapeError,
    TextError,
    TruncationWarning,
    UnsupportedFeatureError,
)
from encoder_engine.kinds import windows
from encoder_engine.kinds.windows import WINDOW_TEXTS
from encoder_engine.models import Encoder, MaskedLM, ScalarMix
from encoder_engine.ops.testing import assert_within_budget
from tests.embedding.tiny_model import VOCABULARY, WIDTH, write_transformers_directory

if TYPE_CHECKING:
    from collections.abc import Iterator
    from pathlib import Path

    from encoder_engine.packing import PackedBatch

pytestmark = pytest.mark.filterwarnings(
    "ignore::DeprecationWarning",
    "ignore::FutureWarning",
    "ignore::encoder_engine.errors.DefaultPoolingWarning",
    "ignore::encoder_engine.errors.UnusedWeightsWarning",
)
TEXTS = ["the long query", "", "a row of text", "words " * 9]
LONG = "the long row of text " * 9
TERMS = 3 * WIDTH + 40


@pytest.fixture
def tiny(tiny_by_engine: Embedder) -> Embedder:
    """Hold every promise by both engines."""
    return tiny_by_engine


def tensor(array: Any) -> torch.Tensor:
    return torch.from_numpy(np.ascontiguousarray(array))


def assert_normalised(units: Any, rows: Any) -> None:
    """Hold vectors to those of length 1 that point where ``rows`` do."""
    plain = tensor(rows)
    eager, truth = (torch.nn.functional.normalize(v, dim=-1) for v in (plain, plain.double()))
    assert_within_budget(tensor(units), eager, truth, terms=WIDTH)


def save_with_head(folder: Path, kind: str, **options: Any) -> Path:
    """Write the tiny directory with a head of transformers' on it, drawn from a seed."""
    import transformers

    write_transformers_directory(folder)
    torch.manual_seed(1)
    model = getattr(transformers, kind).from_pretrained(folder, **options)
    with torch.no_grad():
        for name, parameter in model.named_parameters():
            if not name.startswith("bert."):
                parameter.normal_(std=0.3)
    model.save_pretrained(folder)
    (folder / "SHA256SUMS").unlink()
    return folder


# Layers.


def states(embedder: Embedder, dtype: torch.dtype = torch.float32) -> Any:
    with torch.no_grad():
        return encoder_of(embedder, dtype)(batch_of(embedder), output_hidden_states=True)


def batch_of(embedder: Embedder) -> PackedBatch:
    """Pack the tokens of the texts."""
    return embedder.tokenizer.encode_batch(TEXTS).to_packed("cpu")


def encoder_of(embedder: Embedder, dtype: torch.dtype) -> Encoder:
    """Load the encoder of an embedder as a module."""
    return Encoder.from_pretrained(embedder.recipe.encoder_directory, device="cpu", dtype=dtype)


@pytest.mark.parametrize("layers", [[-2, -1], [0], {1: 0.25, 2: -1.5}], ids=str)
def test_layers_are_mixed_before_pooling(tiny_directory: Path, layers: Any) -> None:
    embedder = Embedder.from_pretrained(tiny_directory, device="cpu", layers=layers)
    weights = layers if isinstance(layers, dict) else {n: 1 / len(layers) for n in layers}

    def pooled(dtype: torch.dtype) -> torch.Tensor:
        output = states(embedder, dtype)
        mixed = sum(w * output.hidden_states[n] for n, w in weights.items())
        parts = torch.split(mixed, output.sequences.lengths.tolist())
        return torch.stack([part.mean(0) for part in parts])

    ours = tensor(embedder.encode(TEXTS, normalize_embeddings=False))
    assert_within_budget(ours, pooled(torch.float32), pooled(torch.float64), terms=TERMS)


def test_layers_agree_with_weighted_layer_pooling(tiny_directory: Path) -> None:
    modules = pytest.importorskip("sentence_transformers.sentence_transformer.modules")
    embedder = Embedder.from_pretrained(tiny_directory, device="cpu", layers={1: 0.75, 2: 0.25})

    def theirs(dtype: torch.dtype) -> torch.Tensor:
        output = states(embedder, dtype)
        layers = [state[None] for state in output.hidden_states]
        weights = torch.nn.Parameter(torch.tensor([3.0, 1.0], dtype=dtype))
        pooling = modules.WeightedLayerPooling(WIDTH, 2, layer_start=1, layer_weights=weights)
        found = pooling({"all_layer_embeddings": layers})["token_embeddings"][0].detach()
        parts = torch.split(found, output.sequences.lengths.tolist())
        return torch.stack([part.mean(0) for part in parts])

    ours = tensor(embedder.encode(TEXTS, normalize_embeddings=False))
    assert_within_budget(ours, theirs(torch.float32), theirs(torch.float64), terms=TERMS)


def test_a_scalar_mix_learns_weights_that_an_embedder_takes(tiny_directory: Path) -> None:
    embedder = Embedder.from_pretrained(tiny_directory, device="cpu")
    output = states(embedder)
    mix = ScalarMix(2)
    stacked = torch.stack(output.hidden_states)
    assert_within_budget(mix(output).detach(), stacked.mean(0), stacked.double().mean(0), terms=3)
    optimiser = torch.optim.SGD(mix.parameters(), lr=0.5)
    for _ in range(3):
        optimiser.zero_grad()
        (mix(output) - output.hidden_states[1]).square().mean().backward()
        optimiser.step()
    assert mix.weights[1] > mix.weights[0]
    scale, total = mix.scale.detach(), torch.tensor(sum(mix.weights.values()))
    assert_within_budget(total, scale, scale.double(), terms=3)
    mixed = Embedder.from_pretrained(tiny_directory, device="cpu", layers=mix.weights)
    learned = copy.deepcopy(mix).double()

    def pooled(dtype: torch.dtype) -> torch.Tensor:
        layers = states(embedder, dtype)
        with torch.no_grad():
            rows = (mix if dtype == torch.float32 else learned)(layers)
        return torch.stack([p.mean(0) for p in rows.split(layers.sequences.lengths.tolist())])

    found = tensor(mixed.encode(TEXTS, normalize_embeddings=False))
    assert_within_budget(found, pooled(torch.float32), pooled(torch.float64), terms=TERMS)
    assert mixed.loading is not None
    assert np.array_equal(
        Embedder.load_again(mixed.loading, "cpu").encode(TEXTS), mixed.encode(TEXTS)
    )
    with pytest.raises(ShapeError, match="output_hidden_states"):
        mix(encoder_of(embedder, torch.float32)(batch_of(embedder)))


@pytest.mark.parametrize("layers", [[], [3], [-4], [1, -2], [True], "last", {1: float("nan")}])
def test_layers_that_are_none_are_refused(tiny_directory: Path, layers: Any) -> None:
    with pytest.raises(InputError):
        Embedder.from_pretrained(tiny_directory, device="cpu", layers=layers)


# Tokens.


def _one_window_of(text: str) -> Iterator[str]:
    """Give a window of texts, and fail where a second is begun."""
    yield from [text] * WINDOW_TEXTS
    pytest.fail("more than one window was read")


def test_token_vectors_pool_to_the_text_vectors(tiny: Embedder) -> None:
    found = tiny.encode_tokens(TEXTS)
    assert len(found) == len(TEXTS)
    pooled = tensor(np.stack([rows.mean(0) for rows in found]))

    def expected(dtype: torch.dtype) -> torch.Tensor:
        output = states(tiny, dtype)
        parts = output.last_hidden_state.split(output.sequences.lengths.tolist())
        return torch.stack([part.mean(0) for part in parts])

    for ours in (pooled, tensor(tiny.encode(TEXTS, normalize_embeddings=False))):
        values = ours, expected(torch.float32), expected(torch.float64)
        assert_within_budget(*values, terms=TERMS)
    ids = [tiny.tokenizer.encode(text) for text in TEXTS]
    assert np.array_equal(found.ids, np.concatenate(ids))
    units = tiny.encode_tokens(TEXTS[0], normalize_embeddings=True)
    assert_normalised(units[0], found[0])
    with pytest.warns(TruncationWarning):
        tiny.encode_tokens(LONG)
    with pytest.raises(SequenceLengthError):
        tiny.encode_tokens(["a", LONG], on_truncation="error")
    with pytest.raises(SequenceLengthError, match="text 0"):
        tiny.encode_tokens(_one_window_of(LONG), on_truncation="error")
    assert len(tiny.encode_tokens([])) == 0


def test_late_interaction_follows_the_limit_of_its_embedder(tiny_directory: Path) -> None:
    embedder = Embedder.from_pretrained(tiny_directory, device="cpu")
    ours = MultiVectorEmbedder(embedder, query_length=4)
    embedder.max_seq_length = 5
    with pytest.warns(TruncationWarning, match="longer than 5 tokens"):
        assert len(ours.encode_documents(LONG)[0]) == 5
    with pytest.warns(TruncationWarning, match="longer than 4 tokens"):
        assert len(ours.encode_queries(LONG)[0]) == 4


def test_late_interaction_is_that_of_sentence_transformers(tmp_path: Path) -> None:
    library = pytest.importorskip("sentence_transformers")
    from sentence_transformers.base.modules import Dense, Normalize, Transformer
    from sentence_transformers.multi_vector_encoder.modules import MultiVectorMask

    folder = write_transformers_directory(tmp_path / "plain")
    torch.manual_seed(2)
    dense = Dense(
        WIDTH, 6, bias=False, activation_function=torch.nn.Identity(),
        module_input_name="token_embeddings", module_output_name="token_embeddings",
    )  # fmt: skip
    mask = MultiVectorMask(skiplist_words=["the", ".", "nowhere"])
    norm = Normalize(module_input_name="token_embeddings")
    parts = [Transformer(str(folder), max_seq_length=24), dense, mask, norm]
    prompts = {"query": "query ", "document": "passage "}
    model = library.MultiVectorEncoder(modules=parts, prompts=prompts, device="cpu")
    model.save(str(tmp_path / "saved"))
    ours = MultiVectorEmbedder.from_pretrained(tmp_path / "saved", device="cpu")
    queries, documents = ours.encode_queries(TEXTS[:2]), ours.encode_documents(TEXTS)
    exact = copy.deepcopy(model).double()
    for kind, found in (("encode_query", queries), ("encode_document", documents)):
        texts = TEXTS[: len(found)]
        plain, true = (getattr(m, kind)(texts) for m in (model, exact))
        for rows, eager, truth in zip(found, plain, true, strict=True):
            values = tensor(rows), torch.as_tensor(eager), torch.as_tensor(truth)
            assert_within_budget(*values, terms=TERMS)
    scores = max_similarity(queries, documents)
    expected = model.similarity(
        [torch.tensor(q) for q in queries], [torch.tensor(d) for d in documents]
    )
    products = [[tensor(q).double() @ tensor(d).double().T for d in documents] for q in queries]
    truth = torch.stack([torch.stack([p.amax(1).sum() for p in row]) for row in products])
    assert_within_budget(tensor(scores), expected, truth, terms=6 * len(queries.ids))
    with pytest.raises(ShapeError):
        max_similarity(queries, ours.embedder.encode_tokens(TEXTS))


# Sparse.


@pytest.mark.parametrize("activation", ["relu", "log1p_relu"])
@pytest.mark.parametrize("pooling", ["max", "sum"])
def test_sparse_vectors_are_those_of_sentence_transformers(
    tmp_path: Path, pooling: Any, activation: Any
) -> None:
    library = pytest.importorskip("sentence_transformers")
    from sentence_transformers.base.modules import Transformer
    from sentence_transformers.sparse_encoder.modules import SpladePooling

    folder = save_with_head(tmp_path / "plain", "BertForMaskedLM")
    transformer = Transformer(str(folder), transformer_task="fill-mask", max_seq_length=24)
    splade = SpladePooling(pooling, activation)
    model = library.SparseEncoder(modules=[transformer, splade], device="cpu")
    model.save(str(tmp_path / "saved"))
    options = {"convert_to_sparse_tensor": False, "convert_to_tensor": True}
    eager = model.encode(TEXTS, **options)
    truth = copy.deepcopy(model).double().encode(TEXTS, **options)
    embedder = SparseEmbedder.from_pretrained(tmp_path / "saved", device="cpu")
    found = embedder.encode(TEXTS)
    assert_within_budget(tensor(found.dense()), eager, truth, terms=TERMS)
    dense = tensor(found.dense())
    products = dense @ dense.T, dense.double() @ dense.double().T
    assert_within_budget(tensor(found.similarity(found)), *products, terms=len(VOCABULARY))
    few = embedder.encode(TEXTS, max_active_dims=3)
    assert np.diff(few.indptr).tolist() == [3] * len(TEXTS)
    token, weight = embedder.tokens(few, 0)[0]
    assert token in VOCABULARY
    assert weight == found.dense()[0].max()


def test_a_plain_masked_language_model_gives_sparse_vectors(tmp_path: Path) -> None:
    folder = save_with_head(tmp_path, "BertForMaskedLM")
    embedder = SparseEmbedder.from_pretrained(folder, device="cpu")
    assert embedder.pooling == "max"
    alone = embedder.encode(TEXTS[2])
    assert len(alone) == 1
    assert np.array_equal(alone.dense()[0], embedder.encode(TEXTS).dense()[2])
    assert len(embedder.encode([])) == 0
    with pytest.warns(TruncationWarning, match="1 of 2 texts"):
        embedder.encode(["a", LONG])
    with pytest.raises(SequenceLengthError, match="text 0"):
        embedder.encode(_one_window_of(LONG), on_truncation="error")
    with pytest.raises(InputError, match="max_active_dims"):
        embedder.encode(TEXTS, max_active_dims=0)
    with pytest.raises(TextError, match="text 1"):
        embedder.encode(["a", None])  # type: ignore[list-item]
    with pytest.raises(InputError, match="pooling"):
        SparseEmbedder.from_pretrained(folder, device="cpu", pooling="mean")  # type: ignore[arg-type]
    for limit in (0, 2, -5, True, "3"):
        with pytest.raises(InputError, match="max_seq_length must be a whole number of at least 3"):
            SparseEmbedder.from_pretrained(folder, device="cpu", max_seq_length=limit)  # type: ignore[arg-type]


# Ranking.


@pytest.mark.parametrize("activation", [None, "Identity"])
def test_ranking_is_that_of_sentence_transformers(tmp_path: Path, activation: str | None) -> None:
    library = pytest.importorskip("sentence_transformers")
    head = "BertForSequenceClassification"
    folder = save_with_head(tmp_path / "plain", head, num_labels=1)
    function = None if activation is None else getattr(torch.nn, activation)()
    model = library.CrossEncoder(str(folder), activation_fn=function, device="cpu")
    model.save(str(tmp_path / "saved"))
    ranker = Ranker.from_pretrained(tmp_path / "saved", device="cpu")
    pairs = [("the query", text) for text in TEXTS]
    eager = model.predict(pairs, convert_to_tensor=True)
    truth = copy.deepcopy(model).double().predict(pairs, convert_to_tensor=True)
    assert_within_budget(tensor(ranker.score(pairs)), eager, truth, terms=TERMS)
    found = ranker.rank("the query", TEXTS, return_documents=True)
    expected = model.rank("the query", TEXTS, return_documents=True)
    assert [one["corpus_id"] for one in found] == [one["corpus_id"] for one in expected]
    assert [one["text"] for one in found] == [one["text"] for one in expected]
    assert ranker.rank("the query", TEXTS, top_k=2) == [
        {"corpus_id": one["corpus_id"], "score": one["score"]} for one in found[:2]
    ]
    for most in (0, 1.5, "2"):
        with pytest.raises(InputError, match="top_k"):
            ranker.rank("the query", TEXTS, top_k=most)  # type: ignore[arg-type]


def test_pairs_that_cannot_be_scored_are_refused(tmp_path: Path) -> None:
    folder = save_with_head(tmp_path, "BertForSequenceClassification", num_labels=3)
    ranker = Ranker.from_pretrained(folder, device="cpu")
    assert ranker.score([("a", "row")] * 2).shape == (2, 3)
    assert ranker.score([]).shape == (0, 3)
    with pytest.raises(UnsupportedFeatureError, match="3"):
        ranker.rank("a", ["row"])
    with pytest.raises(InputError, match="pair 1"):
        ranker.score([("a", "b"), ("a",)])  # type: ignore[list-item]
    with pytest.raises(TextError):
        ranker.score([("a", None)])  # type: ignore[list-item]
    with pytest.warns(TruncationWarning, match="1 of 1 pairs"):
        ranker.score([("a", LONG)])
    with pytest.raises(SequenceLengthError, match="pair 0"):
        ranker.score([("a", LONG)], on_truncation="error")
    with pytest.raises(InputError, match="activation"):
        ranker.score([("a", "b")], activation="prelu")  # type: ignore[arg-type]
    with pytest.raises(TextError, match="got one NoneType"):
        ranker.score(None)  # type: ignore[arg-type]
    for limit in (0, 3, -5, True, "5"):
        with pytest.raises(InputError, match="max_seq_length must be a whole number of at least 4"):
            Ranker.from_pretrained(folder, device="cpu", max_seq_length=limit)  # type: ignore[arg-type]


# Long texts.


@pytest.mark.parametrize("prompt", ["", "query: "])
@pytest.mark.parametrize("pooling", ["mean", "weighted", "max"])
def test_long_texts_are_pooled_from_overlapping_chunks(
    tiny: Embedder, pooling: Any, prompt: str
) -> None:
    short = TEXTS[0]
    options: dict[str, Any] = {"prompt": prompt, "normalize_embeddings": False}
    found = tiny.encode_long([short, LONG], overlap=5, chunk_pooling=pooling, **options)
    assert np.array_equal(found[0], tiny.encode(short, **options))
    tokenizer, limit = tiny.tokenizer, tiny.max_seq_length
    assert limit is not None
    head = tokenizer.encode(prompt)[:-1].tolist() if prompt else tokenizer.encode("")[:1].tolist()
    tail = tokenizer.encode("")[1:].tolist()
    body = tokenizer.encode(LONG)[1:-1].tolist()
    room = limit - len(head) - len(tail)
    chunks: list[list[int]] = []
    start = 0
    while not chunks or start + 5 < len(body):
        chunks.append(body[start : start + room])
        start += room - 5
    assert chunks[0] + [token for chunk in chunks[1:] for token in chunk[5:]] == body
    weights = [1.0] * len(chunks) if pooling == "mean" else [float(len(c)) for c in chunks]

    def expected(dtype: torch.dtype) -> torch.Tensor:
        encoder = encoder_of(tiny, dtype)
        rows = [np.array([*head, *chunk, *tail], dtype=np.int32) for chunk in chunks]
        stacked = torch.stack([_vector(encoder, ids) for ids in rows])
        if pooling == "max":
            return stacked.amax(0)
        shares = torch.tensor(weights, dtype=dtype)[:, None] / sum(weights)
        return (stacked * shares).sum(0)

    values = expected(torch.float32), expected(torch.float64)
    assert_within_budget(tensor(found[1]), *values, terms=TERMS + len(chunks))


def _vector(encoder: Encoder, ids: Any) -> Any:
    from encoder_engine.packing import PackedBatch

    offsets = np.array([0, len(ids)], dtype=np.int32)
    batch = PackedBatch.from_numpy(
        input_ids=ids, cu_seqlens=offsets, token_type_ids=None, device="cpu"
    )
    with torch.no_grad():
        return encoder(batch).last_hidden_state.mean(0)


def test_a_long_text_is_one_normalised_vector(tiny: Embedder) -> None:
    vector = tiny.encode_long(LONG)
    assert vector.shape == (WIDTH,)
    assert_normalised(vector, vector)
    assert np.array_equal(tiny.encode_long([LONG, "a"])[0], vector)
    assert tiny.encode_long([]).shape == (0, WIDTH)
    assert tiny.encode_long(LONG, precision="ubinary").dtype == np.uint8
    for overlap in (-1, 22, True):
        with pytest.raises(InputError, match="overlap"):
            tiny.encode_long("a", overlap=overlap)
    with pytest.raises(InputError, match="chunk_pooling"):
        tiny.encode_long(LONG, chunk_pooling="cls")  # type: ignore[arg-type]


@pytest.mark.parametrize("kind", ["long", "tokens", "sparse"])
def test_errors_name_the_row_of_the_stream(
    tiny_directory: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, kind: str
) -> None:
    monkeypatch.setattr(windows, "WINDOW_TEXTS", 2)
    if kind == "sparse":
        folder = save_with_head(tmp_path, "BertForMaskedLM")
        sparse = SparseEmbedder.from_pretrained(folder, engine="torch")
        encode: Any = sparse.encode
        assert isinstance(sparse.model, MaskedLM)
        encoder = sparse.model.encoder
    else:
        embedder = Embedder.from_pretrained(tiny_directory, engine="torch")
        encode = embedder.encode_long if kind == "long" else embedder.encode_tokens
        assert isinstance(embedder.encoder, Encoder)
        encoder = embedder.encoder
    with pytest.raises(TextError, match="text 3 has a lone surrogate") as wrong:
        encode(["a", LONG if kind == "long" else "b", "c", "\ud800"])
    assert wrong.value.row == 3
    assert encoder.embedding.positions is not None
    with torch.no_grad():
        encoder.embedding.positions.weight[6:] = float("nan")
    # A long text is cut into several chunks, each of which is broken.
    with pytest.raises(NonFiniteVectorError) as broken:
        encode(["a", "b", "c", "row " * (60 if kind == "long" else 9)])
    assert broken.value.rows == (3,)
