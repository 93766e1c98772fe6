"""Measures anisotropy by layer: words' mean cosine, and features that cause it (Ethayarajh 2019).

How it works: the mean cosine of all pairs of n different unit vectors follows from their sum s as
``(s . s - n) / (n (n - 1))``, so no pair is sampled. Its summands are the features' contributions
(Timkey & van Schijndel 2021): where one feature contributes most of the sum, cosines measure only
that feature.
"""

from __future__ import annotations

from dataclasses import replace
from typing import TYPE_CHECKING, NamedTuple

import numpy as np

from encoder_engine.analysis.zscore import ZScore
from encoder_engine.dataclass import dataclass
from encoder_engine.embedding.embedder import Embedder
from encoder_engine.errors import InputError
from encoder_engine.packing.module_stack import DenseModule, ModuleStack

if TYPE_CHECKING:
    from collections.abc import Sequence

    import numpy.typing as npt

    from encoder_engine.analysis.subject import Subject

    Vectors = npt.NDArray[np.floating]

__all__ = [
    "Cosines",
    "LayerIsotropy",
    "feature_cosines",
    "measure_isotropy",
    "standardise_embedder",
]


class Cosines(NamedTuple):
    """The mean cosine of all pairs of vectors, and each feature's contribution, float64 [D]."""

    mean: float
    features: npt.NDArray[np.float64]


@dataclass(frozen=True, kw_only=True)
class LayerIsotropy:
    """The isotropy of the word vectors of one layer.

    ``mean_cosine``: of all pairs; 0 where directions are even.
    ``standardised``: the mean cosine of the vectors' z-scores.
    ``features``, ``shares``: the features that contribute most to the mean cosine, and each one's
    share of the mean cosine in percent.
    ``num_dead``: features whose standard deviation is below 1e-4 of the median's.
    """

    layer: int
    mean_cosine: float
    standardised: float
    features: tuple[int, ...]
    shares: tuple[float, ...]
    num_dead: int


def feature_cosines(vectors_ND: Vectors) -> Cosines:
    """Return the mean cosine of all pairs of different rows; rows of zeros are left out.

    Raises :class:`InputError` for fewer than two rows that are not zero.
    """
    wide = np.asarray(vectors_ND, np.float64)
    norms = np.linalg.norm(wide, axis=1)
    unit = wide[norms > 0] / norms[norms > 0, None]
    number = len(unit)
    if number < 2:
        raise InputError(f"a mean cosine is of at least two vectors, got {number} that are not 0")
    parts = (unit.sum(0) ** 2 - (unit**2).sum(0)) / (number * (number - 1.0))
    return Cosines(float(parts.sum()), parts)


def measure_isotropy(
    subject: Subject, sentences: Sequence[Sequence[str]], *, num_features: int = 3
) -> list[LayerIsotropy]:
    """Measure the isotropy of every layer, 0 being the embeddings, on all words' first subwords."""
    batches = [found.states for found in subject.word_states(sentences, "first")]
    return [
        _measure(layer, np.concatenate([states[layer] for states in batches]), num_features)
        for layer in range(subject.num_layers + 1)
    ]


def _measure(layer: int, vectors_ND: Vectors, num_features: int) -> LayerIsotropy:
    found, zscore = feature_cosines(vectors_ND), ZScore.fit(vectors_ND)
    greatest = np.argsort(-np.abs(found.features), kind="stable")[:num_features]
    whole = found.mean if found.mean else 1.0
    return LayerIsotropy(
        layer=layer,
        mean_cosine=found.mean,
        standardised=feature_cosines(zscore.apply(vectors_ND)).mean,
        features=tuple(greatest.tolist()),
        shares=tuple((100.0 * found.features[greatest] / whole).tolist()),
        num_dead=zscore.num_dead,
    )


def standardise_embedder(embedder: Embedder, texts: Sequence[str]) -> Embedder:
    """Return an embedder whose vectors are z-scores, by mean and deviation of vectors of ``texts``.

    The z-scores are a dense layer after the embedder's modules, before normalization, so that
    ``save_pretrained`` writes a directory that every loader of sentence-transformers reads. Dead
    features (of hardly any deviation) are 0. Raises :class:`UnsupportedFeatureError` for a Router.
    """
    embedder.refuse_routes()
    zscore = ZScore.fit(embedder.encode(texts, normalize_embeddings=False))
    layer = DenseModule(
        weight_NK=np.diag(zscore.scale).astype(np.float32),
        bias_N=(-zscore.mean * zscore.scale).astype(np.float32),
    )
    modules = ModuleStack((*embedder.recipe.modules.modules, layer))
    recipe = replace(embedder.recipe, modules=modules)
    return Embedder(embedder.encoder, embedder.tokenizer, recipe)
