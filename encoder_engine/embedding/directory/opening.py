"""Opens a model directory whose modules follow a transformer; the first step of every loader."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import TYPE_CHECKING

from encoder_engine.embedding.directory.checksums import verify_modules, verify_settings
from encoder_engine.embedding.directory.modules import (
    MODULES,
    Module,
    TransformerConfig,
    check_normalize_config,
    check_pooling_modes,
    read_modules,
    read_pooling_config,
    read_transformer_config,
)
from encoder_engine.embedding.directory.recipe import (
    PoolingRecipe,
    Settings,
    read_settings,
    read_tokenizer,
    tokenizer_limit,
)
from encoder_engine.families.checkpoints.files import resolve_directory

if TYPE_CHECKING:
    import os
    from collections.abc import Sequence
    from pathlib import Path

    from encoder_engine.text import Tokenizer

__all__ = ["ModelDirectory", "open_directory", "open_embedder", "read_recipe"]


@dataclass(frozen=True, kw_only=True)
class ModelDirectory:
    """A model directory whose settings were compared with their checksums and read.

    ``modules`` are those of ``modules.json``; a plain transformers directory has none.
    """

    directory: Path
    encoder_folder: Path
    modules: tuple[Module, ...] = ()
    settings: Settings = field(default_factory=Settings)
    transformer: TransformerConfig = field(default_factory=TransformerConfig)

    @property
    def max_seq_length(self) -> int | None:
        """The most tokens of a text, from the transformer's module or the tokenizer's settings."""
        return self.transformer.max_seq_length or tokenizer_limit(self.encoder_folder)

    def read_tokenizer(self) -> Tokenizer:
        """Load the tokenizer, with lower-casing if the transformer's module sets it."""
        return read_tokenizer(self.encoder_folder, lowercase=self.transformer.lowercase)

    def read_recipe(self, pooling: str | Sequence[str] | None) -> PoolingRecipe:
        """Read how token vectors become text vectors; see :func:`read_recipe`."""
        override = None if pooling is None else check_pooling_modes(pooling)
        pooled = read_pooling_config(self.modules[1].folder) if self.modules else None
        for module in self.modules[2:]:
            check_normalize_config(module.folder)
        return PoolingRecipe(
            encoder_directory=self.encoder_folder,
            pooling=override or (("mean",) if pooled is None else pooled.modes),
            default_pooling=override is None and pooled is None,
            pooling_width=None if pooled is None else pooled.width,
            include_prompt=pooled is None or pooled.include_prompt,
            normalized=len(self.modules) == 3,
            max_seq_length=self.max_seq_length,
            lowercase=self.transformer.lowercase,
            prompts=self.settings.prompts,
            default_prompt_name=self.settings.default_prompt_name,
            truncate_dim=self.settings.truncate_dim,
            similarity=self.settings.similarity,
        )


def open_directory(
    path_or_hub_id: str | os.PathLike[str],
    model_type: str,
    kinds: Sequence[str],
    *,
    plain: bool = True,
    settings_of_plain: bool = True,
    task: str = "feature-extraction",
    reads: str = "last_hidden_state",
    makes: str = "token_embeddings",
) -> ModelDirectory:
    """Resolve a path or hub id, and open it as sentence-transformers' ``model_type``.

    kinds: the modules that the directory may have, in their order.
    plain: accept a transformers directory without ``modules.json``.
    settings_of_plain: read the settings of such a directory, beside its ``tokenizer_config.json``.
    task, reads, makes: the transformer's role; see :func:`read_transformer_config`.

    Raises :class:`ChecksumError`, :class:`ConfigError` for malformed files, and
    :class:`UnsupportedFeatureError` for a model of another type or with other modules.
    """
    directory = resolve_directory(path_or_hub_id)
    verify_settings(directory)
    bare = plain and not (directory / MODULES).is_file()
    if bare and not settings_of_plain:
        return ModelDirectory(directory=directory, encoder_folder=directory)
    settings = read_settings(directory, model_type)
    if bare:
        return ModelDirectory(directory=directory, encoder_folder=directory, settings=settings)
    modules = read_modules(directory, kinds)
    verify_modules(directory, [module.folder for module in modules])
    folder = modules[0].folder
    return ModelDirectory(
        directory=directory,
        encoder_folder=folder,
        modules=modules,
        settings=settings,
        transformer=read_transformer_config(folder, task=task, reads=reads, makes=makes),
    )


def open_embedder(path_or_hub_id: str | os.PathLike[str]) -> ModelDirectory:
    """Open a directory as sentence-transformers' ``SentenceTransformer``; see above."""
    kinds = ("Transformer", "Pooling", "Normalize")
    return open_directory(path_or_hub_id, "SentenceTransformer", kinds, settings_of_plain=False)


def read_recipe(directory: Path, pooling: str | Sequence[str] | None = None) -> PoolingRecipe:
    """Read a sentence-transformers directory, or a plain transformers one without ``modules.json``.

    ``pooling`` replaces the directory's modes; a plain directory has mean pooling by default. Files
    except the encoder's weights are compared with their recorded checksums before they are read.
    Raises :class:`ChecksumError`, :class:`ConfigError` for malformed files, and
    :class:`UnsupportedFeatureError` for settings that are not implemented.
    """
    return open_embedder(directory).read_recipe(pooling)
