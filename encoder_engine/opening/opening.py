"""Opens a model directory of sentence-transformers or transformers: every loader's first step."""

from __future__ import annotations

from dataclasses import field, replace
from typing import TYPE_CHECKING

from encoder_engine.dataclass import dataclass
from encoder_engine.errors import CheckpointFileError, UnsupportedFeatureError
from encoder_engine.families.checkpoints.adapters import ADAPTER, weights_directory
from encoder_engine.families.checkpoints.files import resolve_directory
from encoder_engine.families.config import read_config
from encoder_engine.families.gliner import is_gliner
from encoder_engine.opening.checksums import verify_modules, verify_settings
from encoder_engine.opening.modules import (
    EMBEDDER_ORDER,
    MODULES,
    ROUTED_EMBEDDER_ORDER,
    Module,
    ModuleOrder,
    TransformerConfig,
    check_pooling_modes,
    is_hybrid,
    read_modules,
    read_pooling_config,
    read_transformer_config,
)
from encoder_engine.opening.recipe import (
    PoolingRecipe,
    Settings,
    read_settings,
    read_tokenizer,
    tokenizer_limit,
)
from encoder_engine.opening.router import DOCUMENT, QUERY, read_router
from encoder_engine.opening.stack import SENTENCE, read_layer_mix, read_stack
from encoder_engine.packing.module_stack import ModuleStack, NormalizeModule

if TYPE_CHECKING:
    import os
    from collections.abc import Mapping, Sequence
    from pathlib import Path

    from encoder_engine.packing.pooling_modes import PoolingMode
    from encoder_engine.text import Tokenizer

__all__ = [
    "ModelDirectory",
    "open_directory",
    "open_embedder",
    "read_recipe",
    "refuse_other_models",
]

# The file beside a fine-tuned model that states its task.
_TASK = "task.json"


@dataclass(frozen=True, kw_only=True)
class ModelDirectory:
    """A model directory whose settings were verified and read.

    modules: the modules in ``modules.json``, or a Router's modules for documents; a plain
        transformers directory has none.
    makes: the name of the last module's output.
    routes: the modules of each route of a Router, with the modules before and after the Router;
        ``default_route``: the route of calls that name none.
    """

    directory: Path
    encoder_folder: Path
    modules: tuple[Module, ...] = ()
    settings: Settings = field(default_factory=Settings)
    transformer: TransformerConfig = field(default_factory=TransformerConfig)
    makes: str = SENTENCE
    routes: Mapping[str, tuple[Module, ...]] = field(default_factory=dict)
    default_route: str | None = None

    @property
    def max_seq_length(self) -> int | None:
        """The most tokens of a text, from the transformer's module or the tokenizer's settings."""
        return self.transformer.max_seq_length or tokenizer_limit(self.encoder_folder)

    def read_tokenizer(self) -> Tokenizer:
        """Load the tokenizer, lower-casing if the Transformer module says so."""
        return read_tokenizer(self.encoder_folder, lowercase=self.transformer.lowercase)

    def read_recipe(self, pooling: str | Sequence[str] | None) -> PoolingRecipe:
        """Return how token vectors become text vectors.

        ``pooling``: modes to use instead of the directory's; None: the directory's.
        """
        override = None if pooling is None else check_pooling_modes(pooling)
        by_kind = {module.kind: place for place, module in enumerate(self.modules)}
        place = by_kind.get("Pooling", 0)
        pooled = read_pooling_config(self.modules[place].folder) if self.modules else None
        stack = read_stack(self.modules[place + 1 :], writes=self.makes).modules
        # The last Normalize must divide the vectors that truncate_dim has cut: it leaves the stack.
        normalized = stack[-1:] == (NormalizeModule(),)
        # The mode of FlagEmbedding's training, which saves no modules.json.
        unstated: tuple[PoolingMode, ...] = ()
        if not self.modules and is_hybrid(self.directory):
            unstated = ("cls",)
        layers = None
        if "WeightedLayerPooling" in by_kind and self._passes_all_layers:
            layers = read_layer_mix(self.modules[by_kind["WeightedLayerPooling"]].folder)
        return PoolingRecipe(
            encoder_directory=self.encoder_folder,
            pooling=override or unstated or (("mean",) if pooled is None else pooled.modes),
            default_pooling=override is None and not unstated and pooled is None,
            pooling_width=None if pooled is None else pooled.width,
            include_prompt=pooled is None or pooled.include_prompt,
            modules=ModuleStack(stack[:-1] if normalized else stack),
            normalized=normalized or bool(unstated),
            max_seq_length=self.max_seq_length,
            lowercase=self.transformer.lowercase,
            prompts=self.settings.prompts,
            default_prompt_name=self.settings.default_prompt_name,
            truncate_dim=self.settings.truncate_dim,
            similarity=self.settings.similarity,
            layers=layers,
        )

    def of_queries(self) -> ModelDirectory:
        """Return the directory with its Router's modules for queries; there must be a Router."""
        modules = self.routes[QUERY]
        folder = modules[0].folder
        own = read_transformer_config(folder) if modules[0].kind == "Transformer" else None
        return replace(
            self,
            encoder_folder=folder,
            modules=modules,
            transformer=own or TransformerConfig(),
            routes={},
        )

    @property
    def _passes_all_layers(self) -> bool:
        """True if the encoder returns all layers, for a weighted sum of layers."""
        if self.transformer.hidden_states:
            return True
        try:
            config = read_config(weights_directory(self.encoder_folder))
        except CheckpointFileError:
            return False
        return config.get("output_hidden_states") is True


def open_directory(
    path_or_hub_id: str | os.PathLike[str],
    model_type: str,
    order: ModuleOrder,
    *,
    plain: bool = True,
    settings_of_plain: bool = True,
    task: str = "feature-extraction",
    reads: str = "last_hidden_state",
    makes: str = "token_embeddings",
    late_interaction: bool = False,
    chat: bool = False,
) -> ModelDirectory:
    """Resolve a path or hub id, and open it as sentence-transformers' ``model_type``.

    order: the modules that the directory may have, and their order.
    plain: accept a transformers directory without ``modules.json``.
    settings_of_plain: read the settings of such a directory, beside its ``tokenizer_config.json``.
    task, reads, makes, late_interaction, chat: the transformer's role; see
        :func:`read_transformer_config`.

    Raises :class:`CheckpointFileError` where there is no such model, :class:`ChecksumError`,
    :class:`ConfigError` for malformed files, and :class:`UnsupportedFeatureError` for a model of
    another type or with other modules, and for the adapter of a fine-tuning run.
    """
    directory = resolve_directory(path_or_hub_id)
    refuse_other_models(directory)
    verify_settings(directory)
    bare = plain and not (directory / MODULES).is_file()
    if bare and not settings_of_plain:
        return ModelDirectory(directory=directory, encoder_folder=directory)
    settings = read_settings(directory, model_type)
    if bare:
        return ModelDirectory(directory=directory, encoder_folder=directory, settings=settings)
    modules = read_modules(directory, order)
    routes: dict[str, tuple[Module, ...]] = {}
    default_route = None
    if any(module.kind == "Router" for module in modules):
        routes, default_route = read_router(modules, model_type)
        modules = routes[DOCUMENT]
    own = [*modules, *(module for route in routes.values() for module in route)]
    verify_modules(directory, list(dict.fromkeys(module.folder for module in own)))
    folder, last = modules[0].folder, makes if makes == "scores" else SENTENCE
    if any(module.kind == "Pooling" for module in modules):
        # The transformer gives token vectors, whatever the modules after it make of them.
        task, reads, makes = "feature-extraction", "last_hidden_state", "token_embeddings"
    return ModelDirectory(
        directory=directory,
        encoder_folder=folder,
        modules=modules,
        settings=settings,
        transformer=read_transformer_config(
            folder,
            task=task,
            reads=reads,
            makes=makes,
            late_interaction=late_interaction,
            chat=chat,
        ),
        makes=last,
        routes=routes,
        default_route=default_route,
    )


def refuse_other_models(directory: Path) -> None:
    """Raise :class:`UnsupportedFeatureError` for a fine-tuning run's adapter, and for GLiNER.

    Such models have neither the pooling and prompts of an embedder nor the modules of a ranker.
    """
    if is_gliner(directory):
        raise UnsupportedFeatureError(
            f"{directory} is a GLiNER model, which finds entities; load it by "
            "SpanTagger.from_pretrained"
        )
    if (directory / ADAPTER).is_file() and (directory / _TASK).is_file():
        raise UnsupportedFeatureError(
            f"{directory} holds the adapter of a fine-tuning run, without the settings of an "
            f"embedder or ranker; load {directory.absolute().parent / 'model'}, which has the "
            "adapter merged"
        )


def open_embedder(
    path_or_hub_id: str | os.PathLike[str], *, routed: bool = False
) -> ModelDirectory:
    """Open a directory as a ``SentenceTransformer``; see :func:`open_directory`.

    routed: accept a Router; its modules for documents become the directory's.
    """
    order = ROUTED_EMBEDDER_ORDER if routed else EMBEDDER_ORDER
    return open_directory(path_or_hub_id, "SentenceTransformer", order, settings_of_plain=False)


def read_recipe(directory: Path, pooling: str | Sequence[str] | None = None) -> PoolingRecipe:
    """Return how a directory's token vectors become text vectors: pooling, modules, prompts, ...

    The directory is one of sentence-transformers, or a plain one of transformers without
    ``modules.json``.

    ``pooling`` replaces the directory's modes; a plain directory has mean pooling by default. Files
    except the encoder's weights are compared with their recorded checksums before they are read.
    Raises :class:`ChecksumError`, :class:`ConfigError` for malformed files, and
    :class:`UnsupportedFeatureError` for settings that are not implemented.
    """
    return open_embedder(directory).read_recipe(pooling)
