"""Decides whether an encoder supports unattended tokens: those that no other token attends to.

ColBERT's queries may need them.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from encoder_engine.families.facts.spec import EncoderSpec

__all__ = ["refuse_unattended"]


def refuse_unattended(spec: EncoderSpec, longest: int) -> str | None:
    """Return why an encoder cannot compute texts that have unattended tokens; None: it can.

    ``longest``: the most tokens of a text. No other token attends to an unattended one.
    """
    blocks = spec.blocks
    if spec.convolution is not None or any(b.attention.global_projections for b in blocks):
        return (
            f"a {spec.model_type} cannot leave tokens unattended: its convolution or its global "
            "rows read all of them"
        )
    windows = [b.attention.window for b in blocks if b.attention.window is not None]
    # An unattended token beyond the window of all others would see nothing.
    if windows and longest > min(windows):
        return (
            f"a {spec.model_type} sees {min(windows)} tokens to either side, so texts of {longest} "
            "tokens cannot have unattended ones"
        )
    return None
