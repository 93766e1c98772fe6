"""The encoder of mBART (Liu et al. 2020): BART with the norms before, and one after all blocks."""

from dataclasses import replace

from encoder_engine.families.data import bart
from encoder_engine.families.facts.names import Rename

FAMILY = replace(
    bart.FAMILY,
    model_type="mbart",
    architecture="MBartModel",
    block=replace(bart.FAMILY.block, norm_first=True),
    final_norm=True,
    renames=(*bart.FAMILY.renames, Rename("final_norm", "encoder.layer_norm")),
    required={**bart.FAMILY.required, "normalize_before": (True,), "add_final_layer_norm": (True,)},
)
