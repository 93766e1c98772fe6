"""Late interaction (ColBERT): one projected vector per token of queries and documents."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, Self

import numpy as np

from encoder_engine.embedding.directory.json_files import read_value
from encoder_engine.embedding.directory.opening import open_directory
from encoder_engine.embedding.directory.recipe import PoolingRecipe
from encoder_engine.embedding.embedder import Embedder
from encoder_engine.embedding.engines.choosing import EngineRequest, load_encoder
from encoder_engine.embedding.options import EncodeCall
from encoder_engine.embedding.steps.token_vectors import TokenVectors, embed_tokens
from encoder_engine.errors import CheckpointFileError, ConfigError, UnsupportedFeatureError
from encoder_engine.families.checkpoints.arrays import widen
from encoder_engine.families.checkpoints.files import open_tensors
from encoder_engine.json_values import JsonValue

if TYPE_CHECKING:
    import os
    from collections.abc import Iterable
    from pathlib import Path

    import torch
    from torch import Tensor

    from encoder_engine.embedding.engines.engine import EngineChoice, Vectors
    from encoder_engine.embedding.options import OnTruncation
    from encoder_engine.text import Tokenizer

__all__ = ["MultiVectorEmbedder"]

_DENSE_KEYS = (
    "in_features",
    "out_features",
    "bias",
    "activation_function",
    "module_input_name",
    "module_output_name",
    "use_residual",
)
_MASK_KEYS = ("skiplist_words", "skiplist_tasks", "keep_only_token_ids")
TOKENS = "token_embeddings"


class MultiVectorEmbedder:
    """Embeds queries and documents token by token, as a ``MultiVectorEncoder`` would.

    projection_ND: projects the encoder's D features to N, without a bias; kept as float32.
    skipped: ids of tokens that documents leave out.

    Queries begin with the embedder's prompt ``query``, documents with ``document``. Compare the
    vectors by :func:`max_similarity`.
    """

    def __init__(
        self,
        embedder: Embedder,
        projection_ND: Vectors | Tensor | None = None,
        *,
        skipped: Iterable[int] = (),
        normalized: bool = True,
    ) -> None:
        width = embedder.engine.spec.width
        if projection_ND is not None and projection_ND.shape[1:] != (width,):
            raise ConfigError(
                f"the projection is {list(projection_ND.shape)}, the encoder computes {width} "
                "features; the files belong to different models"
            )
        self.embedder = embedder
        self.projection_ND = None if projection_ND is None else _as_array(projection_ND)
        self.skipped = frozenset(skipped)
        self.normalized = normalized

    @classmethod
    def from_pretrained(
        cls,
        path_or_hub_id: str | os.PathLike[str],
        device: str | torch.device = "auto",
        dtype: str | torch.dtype = "auto",
        *,
        engine: EngineChoice = "auto",
    ) -> Self:
        """Load a MultiVectorEncoder's directory: Transformer, Dense, MultiVectorMask, Normalize.

        Files are first compared with the ``SHA256SUMS`` of the directory and of its modules, if
        there are any. Raises :class:`UnsupportedFeatureError` for queries padded with mask tokens
        (query expansion) and for other modules. Other exceptions: see
        :meth:`Embedder.from_pretrained`.
        """
        kinds = ("Transformer", "Dense", "MultiVectorMask", "Normalize")
        opened = open_directory(path_or_hub_id, "MultiVectorEncoder", kinds, plain=False)
        _, dense, mask, *norms = opened.modules
        folder, tokenizer = opened.encoder_folder, opened.read_tokenizer()
        encoder = load_encoder(folder, EngineRequest.of(engine, device, dtype))
        recipe = PoolingRecipe(
            encoder_directory=folder,
            pooling=("mean",),
            max_seq_length=opened.max_seq_length,
            lowercase=opened.transformer.lowercase,
            prompts=opened.settings.prompts,
            default_prompt_name=opened.settings.default_prompt_name,
        )
        return cls(
            Embedder(encoder, tokenizer, recipe),
            _read_projection(dense.folder),
            skipped=_read_skipped(mask.folder, tokenizer),
            normalized=bool([_check_normalize(norm.folder) for norm in norms]),
        )

    @property
    def dimension(self) -> int:
        """Features of a token's vector."""
        if self.projection_ND is None:
            return self.embedder.engine.spec.width
        return len(self.projection_ND)

    def encode_queries(
        self,
        texts: str | Iterable[str],
        *,
        batch_tokens: int | None = None,
        on_truncation: OnTruncation = "warn",
    ) -> TokenVectors:
        """Embed queries. Options and exceptions: see :meth:`Embedder.encode`."""
        return self._encode(texts, "query", batch_tokens, on_truncation)

    def encode_documents(
        self,
        texts: str | Iterable[str],
        *,
        batch_tokens: int | None = None,
        on_truncation: OnTruncation = "warn",
    ) -> TokenVectors:
        """Embed documents without the skipped tokens. Options: see :meth:`Embedder.encode`."""
        found = self._encode(texts, "document", batch_tokens, on_truncation)
        return found.without(self.skipped) if self.skipped else found

    def _encode(
        self,
        texts: str | Iterable[str],
        kind: str,
        batch_tokens: int | None,
        on_truncation: OnTruncation,
    ) -> TokenVectors:
        call = EncodeCall(
            prompt_name=kind,
            normalize_embeddings=self.normalized,
            batch_tokens=batch_tokens,
            on_truncation=on_truncation,
        )
        return embed_tokens(
            *(self.embedder, texts, self.embedder.resolve(call)), projection_ND=self.projection_ND
        )


def _as_array(projection_ND: Vectors | Tensor) -> Vectors:
    """Return a projection as a contiguous float32 array; a tensor is copied from its device."""
    plain: Any = projection_ND
    if not isinstance(projection_ND, np.ndarray):
        plain = projection_ND.detach().float().cpu().numpy()
    return np.ascontiguousarray(plain, dtype=np.float32)


def _read_projection(folder: Path) -> Vectors:
    config = read_value(folder / "config.json")
    config.only_keys(_DENSE_KEYS)
    wanted = {
        "activation_function": "torch.nn.modules.linear.Identity",
        "module_input_name": TOKENS,
        "module_output_name": TOKENS,
    }
    for key, value in wanted.items():
        stated = config.get(key)
        if stated.value != value:
            raise UnsupportedFeatureError(f"{stated.where} is {stated.value!r}, not {value!r}")
    for key in ("bias", "use_residual"):
        if config.get(key).boolean(default=False):
            raise UnsupportedFeatureError(f"{config.where} sets {key}, which is not implemented")
    weights = folder / "model.safetensors"
    if not weights.is_file():
        raise CheckpointFileError(f"{folder} has no model.safetensors")
    shape = [
        config.get(key).optional(JsonValue.positive) for key in ("out_features", "in_features")
    ]
    with open_tensors(folder) as tensors:
        found = {name: list(tensor.shape) for name, tensor in tensors.items()}
        if found != {"linear.weight": shape}:
            raise CheckpointFileError(f"{weights} holds {found}, expected linear.weight {shape}")
        return widen(tensors["linear.weight"].read())


def _read_skipped(folder: Path, tokenizer: Tokenizer) -> set[int]:
    """Read the ids of the words that documents leave out; a word that is no token has no id."""
    path = folder / "config.json"
    if not path.is_file():
        return set()
    config = read_value(path)
    config.only_keys(_MASK_KEYS)
    listed = config.get("skiplist_words")
    words = [word.string() for word in listed.items()] if listed.value else []
    if words and config.object().get("skiplist_tasks", ["document"]) != ["document"]:
        raise UnsupportedFeatureError(f"{path}: skiplist_tasks must be ['document']")
    if not config.get("keep_only_token_ids").is_null:
        raise UnsupportedFeatureError(f"{path} sets keep_only_token_ids, which is not implemented")
    found = {tokenizer.token_to_id(word) for word in words}
    return {number for number in found if number is not None}


def _check_normalize(folder: Path) -> bool:
    path = folder / "config.json"
    names = ("module_input_name", "module_output_name")
    config = read_value(path) if path.is_file() else None
    if config is not None:
        config.only_keys(names)
    if config is None or any(config.get(name).value != TOKENS for name in names):
        raise UnsupportedFeatureError(f"{path}: Normalize must read and write {TOKENS}")
    return True
