"""Profiles a call kernel by kernel."""

from __future__ import annotations

import re
from collections import Counter
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from benchmarks.measuring.case import Call

# Name, launches and milliseconds of a kernel.
Kernel = tuple[str, int, float]
MOST = 25


def profile_call(call: Call, device: str) -> tuple[Kernel, ...]:
    """Return the kernels of a call on a GPU, or torch's operators on a CPU, the longest first.

    The last one stands for all that are shorter than the first ``MOST``.
    """
    import torch
    from torch.profiler import ProfilerActivity, profile

    on_gpu = device == "cuda"
    activity = ProfilerActivity.CUDA if on_gpu else ProfilerActivity.CPU
    with profile(activities=[activity]) as profiled:
        call()
        if on_gpu:
            torch.cuda.synchronize()
    launches, ms = Counter[str](), Counter[str]()
    for event in profiled.key_averages():
        time_us = event.self_device_time_total if on_gpu else event.self_cpu_time_total
        if time_us > 0:
            launches[short_name(event.key)] += event.count
            ms[short_name(event.key)] += time_us / 1e3
    ranked = [(name, launches[name], round(taken, 4)) for name, taken in ms.most_common()]
    shown, rest = ranked[:MOST], ranked[MOST:]
    others = ("others", sum(n for _, n, _ in rest), round(sum(taken for *_, taken in rest), 4))
    return (*shown, *([others] if rest else []))


def short_name(kernel: str) -> str:
    """Leave out what a C++ compiler adds to a kernel's name: its type, arguments and templates.

    What an elementwise kernel computes is said by its templates alone: the last of these is kept.
    """
    plain = kernel.removeprefix("void ").replace("(anonymous namespace)::", "")
    computed = re.findall(r"\w*(?:_cuda|[Ff]unctor(?:_\w+)?|KernelImpl)\b", plain)
    return ", ".join([re.split("[<(]", plain, maxsplit=1)[0][:60], *computed[-1:]])
