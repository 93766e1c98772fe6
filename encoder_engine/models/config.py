"""From a Hugging Face config.json to a spec, and back; what is not understood is refused."""

from __future__ import annotations

import warnings
from dataclasses import fields, is_dataclass, replace
from typing import TYPE_CHECKING, Any, get_args

from encoder_engine.errors import (
    CheckpointFileError,
    ConfigError,
    UnknownConfigKeyWarning,
    UnsupportedFeatureError,
)
from encoder_engine.files import read_json
from encoder_engine.models.registry import Family, find_family
from encoder_engine.models.spec import (
    Activation,
    AttentionSpec,
    BlockSpec,
    EmbeddingSpec,
    EncoderSpec,
    FeedForwardSpec,
)

if TYPE_CHECKING:
    from collections.abc import Mapping
    from pathlib import Path

__all__ = ["INT8_CONFIG", "read_config", "spec_from_config", "spec_to_config"]

# config.json's names of the two GELUs: the first is the one to write.
ACTIVATIONS: dict[Activation, tuple[str, ...]] = {
    "gelu": ("gelu", "gelu_python"),
    "gelu_tanh": ("gelu_pytorch_tanh", "gelu_new", "gelu_fast", "gelu_accurate"),
}
assert set(ACTIVATIONS) == set(get_args(Activation))

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
# What a quantized encoder's config.json says of itself.
INT8_CONFIG = {"quant_method": "encoder_engine", "weights": "int8"}
# Values of keys, in any family, that would make the model another than the one computed here.
REQUIRED: dict[str, tuple[Any, ...]] = {
    # Code of the model's own: what it computes is not what its model_type says.
    "auto_map": (None,),
    "is_decoder": (False, None),
    "add_cross_attention": (False, None),
    "is_encoder_decoder": (False, None),
    "position_embedding_type": ("absolute", None),
    "pruned_heads": ({}, None),
    "quantization_config": (None, INT8_CONFIG),
}


# No table or layer is larger; a damaged file may say so.
LARGEST_SIZE = 2**31 - 1


def read_config(directory: Path) -> dict[str, Any]:
    """Read config.json; :class:`ConfigError` says where it stops being one."""
    path = directory / "config.json"
    if not path.is_file():
        raise CheckpointFileError(
            f"{directory} has no config.json; it should hold config.json and model.safetensors"
        )
    config = read_json(path, ConfigError)
    if not isinstance(config, dict):
        raise ConfigError(f"{path} must hold a JSON object, got {type(config).__name__}")
    return config


def spec_from_config(config: Mapping[str, Any]) -> EncoderSpec:
    """Build the spec a configuration describes.

    Raises :class:`UnknownModelTypeError`, :class:`UnsupportedFeatureError` for a value that asks
    for another computation, :class:`ConfigError` for a missing or impossible value; warns with
    :class:`UnknownConfigKeyWarning` of keys nobody reads.
    """
    family = find_family(config.get("model_type"))
    _refuse_other_computations(config, family)
    _warn_of_unknown_keys(config, family)
    keys = family.keys
    width = _integer(config, keys.width)
    num_heads = _integer(config, keys.num_heads)
    if width % num_heads:
        raise ConfigError(f"{keys.width}={width} is not a multiple of {keys.num_heads}={num_heads}")
    epsilon = _number(config, keys.norm_epsilon, default=1e-12)
    dropout = _number(config, keys.dropout, default=0.1, below_one=True)
    padding_id = _padding_id(config, family)
    block = BlockSpec(
        attention=AttentionSpec(
            num_heads=num_heads,
            head_dim=width // num_heads,
            dropout=_number(config, keys.attention_dropout, default=0.1, below_one=True),
        ),
        feed_forward=FeedForwardSpec(
            width=_integer(config, keys.feed_forward_width),
            activation=_activation(config, keys.activation),
        ),
        norm_epsilon=epsilon,
        dropout=dropout,
    )
    after_padding = family.positions_follow_padding_id
    return EncoderSpec(
        model_type=family.model_type,
        width=width,
        embedding=EmbeddingSpec(
            vocab_size=_integer(config, "vocab_size"),
            width=_integer(config, keys.embedding_width) if keys.embedding_width else width,
            num_positions=_integer(config, keys.num_positions),
            first_position=padding_id + 1 if after_padding else 0,
            positions_skip_padding=after_padding,
            num_segments=_integer(config, keys.num_segments) if keys.num_segments else 0,
            padding_id=padding_id,
            norm_epsilon=epsilon,
            dropout=dropout,
        ),
        blocks=(block,) * _integer(config, keys.num_blocks),
        pooler=family.pooler,
        initializer_range=_number(config, "initializer_range", default=0.02),
    )


def spec_to_config(spec: EncoderSpec, original: Mapping[str, Any]) -> dict[str, Any]:
    """Write the configuration of a spec over the one it was read from, as transformers reads it."""
    family = find_family(spec.model_type)
    keys, embedding = family.keys, spec.embedding
    block = spec.blocks[0] if spec.blocks else None
    if any(other != block for other in spec.blocks):
        raise ConfigError(f"a {spec.model_type} configuration cannot say that blocks differ")
    facts: dict[str | None, Any] = {
        keys.width: spec.width,
        keys.num_blocks: len(spec.blocks),
        keys.num_positions: embedding.num_positions,
        keys.num_segments: embedding.num_segments,
        keys.embedding_width: embedding.width,
        keys.norm_epsilon: embedding.norm_epsilon,
        keys.dropout: embedding.dropout,
    }
    if block is not None:
        facts |= {
            keys.num_heads: block.attention.num_heads,
            keys.attention_dropout: block.attention.dropout,
            keys.feed_forward_width: block.feed_forward.width,
            keys.activation: _activation_name(
                block.feed_forward.activation, original, keys.activation
            ),
        }
    written = {key: value for key, value in facts.items() if key is not None}
    own = {
        "model_type": spec.model_type,
        "architectures": [family.architecture],
        "vocab_size": embedding.vocab_size,
        "pad_token_id": embedding.padding_id,
        "initializer_range": spec.initializer_range,
    }
    config = dict(sorted({**original, **written, **own}.items()))
    said = _spec_said_by(config)
    if family.pooler:
        # No key speaks of the pooler: a checkpoint that lacks its weights has none.
        said = replace(said, pooler=spec.pooler)
    if said != spec:
        raise ConfigError(
            f"a {spec.model_type} configuration cannot say all of this spec, so it would come back "
            f"as another: {_first_difference(spec, said)}"
        )
    return config


def _spec_said_by(config: Mapping[str, Any]) -> EncoderSpec:
    with warnings.catch_warnings():
        # They were told of when the configuration was read.
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
    for key, allowed in {**REQUIRED, **family.required}.items():
        if key in config and config[key] not in allowed:
            raise UnsupportedFeatureError(
                f"{key}={config[key]!r} is not supported for {family.model_type}; "
                f"supported: {', '.join(repr(value) for value in allowed)}"
            )


def _warn_of_unknown_keys(config: Mapping[str, Any], family: Family) -> None:
    read = {value for value in vars(family.keys).values() if value is not None}
    known = read | BOOKKEEPING | set(REQUIRED) | set(family.required) | set(family.ignored)
    unknown = sorted(set(config) - known - {"vocab_size"})
    if unknown:
        warnings.warn(
            UnknownConfigKeyWarning(
                f"config.json has keys nobody reads: {', '.join(unknown)}; if one of them changes "
                f"what a {family.model_type} computes, the results here will differ",
                names=unknown,
            ),
            stacklevel=2,
        )


def _integer(config: Mapping[str, Any], key: str) -> int:
    if key not in config:
        raise ConfigError(f"config.json lacks {key!r}")
    value = config[key]
    if isinstance(value, bool) or not isinstance(value, int) or not 1 <= value <= LARGEST_SIZE:
        raise ConfigError(
            f"{key} must be an integer of at least 1 and at most {LARGEST_SIZE}, got {value!r:.40}"
        )
    return value


def _number(
    config: Mapping[str, Any], key: str | None, *, default: float, below_one: bool = False
) -> float:
    value = default if key is None else config.get(key, default)
    valid = isinstance(value, (int, float)) and not isinstance(value, bool) and value >= 0.0
    if not valid or (below_one and value >= 1.0):
        wanted = "at least 0 and below 1" if below_one else "at least 0"
        raise ConfigError(f"{key} must be a number {wanted}, got {value!r}")
    return float(value)


def _padding_id(config: Mapping[str, Any], family: Family) -> int:
    value = config.get("pad_token_id", family.padding_id)
    vocab_size = _integer(config, "vocab_size")
    if isinstance(value, bool) or not isinstance(value, int) or not 0 <= value < vocab_size:
        raise ConfigError(
            f"pad_token_id must be an id below vocab_size={vocab_size}, got {value!r}"
        )
    return value


def _activation(config: Mapping[str, Any], key: str) -> Activation:
    value = config.get(key, "gelu")
    for activation, names in ACTIVATIONS.items():
        if value in names:
            return activation
    supported = ", ".join(name for names in ACTIVATIONS.values() for name in names)
    raise UnsupportedFeatureError(f"{key}={value!r} is not supported; supported: {supported}")


def _activation_name(activation: Activation, original: Mapping[str, Any], key: str) -> str:
    names = ACTIVATIONS[activation]
    return original[key] if original.get(key) in names else names[0]
