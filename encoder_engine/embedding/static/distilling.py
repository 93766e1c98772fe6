"""Distills an encoder into a static table, as model2vec does.

How it works: each token of the vocabulary is a text of its own, [CLS] token [SEP]. The encoder
computes all 30,000 in batches, which takes seconds, and their states are pooled. The vectors are
centred, which removes the mean of all tokens, and projected to their principal components, which
keep most of the variance in fewer features. Tokens are weighted by smooth inverse frequency (Arora
et al. 2017): a / (a + p), with Zipf's law for p, because vocabularies are in order of frequency.

Dimensions: V tokens, D features of the encoder, K features kept.
"""

from __future__ import annotations

import re
from dataclasses import replace
from typing import TYPE_CHECKING, Any

import numpy as np

from encoder_engine.embedding.reading import read_parts
from encoder_engine.embedding.static.model import StaticModel, StaticSettings, unknown_id
from encoder_engine.engine.batches import compute_batches
from encoder_engine.engine.choosing import EngineRequest, engine_of
from encoder_engine.engine.limits import MemoryLimit
from encoder_engine.engine.outputs import Pooled
from encoder_engine.errors import InputError, NonFiniteVectorError, UnsupportedFeatureError
from encoder_engine.inference.static_table import StaticTable
from encoder_engine.kinds.progress import progress_bar
from encoder_engine.opening.opening import open_embedder
from encoder_engine.packing.token_rows import TokenRows
from encoder_engine.text import Tokenizer
from encoder_engine.text.spec.tokenizer import TemplatePiece, WordPieceSpec
from encoder_engine.text.spec.unigram import SentencePieceSpec

if TYPE_CHECKING:
    from pathlib import Path

    import numpy.typing as npt

    from encoder_engine.engine.protocol import EncoderEngine
    from encoder_engine.packing.pooling_modes import PoolingMode
    from encoder_engine.text.spec.tokenizer import TokenizerSpec

__all__ = ["distill_model", "principal_components", "sif_weights"]

Vectors = np.ndarray[Any, np.dtype[np.float32]]
POOLINGS: tuple[PoolingMode, ...] = ("mean", "cls", "lasttoken")
_BATCH_TOKENS = 4096


def distill_model(
    directory: Path,
    *,
    dimension: int | None,
    sif_coefficient: float | None,
    pooling: str,
    remove_tokens: str | None,
    device: str,
    num_threads: int | None,
    shown: bool,
    base_model: str | None = None,
) -> StaticModel:
    """Distill the encoder of a model directory; see :meth:`StaticEmbedder.distill`.

    base_model: the model's name, which is stored with the table; None: the directory's name.
    """
    if pooling not in POOLINGS:
        raise InputError(f"pooling must be one of {', '.join(POOLINGS)}, got {pooling!r}")
    if sif_coefficient is not None and not 0 < sif_coefficient < 1:
        raise InputError(f"sif_coefficient must lie between 0 and 1, got {sif_coefficient!r}")
    request = EngineRequest.of("auto", device, "auto", None, num_threads)
    encoder, tokenizer, recipe = read_parts(open_embedder(directory), request, (pooling,))
    # The encoder alone: what follows its pooling is for texts, and may have another width.
    engine = engine_of(encoder)
    width = engine.spec.width
    recipe.check_width(width)
    if dimension is not None and not 1 <= dimension <= width:
        raise InputError(
            f"dimension must lie in 1..{width}, the encoder's width, got {dimension!r}"
        )
    own = tokenizer.fitted_to(engine.spec.embedding.vocab_size).spec
    spec, kept = _static_spec(own, remove_tokens)
    vectors_VD = _embed_tokens(engine, own, recipe.pooling, kept, shown=shown)
    if dimension is not None:
        if len(vectors_VD) <= dimension:
            raise InputError(
                f"{len(vectors_VD)} tokens have no {dimension} principal components; pass a "
                "smaller dimension, or None"
            )
        vectors_VD = principal_components(vectors_VD, dimension)
    if sif_coefficient is not None:
        vectors_VD = vectors_VD * sif_weights(len(vectors_VD), sif_coefficient)[:, None]
    tokenizer = Tokenizer(spec)
    return StaticModel(
        table=StaticTable(
            rows_VD=np.ascontiguousarray(vectors_VD, dtype=np.float32),
            left_out=unknown_id(tokenizer),
        ),
        tokenizer=tokenizer,
        settings=StaticSettings(normalized=True, base_model=base_model or directory.name),
    )


def principal_components(vectors_VD: Vectors, dimension: int) -> Vectors:
    """Project centred vectors to their first principal components: float32 [V, K].

    The components are eigenvectors of the covariance, computed in float64. The largest magnitude of
    each component is positive, so that the result does not depend on the solver's signs.
    """
    wide = vectors_VD.astype(np.float64)
    wide -= wide.mean(axis=0)
    _, vectors_DD = np.linalg.eigh(wide.T @ wide)
    found_VK = wide @ vectors_DD[:, ::-1][:, :dimension]
    largest = np.abs(found_VK).argmax(axis=0)
    signs = np.sign(found_VK[largest, np.arange(dimension)])
    return np.asarray(found_VK * np.where(signs == 0, 1, signs), dtype=np.float32)


def sif_weights(count: int, coefficient: float) -> npt.NDArray[np.float32]:
    """Return ``a / (a + p)`` of ``count`` tokens in the order of frequency, float32 [V].

    By Zipf's law, p of the token at rank r (from 2) is ``1 / r``, divided by the sum over all
    ranks.
    """
    inverse = 1.0 / np.arange(2, count + 2)
    weights: npt.NDArray[np.float32] = coefficient / (coefficient + inverse / inverse.sum())
    return weights.astype(np.float32)


def _static_spec(
    spec: TokenizerSpec, remove_tokens: str | None
) -> tuple[TokenizerSpec, npt.NDArray[np.int32]]:
    """Return the tokenizer of the table, and the encoder's id of each of its tokens, int32 [V]."""
    model = spec.model
    if isinstance(model, SentencePieceSpec):
        raise UnsupportedFeatureError(
            "the directory has a SentencePiece model alone, which tokenizer.json cannot hold; save "
            "its tokenizer as tokenizer.json"
        )
    first = TemplatePiece(kind="first", type_id=0)
    bare = replace(
        spec,
        single=(first,),
        pair=(first, TemplatePiece(kind="second", type_id=0)),
        truncation=None,
        padding=None,
        model_max_length=None,
    )
    if remove_tokens is None or not isinstance(model, WordPieceSpec):
        return bare, np.arange(spec.vocab_size, dtype=np.int32)
    try:
        removed = re.compile(remove_tokens)
    except re.error as error:
        raise InputError(f"remove_tokens is not a regular expression: {error}") from error
    ordered = sorted(model.vocab.items(), key=lambda item: item[1])
    special = {token.content for token in spec.added_tokens} | {model.unk_token}
    kept = [(t, number) for t, number in ordered if t in special or not removed.match(t)]
    if not kept:
        raise InputError(f"remove_tokens={remove_tokens!r} leaves no token")
    vocabulary = {token: place for place, (token, _) in enumerate(kept)}
    further = [token for token in spec.added_tokens if token.content not in vocabulary]
    places = {t.content: len(kept) + place for place, t in enumerate(further)} | vocabulary
    added = tuple(replace(token, id=places[token.content]) for token in spec.added_tokens)
    numbers = [number for _, number in kept] + [token.id for token in further]
    return (
        replace(bare, model=replace(model, vocab=vocabulary), added_tokens=added),
        np.array(numbers, dtype=np.int32),
    )


def _embed_tokens(
    engine: EncoderEngine,
    spec: TokenizerSpec,
    modes: tuple[PoolingMode, ...],
    ids_V: npt.NDArray[np.int32],
    *,
    shown: bool,
) -> Vectors:
    """Compute the encoder's vector of each token as a text of its own: float32 [V, D]."""
    row: list[int] = []
    place = 0
    for piece in spec.single:
        if piece.kind == "first":
            place = len(row)
        row += piece.ids if piece.kind == "special" else [0]
    ids_VL = np.tile(np.array(row, dtype=np.int32), (len(ids_V), 1))
    ids_VL[:, place] = ids_V
    row_length = len(row)
    rows = TokenRows(
        ids=ids_VL.reshape(-1),
        cu_seqlens=np.arange(len(ids_V) + 1, dtype=np.int32) * np.int32(row_length),
    )
    found_VD = np.empty((len(ids_V), engine.spec.width), dtype=np.float32)
    with progress_bar(len(ids_V), shown=shown) as advance:
        for batch, (vectors,) in compute_batches(
            engine,
            rows,
            (Pooled(modes=modes),),
            batch_tokens=_BATCH_TOKENS,
            limit=MemoryLimit(),
            row_name="token",
        ):
            found_VD[batch] = vectors
            advance(len(batch))
    broken = np.flatnonzero(~np.isfinite(found_VD).all(axis=1))
    if len(broken):
        raise NonFiniteVectorError(
            f"the vectors of {len(broken)} tokens are NaN or infinite, the first is token "
            f"{ids_V[broken[0]]}: the model's numbers overflow or are damaged",
            rows=[int(row) for row in broken],
        )
    return found_VD
