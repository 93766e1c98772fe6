"""What a training step on a GPU calls and moves, by fake tensors."""

from __future__ import annotations

import pytest

from tests.training.device.step_account import CONFIGS, account

# Calls, bytes and FLOPs of a step. A budget made before any of them was saved had 642 calls and
# 117 GB for BERT-base; a saving that is lost again shows here.
MOST = {"base": (420, 66e9), "large": (780, 175e9)}


@pytest.mark.exhaustive
@pytest.mark.parametrize("name", MOST)
def test_step_is_within_its_budget(name: str) -> None:
    config, (calls, traffic) = CONFIGS[name], MOST[name]
    found = account(config, tokens=65_536, length=512)
    assert sum(found.calls.values()) <= calls
    assert found.traffic <= traffic
    # The weights, twice forward and four times backward for each token, are most of the FLOPs.
    width, layers = config["hidden_size"], config["num_hidden_layers"]
    dense = layers * (4 * width * width + 2 * width * config["intermediate_size"])
    assert 0.9 < found.flops / (6 * dense * 65_536) < 1.0
    kinds = {row.kind for row in found.bytes}
    assert {"gemm", "attention", "layer_norm", "masked_cross_entropy"} <= kinds
