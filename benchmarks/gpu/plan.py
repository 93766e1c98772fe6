"""The plan of what is tested and measured on a GPU, the open questions first."""

from __future__ import annotations

import shutil
import sys
from dataclasses import dataclass, field, replace
from typing import TYPE_CHECKING

from benchmarks.measuring.machine import ROOT

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable, Sequence

    from benchmarks.measuring.case import CaseSpec

# (head size, dropout) of attention's gradients, the kernels of most shapes and hazards.
CHECKED_HEADS = tuple((size, dropout) for dropout in (0.0, 0.1) for size in (64, 128, 32))
# Files whose kernels take a process longer than all the others' to compile, and into how many.
PARTS = {
    "test_attention.py": 20,
    "test_gated_activation.py": 6,
    "test_layer_norm.py": 12,
    "test_masked_projection.py": 40,
    "test_pooling.py": 4,
}
LOOP_PARTS = 4
NUM_GENERATED, GENERATED_PARTS, NUM_SANITIZED = 400, 32, 6
# Estimates on an NVIDIA H200's machine of 16 cores: an operation's case; a training step's, and the
# same with peers that torch compiles; a check or a part of the tests.
CASE, TRAINING, COMPILING, CHECK = 12.0, 28.0, 55.0, 25.0

# How the names of cases begin, and the folders of their kernels; others depend on all.
KERNELS = {name: name for name in ("attention", "layer_norm", "linear", "pooling", "rotary")}
KERNELS |= dict.fromkeys(("bias_gelu", "geglu", "swiglu"), "activation")
KERNELS |= {"masked_cross_entropy": "masked_projection", "rms_norm": "layer_norm"}
KERNELS |= {"token_embedding": "embedding"}
OPERATIONS = ("kernels", "encoder_engine/ops")
# What a training step runs through.
LOOP = (
    *(f"encoder_engine/{name}" for name in ("families", "models", "objectives", "packing")),
    *("encoder_engine/tasks", "encoder_engine/training"),
)
JOBS = (
    *("benchmarks/jobs/training_step.py", "benchmarks/jobs/transformers_step.py"),
    *(f"benchmarks/cases/{name}.py" for name in ("pretraining", "encoder", "training_gpu")),
    *(f"benchmarks/cases/ops/{name}.py" for name in ("attention", "attention_gluon")),
)
TRAINING_GROUPS = ("pretraining_gpu/", "finetuning_gpu/")
# Measured in this order, before all other cases.
FIRST = (
    "pretraining_gpu/base-equal-32k",
    "pretraining_gpu/large-equal-32k",
    "pretraining_gpu/base-mixed-32k",
    "finetuning_gpu/base-32x128",
    "pretraining_gpu/modernbert-equal-32k",
)
# Variants of a step, which decide on defaults; that in Gluon has to pass checks first.
_GLUON_VARIANT = "training_variants/attention-gluon"
VARIANTS = ("training_variants/stream", "training_variants/attention", _GLUON_VARIANT)
# Each in a process of its own: steps with and without graphs, then batches of inference.
STEP_GRAPHS = ("training_graphs/finetuning-4k", "training_graphs/pretraining-16k")
GRAPHS = (*STEP_GRAPHS, "encoder_short/1-text", "encoder_short/8-texts")
_SIZES = ("attention", "attention_2k", "attention_8k", "attention_d128", "attention_deberta")
ATTENTION = tuple(f"{size}/{way}-equal" for size in _SIZES for way in ("training", "forward"))
# The kernels in Gluon, which have to pass their checks first: they may wait for ever.
# A check: its name, and the options of tests.kernels.first_checks.
_ROWS_64, _ROWS_128 = (("64 rows", ("--gluon", "64")), ("128 rows", ("--gluon", "128")))
_TURNS = ("128 rows, turns", ("--gluon", "128", "--turns"))
_GRADIENTS = ("gradients", ("--gluon", "128", "--gluon-gradients"))
_WIDE = "_d128"
# The cases, in order, and the checks of each.
_GLUON = {_GLUON_VARIANT: ("", (_ROWS_128, _GRADIENTS))} | {
    f"{group}{size}/{way}-equal": (size, checks)
    for group, way, checks, sizes in (
        ("attention_gluon", "forward", (_ROWS_64, _ROWS_128), ("_2k", "", _WIDE, "_8k")),
        ("attention_gluon_gradients", "training", (_ROWS_128, _GRADIENTS), ("", "_2k", "_8k")),
        ("attention_turns", "forward", (_ROWS_128, _TURNS), ("_2k", "", _WIDE, "_8k")),
        ("attention_gluon", "training", (_ROWS_64, _ROWS_128), ("_2k", "", _WIDE, "_8k")),
    )
    for size in sizes
}
GLUON = tuple(_GLUON)


@dataclass(frozen=True, kw_only=True)
class Step:
    """A step of the GPU run, a process: a Python module or a program, with its arguments.

    ``sources``: the files and folders that it measures.
    ``seconds``: the estimated time.
    ``again``: run it twice if it hits its limit: what torch compiled by then is cached.
    ``after``: the names of steps that have to pass before.
    """

    name: str
    command: tuple[str, ...]
    seconds: float = CHECK
    sources: tuple[str, ...] = OPERATIONS
    environment: dict[str, str] = field(default_factory=dict)
    again: bool = False
    after: tuple[str, ...] = ()

    @property
    def saves(self) -> bool:
        """Return whether the step records results, in the folder of its option ``--output``."""
        return self.command[0] == "benchmarks"


@dataclass(frozen=True, kw_only=True)
class Phase:
    """A part of the GPU run: its steps run in order, ``jobs`` of them at a time."""

    name: str
    steps: Sequence[Step]
    jobs: int = 1


def plan(cases: Iterable[CaseSpec], *, cores: int, rehearsed: bool = False) -> list[Phase]:
    """List the phases, in order, of the GPU run on a machine of so many CPU cores.

    ``rehearsed``: the run is a rehearsal on a CPU, with the smallest sizes.
    """
    specs = {spec.name: spec for spec in cases}
    options = ("--device", "cpu", "--smoke") if rehearsed else ("--device", "cuda")
    chosen = (*VARIANTS, *FIRST, *GRAPHS, *ATTENTION, *GLUON)
    others = [spec for name, spec in specs.items() if name not in chosen]

    def measured(names: Iterable[str]) -> list[Step]:
        found = [_measure(specs[name], options) for name in names if name in specs]
        return _after_checks([step for steps in found for step in steps], rehearsed=rehearsed)

    jobs = max(1, cores - 2)
    return [
        Phase(name="first checks", steps=_checks(rehearsed=rehearsed), jobs=jobs),
        Phase(name="checks of Gluon", steps=[] if rehearsed else _gluon_checks(), jobs=jobs),
        Phase(name="variants", steps=measured(VARIANTS)),
        Phase(name="training", steps=measured(FIRST)),
        Phase(name="graphs", steps=measured(GRAPHS)),
        Phase(name="attention", steps=measured(ATTENTION)),
        Phase(name="attention in Gluon", steps=measured(GLUON[1:])),
        Phase(name="more training", steps=measured(s.name for s in others if _trains(s))),
        Phase(name="tests", steps=[] if rehearsed else _tests(), jobs=jobs),
        Phase(name="other cases", steps=measured(s.name for s in others if not _trains(s))),
        Phase(name="compute-sanitizer", steps=[] if rehearsed else _sanitized()),
    ]


def _trains(spec: CaseSpec) -> bool:
    return spec.name.startswith(TRAINING_GROUPS)


def _sources(spec: CaseSpec) -> tuple[str, ...]:
    own = f"{spec.module.replace('.', '/')}.py"
    if _trains(spec) or spec.name in (*VARIANTS, *STEP_GRAPHS):
        return (*OPERATIONS, *LOOP, *JOBS, own)
    for start, kernels in KERNELS.items():
        if spec.name.startswith(start):
            shared = ("kernels/common", "encoder_engine/ops", "benchmarks/jobs/op_case.py")
            return (f"kernels/{kernels}", *shared, own)
    return (*OPERATIONS, "encoder_engine/models", own)


def _measure(spec: CaseSpec, options: tuple[str, ...]) -> list[Step]:
    """Return a case's steps: one; for training cases also one with torch.compile's peers."""
    command, sources = ("benchmarks", "run", spec.name, *options), _sources(spec)
    plain = (*command, "--no-compile")
    if not _trains(spec):
        seconds = TRAINING if spec.name in (*VARIANTS, *STEP_GRAPHS) else CASE
        return [Step(name=spec.name, command=plain, seconds=seconds, sources=sources)]
    # A shared pool of memory leaves room for candidates of other shapes.
    memory = {"PYTORCH_CUDA_ALLOC_CONF": "expandable_segments:True"}
    step = Step(
        name=spec.name, command=plain, seconds=TRAINING, sources=sources, environment=memory
    )
    compiling = replace(step, name=f"{spec.name}, compiled peers", command=command, again=True)
    return [step, replace(compiling, seconds=COMPILING)]


def _checks(*, rehearsed: bool) -> list[Step]:
    module = "tests.kernels.first_checks"
    # The interpreter of kernels takes minutes for longer texts, and is wrong in bfloat16.
    small = ("--lengths", "9", "1", "0", "5", "--dtype", "float16") if rehearsed else ()
    checks: dict[str, tuple[str, ...]] = {}
    for size, dropout in CHECKED_HEADS:
        name = f"attention d{size}{' dropout' if dropout else ''}"
        checks[name] = ("--head-dim", str(size), "--dropout", str(dropout), *small)
    checks |= {
        f"layer norm{' dropout' if x else ''}": ("--norm", str(x), *small[-2:]) for x in (0.0, 0.1)
    }
    if not rehearsed:
        checks["one token"] = ("--lengths", "1")
    loop = "tests/training/test_on_gpu.py"
    steps = [
        Step(
            name=f"the training loop {part + 1} of {LOOP_PARTS}",
            command=_pytest(loop, f"{part}/{LOOP_PARTS}", marked=not rehearsed),
            sources=(*OPERATIONS, *LOOP, loop),
        )
        for part in range(LOOP_PARTS)
    ]
    sources = ("kernels", "tests/kernels/first_checks.py")
    return steps + [
        Step(name=name, command=(module, *given), sources=sources) for name, given in checks.items()
    ]


def _gluon_check(size: str, check: tuple[str, tuple[str, ...]]) -> Step:
    name, options = check
    head_dim = "128" if size == _WIDE else "64"
    return Step(
        name=f"attention in Gluon d{head_dim}, {name}",
        command=("tests.kernels.first_checks", "--head-dim", head_dim, *options),
        sources=("kernels/attention", "kernels/common", "tests/kernels/first_checks.py"),
    )


def _gluon_checks() -> list[Step]:
    steps = [_gluon_check(size, check) for size, checks in _GLUON.values() for check in checks]
    return list({step.name: step for step in steps}.values())


def _after_checks(steps: Sequence[Step], *, rehearsed: bool) -> list[Step]:
    """Return the steps, each with the checks that have to pass before it; in a rehearsal none.

    They are checks of the Gluon kernels that the step runs.
    """
    found = []
    for step in steps:
        size, checks = ("", ()) if rehearsed else _GLUON.get(step.name, ("", ()))
        names = tuple(_gluon_check(size, check).name for check in checks)
        found.append(replace(step, after=names))
    return found


def _tests() -> list[Step]:
    """Return steps that test random cases, then those of the GPU tests, the largest files first."""
    others = ("test_packing.py", "models/captured/test_graphs.py")
    paths = [*(ROOT / "tests" / "ops").rglob("test_*.py"), *(ROOT / "tests" / p for p in others)]
    steps = []
    for path in sorted(paths, key=lambda path: (-PARTS.get(path.name, 1), path)):
        count = PARTS.get(path.name, 1)
        name = path.relative_to(ROOT).as_posix()
        for part in range(count):
            suffix = f" {part + 1} of {count}" if count > 1 else ""
            command = _pytest(name, f"{part}/{count}")
            sources = (*OPERATIONS, name)
            steps.append(Step(name=f"{name}{suffix}", command=command, sources=sources))
    cases = NUM_GENERATED // GENERATED_PARTS
    generated = [
        Step(name=f"generated cases of seed {seed}", command=_generated(cases, seed))
        for seed in range(7, 7 + GENERATED_PARTS)
    ]
    return [*generated, *steps]


def _generated(number: int, seed: int) -> tuple[str, ...]:
    """Return the command that tests random cases of all operations by the Triton kernels."""
    options = ("--by", "triton", "--cases", str(number), "--seed", str(seed))
    return ("tests.ops.generated", *options)


def _sanitized() -> list[Step]:
    program = shutil.which("compute-sanitizer")
    if program is None:
        return []
    python = (sys.executable, "-m", *_generated(NUM_SANITIZED, 11))
    return [
        Step(
            name="compute-sanitizer",
            command=(program, "--error-exitcode", "9", *python),
            seconds=2 * CHECK,
            # torch's allocator hides what lies beside a tensor.
            environment={"PYTORCH_NO_CUDA_MEMORY_CACHING": "1"},
        )
    ]


def _pytest(path: str, part: str, *, marked: bool = True) -> tuple[str, ...]:
    """Return the command that runs a part of the GPU tests in ``path``, without usual plug-ins."""
    # Newer and older versions of torch warn of what this one does not.
    options = ("-o", "addopts=", "-W", "default", "-rf", "-q", "--strict-markers")
    plugins = ("-p", "no:cacheprovider", "-p", "tests.parts", "--part", part)
    return ("pytest", *options, *plugins, *(("-m", "gpu") if marked else ()), path)


def account(phases: Sequence[Phase], seconds_of: Callable[[Step], float]) -> str:
    """Describe the plan as text: when each phase begins, in seconds, and its steps.

    ``seconds_of``: estimates the duration of a step.
    """
    lines, now = [], 0.0
    for phase in (phase for phase in phases if phase.steps):
        lines.append(f"{phase.name}: {len(phase.steps)} steps from second {now:.0f} on")
        if phase.jobs == 1:
            lines += [f"    {step.name}, {seconds_of(step):.0f} s" for step in phase.steps]
        now += sum(map(seconds_of, phase.steps)) / phase.jobs
    return "\n".join([*lines, f"ends after {now:.0f} s"])
