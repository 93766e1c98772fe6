"""Sections on whole tools: text to vectors, share of the peak, latency, memory, training."""

from __future__ import annotations

import math
from functools import partial
from typing import TYPE_CHECKING

from benchmarks.records.runs import ALONE, by_device, facing, group_of, measured
from benchmarks.records.words import case_words, count, day, device_words, number, times
from benchmarks.report.page import Picture, Section, Table, Text
from benchmarks.report.pictures import Bars, Lines, draw_bars, draw_lines
from benchmarks.report.tables import RESULT_HEADER, result_row

if TYPE_CHECKING:
    from collections.abc import Sequence

    from benchmarks.records.resident import Resident
    from benchmarks.records.results import Result
    from benchmarks.records.runs import Run
    from benchmarks.report.page import Block
    from benchmarks.report.pictures import Kind

# Below the resolution of a cosine in float64.
_LEAST_ERROR = 1e-16
# Dense operations per second in bfloat16, by NVIDIA's data sheets; both are of the SXM kind.
PEAKS = {"nvidia-h100": 989.4e12, "nvidia-h200": 989.4e12, "nvidia-a100": 312e12}
# So many points of a line can be seen.
_POINTS = 400


def chosen(runs: Sequence[Run], *groups: str) -> list[Run]:
    """Return measured, unrestricted runs of some groups, the newest machine's first."""
    found = [
        run for run in runs if group_of(run) in groups and run[0].isa is None and measured(run)
    ]
    return [run for of_device in by_device(found).values() for run in of_device]


def slug(run: Run) -> str:
    """Name a run's pictures."""
    first = run[0]
    return f"{first.device}-{first.threads}-{first.case.replace('/', '-')}"


def kinds_of(results: Sequence[Result]) -> list[Kind]:
    """Return each bar's kind: the engine, the engine where it is slower, or a peer."""
    return [_kind(result) for result in results]


def _kind(result: Result) -> Kind:
    if result.role == "peer":
        return "peer"
    ratio = None if result.candidate.endswith(ALONE) else result.ratio_to_best_peer
    return "loss" if ratio is not None and ratio < 1 else "ours"


def embedding_section(runs: Sequence[Run]) -> Section:
    """Show documents per second against the distance of vectors from the float64 reference."""
    runs = chosen(runs, "embedding", "dataset")
    title = "Text to vectors: speed and exactness"
    if not runs:
        return Section(title=title, reading="No such case has been measured yet.")
    pairs = [pair for run in runs for pair in facing(run)[:1] if pair.num_others > 1]
    wins = sum(not pair.lost for pair in pairs)
    best = max(pairs, key=lambda pair: pair.ratio, default=None)
    reading = "Long bars on the left are fast, short bars on the right are exact"
    if best is not None:
        reading += (
            f"; of {count(len(pairs), 'case')} with several other tools encoder-engine is the "
            f"fastest in {wins}, at best {times(best.ratio)} {best.peer.candidate} "
            f"({case_words(best.ours.case)})"
        )
    return Section(title=title, reading=f"{reading}.", blocks=[quality_picture(r) for r in runs])


def quality_picture(run: Run) -> Picture:
    """Draw one case: all candidates whose vectors were judged, the failed ones below."""
    fast = measured(run)
    judged = [r for r in run if r.status == "gate failed" and "mean_cosine" in r.gate]
    shown = [*fast, *judged]
    errors = [max(1 - r.gate.get("mean_cosine", 1.0), _LEAST_ERROR) for r in shown]
    rates = [r.throughput_per_s.get("documents") for r in shown]
    panels = [
        Bars(
            axis="speed (documents a second)",
            values=rates,
            texts=[number(rate) if rate else "wrong: not timed" for rate in rates],
        ),
        Bars(
            axis="error (1 - cosine)",
            values=errors,
            texts=[f"{error:.1g}" for error in errors],
            log=True,
            start=10.0 ** math.floor(math.log10(min(errors) / 2)),
        ),
    ]
    first = run[0]
    return Picture(
        name=f"quality-{slug(run)}",
        caption=f"{case_words(first.case)} ({device_words(first)}, {day(first)})",
        draw=partial(draw_bars, [r.candidate for r in shown], kinds_of(shown), panels),
        table=Table(
            header=["candidate", "documents a second", "times ours", "mean cosine", "min cosine"],
            rows=[
                [
                    r.candidate,
                    number(r.throughput_per_s.get("documents")) or r.reason or r.status,
                    _relative(r, run),
                    f"{r.gate.get('mean_cosine', 0):.9g}",
                    f"{r.gate.get('min_cosine', 0):.9g}",
                ]
                for r in shown
            ],
        ),
    )


def _relative(result: Result, run: Run) -> str:
    ours = next(iter(measured(run, "ours")), None)
    mine = None if ours is None else ours.throughput_per_s.get("documents")
    rate = result.throughput_per_s.get("documents")
    return times(rate / mine) if rate and mine else ""


def limit_section(runs: Sequence[Run]) -> Section:
    """Return the section on the share of the machine's peak that is reached."""
    title = "How near to the machine's limit"
    whole = [
        run
        for run in chosen(runs, "embedding", "encoder", "encoder_large")
        if any(r.fraction_of_limit for r in measured(run))
    ]
    if not whole:
        return Section(title=title, reading="No case with a measured limit has been run yet.")
    ours = [r for run in whole for r in measured(run, "ours")[:1] if r.fraction_of_limit]
    shares = sorted(r.fraction_of_limit or 0.0 for r in ours)
    peers = [r.fraction_of_limit or 0.0 for run in whole for r in measured(run, "peer")[:1]]
    reading = (
        "The limit is the fastest that this machine was seen to multiply matrices, before a run's "
        "rounds or after."
    )
    if shares and peers:
        reading += (
            f" encoder-engine reaches {shares[0]:.0%} to {shares[-1]:.0%} of it, the best other "
            f"tool {min(peers):.0%} to {max(peers):.0%}."
        )
    pictures = [limit_picture(of_device) for of_device in by_device(whole).values()]
    return Section(title=title, reading=reading, blocks=pictures)


def limit_picture(runs: Sequence[Run]) -> Picture:
    """Draw the engine and the best peer of each case; the table has all candidates."""
    shown = [r for run in runs for role in ("ours", "peer") for r in measured(run, role)[:1]]
    shares = [r.fraction_of_limit or 0.0 for r in shown]
    bars = Bars(
        axis="share of the limit (%)",
        values=[100 * share for share in shares],
        texts=[f"{share:.0%}" for share in shares],
        line=100.0,
    )
    labels = [
        f"{case_words(r.case)}\n{r.candidate}" if r.role == "ours" else r.candidate for r in shown
    ]
    rows = [
        [
            case_words(r.case),
            r.candidate,
            number(r.throughput_per_s.get("operations", 0.0) / 1e9),
            number(r.ceilings.get("operations", 0.0) / 1e9),
            f"{r.fraction_of_limit or 0.0:.0%}",
        ]
        for run in runs
        for r in measured(run)
    ]
    first = runs[0][0]
    return Picture(
        name=f"limit-{first.device}",
        main=True,
        caption=f"Share of the limit in matrix products ({device_words(first)})",
        draw=partial(draw_bars, labels, kinds_of(shown), [bars]),
        table=Table(
            header=["case", "candidate", "reached G/s", "limit G/s", "share"],
            rows=rows,
        ),
    )


def latency_section(runs: Sequence[Run]) -> Section:
    """Return the section on the latency of one text, and of a first call."""
    runs = chosen(runs, "latency", "cold_start")
    title = "One short text, and a cold start"
    if not runs:
        return Section(title=title, reading="No such case has been measured yet.")
    told = [
        f"{case_words(pair.ours.case)}: {number(pair.ours.p50_ms)} ms, "
        f"{pair.peer.candidate} {number(pair.peer.p50_ms)} ms"
        for run in runs
        for pair in facing(run)[:1]
    ]
    reading = "How long until one vector is there; shorter is better"
    return Section(
        title=title,
        reading=f"{reading}. {'; '.join(told)}.",
        blocks=[time_picture(run) for run in runs],
    )


def time_picture(run: Run) -> Picture:
    """Draw median times, and the 99th percentile where there are many calls."""
    shown, first = measured(run), run[0]
    panels = [
        Bars(
            axis="time, median (ms)",
            values=[r.p50_ms for r in shown],
            texts=[number(r.p50_ms) for r in shown],
        )
    ]
    if all(r.p99_ms is not None for r in shown):
        panels.append(
            Bars(
                axis="time, 99 of 100 within (ms)",
                values=[r.p99_ms for r in shown],
                texts=[number(r.p99_ms) for r in shown],
            )
        )
    return Picture(
        name=f"time-{slug(run)}",
        caption=f"{case_words(first.case)} ({device_words(first)}, {day(first)})",
        draw=partial(draw_bars, [r.candidate for r in shown], kinds_of(shown), panels),
        table=Table(header=RESULT_HEADER, rows=[result_row(r) for r in shown]),
    )


def memory_section(runs: Sequence[Run], residents: Sequence[Resident] = ()) -> Section:
    """Return the section on the peak memory of each tool's process."""
    kept = chosen(runs, "embedding", "dataset", "latency", "cold_start")
    whole = [run for run in kept if any(r.peak_of == "process" for r in _frugal(run))]
    title = "Memory"
    if not whole:
        return Section(title=title, reading="No case with a process of its own was measured yet.")
    least = sum(_frugal(run)[0].role == "ours" for run in whole)
    reading = (
        "The most memory that a tool's process ever held, libraries and weights included: "
        f"encoder-engine holds the least in {least or 'none'} of {count(len(whole), 'case')}."
    )
    pictures = [memory_picture(of_device) for of_device in by_device(whole).values()]
    pictures += [resident_picture(resident) for resident in residents]
    return Section(title=title, reading=reading, blocks=pictures)


def _frugal(run: Run, role: str | None = None) -> list[Result]:
    """Return the candidates with known memory, smallest first."""
    found = [r for r in measured(run, role) if r.peak_mib is not None]
    return sorted(found, key=lambda r: r.peak_mib or 0.0)


def resident_picture(resident: Resident) -> Picture:
    """Draw the memory of a long run over time."""
    points = list(zip(resident.seconds, resident.mib, strict=True))
    step = max(1, len(points) // _POINTS)
    lines = Lines(x_axis="time (s)", y_axis="resident memory (MiB)", points=[points[::step]])
    header = ["rows", "seconds", "most MiB", "growth over the second half", "begun again, s"]
    row = [
        f"{resident.rows:,}",
        number(resident.seconds[-1]),
        number(max(resident.mib)),
        f"{resident.trend:+.1%}",
        number(resident.again_seconds),
    ]
    return Picture(
        name=f"resident-{resident.device}",
        main=True,
        caption=f"Memory while {resident.rows:,} sentences are embedded ({resident.device})",
        draw=partial(draw_lines, ["encoder-engine embed"], [lines]),
        table=Table(header=header, rows=[row]),
    )


def memory_picture(runs: Sequence[Run]) -> Picture:
    """Draw the engine, the peer with the least memory, and sentence-transformers."""
    shown: list[Result] = []
    for run in runs:
        ours = measured(run, "ours")[:1]
        usual = [r for r in measured(run, "peer") if r.candidate == "sentence-transformers"]
        peers = _frugal(run, "peer")[:1]
        shown += {r.candidate: r for r in (*ours, *peers, *usual)}.values()
    values = [r.peak_mib for r in shown]
    labels = [
        f"{case_words(r.case)}\n{r.candidate}" if r.role == "ours" else r.candidate for r in shown
    ]
    kinds: list[Kind] = ["ours" if r.role == "ours" else "peer" for r in shown]
    bars = Bars(axis="peak memory (MiB)", values=values, texts=[number(v) for v in values])
    rows = [
        [case_words(r.case), r.candidate, number(r.peak_mib), r.peak_of or ""]
        for run in runs
        for r in _frugal(run)
    ]
    first = runs[0][0]
    return Picture(
        name=f"memory-{first.device}",
        caption=f"Peak memory: ours, the most frugal other, the usual one ({device_words(first)})",
        draw=partial(draw_bars, labels, kinds, [bars]),
        table=Table(header=["case", "candidate", "peak MiB", "of the"], rows=rows),
    )


def training_section(runs: Sequence[Run]) -> Section:
    """Return the section on training: tokens per second of a step and of the loader."""
    runs = chosen(runs, "pretraining", "pretraining_gpu", "finetuning_gpu")
    title = "Training"
    if not runs:
        return Section(title=title, reading="No such case has been measured yet.")
    on_gpu = any(group_of(run) != "pretraining" for run in runs)
    told = [
        f"{case_words(pair.ours.case)}: {times(pair.ratio)} {pair.peer.candidate}"
        for run in runs
        for pair in facing(run)[:1]
    ]
    return Section(
        title=title,
        reading=f"Tokens a second of a step, and of the loader before it; {'; '.join(told)}."
        + ("" if on_gpu else " Training on a GPU is not measured yet."),
        blocks=[block for run in runs for block in (step_picture(run), *kernel_blocks(run))],
    )


def kernel_blocks(run: Run) -> list[Block]:
    """Return the kernels of the engine's call by their share, where they were recorded."""
    ours = next((r for r in run if r.kernels), None)
    if ours is None:
        return []
    busy = sum(ms for _, _, ms in ours.kernels)
    words = (
        f"The kernels of a call of the engine, {case_words(ours.case)} ({device_words(ours)}): "
        f"{number(busy)} ms of {number(ours.p50_ms)}."
    )
    rows = [[f"`{name}`", str(n), number(ms), f"{ms / busy:.1%}"] for name, n, ms in ours.kernels]
    return [Text(words=words), Table(header=["kernel", "launches", "ms", "share"], rows=rows)]


def step_picture(run: Run) -> Picture:
    """Draw tokens a second, and the memory of a step."""
    shown, first = measured(run), run[0]
    on_gpu = first.device.startswith("nvidia")
    rates = [r.throughput_per_s.get("tokens") for r in shown]
    panels = [
        Bars(axis="speed (tokens a second)", values=rates, texts=[number(rate) for rate in rates]),
        Bars(
            axis="memory of a call (MiB)",
            values=[r.peak_mib for r in shown],
            texts=[number(r.peak_mib) for r in shown],
        ),
    ]
    return Picture(
        name=f"step-{slug(run)}",
        caption=f"{case_words(first.case)} ({device_words(first)}, {day(first)})",
        draw=partial(draw_bars, [r.candidate for r in shown], kinds_of(shown), panels),
        table=Table(
            header=[*RESULT_HEADER, "MFU"] if on_gpu else RESULT_HEADER,
            rows=[[*result_row(r), *([utilisation(r)] if on_gpu else [])] for r in shown],
        ),
    )


def utilisation(result: Result) -> str:
    """Return the model FLOPs utilisation (Chowdhery et al. 2022): of the peak in bfloat16."""
    peak = next((x for name, x in PEAKS.items() if result.device.startswith(name)), None)
    rate = result.throughput_per_s.get("operations")
    return "" if peak is None or rate is None else f"{rate / peak:.0%}"
