"""The package's recipes by name, with the sizes and learning rates of the papers."""

from __future__ import annotations

from dataclasses import replace
from typing import TYPE_CHECKING, Any

from encoder_engine.training.recipe import (
    BatchRecipe,
    DataRecipe,
    ModelRecipe,
    ObjectivesRecipe,
    OptimizerRecipe,
    RunRecipe,
    ScheduleRecipe,
    TrainingRecipe,
)

if TYPE_CHECKING:
    from collections.abc import Callable

__all__ = ["RECIPES"]


def _bert(width: int, layers: int, heads: int, **others: Any) -> dict[str, Any]:
    config = {
        "model_type": "bert",
        "hidden_size": width,
        "num_hidden_layers": layers,
        "num_attention_heads": heads,
        "intermediate_size": 4 * width,
        "max_position_embeddings": 512,
        "type_vocab_size": 2,
        "hidden_act": "gelu",
        "layer_norm_eps": 1e-12,
        "hidden_dropout_prob": 0.1,
        "attention_probs_dropout_prob": 0.1,
    }
    return config | others


_NO_DROPOUT = {"hidden_dropout_prob": 0.0, "attention_probs_dropout_prob": 0.0}
_LARGE_RUN = RunRecipe(
    precision="bfloat16", log_every=10, evaluate_every=2000, checkpoint_every=1000
)


def tiny() -> TrainingRecipe:
    """Return the recipe of a BERT of two layers that two CPU cores train in minutes."""
    return TrainingRecipe(
        model=ModelRecipe(config=_bert(128, 2, 2, max_position_embeddings=128, **_NO_DROPOUT)),
        data=DataRecipe(form="blocks", max_length=128),
        optimizer=OptimizerRecipe(learning_rate=2e-3),
        batch=BatchRecipe(tokens=4096, micro_tokens=4096),
        run=RunRecipe(steps=1000, evaluate_every=250, checkpoint_every=250),
    )


def bert_base() -> TrainingRecipe:
    """Return the recipe of BERT-base on pairs of segments (Devlin et al. 2019)."""
    return TrainingRecipe(
        model=ModelRecipe(config=_bert(768, 12, 12)),
        data=DataRecipe(form="pairs", max_length=512, workers=4),
        optimizer=OptimizerRecipe(learning_rate=1e-4, betas=(0.9, 0.999)),
        schedule=ScheduleRecipe(name="linear", warmup=0.01),
        batch=BatchRecipe(tokens=131_072, micro_tokens=32_768),
        run=replace(_LARGE_RUN, steps=1_000_000),
    )


def bert_large() -> TrainingRecipe:
    """Return the recipe of BERT-large with large batches and LAMB (You et al. 2020)."""
    base = bert_base()
    return replace(
        base,
        model=ModelRecipe(config=_bert(1024, 24, 16)),
        optimizer=OptimizerRecipe(name="lamb", learning_rate=6e-3, betas=(0.9, 0.999)),
        schedule=ScheduleRecipe(name="linear", warmup=0.2),
        batch=BatchRecipe(tokens=16_777_216, micro_tokens=32_768),
        run=replace(_LARGE_RUN, steps=7038, recompute=True),
    )


def roberta() -> TrainingRecipe:
    """Return RoBERTa-base's recipe: full sentences across documents, no pairs (Liu et al. 2019)."""
    config = _bert(768, 12, 12, model_type="roberta", layer_norm_eps=1e-5, type_vocab_size=1)
    config["max_position_embeddings"] = 514
    return TrainingRecipe(
        model=ModelRecipe(config=config),
        data=DataRecipe(form="full_sentences", max_length=512, workers=4),
        optimizer=OptimizerRecipe(learning_rate=6e-4, clip_norm=None),
        schedule=ScheduleRecipe(name="linear", warmup=0.048),
        batch=BatchRecipe(tokens=4_194_304, micro_tokens=32_768),
        run=replace(_LARGE_RUN, steps=500_000),
    )


def modernbert() -> TrainingRecipe:
    """Return the recipe of ModernBERT-base with StableAdamW (Warner et al. 2024)."""
    config = {
        "model_type": "modernbert",
        "hidden_size": 768,
        "num_hidden_layers": 22,
        "num_attention_heads": 12,
        "intermediate_size": 1152,
        "max_position_embeddings": 8192,
        "global_attn_every_n_layers": 3,
        "local_attention": 128,
        "global_rope_theta": 10_000.0,
        "local_rope_theta": 10_000.0,
    }
    return TrainingRecipe(
        model=ModelRecipe(config=config),
        data=DataRecipe(form="full_sentences", max_length=1024, workers=4),
        objectives=ObjectivesRecipe(mask_probability=0.3),
        optimizer=OptimizerRecipe(
            name="stable_adamw", learning_rate=8e-4, weight_decay=1e-5, clip_norm=None
        ),
        schedule=ScheduleRecipe(name="stable", warmup=0.002, decay=0.03),
        batch=BatchRecipe(tokens=4_718_592, micro_tokens=32_768, first_tokens=786_432, warmup=0.03),
        run=replace(_LARGE_RUN, steps=400_000),
    )


def electra_small() -> TrainingRecipe:
    """Return the recipe of ELECTRA-small: replaced token detection (Clark et al. 2020)."""
    config = _bert(256, 12, 4, model_type="electra", embedding_size=128)
    generator = {"hidden_size": 64, "intermediate_size": 256, "num_attention_heads": 1}
    return TrainingRecipe(
        model=ModelRecipe(config=config),
        data=DataRecipe(form="full_sentences", max_length=128, workers=4),
        objectives=ObjectivesRecipe(generator=generator, mask_share=1.0, random_share=0.0),
        optimizer=OptimizerRecipe(learning_rate=5e-4, betas=(0.9, 0.999)),
        schedule=ScheduleRecipe(name="linear", warmup=0.01),
        batch=BatchRecipe(tokens=16_384, micro_tokens=16_384),
        run=replace(_LARGE_RUN, steps=1_000_000),
    )


def spanbert() -> TrainingRecipe:
    """Return SpanBERT-base's recipe: span masking, span boundary objective (Joshi et al. 2020)."""
    return TrainingRecipe(
        model=ModelRecipe(config=_bert(768, 12, 12)),
        data=DataRecipe(form="sentences", max_length=512, workers=4),
        objectives=ObjectivesRecipe(unit="span", span_boundary=True),
        optimizer=OptimizerRecipe(learning_rate=1e-4, betas=(0.9, 0.999), epsilon=1e-8),
        schedule=ScheduleRecipe(name="linear", warmup=1 / 240),
        batch=BatchRecipe(tokens=131_072, micro_tokens=32_768),
        run=replace(_LARGE_RUN, steps=2_400_000),
    )


def retromae() -> TrainingRecipe:
    """Return RetroMAE-base's recipe: a decoder rebuilds texts from vectors (Xiao et al. 2022)."""
    return TrainingRecipe(
        model=ModelRecipe(config=_bert(768, 12, 12)),
        data=DataRecipe(form="sentences", max_length=512, workers=4),
        objectives=ObjectivesRecipe(
            mask_probability=0.3, unit="word", decoder_mask_probability=0.5
        ),
        optimizer=OptimizerRecipe(learning_rate=1e-4, betas=(0.9, 0.999), epsilon=1e-8),
        schedule=ScheduleRecipe(name="linear", warmup=0.1),
        batch=BatchRecipe(tokens=131_072, micro_tokens=32_768),
        run=replace(_LARGE_RUN, steps=500_000),
    )


RECIPES: dict[str, Callable[[], TrainingRecipe]] = {
    made.__name__: made
    for made in (
        tiny,
        bert_base,
        bert_large,
        roberta,
        modernbert,
        electra_small,
        spanbert,
        retromae,
    )
}
