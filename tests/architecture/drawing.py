"""Counts the rooms and arrows of every folder: ``python -m tests.architecture.drawing [ROOT]``.

A room is a file or a folder. An arrow leads from a room to
one that it imports or includes, wherever the import stands: at the top, in a function, or under
``TYPE_CHECKING``. An arrow goes up if the room that it leads to imports, directly or through
others, the room that it comes from.
"""

from __future__ import annotations

import re
import sys
from collections import defaultdict
from dataclasses import dataclass, field
from pathlib import Path

from tests.architecture.sources import ROOT, imports, module_name

FOLDERS = ("encoder_engine", "kernels", "benchmarks", "csrc")
# Tests stand outside the drawing: they may look at everything.
OUTSIDE = ("benchmarks/tests", "csrc/tests")
PYTHON = (".py", ".pyi")
INCLUDE = re.compile(r'^\s*#include "([^"]+)"', re.MULTILINE)


@dataclass
class Folder:
    """One folder of the drawing: its rooms, and which room leads to which."""

    name: str
    rooms: set[str] = field(default_factory=set)
    num_files: int = 0
    arrows: set[tuple[str, str]] = field(default_factory=set)

    @property
    def arrows_up(self) -> list[tuple[str, str]]:
        """List the arrows that lie on a loop."""
        reached = {room: _reach(room, self.arrows) for room in self.rooms}
        return sorted((a, b) for a, b in self.arrows if a in reached[b])


def _reach(start: str, arrows: set[tuple[str, str]]) -> set[str]:
    following = defaultdict(list)
    for a, b in arrows:
        following[a].append(b)
    found: set[str] = set()
    waiting = [start]
    while waiting:
        for room in following[waiting.pop()]:
            if room not in found:
                found.add(room)
                waiting.append(room)
    return found


def files_of(root: Path) -> list[Path]:
    """List the source files of the drawing, as paths below ``root``."""
    found = []
    for folder in FOLDERS:
        for suffix in ("*.py", "*.pyi", "*.h", "*.cpp"):
            found += [path.relative_to(root) for path in (root / folder).rglob(suffix)]
    return sorted(path for path in found if not path.as_posix().startswith(OUTSIDE))


def arrows_of(root: Path) -> set[tuple[Path, Path]]:
    """Find every arrow between two files of the drawing."""
    files = files_of(root)
    modules = {module_name(root / path, root): path for path in files if path.suffix in PYTHON}
    included = {
        path.relative_to("csrc").as_posix(): path for path in files if path.parts[0] == "csrc"
    }
    arrows = set()
    for path in files:
        if path.suffix in PYTHON:
            named = [found.imported for found in imports(root / path, root)]
            targets = [_find(name, modules) for name in named]
        else:
            text = (root / path).read_text(encoding="utf-8")
            targets = [included.get(name) for name in INCLUDE.findall(text)]
        arrows |= {(path, target) for target in targets if target not in (None, path)}
    return {(a, b) for a, b in arrows if b is not None}


def _find(name: str, modules: dict[str, Path]) -> Path | None:
    """Find the file that an imported name is in: the longest beginning that is a module."""
    while name:
        if name in modules:
            return modules[name]
        name = name.rpartition(".")[0]
    return None


def draw(root: Path = ROOT) -> list[Folder]:
    """Draw every folder that has rooms."""
    folders: dict[Path, Folder] = {}
    for path in files_of(root):
        for depth in range(len(path.parts) - 1):
            above = Path(*path.parts[: depth + 1])
            folder = folders.setdefault(above, Folder(above.as_posix()))
            folder.rooms.add(_room(path, depth + 1))
            folder.num_files += depth + 2 == len(path.parts)
    for a, b in arrows_of(root):
        for depth in range(1, min(len(a.parts), len(b.parts))):
            if a.parts[:depth] != b.parts[:depth]:
                break
            here, there = _room(a, depth), _room(b, depth)
            if here != there:
                folders[Path(*a.parts[:depth])].arrows.add((here, there))
    return [folders[path] for path in sorted(folders)]


def _room(path: Path, depth: int) -> str:
    """Name the room of a folder, ``depth`` parts deep, that a file belongs to."""
    if depth < len(path.parts) - 1:
        return f"{path.parts[depth]}/"
    return path.stem if path.suffix in PYTHON else path.name


def main() -> int:
    """Print a line for every folder, and the arrows that go up."""
    root = Path(sys.argv[1]).resolve() if len(sys.argv) > 1 else ROOT
    folders = draw(root)
    print(f"{'folder':48} {'rooms':>5} {'files':>5} {'arrows':>6} {'up':>4}")
    for folder in folders:
        print(
            f"{folder.name:48} {len(folder.rooms):5} {folder.num_files:5} "
            f"{len(folder.arrows):6} {len(folder.arrows_up):4}"
        )
    for folder in folders:
        for here, there in folder.arrows_up:
            print(f"up: {folder.name}: {here} -> {there}")
    return 0


if __name__ == "__main__":
    sys.exit(main())
