"""From raw text to a judged model, as fast as it goes: what ``make speedrun`` runs.

    python examples/speedrun.py TEXTS... --data FOLDER --output speedrun --preset small

Trains a vocabulary on the texts, tokenizes them, pretrains a BERT, fine-tunes it on four tasks of
GLUE (SST-2, CoLA, MRPC, STS-B), and writes ``speedrun.html``: scores with intervals, curves, and
the seconds of every stage. The preset ``small`` is for CPUs, ``base`` (BERT-base, 300 million
tokens) for a GPU. An interrupted run goes on where it was.
"""

from __future__ import annotations

import argparse
import json
import sys
import time
from pathlib import Path
from statistics import median
from typing import TYPE_CHECKING, Any, NamedTuple

from encoder_engine.cli import main as encoder_engine_command
from encoder_engine.files import write_atomically
from encoder_engine.pages.report import Drawing, Table, report_page

if TYPE_CHECKING:
    from collections.abc import Sequence


class Preset(NamedTuple):
    """The sizes of a run: a model, and the tokens that it reads."""

    vocab_size: int
    settings: dict[str, Any]
    tuning: dict[str, Any]


def _bert(
    width: int, layers: int, heads: int, *, length: int, steps: int, tokens: int, rate: float
) -> dict[str, Any]:
    """Return the settings of a BERT that reads ``steps`` times ``tokens`` tokens."""
    return {
        "model.config.hidden_size": width,
        "model.config.num_hidden_layers": layers,
        "model.config.num_attention_heads": heads,
        "model.config.intermediate_size": 4 * width,
        "model.config.max_position_embeddings": length,
        "data.max_length": length,
        "batch.tokens": tokens,
        "batch.micro_tokens": tokens,
        "optimizer.learning_rate": rate,
        "run.steps": steps,
        "run.evaluate_every": steps // 4,
        "run.checkpoint_every": steps // 4,
        "run.precision": "bfloat16",
    }


PRESETS = {
    "small": Preset(
        vocab_size=8192,
        settings=_bert(256, 4, 4, length=128, steps=2000, tokens=4096, rate=1e-3),
        tuning={"optimizer.learning_rate": 3e-4, "run.epochs": 3, "run.precision": "bfloat16"},
    ),
    "base": Preset(
        vocab_size=30522,
        settings=_bert(768, 12, 12, length=512, steps=4600, tokens=65536, rate=5e-4),
        tuning={"optimizer.learning_rate": 5e-5, "run.precision": "bfloat16"},
    ),
}


class Task(NamedTuple):
    """A task of GLUE: its named recipe, its files within the folder, and the scores to show."""

    recipe: str
    train: str
    dev: str
    scores: tuple[str, ...]
    settings: tuple[str, ...] = ()


TASKS = (
    Task("sst2", "cls/sst2_train.tsv.xz", "cls/sst2_dev.tsv", ("accuracy",)),
    Task("cola", "cls/cola_train.tsv", "cls/cola_dev_in_domain.tsv", ("matthews",)),
    Task("mrpc", "cls/mrpc_train.tsv.xz", "cls/mrpc_dev.tsv.xz", ("accuracy", "f1")),
    Task(
        "stsb",
        "sts/stsb-en-train.csv.xz",
        "sts/stsb-en-dev.csv",
        ("pearson", "spearman"),
        ("data.header=[sentence1,sentence2,score]", "data.quoting=true"),
    ),
)


class Stages:
    """Runs stages, and remembers the seconds of each over all runs of the folder."""

    def __init__(self, path: Path) -> None:
        self.path = path
        self.seconds: dict[str, float] = json.loads(path.read_text()) if path.exists() else {}

    def run(self, name: str, command: Sequence[object]) -> None:
        """Run a command of the engine; its seconds add to those of runs that were interrupted."""
        print(f"== {name}: encoder-engine {' '.join(map(str, command))}", flush=True)
        before, began = self.seconds.get(name, 0.0), time.perf_counter()
        status = 1
        try:
            status = encoder_engine_command([str(word) for word in command])
        finally:
            self.seconds[name] = before + time.perf_counter() - began
            write_atomically(self.path, json.dumps(self.seconds).encode())
        if status:
            sys.exit(status)


def settings_of(values: dict[str, Any]) -> list[str]:
    """Return values as options of a command."""
    return [word for key, value in values.items() for word in ("--set", f"{key}={value}")]


def train(texts: list[str], data: Path, output: Path, preset: Preset, seed: int) -> Stages:
    """Run all stages in a folder."""
    output.mkdir(parents=True, exist_ok=True)
    stages = Stages(output / "seconds.json")
    corpus, run = output / "corpus", output / "pretraining"
    prepared = ("--vocab-size", preset.vocab_size, "--output", corpus)
    stages.run("vocabulary and tokens", ["prepare", *texts, *prepared])
    chosen = settings_of(preset.settings | {"run.seed": seed})
    stages.run(
        "pretraining",
        ["pretrain", "tiny", "--corpus", corpus, "--output", run, *chosen],
    )
    for task in TASKS:
        files = ("--train", data / task.train, "--dev", data / task.dev)
        own = [word for setting in task.settings for word in ("--set", setting)]
        tuned = settings_of(preset.tuning | {"run.seed": seed})
        folder = ("--model", run / "model", "--output", output / task.recipe)
        stages.run(task.recipe, ["finetune", task.recipe, *folder, *files, *own, *tuned])
    return stages


def lines(path: Path) -> list[dict[str, Any]]:
    """Return the rows of a .jsonl file."""
    return [json.loads(line) for line in path.read_text("utf-8").splitlines()]


def page(texts: list[str], output: Path, preset: Preset, seed: int, stages: Stages) -> str:
    """Return the report as HTML."""
    run = output / "pretraining"
    whole = sum(stages.seconds.values())
    size = sum(Path(text).stat().st_size for text in texts)
    return report_page(
        "Speedrun",
        f"From raw text to a judged model in {whole / 60:.1f} minutes. BERT read 131 billion "
        "tokens, this model what the table of pretraining says: compare its scores with a guess's.",
        [
            Table(
                title="Scores on the development rows",
                columns=("task", "score", "value", "interval", "a guess", "rows"),
                rows=[row for task in TASKS for row in score_rows(task, output / task.recipe)],
                note="A guess names the most frequent class. The interval is that of the rows "
                "(bootstrap, 95 %). The checkpoint of each task was chosen on the same rows, so "
                "that the scores are a little too high.",
            ),
            Table(
                title="Seconds",
                columns=("stage", "seconds", "share"),
                rows=[
                    (name, f"{seconds:.1f}", f"{seconds / whole:.0%}")
                    for name, seconds in stages.seconds.items()
                ],
            ),
            Table(
                title="Pretraining",
                columns=("", "value"),
                rows=pretraining_rows(run, seed),
            ),
            Drawing(title="Losses", svg=(run / "curves.svg").read_text("utf-8")),
            Table(
                title="Settings",
                columns=("", "value"),
                rows=[
                    ("texts", f"{', '.join(Path(x).name for x in texts)}: {size / 1e6:.1f} MB"),
                    ("vocabulary", f"{preset.vocab_size:,} words"),
                    *((key, str(value)) for key, value in preset.settings.items()),
                    *((f"fine-tuning, {key}", str(value)) for key, value in preset.tuning.items()),
                ],
            ),
        ],
    )


def pretraining_rows(run: Path, seed: int) -> list[tuple[str, str]]:
    """Return the rows of the table of pretraining."""
    last, speed = lines(run / "log.jsonl")[-1], lines(run / "speed.jsonl")
    rows = [
        ("tokens", f"{last['tokens']:,}"),
        ("tokens a second, median", f"{median(x['tokens_per_second'] for x in speed):,.0f}"),
        ("waiting for data", f"{median(x['data_wait'] for x in speed):.1%}"),
        ("held-out loss", f"{last['evaluation']['mlm_loss']:.3f}"),
        ("seed", str(seed)),
    ]
    if "utilisation" in speed[-1]:
        rows.append(("share of the peak (MFU)", f"{median(x['utilisation'] for x in speed):.0%}"))
    return rows


def score_rows(task: Task, folder: Path) -> list[tuple[str, ...]]:
    """Return a row of the table for each score of a task."""
    report = json.loads((folder / "report.json").read_text("utf-8"))
    rows, classes = report["rows"]["dev"], report["details"].get("labels", {})
    frequent = max((found["support"] for found in classes.values()), default=0) / rows
    # Of the class "1", which is the most frequent where it is scored.
    guesses = {"accuracy": 100 * frequent, "f1": 200 * frequent / (1 + frequent)}
    found: list[tuple[str, ...]] = []
    for name in task.scores:
        low, high = (report["intervals"][name][end] for end in ("low", "high"))
        value, guess = report["scores"][name], guesses.get(name, 0.0)
        cells = (f"{value:.1f}", f"{low:.1f} to {high:.1f}", f"{guess:.1f}", str(rows))
        found.append((task.recipe, name, *cells))
    return found


def main() -> None:
    """Train and judge a model, and write the page."""
    parser = argparse.ArgumentParser(description=__doc__.split("\n")[0])
    parser.add_argument("texts", nargs="+", help="text files, a document a line; .xz and .gz too")
    parser.add_argument("--data", type=Path, required=True, help="the folder of the tasks' files")
    parser.add_argument("--output", type=Path, default=Path("speedrun"))
    parser.add_argument("--preset", choices=PRESETS, default="small")
    parser.add_argument("--seed", type=int, default=0)
    given = parser.parse_args()
    preset = PRESETS[given.preset]
    stages = train(given.texts, given.data, given.output, preset, given.seed)
    written = page(given.texts, given.output, preset, given.seed, stages)
    write_atomically(given.output / "speedrun.html", written.encode())
    print(f"{given.output / 'speedrun.html'}: {sum(stages.seconds.values()):.0f} seconds")


if __name__ == "__main__":
    main()
