"""Compiles a model directory: writes the encoder in a memory-mapped layout, copies the rest."""

from __future__ import annotations

import shutil
from pathlib import Path
from typing import TYPE_CHECKING

from encoder_engine.errors import OutputError, UnsupportedFeatureError
from encoder_engine.families.checkpoints.adapters import ADAPTER, weights_directory
from encoder_engine.families.checkpoints.files import (
    COMPILED,
    HEADS_BESIDE,
    SETTINGS_OF_OTHERS,
    resolve_directory,
)
from encoder_engine.folders import replacing_folder
from encoder_engine.inference import CompiledEncoder
from encoder_engine.opening.late_interaction import is_stanford
from encoder_engine.opening.modules import (
    LOGIT_SCORE,
    MODULES,
    read_module_folders,
    read_module_kinds,
)
from encoder_engine.opening.opening import refuse_other_models
from encoder_engine.opening.recipe import encoder_directory

if TYPE_CHECKING:
    import os

    from encoder_engine.families.facts.head_layout import Task

__all__ = ["compile_directory"]

# Settings, vocabularies and small heads; other weights are in the compiled file.
COPIED = ("*.json", "*.txt", "*.model", *HEADS_BESIDE, *SETTINGS_OF_OTHERS)
INDEX = ".index.json"
CONFIG = "config.json"


def compile_directory(
    path_or_hub_id: str | os.PathLike[str],
    output: str | os.PathLike[str],
    *,
    dtype: str = "auto",
    quantization: str | None = None,
    head: Task | None = None,
    task: str | None = None,
    overwrite: bool = False,
) -> CompiledEncoder:
    """Write a model directory whose encoder is compiled; return the encoder.

    output: a new folder, for the directory's settings, vocabularies and modules, and
        ``compiled.safetensors`` instead of the encoder's weights. The folder is loaded like the
        original.
    overwrite: replace a folder that contains a compiled model, or nothing, once the new one is
        complete. No file of the old folder is kept.
    task: the name of the adapter to merge; see :meth:`Embedder.from_pretrained`.

    Other arguments: see :meth:`CompiledEncoder.from_pretrained`. Raises :class:`OutputError` for a
    folder that exists, or that holds the model itself; :class:`UnsupportedFeatureError` for
    Stanford's ColBERT, GLiNER, a causal reranker, modules that begin with a Router, and the adapter
    of a fine-tuning run; and what loading raises.
    """
    source, target = resolve_directory(path_or_hub_id), Path(output)
    _check_output(source, target, overwrite=overwrite)
    refuse_other_models(source)
    if is_stanford(source):
        raise UnsupportedFeatureError(
            f"{source} holds the projection of token vectors among its weights, where a compiled "
            "directory has none; save it with sentence-transformers' MultiVectorEncoder first"
        )
    if (source / MODULES).is_file() and LOGIT_SCORE in read_module_kinds(source):
        raise UnsupportedFeatureError(
            f"{source} is a causal reranker, which answers by the output layer of its model, and a "
            "compiled directory has none; load it as it is"
        )
    if (source / MODULES).is_file() and read_module_kinds(source)[0] == "Router":
        raise UnsupportedFeatureError(
            f"{source} begins with a Router, and a compiled directory with one encoder; load it as "
            "it is"
        )
    folder = encoder_directory(source)
    encoder = CompiledEncoder.from_pretrained(
        folder, dtype=dtype, quantization=quantization, head=head, adapter=task
    )
    modules = read_module_folders(source) if (source / MODULES).is_file() else ()
    base = weights_directory(folder)
    with replacing_folder(target) as new:
        _copy_settings(source, new)
        for module in modules:
            place = new / module.relative_to(source.resolve())
            # A Normalize module has no folder.
            if module.is_dir() and module.samefile(folder):
                _copy_settings(module, place)
            elif module.is_dir():
                shutil.copytree(module, place, dirs_exist_ok=True)
        place = new / folder.resolve().relative_to(source.resolve())
        encoder.save_compiled(place)
        if base != folder:
            # An adapter's folder has no configuration: the base model that it names has it.
            shutil.copyfile(base / CONFIG, place / CONFIG)
    return encoder


def _check_output(source: Path, target: Path, *, overwrite: bool) -> None:
    """Raise :class:`OutputError` if the folder ``target`` must not be written or replaced."""
    if source.resolve().is_relative_to(target.resolve()):
        raise OutputError(
            f"{target} is or holds the model that is to be compiled, which would be lost; name "
            "another folder"
        )
    if not target.exists():
        return
    if not overwrite:
        raise OutputError(f"{target} exists; name a new folder, or pass overwrite=True")
    if not target.is_dir():
        raise OutputError(f"{target} is not a folder; name another")
    if any(target.iterdir()) and not any(target.rglob(COMPILED)):
        raise OutputError(
            f"{target} holds no compiled model, and its files would be lost; name a new folder, or "
            "remove it first"
        )


def _copy_settings(source: Path, target: Path) -> None:
    target.mkdir(parents=True, exist_ok=True)
    for pattern in COPIED:
        for path in source.glob(pattern):
            if path.is_file() and path.name != ADAPTER and not path.name.endswith(INDEX):
                shutil.copyfile(path, target / path.name)
