"""Each loss is sentence-transformers' own, in float64, with every gradient."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import numpy as np
import pytest
import torch
from sentence_transformers import cross_encoder, multi_vector_encoder, sparse_encoder
from sentence_transformers.multi_vector_encoder.losses import (
    distill_kl_div as late_divergence,
)
from sentence_transformers.multi_vector_encoder.losses import (
    multiple_negatives_ranking as late_ranking,
)
from sentence_transformers.sentence_transformer import losses
from sentence_transformers.sentence_transformer.losses import gist_embed
from torch import Tensor, nn

from encoder_engine.objectives.vectors.in_batch import (
    Candidates,
    GuideFilter,
    in_batch_negatives,
)
from encoder_engine.objectives.vectors.late_interaction import (
    late_interaction_negatives,
    paired_max_similarity,
)
from encoder_engine.objectives.vectors.lists import (
    binary_error,
    divergence,
    listwise,
    margin_error,
)
from encoder_engine.objectives.vectors.matryoshka import Matryoshka
from encoder_engine.objectives.vectors.pairs import cosent, cosine_error, triplet
from encoder_engine.objectives.vectors.sparse import flops, splade_vectors
from encoder_engine.objectives.vectors.teachers import vector_error
from encoder_engine.packing import Sequences

if TYPE_CHECKING:
    from collections.abc import Callable

ROWS, FEATURES = 7, 5
NOISE = 1e-12


def draw(*shape: int, seed: int = 0) -> Tensor:
    return torch.randn(*shape, generator=torch.Generator().manual_seed(seed), dtype=torch.float64)


def compare(ours: Callable[..., Tensor], theirs: Callable[..., Tensor], *tensors: Tensor) -> None:
    """Compare the values of two functions, and their gradients of every tensor."""
    results = []
    for function in (ours, theirs):
        leaves = [x.clone().requires_grad_() for x in tensors]
        value = function(*leaves)
        value.backward()  # type: ignore[no-untyped-call]
        results.append([value.detach(), *(leaf.grad for leaf in leaves)])
    for one, other in zip(*results, strict=True):
        assert one is not None
        assert other is not None
        torch.testing.assert_close(one, other, rtol=NOISE, atol=NOISE)


DIRECTIONS: list[tuple[tuple[str, ...], bool]] = [
    (("query_to_document",), True),
    (("query_to_document", "document_to_query"), False),
    (("query_to_document", "document_to_query"), True),
    (
        ("query_to_document", "query_to_query", "document_to_query", "document_to_document"),
        True,
    ),
]


@pytest.mark.parametrize("negatives", [0, 2])
@pytest.mark.parametrize(("directions", "joint"), DIRECTIONS)
def test_in_batch_negatives(negatives: int, directions: Any, joint: bool) -> None:
    theirs = losses.MultipleNegativesRankingLoss(
        None,  # type: ignore[arg-type]
        directions=tuple(d.replace("document", "doc") for d in directions),
        partition_mode="joint" if joint else "per_direction",
    )
    texts = [draw(ROWS, FEATURES, seed=s) for s in range(2 + negatives)]

    def ours(queries: Tensor, *documents: Tensor) -> Tensor:
        found = in_batch_negatives(
            queries, torch.cat(documents), directions=directions, joint=joint
        )
        return found / ROWS

    no_labels = torch.zeros(0)
    compare(ours, lambda *x: theirs.compute_loss_from_embeddings(list(x), no_labels), *texts)


@pytest.mark.parametrize(("margin", "relative"), [(0.0, False), (0.1, False), (0.2, True)])
def test_guided_negatives(margin: float, relative: bool, monkeypatch: pytest.MonkeyPatch) -> None:
    guides = [draw(ROWS, 3, seed=s) for s in (7, 8)]
    features = {"model": None, "guide": guides}
    monkeypatch.setattr(
        gist_embed, "embed_columns", lambda model, columns: features[model] or columns
    )
    theirs = object.__new__(gist_embed.GISTEmbedLoss)
    nn.Module.__init__(theirs)
    settings = {
        "model": "model",
        "guide": "guide",
        "temperature": 0.05,
        "margin": margin,
        "margin_strategy": "relative" if relative else "absolute",
        "similarity_fct": nn.CosineSimilarity(dim=-1),
        "must_retokenize": False,
        "contrast_anchors": True,
        "contrast_positives": True,
        "gather_across_devices": False,
        "cross_entropy_loss": nn.CrossEntropyLoss(),
    }
    for name, value in settings.items():
        object.__setattr__(theirs, name, value)
    # Their columns are a list of dicts; only the list of tensors that embed_columns gives counts.
    monkeypatch.setattr(gist_embed, "dict", lambda x: x, raising=False)

    def ours(queries: Tensor, documents: Tensor) -> Tensor:
        guide = GuideFilter(
            queries_BD=guides[0], documents_CD=guides[1], margin=margin, relative=relative
        )
        directions: Any = ("query_to_document", "query_to_query", "document_to_document")
        found = in_batch_negatives(
            queries, documents, scale=20.0, directions=directions, guide=guide
        )
        return found / ROWS

    texts = [draw(ROWS, FEATURES, seed=s) for s in range(2)]
    compare(ours, lambda *x: theirs.forward(list(x), torch.zeros(0)), *texts)


def test_pairs_and_triplets() -> None:
    first, second, third = (draw(ROWS, FEATURES, seed=s) for s in range(3))
    scores = torch.tensor([0.5, 0.0, 1.0, 0.5, 0.25, 1.0, 0.75], dtype=torch.float64)
    model: Any = None
    by_order = losses.CoSENTLoss(model)
    compare(
        lambda a, b: cosent(a, b, scores) / ROWS,
        lambda a, b: by_order.compute_loss_from_embeddings([a, b], scores),
        *(first, second),
    )
    by_cosine = losses.CosineSimilarityLoss(model)
    compare(
        lambda a, b: cosine_error(a, b, scores) / ROWS,
        lambda a, b: by_cosine.compute_loss_from_embeddings([a, b], scores),
        *(first, second),
    )
    for distance, metric in (
        ("euclidean", losses.TripletDistanceMetric.EUCLIDEAN),
        ("cosine", losses.TripletDistanceMetric.COSINE),
        ("manhattan", losses.TripletDistanceMetric.MANHATTAN),
    ):
        by_margin = losses.TripletLoss(model, distance_metric=metric, triplet_margin=0.7)
        compare(
            lambda *x, d=distance: triplet(*x, distance=d, margin=0.7) / ROWS,
            lambda *x, loss=by_margin: loss.compute_loss_from_embeddings(list(x), scores),
            *(first, second, third),
        )


def scored(queries: Tensor, documents: list[Tensor]) -> tuple[Tensor, Tensor]:
    """Score each query's documents by inner products: [B * K] with their lists."""
    scores = torch.stack([(queries * x).sum(1) for x in documents], 1).flatten()
    return scores, torch.arange(len(queries)).repeat_interleave(len(documents))


def test_a_cross_encoders_scores() -> None:
    texts = [draw(ROWS, FEATURES, seed=s) for s in range(4)]
    teacher = draw(ROWS, 3, seed=9)
    model: Any = None
    margins = losses.MarginMSELoss(model)

    def our_margins(queries: Tensor, *documents: Tensor) -> Tensor:
        scores, lists = scored(queries, list(documents))
        positives = torch.arange(ROWS) * 3
        total, number = margin_error(scores, teacher.flatten(), lists, positives)
        return total / number

    compare(our_margins, lambda *x: margins.compute_loss_from_embeddings(list(x), teacher), *texts)
    kl = losses.DistillKLDivLoss(model, temperature=2.0)

    def our_divergence(queries: Tensor, *documents: Tensor) -> Tensor:
        scores, lists = scored(queries, list(documents))
        return divergence(scores, teacher.flatten(), lists, ROWS, temperature=2.0) / ROWS

    compare(our_divergence, lambda *x: kl.compute_loss_from_embeddings(list(x), teacher), *texts)


@pytest.mark.parametrize("metric", ["mse", "l2", "cosine"])
def test_a_teachers_vectors(metric: Any) -> None:
    theirs = losses.EmbedDistillLoss(None, distance_metric=metric)  # type: ignore[arg-type]
    vectors, teacher = draw(ROWS, FEATURES), draw(ROWS, FEATURES, seed=1)
    compare(
        lambda x: vector_error(x, teacher, metric=metric) / ROWS,
        lambda x: theirs.compute_loss_from_embeddings([x], [teacher]),
        vectors,
    )


def test_matryoshka() -> None:
    from sentence_transformers.sentence_transformer.losses.matryoshka import shrink

    theirs = losses.MultipleNegativesRankingLoss(None)  # type: ignore[arg-type]
    prefixes = Matryoshka(dimensions=(5, 3, 2), weights=(1.0, 0.5, 0.25))

    def ours(queries: Tensor, documents: Tensor) -> Tensor:
        def loss(vectors: Tensor) -> Tensor:
            return in_batch_negatives(vectors[:ROWS], vectors[ROWS:]) / ROWS

        return prefixes(loss, torch.cat([queries, documents]))

    def expected(*texts: Tensor) -> Tensor:
        total = torch.zeros((), dtype=torch.float64)
        for dimension, weight in ((5, 1.0), (3, 0.5), (2, 0.25)):
            cut = [shrink(x, dimension) for x in texts]
            total = total + weight * theirs.compute_loss_from_embeddings(cut, torch.zeros(0))
        return total

    compare(ours, expected, draw(ROWS, FEATURES), draw(ROWS, FEATURES, seed=1))


LENGTHS = ([3, 1, 4, 2], [2, 5, 1, 3, 4, 1, 2, 2])


def offsets_of(lengths: list[int]) -> Any:
    return np.concatenate([[0], np.cumsum(lengths)]).astype(np.int64)


class PaddedModel(nn.Module):
    """Stands for a MultiVectorEncoder whose vectors are given."""

    def forward(self, features: dict[str, Tensor], **_: Any) -> dict[str, Tensor]:
        return features


def padded(tokens: Tensor, lengths: list[int]) -> dict[str, Tensor]:
    rows = nn.utils.rnn.pad_sequence(list(torch.split(tokens, lengths)), batch_first=True)
    mask = torch.arange(rows.shape[1])[None, :] < torch.tensor(lengths)[:, None]
    return {"token_embeddings": rows, "attention_mask": mask}


def late_columns(queries: Tensor, documents: Tensor) -> list[dict[str, Tensor]]:
    of_queries, of_documents = LENGTHS
    cut = sum(of_documents[:4])
    return [
        padded(queries, of_queries),
        padded(documents[:cut], of_documents[:4]),
        padded(documents[cut:], of_documents[4:]),
    ]


def test_late_interaction(monkeypatch: pytest.MonkeyPatch) -> None:
    of_queries, of_documents = LENGTHS
    for module in (late_ranking, late_divergence):
        monkeypatch.setattr(
            module,
            "embed_columns_padded",
            lambda _model, columns, *_, **__: (
                [c["token_embeddings"] for c in columns],
                [c["attention_mask"] for c in columns],
            ),
        )
    model: Any = PaddedModel()
    # Their scores are float32 whatever the vectors are: what they return is compared in float64 by
    # their own formula instead.
    monkeypatch.setattr(torch.Tensor, "float", lambda x: x)
    queries = draw(sum(of_queries), FEATURES)
    documents = draw(sum(of_documents), FEATURES, seed=1)
    theirs = multi_vector_encoder.losses.MultiVectorMultipleNegativesRankingLoss(model)
    owners = np.array([0, 1, 2, 3, 0, 1, 2, 3])

    def ours(queries: Tensor, documents: Tensor) -> Tensor:
        candidates = Candidates(owners_C=torch.from_numpy(owners), num_rows=4)
        total = late_interaction_negatives(
            *(queries, offsets_of(of_queries), documents, offsets_of(of_documents)),
            candidates,
        )
        return total / 4

    compare(ours, lambda q, d: theirs.forward(late_columns(q, d)), queries, documents)

    teacher = draw(4, 2, seed=5)
    kl = multi_vector_encoder.losses.MultiVectorDistillKLDivLoss(model)
    # By query: its positive, then its negative.
    order = [0, 4, 1, 5, 2, 6, 3, 7]

    def our_divergence(queries: Tensor, documents: Tensor) -> Tensor:
        parts = torch.split(documents, of_documents)
        sorted_documents = torch.cat([parts[i] for i in order])
        lists = np.arange(4).repeat(2)
        scores = paired_max_similarity(
            *(queries, offsets_of(of_queries), sorted_documents),
            *(offsets_of([of_documents[i] for i in order]), lists),
        )
        return divergence(scores, teacher.flatten(), torch.from_numpy(lists), 4) / 4

    compare(
        our_divergence, lambda q, d: kl.forward(late_columns(q, d), teacher), queries, documents
    )


def test_sparse_vectors_and_their_penalty() -> None:
    lengths = [3, 1, 2]
    pooling = sparse_encoder.modules.SpladePooling("max").train()

    def theirs(logits: Tensor) -> Tensor:
        features = padded(logits, lengths)
        found: Tensor = pooling(features)["sentence_embedding"]
        return found.square().sum()

    def ours(logits: Tensor) -> Tensor:
        return splade_vectors(logits, Sequences.from_lengths(lengths)).square().sum()

    compare(ours, theirs, draw(6, 11))
    weights = draw(ROWS, 11, seed=2).relu()
    for threshold in (None, 5):
        penalty = sparse_encoder.losses.FlopsLoss(None, threshold=threshold)  # type: ignore[arg-type]
        compare(
            lambda x, t=threshold: flops(x, threshold=t) / ROWS,
            lambda x, p=penalty: p.compute_loss_from_embeddings(x),
            weights,
        )


class GivenScores:
    """Stands for a CrossEncoder whose scores are given."""

    num_labels = 1
    device = torch.device("cpu")

    def __init__(self, scores: Tensor) -> None:
        self._scores = scores

    def preprocess(self, pairs: list[Any], **_: Any) -> dict[str, Any]:
        return {"pairs": pairs}

    def __call__(self, features: dict[str, Any]) -> dict[str, Tensor]:
        first, number = features["pairs"][0][1], len(features["pairs"])
        return {"scores": self._scores[first : first + number, None]}


def test_cross_encoders(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(torch.Tensor, "float", lambda x: x)
    monkeypatch.setattr(torch, "full", lambda *a, **k: torch.Tensor.new_full(draw(1), *a, **k))
    documents = [[0, 1, 2], [3, 4], [5, 6, 7, 8]]
    labels = [torch.tensor(x, dtype=torch.float64) for x in ([1, 0, 0], [2, 1], [0, 1, 0, 1])]
    lists = torch.tensor([0] * 3 + [1] * 2 + [2] * 4)

    def theirs(scores: Tensor) -> Tensor:
        loss = cross_encoder.losses.ListNetLoss(GivenScores(scores))  # type: ignore[arg-type]
        found: Tensor = loss([["q"] * 3, documents], labels)
        return found

    compare(
        lambda x: listwise(x, torch.cat(labels), lists, 3) / 3,
        theirs,
        draw(9),
    )
    wanted = torch.tensor([1.0, 0.0, 0.3], dtype=torch.float64)
    weighted = nn.BCEWithLogitsLoss(pos_weight=torch.tensor(3.0))
    compare(
        lambda x: binary_error(x, wanted, positive_weight=3.0) / 3,
        lambda x: weighted(x, wanted),
        draw(3),
    )
