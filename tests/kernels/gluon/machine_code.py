"""Compiles attention in Gluon for Hopper and reads the order of its machine code; needs no GPU.

``python -m tests.kernels.gluon.machine_code`` prints what it found; names of kernels limit it to
these. With ``--write`` it becomes the table's part of this version of Triton. ``--setup`` installs
the other versions, into ``.peers/triton-VERSION`` of the checkout.

Of a consumer's inner loop, in the order of its instructions: ``H8`` eight wgmma of one group,
``W1`` a wait until one group is under way, ``E66`` 66 exponentials, ``P`` a wait for an mbarrier,
``A`` an arrival at one, ``B`` a barrier of the consumer's four warps, ``F`` a fence between stores
and products that read what they stored.
"""

from __future__ import annotations

import importlib
import json
import os
import re
import subprocess
import sys
from dataclasses import dataclass
from itertools import groupby
from pathlib import Path
from typing import TYPE_CHECKING, Any

from tests import ROOT
from tests.kernels import sass
from tests.kernels.ahead_of_time import COMPILING, resource_usage
from tests.kernels.ahead_of_time import POINTERS as KNOWN_POINTERS

if TYPE_CHECKING:
    from collections.abc import Iterable

TABLE = ROOT / "tests/golden/gluon_kernels.json"
# The GPU machine's, beside the one that is installed here, and the newest.
OTHER_VERSIONS = ("3.6.0", "3.9.0")
SETUP = "python -m tests.kernels.gluon.machine_code --setup"
Row = dict[str, Any]
KEY_BLOCKS = ("key_rows", "value_rows")
POINTERS = KNOWN_POINTERS | {"sum_pointer": "*fp32"}

_EVENTS = (
    ("H", re.compile(r"^HGMMA")),
    ("E", re.compile(r"^MUFU\.EX2")),
    ("P", re.compile(r"^SYNCS\.PHASECHK")),
    ("A", re.compile(r"^SYNCS\.ARRIVE")),
    ("B", re.compile(r"^BAR\.SYNC")),
    ("F", re.compile(r"^FENCE\.VIEW\.ASYNC")),
)
_WAIT = re.compile(r"^WARPGROUP\.DEPBAR\.LE gsb0, 0x(\d+)")
_SHARE = re.compile(r"^USETMAXREG\.(?:DEALLOC|TRY_ALLOC)\S* (?:\w+, )?0x([0-9a-f]+)")
_REGISTER = re.compile(r"\bR(\d+)\b")
# The left operand in registers, and the first of four registers.
_LEFT = re.compile(r"^HGMMA\.\S+ R\d+, R(\d+), gdesc")
_FOUR, _TWO = re.compile(r"\.(128|M88\.4)\b"), re.compile(r"\.64\b|WIDE|M88\.2\b")
# Without what a producer tells a barrier to expect: it has asked for nothing yet.
_ARRIVAL = re.compile(r"^SYNCS\.ARRIVE\.\S*A1T0")
_ACTING = re.compile(r"^(BAR\.SYNC|HGMMA|WARPGROUP\.DEPBAR|SYNCS\.PHASECHK|STS|STSM|LDS|LDSM)")
# No operand of these is written, or not in a register of a thread.
_NOT_WRITING = re.compile(r"^(ST|BAR|BRA|SYNCS|WARP|HGMMA|FENCE|MEMBAR|UTMA|EXIT|NOP|CCTL|R2UR|U)")


def folder_of(version: str) -> Path:
    """Return where a version of Triton is installed by ``--setup``."""
    named = os.environ.get("ENCODER_ENGINE_PEERS")
    python = f"{sys.version_info.major}.{sys.version_info.minor}"
    return (Path(named) if named else ROOT / ".peers") / f"triton-{version}-py{python}"


@dataclass(frozen=True, kw_only=True)
class Kernel:
    """A kernel in Gluon at one shape.

    ``design``: the order of its loop, without counts of instructions, barriers and waits for
    memory. ``blocks``: the rows of the blocks that TMA reads, by argument.
    """

    module: str
    constants: dict[str, Any]
    blocks: dict[str, int]
    max_registers: int
    num_consumers: int
    num_programs: int
    design: str

    @property
    def function(self) -> Any:
        """The kernel, to be compiled."""
        module = importlib.import_module(f"encoder_engine.kernels.attention.gluon.{self.module}")
        return getattr(module, f"_attention_{self.module}_gluon_kernel")


def kernels() -> dict[str, Kernel]:
    """List the kernels at the shapes that a call may ask for, of 16 heads."""
    from encoder_engine.kernels.attention import config

    found = {}
    for (head_dim, block_rows), plain in config.GLUON_LAUNCHES.items():
        for turns in (False, True)[: plain.num_consumers]:
            launch = plain._replace(turns=turns)
            name = f"forward d{head_dim} {block_rows} rows{', turns' if turns else ''}"
            found[name] = Kernel(
                module="forward",
                constants={"GROUP": 1, "HEAD_DIM": head_dim, **launch.constants()},
                blocks={"query_rows": 64} | dict.fromkeys(KEY_BLOCKS, launch.block_keys),
                max_registers=launch.max_registers,
                num_consumers=launch.num_consumers,
                num_programs=launch.num_programs,
                # The scores' products, those of P V, a wait for the first, exponentials, and the
                # wait for the second. By turns, the other's begin once both were asked for.
                design="H H A W1 A E W0 A" if turns else "H H W1 A E W0 A",
            )
    for name, launch, group in (
        ("512 tokens", config.GLUON_BACKWARD_SHARED, 1),
        ("any length", config.GLUON_BACKWARD_SCRATCH, 1),
        ("grouped heads", config.GLUON_BACKWARD_SCRATCH, 4),
    ):
        absent = {"sum_pointer": None} if launch.sum_blocks else {}
        found[f"backward d64 {name}"] = Kernel(
            module="backward",
            constants={"GROUP": group, "HEAD_DIM": 64, "JOINED": True, **launch.constants()}
            | absent,
            blocks={"query_rows": 64, "grad_rows": 64} | dict.fromkeys(KEY_BLOCKS, 128),
            max_registers=launch.max_registers,
            num_consumers=2,
            num_programs=1,
            # Both products of scores, exponentials, dV, a wait for dP, dK; dS is handed over, and
            # the queries are given back; then dQ, by one of the consumers.
            design="H W1 E H W1 H F A W0 A H W0",
        )
    return found


def build(kernel: Kernel) -> Any:
    """Compile a kernel for Hopper as a call of bfloat16 would."""
    import triton
    from triton.backends.compiler import GPUTarget
    from triton.experimental.gluon import language as gl
    from triton.experimental.gluon._runtime import GluonASTSource

    head_dim = kernel.constants["HEAD_DIM"]

    def type_of(name: str) -> str:
        if name in constants:
            return "constexpr"
        if name in kernel.blocks:
            shape = [kernel.blocks[name], head_dim]
            layout = gl.NVMMASharedLayout.get_default_for(shape, gl.bfloat16)
            return f"tensordesc<bf16{shape},{layout!r}>"
        if name.endswith("_pointer"):
            return POINTERS.get(name, "*bf16")
        return "fp32" if name in ("factor", "scale") else "i32"

    constants = {"NUM_HEADS": 16, **kernel.constants}
    function = kernel.function
    signature = {name: type_of(name) for name in function.arg_names}
    aligned = {
        (place,): [["tt.divisibility", 16]]
        for place, kind in enumerate(signature.values())
        if kind.startswith("*")
    }
    places = {(function.arg_names.index(name),): value for name, value in constants.items()}
    source = GluonASTSource(fn=function, signature=signature, constexprs=places, attrs=aligned)
    options = {"num_warps": 4, "maxnreg": kernel.max_registers}
    return triton.compile(source, target=GPUTarget("cuda", 90, 32), options=options)


def row_of(kernel: Kernel) -> Row:
    """Compile a kernel and read its machine code."""
    compiled = build(kernel)
    used = resource_usage(compiled.asm["cubin"])
    text = sass.disassemble(compiled.asm["cubin"])
    instructions, _ = sass.parse(text)
    loop = sass.inner_loop(text)
    return {
        "order": order_of(loop),
        "instructions": len(loop),
        "overlapped": round(sass.count(text).overlapped(4 * kernel.num_consumers), 3),
        "registers": used["REG"],
        "spilled_bytes": used["STACK"],
        "shared_bytes": int(compiled.metadata.shared),
        "registers_of_parts": registers_of_parts(instructions),
        "overwritten_operands": len(overwritten_operands(instructions)),
        "hasty_arrivals": len(hasty_arrivals(instructions)),
    }


def order_of(instructions: Iterable[str]) -> str:
    """Return what matters of a loop, in order, as the module's docstring says."""
    events = []
    for text in instructions:
        wait = _WAIT.match(text)
        if wait is not None:
            events.append(f"W{wait[1]}")
        events += [name for name, pattern in _EVENTS if pattern.match(text)]
    counted = [(name, len(list(same))) for name, same in groupby(events)]
    return " ".join(f"{name}{number if name in 'HE' else ''}" for name, number in counted)


def registers_of_parts(instructions: Iterable[str]) -> list[list[int]]:
    """Return [registers that warps of a part are given, the most that its instructions use].

    What ptxas placed behind all parts, the loops around waits, is not seen.
    """
    found: list[list[int]] = []
    for text in instructions:
        share = _SHARE.match(text)
        if share is not None:
            found.append([int(share[1], 16), 0])
        elif found:
            used = max((int(number) + 1 for number in _REGISTER.findall(text)), default=0)
            found[-1][1] = max(found[-1][1], used)
    return found


def overwritten_operands(instructions: list[str]) -> list[str]:
    """List what writes a register that a product under way may still read.

    ptxas 12 was seen to do so (triton issue 11781).
    """
    wrong = []
    for place, text in enumerate(instructions):
        left = _LEFT.match(text)
        if left is None:
            continue
        held = set(range(int(left[1]), int(left[1]) + 4))
        for later in instructions[place + 1 :]:
            if later.startswith("WARPGROUP.DEPBAR.LE gsb0, 0x0"):
                break
            if held & _written(later):
                wrong.append(f"{text}, then {later}")
                break
    return wrong


def hasty_arrivals(instructions: list[str]) -> list[str]:
    """List arrivals at an mbarrier that one warp may make before another has done its part.

    One thread arrives for the four warps of a part. Between what they do in memory that is shared,
    or wait for, and the arrival there has to be a barrier of these warps.
    """
    wrong = []
    for place, text in enumerate(instructions):
        if not _ARRIVAL.match(text):
            continue
        before = next((x for x in reversed(instructions[:place]) if _ACTING.match(x)), "")
        if not before.startswith("BAR.SYNC"):
            wrong.append(f"{before}, then {text}")
    return wrong


def _written(text: str) -> set[int]:
    """Return the registers of a thread that an instruction writes."""
    if _NOT_WRITING.match(text):
        return set()
    operation, _, operands = text.partition(" ")
    results = [operand for operand in operands.split(",") if not operand.strip().startswith("P")]
    first = _REGISTER.search(results[0]) if results else None
    if first is None:
        return set()
    wide = _FOUR.search(operation), _TWO.search(operation)
    width = 4 if wide[0] else 2 if wide[1] else 1
    return set(range(int(first[1]), int(first[1]) + width))


def read() -> dict[str, dict[str, Row]]:
    """Read the table: by version of Triton and kernel."""
    table: dict[str, dict[str, Row]] = json.loads(TABLE.read_text("utf-8"))
    return table


def setup() -> None:
    """Install the other versions, each alone: everything else is the environment's."""
    for version in OTHER_VERSIONS:
        pip = [sys.executable, "-m", "pip", "install", "--quiet", "--disable-pip-version-check"]
        options = ["--no-deps", "--upgrade", "--target", str(folder_of(version))]
        subprocess.run([*pip, *options, f"triton=={version}"], check=True)


def main() -> None:
    """Print the rows as JSON; ``--write`` records them in the golden file."""
    if "--setup" in sys.argv:
        setup()
        return
    os.environ.update(COMPILING)
    import triton

    known = kernels()
    wanted = [argument for argument in sys.argv[1:] if argument != "--write"] or list(known)
    found = {triton.__version__: {name: row_of(known[name]) for name in wanted}}
    if "--write" in sys.argv:
        table = (read() if TABLE.is_file() else {}) | found
        TABLE.write_text(_written_out(dict(sorted(table.items()))), "utf-8")
    sys.stdout.write(_written_out(found))


def _written_out(table: dict[str, dict[str, Row]]) -> str:
    """Write a line for each kernel."""
    versions = []
    for version, rows in table.items():
        lines = ",\n".join(f"  {json.dumps(name)}: {json.dumps(row)}" for name, row in rows.items())
        versions.append(f" {json.dumps(version)}: {{\n{lines}\n }}")
    return "{\n" + ",\n".join(versions) + "\n}\n"


if __name__ == "__main__":
    main()
