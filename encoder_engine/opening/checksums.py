"""Verifies a model directory's files by recorded checksums before they are read."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING

from encoder_engine.files import compare_checksums, recorded_checksums

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence

# Settings, vocabularies and templates: small files, quick to compare at every opening.
_SETTINGS = (".json", ".txt", ".jinja")


def verify_settings(folder: Path) -> None:
    """Compare a folder's settings and vocabulary files with their recorded SHA-256.

    Raises :class:`ChecksumError`.
    """
    _compare_settings(folder, recorded_checksums(folder))


def verify_modules(directory: Path, folders: Sequence[Path]) -> None:
    """Compare the files of a model's modules with their recorded SHA-256 sums.

    ``folders``: one for each module, the encoder's first, of which only settings are compared:
    ``Encoder.from_pretrained`` compares its weights. Raises :class:`ChecksumError`.
    """
    recorded = recorded_checksums
    encoder_folder, *others = folders
    root, encoder_place = directory.resolve(), encoder_folder.resolve()
    _compare_settings(encoder_folder, recorded(encoder_place))
    homes = {root: directory, encoder_place: encoder_folder}
    for folder in others:
        place = folder.resolve()
        # Modules are read before the encoder; its loading compares the other files on record.
        for home in homes.keys() - {place}:
            if place.is_relative_to(home):
                inside = place.relative_to(home)
                names = [n for n in recorded(home) if Path(n).is_relative_to(inside)]
                compare_checksums(homes[home], recorded(home), only=names)
        if place not in homes:
            compare_checksums(folder, recorded(place))
    # The directory's own files, but for those that ``Encoder.from_pretrained`` compares.
    prefix = encoder_place.relative_to(root).as_posix()
    prefix = "" if prefix == "." else f"{prefix}/"
    own = {f"{prefix}{name}": sha for name, sha in recorded(encoder_place).items()}
    names = [name for name, sha in recorded(root).items() if own.get(name) != sha]
    compare_checksums(directory, recorded(root), only=names)


def _compare_settings(folder: Path, recorded: Mapping[str, str]) -> None:
    compare_checksums(folder, recorded, only=[n for n in recorded if n.endswith(_SETTINGS)])
