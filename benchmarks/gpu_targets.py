"""The targets on a GPU, of operations, encoders and training, as values.

Cases compute in bfloat16 at BERT-large's sizes; figures are wanted on an NVIDIA H200.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from benchmarks import quantities as by
from benchmarks.target import Target

if TYPE_CHECKING:
    from collections.abc import Iterator

    from benchmarks.quantities import Quantity

GROUP = "GPU"
VARLEN, MASKED = "torch varlen_attn", "torch sdpa, padded"
CUDNN = "torch sdpa cudnn, padded"
# What, case, whom beside, how many times its speed.
TIMES = (
    ("attention forward, heads of 64, 512 tokens", "attention/forward-equal", CUDNN, 1.0),
    ("attention forward, heads of 64, mixed lengths", "attention/forward", VARLEN, 1.3),
    ("attention forward, heads of 128", "attention_d128/forward-equal", CUDNN, 0.8),
    ("attention training, heads of 64", "attention/training", VARLEN, 1.2),
    ("attention training, heads of 64, 512 tokens", "attention/training-equal", CUDNN, 0.85),
    ("attention on a batch that is half padding", "attention/forward", MASKED, 2.5),
    ("layer norm, training", "layer_norm/training", "Liger", 2.0),
    ("masked head, training", "masked_cross_entropy/training", "torch dense head", 6.0),
    ("masked head, training", "masked_cross_entropy/training", "torch eager", 1.15),
    (
        "masked head, training, no logits stored",
        "masked_cross_entropy_tiled/training",
        "torch linear_cross_entropy",
        1.0,
    ),
    ("encoder on mixed lengths", "encoder/mixed", "transformers, one batch", 3.0),
)
# What, case, share of the limit.
SHARES = (
    ("layer norm, forward", "layer_norm/forward", 0.85),
    ("layer norm, training", "layer_norm/training", 0.75),
    ("bias and GELU, forward", "bias_gelu/forward", 0.85),
    ("bias and GELU, training", "bias_gelu/training", 0.85),
    ("GeGLU, forward", "geglu/forward", 0.85),
    ("GeGLU, training", "geglu/training", 0.85),
)
# What, case, tokens a second.
RATES = (
    ("BERT-base forward, 128 tokens", "encoder/equal", 2.6e6),
    ("BERT-base forward, 512 tokens", "encoder/equal-512", 2.4e6),
    ("BERT-large forward, 128 tokens", "encoder_large/equal", 0.81e6),
    ("BERT-large forward, 512 tokens", "encoder_large/equal-512", 0.76e6),
)
_NO_CASE = "no case measures it yet"
UNMEASURED = (
    ("window of 64 to either side at 8,192 tokens", ">= 8x our full attention"),
    ("cost of unlike lengths in attention", "<= 3 %"),
    ("deterministic backward of attention", "<= 15 % slower"),
    ("layer norm of 32,768 x 1,024, training", "<= 100 us"),
    ("mixed lengths over equal ones, real tokens a second", ">= 95 %"),
    ("BERT-base training step, 128 / 512 tokens", ">= 0.80M / 0.73M tokens/s"),
    ("BERT-large training step, 128 / 512 tokens", ">= 0.26M / 0.24M tokens/s"),
)


def gpu_targets() -> Iterator[Target]:
    """Every row of the table."""
    for what, case, peer, least in TIMES:
        quantity = by.times_peer(peer)
        yield _target(what, case, f">= {least:g}x {peer}", quantity, at_least=least)
    peer = "torch linear_cross_entropy"
    yield _target(
        "masked head, training, no logits stored: memory",
        "masked_cross_entropy_tiled/training",
        f"<= that of {peer}",
        by.memory_over(peer),
        at_most=1.0,
    )
    for what, case, share in SHARES:
        wanted = f">= {share:.0%} of the bandwidth"
        yield _target(what, case, wanted, by.share_of_limit, at_least=share)
    for what, case, rate in RATES:
        wanted = f">= {rate / 1e6:g}M tokens/s"
        yield _target(what, case, wanted, by.rate("tokens"), at_least=rate)
    for what, wanted in UNMEASURED:
        yield Target(group=GROUP, what=what, wanted=wanted, on_gpu=True, unmeasured=_NO_CASE)


def _target(
    what: str,
    case: str,
    wanted: str,
    quantity: Quantity,
    *,
    at_least: float | None = None,
    at_most: float | None = None,
) -> Target:
    return Target(
        group=GROUP,
        what=what,
        wanted=wanted,
        at_least=at_least,
        at_most=at_most,
        case=case,
        quantity=quantity,
        on_gpu=True,
    )
