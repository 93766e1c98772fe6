"""Mistral (Jiang et al. 2023) as an encoder: Llama with windows; E5-Mistral, SFR-Embedding."""

from dataclasses import replace

from encoder_engine.families.data import llama
from encoder_engine.families.facts.decoder_quirks import CausalWindows
from encoder_engine.families.facts.scaled_rotary import ScaledRope

FAMILY = replace(
    llama.FAMILY,
    model_type="mistral",
    architecture="MistralModel",
    layouts=(
        replace(llama.CLASSIFIER, architecture="MistralForSequenceClassification"),
        replace(llama.TOKEN_CLASSIFIER, architecture="MistralForTokenClassification"),
    ),
    flags=llama.CAUSAL,
    quirks=(ScaledRope(), CausalWindows()),
)
