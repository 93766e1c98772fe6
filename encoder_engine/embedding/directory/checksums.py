"""Compares a model directory's files with their recorded checksums before they are read."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING

from encoder_engine.files import recorded_checksums, verify_checksums

if TYPE_CHECKING:
    from collections.abc import Sequence

# Settings, vocabularies and templates: small files, quick to compare at every opening.
_SETTINGS = (".json", ".txt", ".jinja")


def verify_settings(folder: Path) -> None:
    """Compare a folder's settings and vocabulary. Raises :class:`ChecksumError`."""
    recorded = recorded_checksums(folder)
    verify_checksums(folder, only=[name for name in recorded if name.endswith(_SETTINGS)])


def verify_modules(directory: Path, folders: Sequence[Path]) -> None:
    """Compare the files of a model's modules with the checksums of any directory that lists them.

    ``folders``: one a module, the encoder's first; ``Encoder.from_pretrained`` compares the
    encoder's weights. Raises :class:`ChecksumError`.
    """
    encoder_folder, *others = folders
    verify_settings(encoder_folder)
    homes = {directory.resolve(), encoder_folder.resolve()}
    for folder in others:
        place = folder.resolve()
        # Modules are read before the encoder, whose loading compares the rest of its record.
        for home in homes - {place}:
            if place.is_relative_to(home):
                inside = place.relative_to(home)
                names = [n for n in recorded_checksums(home) if Path(n).is_relative_to(inside)]
                verify_checksums(home, only=names)
        if place not in homes:
            verify_checksums(folder)
    _verify_around(directory, encoder_folder)


def _verify_around(directory: Path, encoder_folder: Path) -> None:
    """Compare a directory's files, except those that ``Encoder.from_pretrained`` compares."""
    recorded = recorded_checksums(directory)
    prefix = encoder_folder.resolve().relative_to(directory.resolve()).as_posix()
    prefix = "" if prefix == "." else f"{prefix}/"
    own = {f"{prefix}{name}": sha for name, sha in recorded_checksums(encoder_folder).items()}
    names = [name for name, sha in recorded.items() if own.get(name) != sha]
    verify_checksums(directory, only=names)
