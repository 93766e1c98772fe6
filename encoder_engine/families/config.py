"""Converts a config.json to a spec and back; refuses unknown values that change the computation."""

from __future__ import annotations

import warnings
from dataclasses import fields, is_dataclass, replace
from typing import TYPE_CHECKING, Any

from encoder_engine.errors import (
    CheckpointFileError,
    ConfigError,
    UnknownConfigKeyWarning,
    UnsupportedFeatureError,
)
from encoder_engine.families.facts.paths import fact, with_fact
from encoder_engine.families.facts.pruned import PRUNED, read_pruned, without_pruned
from encoder_engine.families.facts.spec import Activation, EmbeddingSpec, EncoderSpec
from encoder_engine.families.facts.values import ACTIVATIONS, activation, config_values
from encoder_engine.families.gliner import encoder_config, is_gliner
from encoder_engine.families.registry import find_family, names_code_of, recognise_family
from encoder_engine.json_values import read_value

if TYPE_CHECKING:
    from collections.abc import Mapping
    from pathlib import Path

    from encoder_engine.families.facts.family import Family
    from encoder_engine.families.facts.spec import BlockSpec, NormSpec
    from encoder_engine.json_values import JsonValue

__all__ = [
    "check_quantization",
    "config_to_save",
    "read_config",
    "spec_from_config",
    "spec_to_config",
]

# Keys of any configuration that do not change what an encoder computes.
BOOKKEEPING = frozenset(
    [
        "_attn_implementation",
        "_attn_implementation_autoset",
        "_name_or_path",
        "_num_labels",
        "architectures",
        "attn_implementation",
        "bos_token_id",
        "chunk_size_feed_forward",
        "classifier_dropout",
        "custom_pipelines",
        "decoder_start_token_id",
        "directionality",
        "do_sample",
        "dtype",
        "eos_token_id",
        "finetuning_task",
        "gradient_checkpointing",
        "id2label",
        "initializer_range",
        "is_encoder_decoder",
        "label2id",
        "language",
        "mask_token_id",
        "max_length",
        "model_type",
        "num_labels",
        "output_attentions",
        "output_hidden_states",
        "output_past",
        "pad_token_id",
        "pooler_fc_size",
        "pooler_num_attention_heads",
        "pooler_num_fc_layers",
        "pooler_size_per_head",
        "pooler_type",
        "problem_type",
        "quantization_config",
        "return_dict",
        "sbert_ce_default_activation_function",
        "sentence_transformers",
        "sep_token_id",
        "task_specific_params",
        "tie_encoder_decoder",
        "tie_word_embeddings",
        "tokenizer_class",
        "torch_dtype",
        "torchscript",
        "transformers_version",
        "unk_token_id",
        "use_cache",
        "use_return_dict",
    ]
)
QUANTIZATIONS = (None, "int8")
# The keys that a quantized encoder adds to its config.json.
INT8_CONFIG = {"quant_method": "encoder_engine", "weights": "int8"}
# Supported values of keys that change the computation in any family.
REQUIRED: dict[str, tuple[Any, ...]] = {
    "is_decoder": (False, None),
    "add_cross_attention": (False, None),
    "is_encoder_decoder": (False, None),
    "position_embedding_type": ("absolute", None),
    "quantization_config": (None, INT8_CONFIG),
}


def check_quantization(quantization: str | None) -> None:
    """Raise :class:`UnsupportedFeatureError` for an unknown quantization."""
    if quantization not in QUANTIZATIONS:
        raise UnsupportedFeatureError(
            f"quantization={quantization!r} is not supported; the choices are "
            f"{', '.join(map(repr, QUANTIZATIONS))}"
        )


def read_config(directory: Path) -> dict[str, Any]:
    """Read config.json, or for a model of the gliner library its encoder's configuration.

    Raises :class:`CheckpointFileError` where there is none, :class:`ConfigError` where it is
    malformed.
    """
    path = directory / "config.json"
    if not path.is_file():
        if is_gliner(directory):
            return encoder_config(directory)
        raise CheckpointFileError(
            f"{directory} has no config.json; it should hold config.json and model.safetensors"
        )
    return dict(read_value(path, ConfigError).object())


def spec_from_config(config: Mapping[str, Any]) -> EncoderSpec:
    """Build the specification of the encoder that a config.json describes.

    Raises :class:`UnknownModelTypeError`; :class:`UnsupportedFeatureError` for a value that needs
    another computation; :class:`ConfigError` for a missing or impossible value. Warns with
    :class:`UnknownConfigKeyWarning` of unknown keys.
    """
    family = recognise_family(config)
    _refuse_other_computations(config, family)
    _warn_of_unknown_keys(config, family)
    values = config_values(config)
    spec = _plain_spec(values, family)
    for key, paths in family.dropouts.items():
        rate = values.get(key).number(family.dropout, least=0, below=1)
        for path in paths:
            spec = with_fact(spec, path, rate)
    for key, paths in family.flags.items():
        there = values.get(key).boolean(fact(spec, paths[0]))
        for path in paths:
            spec = with_fact(spec, path, there)
    for quirk in family.quirks:
        spec = quirk.read(spec, values)
    return without_pruned(spec, values)


def _plain_spec(config: JsonValue, family: Family) -> EncoderSpec:
    """Return the specification by the config.json keys that all families have in common."""
    keys = family.keys
    width = config.get(keys.width).positive()
    norm = family.block.norm
    if keys.norm_epsilon is not None:
        norm = replace(norm, epsilon=config.get(keys.norm_epsilon).number(norm.epsilon, least=0))
    padding_id = _padding_id(config, family)
    num_positions = config.get(keys.num_positions).positive() if keys.num_positions else 0
    after_padding = family.positions_follow_padding_id
    return EncoderSpec(
        model_type=family.model_type,
        width=width,
        embedding=EmbeddingSpec(
            vocab_size=config.get("vocab_size").positive(),
            width=config.get(keys.embedding_width).positive() if keys.embedding_width else width,
            num_positions=num_positions if family.position_table else 0,
            first_position=(padding_id or 0) + 1 if after_padding else 0,
            positions_skip_padding=after_padding,
            num_segments=_num_segments(config, family),
            padding_id=padding_id,
            projected=family.embedding_projected,
            norm=norm if family.embedding_norm else None,
        ),
        blocks=(_plain_block(config, family, norm),) * config.get(keys.num_blocks).positive(),
        final_norm=norm if family.final_norm else None,
        pooler=family.pooler,
        position_limit=None if family.position_table else num_positions or None,
        initializer_range=config.get("initializer_range").number(0.02, least=0),
    )


def _plain_block(config: JsonValue, family: Family, norm: NormSpec) -> BlockSpec:
    keys, block = family.keys, family.block
    width, num_heads = (config.get(key).positive() for key in (keys.width, keys.num_heads))
    if keys.head_dim is not None and not config.get(keys.head_dim).is_null:
        head_dim = config.get(keys.head_dim).positive()
    elif block.attention.head_dim > 1:
        head_dim = block.attention.head_dim
    elif width % num_heads:
        raise ConfigError(f"{keys.width}={width} is not a multiple of {keys.num_heads}={num_heads}")
    else:
        head_dim = width // num_heads
    usual = block.feed_forward.activation
    key_heads = config.get(keys.num_key_heads).value if keys.num_key_heads else None
    if keys.num_key_heads and key_heads is not None:
        key_heads = config.get(keys.num_key_heads).positive()
    raised = config.get(keys.feed_forward_width)
    factor = family.feed_forward_factor
    of_heads = block.attention.query_key_norm
    if of_heads is not None:
        of_heads = replace(of_heads, epsilon=norm.epsilon)
    return replace(
        block,
        norm=norm,
        attention=replace(
            block.attention,
            num_heads=num_heads,
            num_key_heads=None if key_heads == num_heads else key_heads,
            head_dim=head_dim,
            query_key_norm=of_heads,
        ),
        feed_forward=replace(
            block.feed_forward,
            width=factor * width if factor and raised.is_null else raised.positive(),
            activation=usual
            if keys.activation is None
            else activation(config.get(keys.activation), default=usual),
        ),
    )


def spec_to_config(spec: EncoderSpec, original: Mapping[str, Any]) -> dict[str, Any]:
    """Return a specification as a config.json of transformers: ``original`` with changed keys.

    Raises :class:`ConfigError` where the config.json would not be read back as ``spec``.
    """
    family = find_family(spec.model_type)
    keys, embedding = family.keys, spec.embedding
    positions = embedding.num_positions if family.position_table else spec.position_limit
    written: dict[str | None, Any] = {
        keys.width: spec.width,
        keys.num_blocks: spec.num_layers,
        keys.num_positions: positions,
        keys.num_segments: embedding.num_segments,
        keys.embedding_width: embedding.width,
        keys.norm_epsilon: fact(spec, "blocks.norm.epsilon"),
    }
    if spec.blocks:
        attention, layer = spec.blocks[0].attention, spec.blocks[0].feed_forward
        num_pruned = len(read_pruned(config_values(original)).get(0, ()))
        written |= {
            keys.num_heads: attention.num_heads + num_pruned,
            keys.num_key_heads: attention.key_heads + num_pruned,
            keys.head_dim: attention.head_dim,
            keys.feed_forward_width: layer.width,
            keys.activation: _activation_name(layer.activation, original, keys.activation),
        }
    for key, paths in {**family.dropouts, **family.flags}.items():
        written[key] = fact(spec, paths[0])
    stale = {key for quirk in family.quirks for key in quirk.keys}
    for quirk in family.quirks:
        written.update(quirk.write(spec).items())
    own = {
        "model_type": family.config_model_type,
        "architectures": [family.architecture],
        "vocab_size": embedding.vocab_size,
        "pad_token_id": embedding.padding_id,
        "initializer_range": spec.initializer_range,
    }
    kept = {key: value for key, value in original.items() if key not in stale}
    said_by_us = {key: value for key, value in written.items() if key is not None}
    config = dict(sorted({**kept, **family.marks, **said_by_us, **own}.items()))
    reread = _spec_of_config(config)
    if family.pooler:
        # No key describes the pooler: a checkpoint without its weights has none.
        reread = replace(reread, pooler=spec.pooler)
    if reread != spec:
        raise ConfigError(
            f"a {spec.model_type} configuration cannot express this spec; it would be read back "
            f"with {_first_difference(spec, reread)}"
        )
    return config


def config_to_save(
    spec: EncoderSpec, original: Mapping[str, Any], dtype: object, quantization: str | None
) -> dict[str, Any]:
    """Return :func:`spec_to_config` with the dtype and the quantization of the saved weights."""
    config = spec_to_config(spec, original) | {"dtype": str(dtype).removeprefix("torch.")}
    for stale in ("torch_dtype", "quantization_config"):
        config.pop(stale, None)
    return config | ({} if quantization is None else {"quantization_config": INT8_CONFIG})


def _spec_of_config(config: Mapping[str, Any]) -> EncoderSpec:
    with warnings.catch_warnings():
        # The warnings were shown when the configuration was read.
        warnings.simplefilter("ignore", UnknownConfigKeyWarning)
        return spec_from_config(config)


def _first_difference(ours: object, theirs: object, where: str = "spec") -> str:
    for item in fields(ours):  # type: ignore[arg-type]
        one, other = getattr(ours, item.name), getattr(theirs, item.name)
        if one == other:
            continue
        if isinstance(one, tuple) and len(one) == len(other):
            pairs = enumerate(zip(one, other, strict=True))
            place = next(i for i, (left, right) in pairs if left != right)
            return _first_difference(one[place], other[place], f"{where}.{item.name}[{place}]")
        if is_dataclass(one) and is_dataclass(other):
            return _first_difference(one, other, f"{where}.{item.name}")
        return f"{where}.{item.name} is {one!r}, it would be {other!r}"
    raise AssertionError("the specs are equal")


def _refuse_other_computations(config: Mapping[str, Any], family: Family) -> None:
    _refuse_unknown_code(config.get("auto_map"), family)
    for key, allowed in {**REQUIRED, **family.required}.items():
        if key in config and config[key] not in allowed:
            raise UnsupportedFeatureError(
                f"{key}={config[key]!r} is not supported for {family.model_type}; "
                f"supported: {', '.join(repr(value) for value in allowed)}"
            )


def _refuse_unknown_code(auto_map: object, family: Family) -> None:
    """Raise an error if ``auto_map`` names model code that is not known to compute the family."""
    if auto_map is not None and not names_code_of({"auto_map": auto_map}, family):
        raise UnsupportedFeatureError(
            f"auto_map={auto_map!r} is not supported for {family.model_type}: its own code may "
            f"compute anything; supported: {', '.join(family.code) or 'none'}"
        )


def _warn_of_unknown_keys(config: Mapping[str, Any], family: Family) -> None:
    read = {value for value in vars(family.keys).values() if value is not None}
    read |= {key for quirk in family.quirks for key in quirk.keys}
    read |= set(family.dropouts) | set(family.flags) | set(family.marks)
    known = read | BOOKKEEPING | set(REQUIRED) | set(family.required) | set(family.ignored)
    unknown = sorted(set(config) - known - {"auto_map", "vocab_size", PRUNED})
    if unknown:
        warnings.warn(
            UnknownConfigKeyWarning(
                f"config.json has unknown keys: {', '.join(unknown)}; if one of them changes what "
                f"a {family.model_type} computes, the results here will differ",
                names=unknown,
            ),
            stacklevel=2,
        )


def _num_segments(config: JsonValue, family: Family) -> int:
    key = family.keys.num_segments
    if key is None or (family.segments_optional and config.get(key).value == 0):
        return 0
    return config.get(key).positive()


def _padding_id(config: JsonValue, family: Family) -> int | None:
    vocab_size = config.get("vocab_size").positive()
    padding_id = config.get("pad_token_id")
    # Llama's first files say -1.
    if family.padding_id is None and padding_id.value in (None, -1):
        return None
    # Packed rows have no padding: the id decides positions alone.
    if padding_id.present and padding_id.is_null:
        if "pad_token_id" in family.required:
            return family.padding_id
        if not family.positions_follow_padding_id:
            return None
        raise padding_id.must_be(
            f"the id of the padding token, from which {family.model_type} counts its positions"
        )
    if padding_id.integer(family.padding_id) >= vocab_size:
        raise padding_id.must_be(f"an id below vocab_size={vocab_size}")
    return padding_id.integer(family.padding_id)


def _activation_name(
    activation: Activation, original: Mapping[str, Any], key: str | None
) -> object:
    names = ACTIVATIONS[activation]
    if key is None:
        return None
    return original[key] if original.get(key) in names else names[0]
