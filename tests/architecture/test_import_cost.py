"""Importing the package costs little more than importing torch: judged by what is loaded."""

from __future__ import annotations

import json
import subprocess
import sys

ALLOWED = {"encoder_engine", "numpy", "safetensors", "torch"}
SCRIPT = """
import sys, json, torch
before = set(sys.modules)
import encoder_engine
loaded = sorted(set(sys.modules) - before)
print(json.dumps({"loaded": loaded, "cuda": torch.cuda.is_initialized()}))
"""


def test_nothing_heavy_is_loaded_and_cuda_is_not_initialised() -> None:
    ran = subprocess.run(
        [sys.executable, "-W", "error", "-c", SCRIPT], capture_output=True, text=True, check=True
    )
    found = json.loads(ran.stdout)
    tops = {name.split(".")[0] for name in found["loaded"]}
    foreign = tops - ALLOWED - set(sys.stdlib_module_names)
    # Modules that the extension or the editable install bring under their own names.
    foreign = {name for name in foreign if not name.startswith(("__editable__", "_native"))}
    assert not foreign, f"import encoder_engine loads {sorted(foreign)}"
    assert found["cuda"] is False
    heavy = {
        "torch._dynamo",
        "torch._inductor",
        "torch.distributed.fsdp",
        "asyncio",
        "multiprocessing.pool",
    }
    assert not heavy & set(found["loaded"])
