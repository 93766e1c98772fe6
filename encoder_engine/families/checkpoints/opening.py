"""Opens a checkpoint: its config.json, and the tensors of its encoder and heads."""

from __future__ import annotations

import re
import threading
import warnings
from contextlib import contextmanager
from contextvars import ContextVar, copy_context
from dataclasses import replace
from typing import TYPE_CHECKING, Any

import numpy as np

from encoder_engine.dataclass import dataclass
from encoder_engine.errors import (
    CheckpointFileError,
    TensorNamesError,
    UnsupportedFeatureError,
    UnusedWeightsWarning,
)
from encoder_engine.families.checkpoints.adapters import (
    ADAPTER,
    merge_adapters,
    modules_beside,
    weights_directory,
)
from encoder_engine.families.checkpoints.arrays import widen
from encoder_engine.families.checkpoints.assembling import Assembly
from encoder_engine.families.checkpoints.files import (
    open_tensors,
    refuse_compiled,
    resolve_directory,
)
from encoder_engine.families.checkpoints.parameters import (
    arrangements,
    block_dense_layers,
    encoder_shapes,
    head_shapes,
    quantized_shapes,
)
from encoder_engine.families.config import read_config, spec_from_config
from encoder_engine.families.facts.names import modern_name, origins
from encoder_engine.families.gliner import is_gliner, split_encoder
from encoder_engine.families.registry import find_family
from encoder_engine.files import verify_checksums

if TYPE_CHECKING:
    import os
    from collections.abc import Collection, Iterable, Iterator, Mapping
    from contextlib import ExitStack
    from pathlib import Path

    from encoder_engine.families.checkpoints.arrays import Array
    from encoder_engine.families.checkpoints.files import StoredTensor
    from encoder_engine.families.checkpoints.parameters import Shapes
    from encoder_engine.families.facts.family import Family
    from encoder_engine.families.facts.head_layout import HeadLayout
    from encoder_engine.families.facts.names import Rename
    from encoder_engine.families.facts.spec import EncoderSpec

__all__ = ["Checkpoint", "open_checkpoint", "verified", "warn_of_unused"]

# The name of the token embeddings in the copies of head layouts.
EMBEDDINGS = "embedding.tokens"
# The directories whose checksums an outer context is comparing.
_BEING_VERIFIED: ContextVar[frozenset[Path]] = ContextVar("being_verified", default=frozenset())
# Buffers that older versions of transformers saved; their content follows from the config.
BUFFERS = ("embeddings.position_ids", "embeddings.token_type_ids")


# ColBERT's own checkpoints are of this class, and hold the projection of token vectors.
COLBERT, PROJECTION = "HF_ColBERT", "linear."


@dataclass(frozen=True, kw_only=True)
class Checkpoint:
    """An opened checkpoint.

    directory: the folder of config.json and weights, of the base model for an adapter.
    config: the values of config.json.
    tensors, heads: the stored tensors of the encoder, and those of all heads. Names are those of
    the base class in transformers, without the prefix that a model with a head has.
    quantized: whether the dense layers of the blocks are int8.
    has_pooler: whether the encoder has a pooler and the files hold its weights.
    """

    directory: Path
    config: dict[str, Any]
    spec: EncoderSpec
    family: Family
    tensors: dict[str, StoredTensor]
    heads: dict[str, StoredTensor]
    quantized: bool
    has_pooler: bool

    @property
    def shapes(self) -> Shapes:
        """The shape of each parameter that the encoder's files should hold, by its name."""
        spec = replace(self.spec, pooler=self.has_pooler)
        return quantized_shapes(spec) if self.quantized else encoder_shapes(spec)

    def assemble(self) -> Assembly:
        """Return an :class:`Assembly` that reads the encoder's parameters; may be called once."""
        shapes = self.shapes
        whole = [f"{name}.weight" for name in block_dense_layers(shapes)] if self.quantized else ()
        assembly = Assembly(
            shapes,
            self.tensors,
            self.family.renames,
            whole=whole,
            arrangements=arrangements(self.spec),
        )
        # The assembly frees what it has read; this reference would keep a .bin's tensors in memory.
        for name in self.tensors.keys() - {self._tokens_name}:
            del self.tensors[name]
        return assembly

    def assemble_head(
        self, layout: HeadLayout, num_outputs: int, *, reads_pooler: bool, hint: str
    ) -> Assembly:
        """Return an :class:`Assembly` that reads the parameters of the head in ``layout``.

        ``num_outputs``: the width of its output.
        ``reads_pooler``: its input is the pooler's output.
        ``hint``: advice for the error message, on how to begin with a new head.

        Warns of tensors of other heads. Raises :class:`TensorNamesError` where the head, or the
        pooler that it reads, is missing. Raises :class:`UnsupportedFeatureError` for an int8
        encoder, and for an output table that should be the token embeddings and is not.
        """
        if self.quantized:
            raise UnsupportedFeatureError(
                f"{self.directory} holds an encoder in 8-bit integers, which has no head; load it "
                "as an Encoder"
            )
        if reads_pooler and not self.has_pooler:
            raise TensorNamesError(
                f"{self.directory} has no pooler weights, which {layout.architecture} needs",
                missing=[f"{self.family.prefix}pooler.*"],
            )
        tensors = dict(self.heads)
        for copy, original in layout.copies.items():
            if copy not in tensors:
                continue
            if original == EMBEDDINGS:
                self._check_tied(tensors.pop(copy), copy)
            else:
                _drop_copy(tensors, copy, original)
        renames = [_bare(rename, self.family) for rename in layout.renames]
        shapes = head_shapes(layout, self.spec, num_outputs)
        wanted = {name for o in origins(renames, shapes).values() for name in o.names}
        others = tensors.keys() - wanted
        warn_of_unused(others, f"{layout.architecture} has no such layers", stacklevel=5)
        own = {name: tensor for name, tensor in tensors.items() if name in wanted}
        if wanted and not own:
            raise TensorNamesError(
                f"{self.directory} holds no head of {layout.architecture}: missing "
                f"{', '.join(sorted(wanted)[:4])}; {hint}",
                missing=sorted(wanted),
            )
        return Assembly(shapes, own, renames)

    @property
    def _tokens_name(self) -> str:
        """The token embeddings' name in the checkpoint; a tied head may store a copy of them."""
        return _tokens_name(self.family)

    def _check_tied(self, copied: StoredTensor, copy: str) -> None:
        tokens = self.tensors.get(self._tokens_name)
        if tokens is None or not _equal(copied.read(), tokens.read()):
            raise UnsupportedFeatureError(
                f"{copy} is another table than the token embeddings; a vocabulary of its own is "
                "not supported"
            )


def open_checkpoint(
    path_or_hub_id: str | os.PathLike[str], files: ExitStack, *, adapter: str | None = None
) -> Checkpoint:
    """Open the checkpoint of a directory or hub id; ``files`` keeps its tensors' files open.

    Closing ``files`` raises :class:`ChecksumError` if a recorded checksum differs; see
    :func:`verified`.
    ``adapter``: the name of a stacked adapter to merge, ``chosen`` of :func:`merge_adapters`. An
    adapter of peft in the directory is always merged.

    Raises :class:`ConfigError` and :class:`CheckpointError` for missing, malformed or contradictory
    files.
    """
    named = resolve_directory(path_or_hub_id)
    refuse_compiled(named)
    directory = weights_directory(named)
    for folder in {directory, named}:
        files.enter_context(verified(folder))
    config = read_config(directory)
    spec = spec_from_config(config)
    family = find_family(spec.model_type)
    own = files.enter_context(open_tensors(directory))
    if is_gliner(directory):
        own = split_encoder(own)[0]
    stored = merge_adapters(named, own, config, files, prefix=family.prefix, chosen=adapter)
    others: tuple[str, ...] = (
        (PROJECTION,) if COLBERT in (config.get("architectures") or ()) else ()
    )
    others += modules_beside(named, family)
    tensors, heads = _split_off_heads(stored, family, others)
    _check_number_of_blocks(spec, tensors, family)
    if (named / ADAPTER).is_file():
        _prefer_adapted(heads, own.values(), family)
        # As peft does, which resizes the model to the tokenizer that an adapter extends.
        num_rows = _num_rows(tensors, family) or spec.embedding.vocab_size
        config = config | {"vocab_size": num_rows}
        if config.keys().isdisjoint({"id2label", "num_labels"}):
            # The config of a model without a head does not name the labels of the adapter's head.
            config |= _num_labels(heads, family)
        spec = replace(spec, embedding=replace(spec.embedding, vocab_size=num_rows))
    return Checkpoint(
        directory=directory,
        config=config,
        spec=spec,
        family=family,
        tensors=tensors,
        heads=heads,
        quantized=config.get("quantization_config") is not None,
        has_pooler=spec.pooler and any(name.startswith("pooler.") for name in tensors),
    )


@contextmanager
def verified(directory: Path) -> Iterator[None]:
    """Compare a directory's files with their checksums on a thread, while the caller reads them.

    The comparison reads every byte of the weights and takes as long as loading them. If it fails,
    its error is raised when the context ends, in place of an exception that the damage caused
    before. A nested context for the same directory compares nothing again.
    """
    outer = _BEING_VERIFIED.get()
    if directory in outer:
        yield
        return
    failure: list[Exception] = []

    def compare() -> None:
        try:
            verify_checksums(directory)
        # Raised below, on the thread that waits for it.
        except Exception as error:
            failure.append(error)

    thread = threading.Thread(target=copy_context().run, args=(compare,))
    thread.start()
    token = _BEING_VERIFIED.set(outer | {directory})
    try:
        yield
    finally:
        _BEING_VERIFIED.reset(token)
        thread.join()
        if failure:
            raise failure[0]


def warn_of_unused(heads: Collection[str], why: str, *, stacklevel: int) -> None:
    """Warn of tensors in the checkpoint, ``heads``, that are not loaded; ``why``: the reason."""
    if heads:
        names = sorted(heads)
        warnings.warn(
            UnusedWeightsWarning(f"{why}; not loaded: {', '.join(names)}", names=names),
            stacklevel=stacklevel,
        )


def _tokens_name(family: Family) -> str:
    name = f"{EMBEDDINGS}.weight"
    (source,) = origins(family.renames, [name])[name].names
    return source


def _num_rows(tensors: Mapping[str, StoredTensor], family: Family) -> int | None:
    table = tensors.get(_tokens_name(family))
    return None if table is None or len(table.shape) != 2 else table.shape[0]


def _num_labels(heads: Mapping[str, StoredTensor], family: Family) -> dict[str, int]:
    name = "output.weight"
    for layout in family.layouts:
        if layout.num_outputs is None and layout.task != "masked-lm":
            renames = [_bare(rename, family) for rename in layout.renames]
            found = heads.get(origins(renames, [name])[name].names[0])
            if found is not None:
                return {"num_labels": found.shape[0]}
    return {}


def _prefer_adapted(
    heads: dict[str, StoredTensor], own: Collection[StoredTensor], family: Family
) -> None:
    """Replace a tensor in ``heads`` by its copy there if an adapter changed only the copy.

    An example is an output bias that the adapter made longer. ``own``: the tensors of the
    checkpoint itself, before the adapter was merged.
    """
    unchanged = {id(tensor) for tensor in own}
    for layout in family.layouts:
        for copy, original in layout.copies.items():
            both = [id(heads.get(name)) in unchanged for name in (copy, original)]
            if copy in heads and both == [False, True]:
                heads[original] = heads[copy]


def _split_off_heads(
    tensors: dict[str, StoredTensor], family: Family, others: tuple[str, ...] = ()
) -> tuple[dict[str, StoredTensor], dict[str, StoredTensor]]:
    """Return the encoder's tensors under the names of its base class, and the heads' tensors.

    ``others``: prefixes of heads that no family has.
    """
    kept: dict[str, StoredTensor] = {}
    heads: dict[str, StoredTensor] = {}
    for name, tensor in tensors.items():
        bare = modern_name(name).removeprefix(family.prefix)
        if bare in BUFFERS or any(re.fullmatch(one, bare) for one in family.buffers):
            continue
        part = heads if bare.startswith((*family.heads, *others)) else kept
        if bare in part:
            raise TensorNamesError(
                f"the checkpoint holds {bare} twice, once as {name}", unexpected=[name]
            )
        part[bare] = tensor
    for copy, original in family.copies.items():
        if copy in kept:
            _drop_copy(kept, copy, original)
    return kept, heads


def _drop_copy(tensors: dict[str, StoredTensor], copy: str, original: str) -> None:
    """Drop the tensor ``copy``; raise :class:`CheckpointFileError` if ``original`` differs."""
    copied = tensors.pop(copy)
    kept = tensors.setdefault(original, copied)
    if kept is not copied and not _equal(kept.read(), copied.read()):
        raise CheckpointFileError(
            f"{copy} should equal {original}, but they differ; the checkpoint is damaged, or "
            "its model was trained with untied tables, which is not supported"
        )


def _equal(first: Array, second: Array) -> bool:
    return np.array_equal(widen(first), widen(second))


def _bare(rename: Rename, family: Family) -> Rename:
    """Return ``rename`` for tensor names without the family's prefix (:func:`_split_off_heads`)."""
    assert isinstance(rename.theirs, str)
    return replace(rename, theirs=rename.theirs.removeprefix(family.prefix))


def _check_number_of_blocks(spec: EncoderSpec, tensors: Iterable[str], family: Family) -> None:
    """Raise :class:`TensorNamesError` where config.json has more layers than the weights.

    The check precedes building: a damaged config may state thousands of layers.
    """
    stated = len(spec.blocks)
    pattern = re.compile(re.escape(family.block_prefix).replace(r"\{block\}", r"(\d+)"))
    found = {int(match[1]) for name in tensors if (match := pattern.match(name))}
    if stated > len(found):
        first = min(set(range(stated)) - found)
        missing = [f"{family.block_prefix.replace('{block}', str(first))}.*"]
        raise TensorNamesError(
            f"the weights and config.json do not belong together: config.json asks for {stated} "
            f"layers, the weights have {len(found)}: missing {missing[0]}",
            missing=missing,
        )
