"""Opens a model directory whose modules follow a transformer; the first step of every loader."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING

from encoder_engine.embedding.directory.checksums import verify_modules, verify_settings
from encoder_engine.embedding.directory.modules import (
    MODULES,
    Module,
    TransformerConfig,
    read_modules,
    read_transformer_config,
)
from encoder_engine.embedding.directory.recipe import (
    Settings,
    read_settings,
    read_tokenizer,
    tokenizer_limit,
)
from encoder_engine.models.checkpoints.loading import resolve_directory

if TYPE_CHECKING:
    import os
    from collections.abc import Sequence
    from pathlib import Path

    from encoder_engine.text import Tokenizer

__all__ = ["ModelDirectory", "open_directory"]


@dataclass(frozen=True, kw_only=True)
class ModelDirectory:
    """A model directory whose settings were compared with their checksums and read.

    ``modules`` are those of ``modules.json``; a plain transformers directory has none.
    """

    directory: Path
    encoder_folder: Path
    modules: tuple[Module, ...]
    settings: Settings
    transformer: TransformerConfig

    @property
    def max_seq_length(self) -> int | None:
        """The most tokens of a text, from the transformer's module or the tokenizer's settings."""
        return self.transformer.max_seq_length or tokenizer_limit(self.encoder_folder)

    def read_tokenizer(self) -> Tokenizer:
        """Load the tokenizer, with lower-casing if the transformer's module sets it."""
        return read_tokenizer(self.encoder_folder, lowercase=self.transformer.lowercase)


def open_directory(
    path_or_hub_id: str | os.PathLike[str],
    model_type: str,
    kinds: Sequence[str],
    *,
    plain: bool = True,
    task: str = "feature-extraction",
    reads: str = "last_hidden_state",
    makes: str = "token_embeddings",
) -> ModelDirectory:
    """Resolve a path or hub id, and open it as sentence-transformers' ``model_type``.

    kinds: the modules that the directory may have, in their order.
    plain: accept a transformers directory without ``modules.json``.
    task, reads, makes: the transformer's role; see :func:`read_transformer_config`.

    Raises :class:`ChecksumError`, :class:`ConfigError` for malformed files, and
    :class:`UnsupportedFeatureError` for a model of another type or with other modules.
    """
    directory = resolve_directory(path_or_hub_id)
    verify_settings(directory)
    settings = read_settings(directory, model_type)
    modules: tuple[Module, ...] = ()
    if not plain or (directory / MODULES).is_file():
        modules = tuple(read_modules(directory, kinds))
        verify_modules(directory, [module.folder for module in modules])
    folder = modules[0].folder if modules else directory
    return ModelDirectory(
        directory=directory,
        encoder_folder=folder,
        modules=modules,
        settings=settings,
        transformer=read_transformer_config(folder, task=task, reads=reads, makes=makes),
    )
