"""The targets on a GPU, of operations, encoders and training, as values.

Cases compute in bfloat16 at BERT-large's sizes; rates are wanted of an NVIDIA H200, and judged on
no other.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from benchmarks.targets import quantities as by
from benchmarks.targets.target import Target

if TYPE_CHECKING:
    from collections.abc import Iterator

    from benchmarks.targets.quantities import Quantity

GROUP = "GPU"
VARLEN, MASKED = "torch varlen_attn", "torch sdpa, padded"
CUDNN = "torch sdpa cudnn, padded"
ANY, H200 = "nvidia", "nvidia-h200"
_LATER = ("", ", later")
# The cases time a backward pass with the forward pass before it, and drop nothing out.
BACKWARD = ", timed with its forward"
# What, case, whom beside, how many times its speed; a second number is for later.
TIMES: tuple[tuple[str, str, str, tuple[float, ...]], ...] = (
    ("attention forward, heads of 64, 512 tokens", "attention/forward-equal", CUDNN, (1.0,)),
    ("attention forward, heads of 64, 2,048 tokens", "attention_2k/forward-equal", CUDNN, (1.15,)),
    ("attention forward, heads of 64, mixed lengths", "attention/forward", VARLEN, (1.3,)),
    ("attention forward, heads of 128", "attention_d128/forward-equal", CUDNN, (0.8, 0.97)),
    (f"attention backward, heads of 64{BACKWARD}", "attention/training", VARLEN, (1.2,)),
    (
        f"attention backward, heads of 64, 512 tokens{BACKWARD}",
        "attention/training-equal",
        CUDNN,
        (0.85, 1.0),
    ),
    ("attention on a batch that is half padding", "attention_half/forward", MASKED, (2.5, 3.5)),
    (f"layer norm backward{BACKWARD}, without dropout", "layer_norm/training", "Liger", (2.0,)),
    ("masked head, training", "masked_cross_entropy/training", "torch dense head", (6.0,)),
    ("masked head, training", "masked_cross_entropy/training", "torch eager", (1.15,)),
    (
        "masked head, training, no logits stored",
        "masked_cross_entropy_tiled/training",
        "torch linear_cross_entropy",
        (1.0,),
    ),
    ("encoder on mixed lengths", "encoder/mixed", "transformers, one batch", (3.0,)),
)
# What, case, share of the limit.
SHARES: tuple[tuple[str, str, tuple[float, ...]], ...] = (
    ("residual and layer norm, forward, without dropout", "layer_norm/forward", (0.85, 0.9)),
    (
        f"residual and layer norm, backward{BACKWARD}, without dropout",
        "layer_norm/training",
        (0.75, 0.85),
    ),
    ("bias and GELU, forward", "bias_gelu/forward", (0.85,)),
    ("bias and GELU, training", "bias_gelu/training", (0.85,)),
    ("GeGLU, forward", "geglu/forward", (0.85,)),
    ("GeGLU, training", "geglu/training", (0.85,)),
)
# What, case, tokens a second of an H200.
RATES = (
    ("BERT-base forward, 128 tokens", "encoder/equal", 2.6e6),
    ("BERT-base forward, 512 tokens", "encoder/equal-512", 2.4e6),
    ("BERT-large forward, 128 tokens", "encoder_large/equal", 0.81e6),
    ("BERT-large forward, 512 tokens", "encoder_large/equal-512", 0.76e6),
)
_NO_CASE = "no case measures it yet"
# What, what is wanted, and later, why nothing tells.
UNMEASURED = (
    (
        "window of 64 to either side at 8,192 tokens",
        ">= 8x our full attention, later 15x",
        "attention_8k_window and attention_8k measure either, in runs of their own",
    ),
    ("cost of unlike lengths in attention", "<= 3 %", _NO_CASE),
    ("deterministic backward of attention", "<= 15 % slower", _NO_CASE),
    (
        "dropout, residual and layer norm of 32,768 x 1,024, training",
        "<= 100 us",
        "layer_norm/training has other sizes and no dropout",
    ),
    ("gradient of a bias before GELU or GeGLU", "in the same pass", "no case counts passes"),
    (
        "masked head, training, no logits stored",
        "none stored",
        "a test of the operation holds it",
    ),
    ("mixed lengths over equal ones, real tokens a second", ">= 95 %", _NO_CASE),
    (
        "BERT-base training step, 128 / 512 tokens",
        ">= 0.80M / 0.73M tokens/s, later 0.92M / 0.82M",
        _NO_CASE,
    ),
    (
        "BERT-large training step, 128 / 512 tokens",
        ">= 0.26M / 0.24M tokens/s, later 0.30M / 0.27M",
        _NO_CASE,
    ),
)


def gpu_targets() -> Iterator[Target]:
    """Every row of the table."""
    for what, case, peer, all_least in TIMES:
        for later, least in enumerate(all_least):
            quantity = by.times_peer(peer)
            wanted = f">= {least:g}x {peer}{_LATER[later]}"
            yield _target(what, case, wanted, quantity, at_least=least)
    peer = "torch linear_cross_entropy"
    yield _target(
        "masked head, training, no logits stored: memory",
        "masked_cross_entropy_tiled/training",
        f"<= that of {peer}",
        by.memory_over(peer),
        at_most=1.0,
    )
    yield _target(
        "masked head, training",
        "masked_cross_entropy/training",
        f">= 550 TFLOP/s{_LATER[1]}",
        by.rate("operations"),
        at_least=550e12,
        gpu=H200,
    )
    for what, case, shares in SHARES:
        for later, share in enumerate(shares):
            wanted = f">= {share:.0%} of the bandwidth{_LATER[later]}"
            yield _target(what, case, wanted, by.share_of_limit, at_least=share)
    for what, case, rate in RATES:
        wanted = f">= {rate / 1e6:g}M tokens/s"
        yield _target(what, case, wanted, by.rate("tokens"), at_least=rate, gpu=H200)
    for what, wanted, why in UNMEASURED:
        yield Target(group=GROUP, what=what, wanted=wanted, gpu=ANY, unmeasured=why)


def _target(
    what: str,
    case: str,
    wanted: str,
    quantity: Quantity,
    *,
    at_least: float | None = None,
    at_most: float | None = None,
    gpu: str = ANY,
) -> Target:
    return Target(
        group=GROUP,
        what=what,
        wanted=wanted,
        at_least=at_least,
        at_most=at_most,
        case=case,
        quantity=quantity,
        gpu=gpu,
    )
