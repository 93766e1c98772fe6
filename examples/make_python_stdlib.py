"""Make python_stdlib.jsonl: what the Python standard library says of its functions and classes.

Run by CPython 3.11 on Linux: ``python3.11 examples/make_python_stdlib.py``. The same interpreter
writes the same bytes. The texts are under the licence of CPython, see examples/README.md.
"""

from __future__ import annotations

import importlib
import inspect
import json
import re
import sys
import warnings
from pathlib import Path
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from collections.abc import Iterator
    from types import ModuleType

OUTPUT = Path(__file__).with_name("python_stdlib.jsonl")

# Importing these prints, opens a browser, starts a program, or needs another system.
SKIPPED_MODULES = {"antigravity", "idlelib", "lib2to3", "msilib", "nt", "ntpath", "this", "tkinter"}
SKIPPED_MODULES |= {"turtle", "turtledemo", "test", "winreg", "winsound"}
# Modules inside packages whose functions people look for.
SUBMODULES = (
    "collections.abc",
    "concurrent.futures",
    "email.message",
    "email.utils",
    "http.client",
    "http.cookies",
    "http.server",
    "importlib.metadata",
    "importlib.resources",
    "json.decoder",
    "logging.handlers",
    "multiprocessing.pool",
    "multiprocessing.shared_memory",
    "os.path",
    "unittest.mock",
    "urllib.parse",
    "urllib.request",
    "urllib.robotparser",
    "wsgiref.simple_server",
    "xml.dom.minidom",
    "xml.etree.ElementTree",
    "xml.sax.saxutils",
    "xmlrpc.client",
)
# Documentation that says nothing: inherited, or only a signature.
BORING = re.compile(r"^(Initialize self|Create and return a new object|See help\(type|Alias for)")
LONGEST_TEXT = 400
SHORTEST_TEXT = 20


def public_modules() -> Iterator[tuple[str, ModuleType]]:
    """Import the public modules of the standard library, in alphabetical order."""
    names = {n for n in sys.stdlib_module_names if not n.startswith("_")} - SKIPPED_MODULES
    for name in sorted(names | set(SUBMODULES)):
        with warnings.catch_warnings():
            warnings.simplefilter("ignore", DeprecationWarning)
            try:
                yield name, importlib.import_module(name)
            except ImportError:
                continue


def public_members(module: ModuleType) -> Iterator[tuple[str, object]]:
    """Yield a module's own functions and classes by name."""
    stated = getattr(module, "__all__", None)
    for name in sorted(set(stated or vars(module))):
        member = getattr(module, name, None)
        if name.startswith("_") or not (inspect.isroutine(member) or inspect.isclass(member)):
            continue
        if stated is None and getattr(member, "__module__", None) != module.__name__:
            continue
        yield name, member


def first_paragraph(documentation: object) -> str | None:
    """Return the first paragraph that is prose, on one line, or None."""
    if not isinstance(documentation, str):
        return None
    for paragraph in re.split(r"\n\s*\n", inspect.cleandoc(documentation)):
        text = " ".join(paragraph.split())
        is_signature = re.fullmatch(r"[\w.]+\(.*\)( ->.*)?", text)
        if is_signature or text.startswith((">>>", "Args", "Parameters")):
            continue
        if len(text) < SHORTEST_TEXT or BORING.match(text):
            return None
        return shorten(text)
    return None


def shorten(text: str) -> str:
    """Cut a long text after its last whole sentence, or else its last whole word, that fits."""
    if len(text) <= LONGEST_TEXT:
        return text
    head = text[:LONGEST_TEXT]
    sentence = head.rpartition(". ")[0]
    return f"{sentence}." if sentence else head.rpartition(" ")[0] + " ..."


def rows() -> Iterator[dict[str, str]]:
    """Yield ``{"id": "gzip.open", "text": "gzip.open: Open a gzip ..."}``, each text once."""
    seen: set[str] = set()
    for module_name, module in public_modules():
        for name, member in public_members(module):
            with_methods = [(f"{module_name}.{name}", member)]
            if inspect.isclass(member) and module_name in METHODS_OF:
                with_methods += [
                    (f"{module_name}.{name}.{method}", value)
                    for method, value in sorted(vars(member).items())
                    if inspect.isroutine(value) and not method.startswith("_")
                ]
            for identifier, value in with_methods:
                text = first_paragraph(getattr(value, "__doc__", None))
                # An object reached by two names has one text; the first name keeps it.
                if text is not None and text not in seen:
                    seen.add(text)
                    yield {"id": identifier, "text": f"{identifier}: {text}"}


# Modules whose classes are used through their methods.
METHODS_OF = {
    "argparse",
    "builtins",
    "collections",
    "csv",
    "datetime",
    "json",
    "logging",
    "pathlib",
    "queue",
    "random",
    "re",
    "shelve",
    "statistics",
    "string",
    "subprocess",
    "tarfile",
    "tempfile",
    "threading",
    "zipfile",
}


def main() -> None:
    """Write the corpus."""
    if sys.implementation.name != "cpython" or sys.version_info[:2] != (3, 11):
        sys.exit("make_python_stdlib.py needs CPython 3.11, so that the corpus stays the same")
    lines = [json.dumps(row, ensure_ascii=False) + "\n" for row in rows()]
    OUTPUT.write_text("".join(lines), encoding="utf-8")
    print(f"{len(lines)} rows in {OUTPUT}")


if __name__ == "__main__":
    main()
