"""Builds what a pretraining recipe describes: training sequences, objectives and the model."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING, Any, NamedTuple

import numpy as np
import torch

from encoder_engine.data.pairs import cut_pairs
from encoder_engine.data.samples import cut_blocks, cut_sentences, hold_out
from encoder_engine.data.shards import Corpus
from encoder_engine.errors import ConfigError
from encoder_engine.families.checkpoints.files import resolve_directory
from encoder_engine.families.config import spec_from_config
from encoder_engine.models import Encoder
from encoder_engine.objectives.distillation import DistillationModel, take_layers
from encoder_engine.objectives.masking import Masking
from encoder_engine.objectives.mlm import MLM
from encoder_engine.objectives.nsp import NSP
from encoder_engine.objectives.objective import Objective, PretrainingModel
from encoder_engine.objectives.retromae import RetroMAE
from encoder_engine.objectives.rtd import DetectionModel
from encoder_engine.objectives.sbo import SBO
from encoder_engine.training.pretraining.continued_pretraining import (
    continue_checkpoint,
    copy_modules,
    load_masked_lm,
    tokenizer_of,
)

if TYPE_CHECKING:
    from collections.abc import Mapping

    from encoder_engine.data.pairs import Negative, Pairs
    from encoder_engine.data.samples import Samples
    from encoder_engine.models.training_model import TrainingModel
    from encoder_engine.training.recipe import (
        DataRecipe,
        ModelRecipe,
        ObjectivesRecipe,
        TrainingRecipe,
    )

__all__ = ["Text", "build_model", "build_objectives", "build_text", "save_model"]


class Text(NamedTuple):
    """A corpus, with its training sequences and the sequences held out for evaluation."""

    corpus: Corpus
    training: Samples | Pairs
    held_out: Samples | Pairs


def build_text(recipe: DataRecipe, *, seed: int, verify: bool = True) -> Text:
    """Open the corpus and cut it into sequences; raises :class:`CorpusError` where it is damaged.

    ``verify``: compare its files with their checksums. Raises :class:`ConfigError` for a recipe
    that names no corpus.
    """
    if not recipe.corpus:
        raise ConfigError("data.corpus is not set; name a folder that encoder-engine prepare wrote")
    corpus = Corpus.open(Path(recipe.corpus), verify=verify)
    cut: Samples | Pairs
    if recipe.form == "blocks":
        cut = cut_blocks(corpus, recipe.max_length)
    elif recipe.form in ("pairs", "swapped_pairs"):
        negative: Negative = "elsewhere" if recipe.form == "pairs" else "swapped"
        cut = cut_pairs(corpus, recipe.max_length, negative=negative, seed=seed)
    else:
        across = recipe.form == "full_sentences"
        cut = cut_sentences(corpus, recipe.max_length, across_documents=across)
    runs = cut if not hasattr(cut, "runs") else cut.runs
    # Held out by runs: the second segment of a negative pair comes from the same part, too.
    together = 2 if recipe.form == "pairs" else 1
    training, held_out = hold_out(runs, recipe.held_out, at_least=together)
    return Text(corpus, cut.take(training), cut.take(held_out))


def build_objectives(
    recipe: ObjectivesRecipe, data: DataRecipe, corpus: Corpus
) -> tuple[Objective, ...]:
    """Make the training objectives of the encoder or, with ELECTRA, of its generator.

    Raises :class:`ConfigError` for masking of salient spans where the corpus or the form of its
    sequences has no marks of them.
    """
    vocabulary = corpus.vocabulary
    if recipe.unit == "salient" and not corpus.has_salient:
        raise ConfigError(
            f"objectives.unit is salient, and {corpus.directory} marks no salient spans; prepare "
            "the corpus by `encoder-engine prepare --salient`"
        )
    if recipe.unit == "salient" and data.form in ("pairs", "swapped_pairs"):
        raise ConfigError(
            f"objectives.unit is salient, and data.form {data.form}, which has no marks of spans; "
            "choose sentences, full_sentences or blocks"
        )
    counts = None
    if recipe.random_tokens == "unigram":
        counted = [np.bincount(s.tokens, minlength=vocabulary.size) for s in corpus.shards]
        counts = tuple(np.sum(counted, axis=0).tolist())
    masking = Masking(
        mask_id=vocabulary.mask_id,
        vocab_size=vocabulary.size,
        mask_probability=recipe.mask_probability,
        unit=recipe.unit,
        mask_share=recipe.mask_share,
        random_share=recipe.random_share,
        token_counts=counts,
    )
    objectives: list[Objective] = [MLM(masking=masking, label_smoothing=recipe.label_smoothing)]
    if recipe.span_boundary:
        objectives.append(SBO())
    if recipe.decoder_mask_probability is not None:
        share, weight = recipe.decoder_mask_probability, recipe.decoder_weight
        objectives.append(RetroMAE(mask_probability=share, weight=weight))
    if data.form in ("pairs", "swapped_pairs"):
        objectives.append(NSP(name="nsp" if data.form == "pairs" else "sop"))
    return tuple(objectives)


def build_model(
    recipe: TrainingRecipe, corpus: Corpus, objectives: tuple[Objective, ...]
) -> TrainingModel:
    """Make the model to pretrain: with random weights by the recipe's seed, or a checkpoint's.

    Raises :class:`ConfigError` for settings that exclude each other or do not fit the corpus.
    """
    torch.manual_seed(recipe.run.seed)
    wanted = recipe.objectives
    if recipe.model.checkpoint is not None:
        if wanted.generator or wanted.teacher is not None:
            raise ConfigError(
                "a checkpoint continues with its own head; leave out the generator or the teacher"
            )
        model: TrainingModel = continue_checkpoint(recipe.model.checkpoint, corpus, objectives)
    else:
        encoder = _encoder(recipe.model.config, corpus)
        model = _with_heads(encoder, recipe, corpus, objectives)
    longest = model.encoders[0].spec.max_length
    if longest is not None and recipe.data.max_length > longest:
        raise ConfigError(
            f"data.max_length is {recipe.data.max_length}, the model takes {longest} tokens"
        )
    return model


def _with_heads(
    encoder: Encoder, recipe: TrainingRecipe, corpus: Corpus, objectives: tuple[Objective, ...]
) -> TrainingModel:
    wanted = recipe.objectives
    if (wanted.generator or wanted.teacher is not None) and len(objectives) > 1:
        raise ConfigError(
            "a generator or a teacher goes with masked language modelling alone; leave out pairs, "
            "span_boundary and decoder_mask_probability"
        )
    if wanted.generator:
        generator = _encoder({**recipe.model.config, **wanted.generator}, corpus)
        return DetectionModel(
            encoder,
            generator,
            generator_weight=wanted.generator_weight,
            detection_weight=wanted.detection_weight,
        )
    if wanted.teacher is None:
        return PretrainingModel(encoder, objectives)
    teacher = load_masked_lm(wanted.teacher, corpus)
    student = DistillationModel(
        encoder,
        teacher,
        temperature=wanted.temperature,
        soft_weight=wanted.soft_weight,
        hard_weight=wanted.hard_weight,
        cosine_weight=wanted.cosine_weight,
    )
    take_layers(student.head, teacher)
    return student


def _encoder(settings: Mapping[str, Any], corpus: Corpus) -> Encoder:
    vocabulary = corpus.vocabulary
    given = {"vocab_size": vocabulary.size, "pad_token_id": vocabulary.pad_id}
    for key, value in given.items():
        if settings.get(key, value) != value:
            raise ConfigError(
                f"model.config has {key}={settings[key]}, the corpus has {value}; leave it out"
            )
    config = {**settings, **given}
    try:
        return Encoder(spec_from_config(config), config=config)
    except ConfigError as error:
        raise ConfigError(f"model.config of the recipe: {error}") from None


def save_model(model: TrainingModel, recipe: ModelRecipe, corpus: Corpus, directory: Path) -> None:
    """Write the model and the corpus' tokenizer in transformers' layout.

    Modules of a sentence-transformers checkpoint (pooling, ...) that training continued from are
    copied.
    """
    model.save_pretrained(directory)
    tokenizer = tokenizer_of(corpus)
    if tokenizer is not None:
        tokenizer.save(directory)
    if recipe.checkpoint is not None:
        copy_modules(resolve_directory(recipe.checkpoint), directory)
