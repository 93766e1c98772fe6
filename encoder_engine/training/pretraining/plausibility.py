"""Warns of runs that finish without learning: too many epochs, or a loss that diverged."""

from __future__ import annotations

import math
import warnings
from typing import TYPE_CHECKING

from encoder_engine.errors import DivergedWarning, SmallCorpusWarning

if TYPE_CHECKING:
    from encoder_engine.training.pretraining.model_builder import Text
    from encoder_engine.training.recipe import TrainingRecipe

__all__ = ["warn_of_divergence", "warn_of_repetition"]

# BERT was trained for 40 epochs (Devlin et al. 2019).
_MOST_EPOCHS = 200
# Times ln V, the loss of uniform guessing: randomly initialised weights are a few percent above it.
_DIVERGED = 1.5


def warn_of_repetition(recipe: TrainingRecipe, text: Text) -> None:
    """Warn of more than 200 epochs, after which a model memorises its text (BERT had 40)."""
    tokens = int(text.training.lengths.sum())
    epochs = recipe.batch.tokens * recipe.run.steps / max(tokens, 1)
    if epochs > _MOST_EPOCHS:
        warnings.warn(
            SmallCorpusWarning(
                f"{recipe.data.corpus} has {tokens} tokens to train on, which {recipe.run.steps} "
                f"steps read {epochs:.0f} times over: the model will memorise them; prepare more "
                "text, or lower run.steps"
            ),
            stacklevel=3,
        )


def warn_of_divergence(scores: dict[str, float], vocab_size: int) -> None:
    """Warn if the MLM loss is NaN or above 1.5 ln V, V = ``vocab_size``; even guessing has ln V."""
    guessing = math.log(vocab_size)
    loss = scores.get("mlm_loss", 0.0)
    # The last step may leave weights of which NaN comes out, and a comparison with NaN is false.
    if not loss <= _DIVERGED * guessing:
        warnings.warn(
            DivergedWarning(
                f"the loss on held-out text is {loss:.3g}, guessing has {guessing:.3g}: training "
                "diverged; begin again in another folder, with a lower optimizer.learning_rate"
            ),
            stacklevel=4,
        )
