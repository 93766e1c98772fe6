"""Decides whether an encoder supports unattended tokens, as ColBERT's queries may need."""

from __future__ import annotations

from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from encoder_engine.families.facts.spec import EncoderSpec

__all__ = ["refuse_unattended"]


def refuse_unattended(spec: EncoderSpec, longest: int) -> str | None:
    """Return why texts of ``longest`` tokens cannot have unattended tokens; None: they can."""
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
