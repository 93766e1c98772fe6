"""Measures what an encoder has learned, by published methods.

Each name is imported at its first use.
"""

from typing import TYPE_CHECKING

from encoder_engine.lazy import lazy_names

if TYPE_CHECKING:
    from encoder_engine.analysis.accent import (
        Accent,
        Preference,
        compare_preferences,
        measure_preferences,
        read_constructions,
        summarise_preferences,
    )
    from encoder_engine.analysis.heads import HeadSummary, kinds_of, measure_heads
    from encoder_engine.analysis.importance import head_importance
    from encoder_engine.analysis.isotropy import measure_isotropy, standardise_embedder
    from encoder_engine.analysis.probing import (
        LayerProbe,
        MixProbe,
        ProbeData,
        probe_layers,
        probe_mixes,
    )
    from encoder_engine.analysis.pruning import cut_heads, least_important, zero_heads, zeroed
    from encoder_engine.analysis.pruning_curve import prune_curve, save_pruned
    from encoder_engine.analysis.retrieval import (
        TranslationScores,
        score_candidates,
        score_translations,
    )
    from encoder_engine.analysis.senses import SenseScores, SenseWord, score_senses, word_vectors
    from encoder_engine.analysis.static_words import StaticWords
    from encoder_engine.analysis.subject import Subject
    from encoder_engine.analysis.text_attention import attention_page, measure_attention
    from encoder_engine.analysis.zscore import ZScore

__all__ = [
    "Accent",
    "HeadSummary",
    "LayerProbe",
    "MixProbe",
    "Preference",
    "ProbeData",
    "SenseScores",
    "SenseWord",
    "StaticWords",
    "Subject",
    "TranslationScores",
    "ZScore",
    "attention_page",
    "compare_preferences",
    "cut_heads",
    "head_importance",
    "kinds_of",
    "least_important",
    "measure_attention",
    "measure_heads",
    "measure_isotropy",
    "measure_preferences",
    "probe_layers",
    "probe_mixes",
    "prune_curve",
    "read_constructions",
    "save_pruned",
    "score_candidates",
    "score_senses",
    "score_translations",
    "standardise_embedder",
    "summarise_preferences",
    "word_vectors",
    "zero_heads",
    "zeroed",
]

__getattr__, __dir__ = lazy_names(
    __name__,
    {
        "Accent": "accent",
        "HeadSummary": "heads",
        "LayerProbe": "probing",
        "MixProbe": "probing",
        "Preference": "accent",
        "ProbeData": "probing",
        "SenseScores": "senses",
        "SenseWord": "senses",
        "StaticWords": "static_words",
        "Subject": "subject",
        "TranslationScores": "retrieval",
        "ZScore": "zscore",
        "attention_page": "text_attention",
        "compare_preferences": "accent",
        "cut_heads": "pruning",
        "head_importance": "importance",
        "kinds_of": "heads",
        "least_important": "pruning",
        "measure_attention": "text_attention",
        "measure_heads": "heads",
        "measure_isotropy": "isotropy",
        "measure_preferences": "accent",
        "probe_layers": "probing",
        "probe_mixes": "probing",
        "prune_curve": "pruning_curve",
        "read_constructions": "accent",
        "save_pruned": "pruning_curve",
        "score_candidates": "retrieval",
        "score_senses": "senses",
        "score_translations": "retrieval",
        "standardise_embedder": "isotropy",
        "summarise_preferences": "accent",
        "word_vectors": "senses",
        "zero_heads": "pruning",
        "zeroed": "pruning",
    },
)
