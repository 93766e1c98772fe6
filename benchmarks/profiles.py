"""Where our own time goes from text to vectors: ``python -m benchmarks profile [CASE]...``.

Every operation of the encoder is timed where it is called. Blocks that are otherwise one native
call are called one after the other then, to the same bits; what that costs is told too.
"""

from __future__ import annotations

import dataclasses
import json
import statistics
import time
from collections import defaultdict
from contextlib import contextmanager
from dataclasses import dataclass
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING, Any

import click

from benchmarks import results as records
from benchmarks.bench_embedding import find_ceilings, kinds, load_ours, make_job
from benchmarks.case import Options
from benchmarks.machine import find_commit, find_device
from benchmarks.measure import MIN_ROUNDS
from benchmarks.worker import run_in_worker

if TYPE_CHECKING:
    from collections.abc import Iterator, Mapping, Sequence

    from benchmarks.case import EmbeddingJob

SUFFIX = "-profiles.json"
PRODUCTS, ATTENTION, TOKENIZATION = "dense products", "attention", "tokenization"
NORMS, ENDS = "norms and quantization", "embedding and pooling"
# What the operations of an encoder are for.
PARTS = {
    "linear": PRODUCTS,
    "packed_linear": PRODUCTS,
    "quantized_linear": PRODUCTS,
    "requantized_linear": PRODUCTS,
    "attention": ATTENTION,
    "layer_norm": NORMS,
    "layer_norm_quantized": NORMS,
    "rms_norm": NORMS,
    "quantize_rows": NORMS,
    "bias_gelu": NORMS,
    "embedding": ENDS,
    "pooling": ENDS,
}


@dataclass(frozen=True, kw_only=True)
class Profile:
    """``seconds``: of all texts, as users call it. ``parts``: seconds of each part of that.

    ``floors``: what dense products and attention would take at ``ceiling`` operations a second.
    """

    device: str
    commit: str
    case: str
    threads: int
    tokens: int
    seconds: float
    parts: Mapping[str, float]
    floors: Mapping[str, float]
    ceiling: float

    @property
    def rest(self) -> float:
        """Seconds that no part accounts for: Python, batches, reading results."""
        return self.seconds - sum(self.parts.values())


@contextmanager
def timed_operations() -> Iterator[dict[str, float]]:
    """Add up the seconds of every operation by its name."""
    from encoder_engine.ops.registry import Operation

    seconds: dict[str, float] = defaultdict(float)
    find = Operation.find

    def find_timed(self: Operation, *facts: Any, **others: Any) -> Any:
        function = find(self, *facts, **others)

        def timed(*arguments: Any, **options: Any) -> Any:
            began = time.perf_counter()
            computed = function(*arguments, **options)
            seconds[self.name] += time.perf_counter() - began
            return computed

        return timed

    Operation.find = find_timed  # type: ignore[method-assign]
    try:
        yield seconds
    finally:
        Operation.find = find  # type: ignore[method-assign]


def time_parts(job: EmbeddingJob) -> tuple[float, dict[str, float]]:
    """Return the seconds of a call, and of its parts."""
    embedder = load_ours(job)
    texts = list(job.texts)

    def embed() -> tuple[float, float]:
        """Return the seconds of all, and of tokenization."""
        began, tokenizing = time.perf_counter(), 0.0
        for window in embedder.encode_windows(texts):
            tokenizing += window.tokenize_seconds
        return time.perf_counter() - began, tokenizing

    embed()
    whole = [embed() for _ in range(MIN_ROUNDS)]
    # A module that is watched is called, and not computed along with others.
    watched = embedder.encoder.blocks[0].register_forward_hook(lambda *_: None)
    rounds = []
    for _ in range(MIN_ROUNDS):
        with timed_operations() as seconds:
            embed()
        rounds.append(seconds)
    watched.remove()
    parts: dict[str, float] = defaultdict(float)
    for name in rounds[0]:
        parts[PARTS[name]] += statistics.median(seconds[name] for seconds in rounds)
    parts[TOKENIZATION] = statistics.median(tokenizing for _, tokenizing in whole)
    return statistics.median(seconds for seconds, _ in whole), dict(parts)


def make_profile(case: str, job: EmbeddingJob, lengths: Sequence[int]) -> Profile:
    """Measure the job of a case, in a process of its own."""
    from benchmarks.ceilings import encoder_operations

    ceiling = find_ceilings(job.precision, job.threads)["operations"]
    config = json.loads(Path(job.directory, "config.json").read_text("utf-8"))
    operations = encoder_operations(config, lengths)
    products = encoder_operations(config, lengths, attention=False)
    seconds, parts = run_in_worker(partial(time_parts, job), job.threads)
    return Profile(
        device=find_device("cpu").slug,
        commit=find_commit().name,
        case=case,
        threads=job.threads,
        tokens=sum(lengths),
        seconds=seconds,
        parts=parts,
        floors={PRODUCTS: products / ceiling, ATTENTION: (operations - products) / ceiling},
        ceiling=ceiling,
    )


def read_profiles(folder: Path) -> Iterator[Profile]:
    """Read those of every device."""
    for path in sorted(folder.glob(f"*{SUFFIX}")):
        for values in json.loads(path.read_text("utf-8")):
            yield Profile(**values)


def write_profile(profile: Profile, folder: Path) -> None:
    """Write one, in the place of an older one of the same case."""
    kept = [
        other
        for other in read_profiles(folder)
        if other.device == profile.device
        and (other.case, other.threads) != (profile.case, profile.threads)
    ]
    content = [dataclasses.asdict(one) for one in (*kept, profile)]
    path = folder / f"{profile.device}{SUFFIX}"
    path.write_text(json.dumps(content, indent=1) + "\n", "utf-8")


@click.command()
@click.argument("cases", nargs=-1, metavar="[CASE]...")
@click.option("--threads", type=int, help="Default: all cores.")
@click.option("--smoke", is_flag=True, help="A few texts, nothing recorded.")
@click.option("--no-save", is_flag=True, help="Record nothing.")
def profile(cases: tuple[str, ...], threads: int | None, *, smoke: bool, no_save: bool) -> int:
    """Say where the engine's time goes in the embedding CASEs; default: passages of every model."""
    known = {kind.name: kind for kind in kinds()}
    unknown = [case for case in cases if case not in known]
    if unknown:
        raise click.UsageError(f"{unknown[0]} is no embedding case; `run --list` names them")
    options = Options(threads=threads or find_device("cpu").cores, smoke=smoke)
    for case in cases or [name for name in known if name.endswith("-skewed")]:
        found = make_profile(case, *make_job(known[case], options))
        parts = {**found.parts, "the rest": found.rest}
        told = ", ".join(f"{name} {seconds:.3f}" for name, seconds in parts.items())
        floors = ", ".join(f"{name} {seconds:.3f}" for name, seconds in found.floors.items())
        click.echo(f"{case}: {found.seconds:.3f} s: {told}; at the ceiling: {floors}")
        if not (smoke or no_save):
            write_profile(found, records.FOLDER)
    return 0
