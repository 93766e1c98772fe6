"""Continued pretraining: loads a checkpoint, and adds the corpus's new tokens to its vocabulary.

How it works: the corpus's vocabulary must begin with the checkpoint's, in the same order. Each
further token is tokenized into pieces, tokens of the checkpoint; its embedding and output bias are
the means of the pieces'. A checkpoint's embedding table may have more rows than tokens: new tokens
take these spare rows first, then extend the table.
"""

from __future__ import annotations

import shutil
import warnings
from dataclasses import replace
from pathlib import Path
from typing import TYPE_CHECKING

import torch
from torch import Tensor, nn

from encoder_engine.data.shards import TOKENIZER
from encoder_engine.errors import (
    ConfigError,
    MissingPoolerWarning,
    TensorNamesError,
    UnusedWeightsWarning,
)
from encoder_engine.families.checkpoints.files import resolve_directory
from encoder_engine.json_values import read_value
from encoder_engine.models import Encoder
from encoder_engine.models.heads import MaskedLM
from encoder_engine.objectives.objective import PretrainingModel
from encoder_engine.text import Tokenizer

if TYPE_CHECKING:
    from collections.abc import Sequence

    from encoder_engine.data.shards import Corpus
    from encoder_engine.objectives.objective import Objective

__all__ = [
    "continue_checkpoint",
    "copy_modules",
    "extend_vocabulary",
    "load_masked_lm",
    "tokenizer_of",
]

# The file in which sentence-transformers lists the modules of a model.
MODULES = "modules.json"


def tokenizer_of(corpus: Corpus) -> Tokenizer | None:
    """Load the tokenizer with which a corpus was tokenized; None if its folder has none."""
    source = corpus.directory / TOKENIZER
    return Tokenizer.from_pretrained(source) if source.is_dir() else None


def continue_checkpoint(
    path_or_hub_id: str, corpus: Corpus, objectives: tuple[Objective, ...]
) -> PretrainingModel:
    """Load an encoder with its masked-language-model head, if any, and add the corpus's new tokens.

    Raises :class:`ConfigError` where the corpus's first tokens are not the checkpoint's, and where
    the corpus's folder has no tokenizer to compare.
    """
    directory = resolve_directory(path_or_hub_id)
    pieces = _pieces_of_new_tokens(directory, corpus)
    with warnings.catch_warnings():
        # Heads that the checkpoint has or lacks are looked for below.
        warnings.simplefilter("ignore", UnusedWeightsWarning)
        warnings.simplefilter("ignore", MissingPoolerWarning)
        encoder = Encoder.from_pretrained(directory, device="cpu", dtype="float32")
        try:
            head = MaskedLM.from_pretrained(directory, device="cpu", dtype="float32").head
        except TensorNamesError:
            head = None
    first = _check_size(encoder, corpus, len(pieces))
    extend_vocabulary(encoder, pieces, first=first)
    model = PretrainingModel(encoder.train(), objectives)
    if head is not None:
        own = model.heads["mlm"]
        assert isinstance(own, MaskedLM)
        state = head.state_dict()
        state["output.bias"] = _extended(state["output.bias"], pieces, first)
        own.head.load_state_dict(state)
    return model


def copy_modules(checkpoint: Path, directory: Path) -> None:
    """Copy the sentence-transformers modules of ``checkpoint``, if it has any.

    These are ``modules.json``, the folders it names, and the settings beside it (prompts, maximum
    length). Weights of further modules (Dense) are copied unchanged: they are not trained here.
    """
    if not (checkpoint / MODULES).is_file():
        return
    modules = read_value(checkpoint / MODULES, ConfigError).items()
    paths = [str(module.object().get("path", "")) for module in modules]
    for settings in checkpoint.glob("*sentence_*.json"):
        shutil.copy2(settings, directory)
    for path in paths:
        if path and Path(path).name == path and (checkpoint / path).is_dir():
            shutil.copytree(checkpoint / path, directory / path, dirs_exist_ok=True)
    # Last, because its presence marks a complete model.
    shutil.copy2(checkpoint / MODULES, directory)


def load_masked_lm(path_or_hub_id: str, corpus: Corpus) -> MaskedLM:
    """Load a masked language model, without the spare rows of its table beyond the corpus's tokens.

    Raises :class:`ConfigError` where the corpus's tokens are not exactly the checkpoint's.
    """
    directory = resolve_directory(path_or_hub_id)
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", UnusedWeightsWarning)
        model = MaskedLM.from_pretrained(directory, device="cpu", dtype="float32")
    new = _pieces_of_new_tokens(directory, corpus)
    if new:
        raise ConfigError(
            f"the corpus has {len(new)} tokens that the checkpoint does not know; prepare it with "
            "the checkpoint's tokenizer, without further tokens"
        )
    size = _check_size(model.encoder, corpus, 0)
    _set_table(model.encoder, model.encoder.embedding.tokens.weight.detach()[:size].clone())
    output = model.head.output
    output.bias = nn.Parameter(output.bias.detach()[:size].clone())
    return model


def _check_size(encoder: Encoder, corpus: Corpus, num_new: int) -> int:
    """Return the id of the corpus's first new token, which the checkpoint does not know.

    The embedding table may have more rows than that: spare ones. Raises :class:`ConfigError` if it
    has fewer.
    """
    known, first = encoder.spec.embedding.vocab_size, corpus.vocabulary.size - num_new
    if known < first:
        raise ConfigError(
            f"the checkpoint has embeddings of {known} tokens, the corpus has a vocabulary of "
            f"{corpus.vocabulary.size}, {num_new} of them new; prepare the corpus with the "
            "checkpoint's tokenizer"
        )
    return first


def _pieces_of_new_tokens(directory: Path, corpus: Corpus) -> list[list[int]]:
    """Return, for each token that only the corpus has, the checkpoint's token ids that spell it."""
    own = tokenizer_of(corpus)
    if own is None:
        raise ConfigError(
            f"{corpus.directory} has no tokenizer/ folder, so its tokens cannot be compared with "
            "the checkpoint's; prepare the corpus by encoder-engine prepare"
        )
    known = Tokenizer.from_pretrained(directory)
    for number in range(known.vocab_size):
        if own.id_to_token(number) != known.id_to_token(number):
            raise ConfigError(
                f"token {number} is {own.id_to_token(number)!r} in the corpus and "
                f"{known.id_to_token(number)!r} in the checkpoint; prepare the corpus with the "
                "checkpoint's tokenizer"
            )
    new = [own.id_to_token(n) or "" for n in range(known.vocab_size, own.vocab_size)]
    texts = [token.removeprefix("##") for token in new]
    return [known.encode(text, add_special_tokens=False).tolist() for text in texts]


def extend_vocabulary(encoder: Encoder, pieces: Sequence[Sequence[int]], *, first: int) -> None:
    """Add embeddings of new tokens to the encoder in place, from token id ``first`` on.

    ``pieces``: for each new token the known token ids that spell it: the new embedding is their
    mean. Spare rows of the table are used first.
    """
    if not pieces:
        return
    _set_table(encoder, _extended(encoder.embedding.tokens.weight.detach(), pieces, first))


def _set_table(encoder: Encoder, rows: Tensor) -> None:
    """Replace an encoder's token embeddings by rows [V, D], and its vocabulary size by V."""
    table = encoder.embedding.tokens
    table.weight = nn.Parameter(rows)
    table.num_embeddings = len(rows)
    embedding = replace(encoder.spec.embedding, vocab_size=len(rows))
    encoder.spec = replace(encoder.spec, embedding=embedding)
    encoder.embedding.spec = embedding
    encoder.config["vocab_size"] = len(rows)


def _extended(rows: Tensor, pieces: Sequence[Sequence[int]], first: int) -> Tensor:
    """Return ``rows`` with the rows of new tokens from index ``first`` on, replaced or appended.

    A new token's row is the mean of the rows of its pieces; of all known rows for a token without
    any.
    """
    known = rows[:first]
    means = [known[list(named)].mean(0) if named else known.mean(0) for named in pieces]
    if not means:
        return rows
    return torch.cat([known, torch.stack(means), rows[first + len(means) :]])
