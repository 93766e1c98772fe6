"""The compiled encoder: runs a checkpoint as one native call, in layouts for the CPU.

How it works: the tensors of a checkpoint are read one by one, checked, and packed for the CPU's
matrix products (or rounded to int8), so that memory holds both forms of at most one layer at a
time. A program lists the operations from token ids to a result: rows of all tokens, one pooled
vector per text, or a head's logits. There is a program for each kind of result, made at its first
use; all share the weights. The weights cannot change after loading, so a call only validates its
batch.
"""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING, Any, Self

import numpy as np

from encoder_engine.errors import ConfigError, UnsupportedFeatureError
from encoder_engine.families.checkpoints.arrays import BFLOAT16, arrays_sha256, widen
from encoder_engine.families.checkpoints.files import COMPILED, resolve_directory
from encoder_engine.families.checkpoints.parameters import encoder_shapes, quantized_shapes
from encoder_engine.families.config import check_quantization, spec_from_config
from encoder_engine.families.heads import label_names
from encoder_engine.files import writing
from encoder_engine.inference.batch import Batch
from encoder_engine.inference.compiled_file import (
    HEAD,
    Description,
    check_layers,
    map_compiled,
    write_compiled,
)
from encoder_engine.inference.constants import unsettled_distances
from encoder_engine.inference.layers import LayerReader, MadeLayers, ParametersInMemory
from encoder_engine.inference.memory import MappedFiles
from encoder_engine.inference.network import CompiledHead, CompiledNetwork
from encoder_engine.inference.options import check_layer_weights, check_threads, resolve_dtype
from encoder_engine.inference.reading import read_checkpoint

if TYPE_CHECKING:
    import os
    from collections.abc import Iterator, Mapping, Sequence

    import numpy.typing as npt

    from encoder_engine.families.checkpoints.arrays import Array
    from encoder_engine.families.facts.head_layout import Task
    from encoder_engine.families.facts.spec import EncoderSpec
    from encoder_engine.inference.layers import Layer
    from encoder_engine.inference.program import Program

__all__ = ["CompiledEncoder"]


class CompiledEncoder:
    """An encoder for inference on a CPU, without PyTorch; several threads may call it at a time.

    Dimensions: T packed tokens, B texts, D width, C labels, V vocabulary. ``cu_seqlens``: first
    token of each text, then T: int32 [B + 1].
    """

    def __init__(
        self,
        network: CompiledNetwork,
        head: CompiledHead | None,
        description: Description,
        *,
        num_threads: int | None,
        mapped_files: MappedFiles | None,
    ) -> None:
        self._network = network
        self._head = head
        self._description = description
        self.num_threads = check_threads(num_threads)
        # Compute the common prefix of a causal batch once.
        self.shares_prefixes = True
        self._programs: dict[object, Program] = {}
        self._mapped_files = mapped_files

    @classmethod
    def from_pretrained(
        cls,
        path_or_hub_id: str | os.PathLike[str],
        dtype: str = "auto",
        quantization: str | None = None,
        *,
        head: Task | None = None,
        num_threads: int | None = None,
        adapter: str | None = None,
        labels: Sequence[str] | None = None,
    ) -> Self:
        """Load a checkpoint in Hugging Face layout: config.json with model.safetensors or .bin.

        A file that :meth:`save_compiled` wrote to the directory is memory-mapped instead. It has
        one dtype, quantization and head: another one that is requested raises :class:`ConfigError`.

        dtype: ``"float32"`` or ``"bfloat16"``; ``"auto"`` is float32, and with int8 bfloat16 where
            the CPU computes it.
        quantization: ``"int8"`` rounds the dense layers of the blocks, each output feature to 255
            steps; a checkpoint that was saved quantized is always loaded quantized.
        head: the task of the head to load too, such as ``"sequence-classification"``; None: none.
        num_threads: the threads of a call; None: as many as the process may use, or
            ``OMP_NUM_THREADS``.
        adapter: the name of the adapter to merge, of a checkpoint that holds several; None: none.
        labels: the names of the head's outputs, if an adapter's directory contains the head, and
            config.json is the base model's; None: those of config.json.

        Raises :class:`ConfigError` and :class:`CheckpointError` for missing, malformed or
        contradictory files, :class:`UnsupportedFeatureError` for an architecture of which
        :meth:`supports` gives a reason, and :class:`MissingDependencyError` for a ``.bin`` in the
        format before PyTorch 1.6 where PyTorch is not installed.
        """
        check_quantization(quantization)
        resolve_dtype(dtype, quantized=False)
        directory = resolve_directory(path_or_hub_id)
        if (directory / COMPILED).exists():
            if adapter is not None:
                raise ConfigError(
                    f"{directory} is compiled: its adapter was chosen then; compile the original "
                    f"again with {adapter!r}"
                )
            return cls._map(directory, dtype, quantization, head, num_threads)
        found = read_checkpoint(
            directory,
            dtype,
            quantization,
            head=head,
            labels=labels,
            adapter=adapter,
            supports=cls.supports,
        )
        return cls(
            found.network,
            found.head,
            found.description,
            num_threads=num_threads,
            mapped_files=found.mapped_files,
        )

    @classmethod
    def from_parameters(
        cls,
        spec: EncoderSpec,
        parameters: Mapping[str, Array],
        dtype: str = "float32",
        quantization: str | None = None,
        *,
        config: Mapping[str, Any] | None = None,
        epsilons: Mapping[str, float] | None = None,
        num_threads: int | None = None,
    ) -> Self:
        """Compile parameters in memory, by the names of :meth:`Encoder.state_dict`.

        Tables and vectors of this dtype are not copied, so later changes of these arrays change the
        encoder. Dense layers are copied. Parameters of a pooler may be left out.

        config: config.json, which :meth:`save_compiled` needs.
        epsilons: by name, the epsilons of norms that differ from the specification's.

        Raises :class:`TensorNamesError`, :class:`TensorShapeError` and :class:`CheckpointFileError`
        for parameters whose names, shapes or dtypes are not the specification's, and
        :class:`UnsupportedFeatureError` as :meth:`from_pretrained` does.
        """
        check_quantization(quantization)
        reason = cls.supports(spec)
        if reason is not None:
            raise UnsupportedFeatureError(f"a {spec.model_type} cannot be compiled: {reason}")
        saved = any(name.endswith(".weight_scale") for name in parameters)
        quantized = saved or quantization is not None
        shapes = quantized_shapes(spec) if saved else encoder_shapes(spec)
        has_pooler = "pooler.dense.weight" in parameters
        if not has_pooler:
            shapes = {name: shape for name, shape in shapes.items() if "pooler." not in name}
        reader = LayerReader(
            ParametersInMemory(parameters, shapes),
            dtype=resolve_dtype(dtype, quantized=quantized),
            quantized=quantized,
            saved=saved,
            epsilons=epsilons,
        )
        network = CompiledNetwork.read(spec, reader, pooler=has_pooler)
        description = Description(
            config=dict(config or {}),
            dtype=reader.dtype,
            quantization="int8" if quantized else None,
            has_pooler=has_pooler,
            head=None,
        )
        return cls(network, None, description, num_threads=num_threads, mapped_files=None)

    @classmethod
    def _map(
        cls,
        directory: Path,
        dtype: str,
        quantization: str | None,
        head: Task | None,
        num_threads: int | None,
    ) -> Self:
        """Load the compiled file of a directory by memory-mapping it; see :meth:`save_compiled`."""
        opened = MappedFiles([directory / COMPILED])
        description, layers = map_compiled(directory / COMPILED)
        name_of_dtype = str(dtype).removeprefix("torch.")
        wanted = {
            "dtype": None if name_of_dtype == "auto" else name_of_dtype,
            "quantization": quantization,
        }
        for name, value in (wanted | {"head": head}).items():
            stated = getattr(description, name)
            if value not in (None, stated):
                raise ConfigError(
                    f"{directory} was compiled with {name}={stated!r}, not {value!r}; compile the "
                    "original again with it"
                )
        spec = spec_from_config(description.config)
        check_layers(directory / COMPILED, layers, spec, description)
        return cls._of_layers(spec, description, layers, num_threads, opened)

    @classmethod
    def _of_layers(
        cls,
        spec: EncoderSpec,
        description: Description,
        layers: dict[str, Layer],
        num_threads: int | None,
        mapped_files: MappedFiles | None = None,
    ) -> Self:
        """Build an encoder from layers; names of a head's layers begin with ``head.``."""
        own = {name: layer for name, layer in layers.items() if not name.startswith(HEAD)}
        reader = MadeLayers(own, dtype=description.dtype)
        network, head = CompiledNetwork.read(spec, reader, pooler=description.has_pooler), None
        if description.head is not None:
            others = {
                name.removeprefix(HEAD): layer
                for name, layer in layers.items()
                if name.startswith(HEAD)
            }
            head = CompiledHead.read(
                description.config,
                description.head,
                network,
                MadeLayers(others, dtype=description.dtype),
            )
        return cls(network, head, description, num_threads=num_threads, mapped_files=mapped_files)

    def __reduce__(self) -> tuple[Any, ...]:
        """Pickle the layers; the copy of a mapped encoder has memory of its own."""
        return (
            type(self)._of_layers,
            (self.spec, self._description, self._layers(), self.num_threads),
        )

    def _layers(self) -> dict[str, Layer]:
        layers = dict(self._network.reader.made)
        if self._head is not None:
            made = self._head.reader.made.items()
            layers |= {f"{HEAD}{name}": layer for name, layer in made}
        return layers

    def save_compiled(self, directory: str | os.PathLike[str]) -> None:
        """Write the encoder as it is in memory to ``compiled.safetensors`` in a directory.

        :meth:`from_pretrained` then maps that file: nothing is read or packed, and all processes
        share its pages. Other files of the directory are left alone. Raises :class:`OutputError`,
        and :class:`ConfigError` for an encoder that was compiled without a configuration.
        """
        if not self._description.config:
            raise ConfigError(
                "this encoder was compiled without a configuration, which its file needs; compile "
                "an encoder that was loaded by from_pretrained, or pass config="
            )
        folder = Path(directory)
        with writing(folder):
            folder.mkdir(parents=True, exist_ok=True)
        write_compiled(folder / COMPILED, self._description, self._layers())

    @property
    def config(self) -> Mapping[str, Any]:
        """The config.json of the checkpoint; empty if there was none."""
        return self._description.config

    def parameters(self, *, head: bool = False) -> Iterator[tuple[str, Array]]:
        """Yield each parameter of the encoder or head: its name in the state dict, its values."""
        return (self._find_head() if head else self._network).parameters()

    @staticmethod
    def supports(spec: EncoderSpec) -> str | None:
        """Return why an encoder of this specification cannot be compiled; None: it can."""
        return unsettled_distances(spec)

    @property
    def spec(self) -> EncoderSpec:
        """The specification of the encoder."""
        return self._network.spec

    @property
    def dtype(self) -> str:
        """The dtype of weights that are not int8, and of hidden states."""
        return self._network.dtype

    @property
    def quantization(self) -> str | None:
        """``"int8"`` if the blocks' dense layers are quantized, else None."""
        return self._description.quantization

    @property
    def token_table(self) -> Array:
        """The token embeddings, [V, E], in the encoder's dtype; must not be written to."""
        return self._network.tokens

    @property
    def device(self) -> str:
        """The device of the weights: always ``"cpu"``."""
        return "cpu"

    @property
    def head(self) -> Task | None:
        """The task of the head that was loaded; None: there is no head."""
        return None if self._head is None else self._head.layout.task

    @property
    def num_labels(self) -> int:
        """The number of the head's outputs: labels or, of a masked-language model, tokens."""
        return self._find_head().num_outputs

    @property
    def id2label(self) -> dict[int, str]:
        """The names of a classifier's labels, by index."""
        return label_names(self._description.config)

    def __repr__(self) -> str:
        """Return a line with the family, the width and the precision."""
        head = "" if self.head is None else f", {self.head}"
        return (
            f"CompiledEncoder({self.spec.model_type}: {self.spec.width} features, "
            f"{self.quantization or self.dtype}{head})"
        )

    def hidden(
        self,
        ids: Array,
        cu_seqlens: Array,
        type_ids: Array | None = None,
        *,
        layers: tuple[tuple[int, float], ...] | None = None,
        unattended: Array | None = None,
    ) -> npt.NDArray[np.float32]:
        """Return a vector for each token, float32 [T, D].

        ids, type_ids: int32 [T]; type_ids None: all 0.
        layers: pairs of a layer, 0 for the embeddings, and its weight: return the weighted sum of
            their rows instead of the last layer's. The weights of a layer that is named twice are
            added.
        unattended: int32 [B], the number of last tokens of each text that no token attends to; not
            together with ``layers``.

        Raises :class:`TokenIdError` and :class:`SequenceLengthError` for ids and lengths beyond the
        model's tables, :class:`BatchError` for arrays of other types or shapes, :class:`InputError`
        for layers that do not exist, and :class:`CheckpointFileError` where the model's file was
        written to since it was loaded.
        """
        batch = self._batch(ids, cu_seqlens, type_ids, unattended)
        if layers is not None:
            assert unattended is None
            return self._mixed(batch, check_layer_weights(layers, self.spec.num_layers))
        shared = batch if unattended is not None else self._shared(batch)
        num_rows = shared.prefix + batch.num_tokens
        output = np.empty((num_rows, self.spec.width), dtype=np.float32)
        kind = ("hidden", shared.prefix > 0, unattended is not None)
        self._program(kind).run(shared, output, self.num_threads)
        return output[shared.prefix :]

    def pooled(
        self,
        ids: Array,
        cu_seqlens: Array,
        type_ids: Array | None = None,
        *,
        mode: str = "mean",
        normalized: bool = False,
    ) -> npt.NDArray[np.float32]:
        """Return a vector for each text, float32 [B, D], pooled as :func:`ops.pooling` defines.

        normalized: divide by the Euclidean norm. Other arguments and exceptions: see
        :meth:`hidden`. Raises :class:`UnknownNameError` for another mode.
        """
        batch = self._batch(ids, cu_seqlens, type_ids)
        shared = self._shared(batch)
        output = np.empty((shared.num_texts, self.spec.width), dtype=np.float32)
        program = self._program(("pooled", mode, normalized, shared.prefix > 0))
        program.run(shared, output, self.num_threads)
        # The first vector is that of the shared prefix, where there is one.
        return output[shared.num_texts - batch.num_texts :]

    def logits(
        self,
        ids: Array,
        cu_seqlens: Array,
        type_ids: Array | None = None,
        *,
        rows: Array | None = None,
    ) -> npt.NDArray[np.float32]:
        """Return the head's logits: float32 [B, C] for texts, [T, V] or [T, C] for tokens.

        rows: int32 [M], ascending, for a head that reads tokens: return only these tokens' logits,
        [M, V] or [M, C]; the last block computes only these rows.

        Other arguments and exceptions: see :meth:`hidden`. Raises
        :class:`UnsupportedFeatureError` for ``rows`` of a head that reads texts.
        """
        head = self._find_head()
        if rows is not None and head.rows != "all":
            raise UnsupportedFeatureError(
                f"the head for {head.layout.task} reads texts, not tokens; leave rows= out"
            )
        batch = self._batch(ids, cu_seqlens, type_ids, chosen=rows)
        if rows is not None and not head.can_select(self._network):
            return self.logits(ids, cu_seqlens, type_ids)[rows]
        all_rows = batch.num_tokens if head.rows == "all" else batch.num_texts
        num_rows = all_rows if rows is None else len(rows)
        output = np.empty((num_rows, head.num_outputs), dtype=np.float32)
        self._program(("logits", rows is not None)).run(batch, output, self.num_threads)
        return output

    def shares(self, name: str, array: Array) -> bool:
        """Return whether calls read ``array`` itself as the parameter ``name``; False: a copy."""
        tables = dict(self._network.tables_in_place())
        return name in tables and np.shares_memory(tables[name], array)

    def fingerprint(self) -> str:
        """Return the SHA-256 of the specification and of every weight as it is in memory.

        It equals the fingerprint of an :class:`Encoder`, or model with the same head, that has the
        same weights in the same precision.
        """
        own = arrays_sha256(self._network.parameters(), repr(self.spec))
        return own if self._head is None else self._head.join_fingerprint(own)

    def _batch(
        self,
        ids: Array,
        cu_seqlens: Array,
        type_ids: Array | None,
        unattended: Array | None = None,
        chosen: Array | None = None,
    ) -> Batch:
        if self._mapped_files is not None:
            self._mapped_files.check()
        return Batch.of(self.spec, ids, cu_seqlens, type_ids, unattended, chosen)

    def _shared(self, batch: Batch) -> Batch:
        """Return the batch with its texts' common prefix computed once, if that is possible."""
        # The convolution of a first block reads neighbours, which a suffix does not have.
        causal = self.spec.is_causal and self.spec.convolution is None
        return batch.with_shared_prefix() if causal and self.shares_prefixes else batch

    def _mixed(
        self, batch: Batch, layers: tuple[tuple[int, float], ...]
    ) -> npt.NDArray[np.float32]:
        """Return a sum of layers, float32 [T, D]; ``layers``: pairs of layer and weight."""
        total = np.zeros((batch.num_tokens, self.spec.width), dtype=np.float32)
        kind = BFLOAT16 if self.dtype == "bfloat16" else np.dtype(np.float32)
        rows, first = None, None
        for layer, weight in layers:
            found = np.empty(total.shape, dtype=kind)
            program = self._program(("layers", first, layer))
            program.run(batch, found, self.num_threads, input_rows=rows)
            total += np.float32(weight) * widen(found)
            rows, first = found, layer
        return total

    def _program(self, kind: object) -> Program:
        program = self._programs.get(kind)
        if program is None:
            # Two threads may both make a program: the same operations on the same weights.
            program = self._programs[kind] = self._make(kind)
        return program

    def _make(self, kind: object) -> Program:
        network = self._network
        assert isinstance(kind, tuple)
        if kind[0] == "logits":
            return self._find_head().program(network, chosen=kind[1])
        if kind[0] == "hidden":
            return network.hidden_program(shares_prefix=kind[1], unattended=kind[2])
        if kind[0] == "pooled":
            return network.pooled_program(kind[1], normalized=kind[2], shares_prefix=kind[3])
        return network.layer_program(kind[1], kind[2])

    def _find_head(self) -> CompiledHead:
        if self._head is None:
            raise UnsupportedFeatureError("this encoder was loaded without a head; pass head=")
        return self._head
