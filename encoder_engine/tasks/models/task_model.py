"""The base of models that are trained on a task."""

from __future__ import annotations

from abc import abstractmethod
from typing import TYPE_CHECKING, Any, Self

from encoder_engine.models.heads import HeadModel
from encoder_engine.models.training_model import TrainingModel

if TYPE_CHECKING:
    import os

    import numpy.typing as npt
    from torch import Tensor, nn

    from encoder_engine.models.training_model import Inputs

__all__ = ["TaskModel"]


class TaskModel(TrainingModel):
    """A model with a head, trained on a task.

    ``forward`` returns the summed losses of a micro-batch by name, in training and evaluation mode.
    ``loaded_sha256``: a digest of the weights loaded from the checkpoint, without the random ones.
    ``encoder_sha256``: the digest of the encoder alone, if adapters are trained on it.
    """

    loaded_sha256: str = ""
    encoder_sha256: str = ""

    @property
    def head_model(self) -> HeadModel | None:
        """The encoder with its head, as transformers saves them; None: it has no such head."""
        found = self._modules.get("model")
        return found if isinstance(found, HeadModel) else None

    @property
    def own_modules(self) -> dict[str, nn.Module]:
        """The modules besides the encoder and ``head_model`` that have weights, such as a CRF."""
        known = (self.encoder, self.head_model)
        return {
            name: part
            for name, part in self.named_children()
            if part not in known and any(True for _ in part.parameters())
        }

    def train(self, mode: bool = True) -> Self:
        """Set the mode of training; frozen layers below all trained layers never apply dropout."""
        super().train(mode)
        if mode:
            for part in (self.encoder.embedding, *self.encoder.blocks):
                if any(parameter.requires_grad for parameter in part.parameters()):
                    break
                part.eval()
        return self

    def features(self, inputs: Inputs) -> Tensor | None:
        """Compute the hidden states [n, D] that the head reads, to cache those of a frozen encoder.

        As the target ``features`` of a later batch, these replace the computation of the encoder.
        None: the model cannot use cached features.
        """
        del inputs
        return None

    @abstractmethod
    def outputs(self, inputs: Inputs) -> dict[str, npt.NDArray[Any]]:
        """Compute the arrays that the task's ``decode`` reads, without gradients or loss."""

    def save_pretrained(self, directory: str | os.PathLike[str]) -> None:
        """Write the encoder with its head into a directory, in transformers' layout."""
        if self.head_model is None:
            raise NotImplementedError(f"{type(self).__name__} has no head model to write")
        self.head_model.save_pretrained(directory)
