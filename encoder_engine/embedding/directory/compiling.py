"""Compiles a model directory: its encoder in a file that is mapped, and its settings beside it."""

from __future__ import annotations

import shutil
from pathlib import Path
from typing import TYPE_CHECKING

from encoder_engine.embedding.directory.modules import MODULES, read_module_folders
from encoder_engine.embedding.directory.recipe import encoder_directory
from encoder_engine.errors import OutputError
from encoder_engine.families.checkpoints.files import resolve_directory
from encoder_engine.files import writing
from encoder_engine.inference import CompiledEncoder

if TYPE_CHECKING:
    import os

    from encoder_engine.families.facts.head_layout import Task

__all__ = ["compile_directory"]

# Settings and vocabularies; weights are in the compiled file.
COPIED = ("*.json", "*.txt", "*.model")
INDEX = ".index.json"


def compile_directory(
    path_or_hub_id: str | os.PathLike[str],
    output: str | os.PathLike[str],
    *,
    dtype: str = "auto",
    quantization: str | None = None,
    head: Task | None = None,
    overwrite: bool = False,
) -> CompiledEncoder:
    """Write a model directory whose encoder is compiled; return the encoder.

    output: a folder, new unless ``overwrite``. It holds the directory's settings, vocabularies and
    modules, and ``compiled.safetensors`` in place of the encoder's weights. The folder is loaded
    like the original. Other arguments: see :meth:`CompiledEncoder.from_pretrained`.

    Raises :class:`OutputError` for a folder that exists, and what loading raises.
    """
    source, target = resolve_directory(path_or_hub_id), Path(output)
    if target.exists() and (not overwrite or target.samefile(source)):
        raise OutputError(f"{target} exists; name a new folder, or pass overwrite (--overwrite)")
    folder = encoder_directory(source)
    encoder = CompiledEncoder.from_pretrained(
        folder, dtype=dtype, quantization=quantization, head=head
    )
    with writing(target):
        _copy_settings(source, target)
        modules = read_module_folders(source) if (source / MODULES).is_file() else ()
        for module in modules:
            place = target / module.relative_to(source.resolve())
            # A Normalize module has no folder.
            if module.is_dir() and module.samefile(folder):
                _copy_settings(module, place)
            elif module.is_dir():
                shutil.copytree(module, place, dirs_exist_ok=True)
    encoder.save_compiled(target / folder.resolve().relative_to(source.resolve()))
    return encoder


def _copy_settings(source: Path, target: Path) -> None:
    target.mkdir(parents=True, exist_ok=True)
    for pattern in COPIED:
        for path in source.glob(pattern):
            if path.is_file() and not path.name.endswith(INDEX):
                shutil.copyfile(path, target / path.name)
