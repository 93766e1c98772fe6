"""Loads randomly damaged checkpoints: ``python -m tests.inference.damaged_checkpoints``.

``--cases 5000 --seed 1`` draws them. A case damages bytes, or the header's names, dtypes, shapes
and offsets, or the index of a sharded checkpoint, or a compiled file, or writes to a file that an
encoder has mapped. What loads must have the vectors of a fresh checkpoint with the tensors that the
safetensors library reads from the damaged files, bit for bit; or an error of
``encoder_engine.errors`` says why not. Cases run in processes of their own: a crash is a finding.
"""

from __future__ import annotations

import json
import random
import shutil
import struct
import sys
import warnings
from functools import cache
from typing import TYPE_CHECKING, Any

import numpy as np
from safetensors.numpy import load_file, save_file

from encoder_engine.errors import EncoderEngineError
from encoder_engine.families.checkpoints.files import COMPILED
from encoder_engine.inference import CompiledEncoder
from tests.damage import damage, main

if TYPE_CHECKING:
    from collections.abc import Callable
    from pathlib import Path

    import numpy.typing as npt

    Vectors = npt.NDArray[np.float32]

SINGLE, INDEX = "model.safetensors", "model.safetensors.index.json"
CONFIG = {
    "model_type": "bert",
    "vocab_size": 40,
    "hidden_size": 16,
    "num_hidden_layers": 2,
    "num_attention_heads": 2,
    "intermediate_size": 32,
    "max_position_embeddings": 32,
    "type_vocab_size": 2,
    "hidden_act": "gelu",
    "layer_norm_eps": 1e-12,
}
PRECISIONS = {
    "float32": ("float32", None),
    "bfloat16": ("bfloat16", None),
    "int8": ("auto", "int8"),
}
IDS = np.array([1, 7, 33, 2, 1, 39, 2], np.int32)
CU_SEQLENS = np.array([0, 4, 7], np.int32)


def draw_tensors(seed: int = 3) -> dict[str, Vectors]:
    """Draw the tensors of a BERT with the names that transformers gives them."""
    generator = np.random.default_rng(seed)
    width, wide = CONFIG["hidden_size"], CONFIG["intermediate_size"]
    shapes: dict[str, tuple[Any, ...]] = {
        "embeddings.word_embeddings.weight": (CONFIG["vocab_size"], width),
        "embeddings.position_embeddings.weight": (CONFIG["max_position_embeddings"], width),
        "embeddings.token_type_embeddings.weight": (CONFIG["type_vocab_size"], width),
    }
    dense = {"pooler.dense": (width, width)}
    norms = ["embeddings.LayerNorm"]
    for layer in range(int(str(CONFIG["num_hidden_layers"]))):
        block = f"encoder.layer.{layer}"
        attention = f"{block}.attention"
        dense |= {f"{attention}.self.{name}": (width, width) for name in ("query", "key", "value")}
        dense |= {f"{attention}.output.dense": (width, width)}
        dense |= {
            f"{block}.intermediate.dense": (wide, width),
            f"{block}.output.dense": (width, wide),
        }
        norms += [f"{attention}.output.LayerNorm", f"{block}.output.LayerNorm"]
    for name, shape in dense.items():
        shapes |= {f"{name}.weight": shape, f"{name}.bias": shape[:1]}
    for name in norms:
        shapes |= {f"{name}.weight": (width,), f"{name}.bias": (width,)}
    return {
        name: generator.normal(0, 0.3, shape).astype(np.float32) for name, shape in shapes.items()
    }


def write_config(folder: Path) -> None:
    """Write the configuration beside the tensors."""
    folder.mkdir(exist_ok=True)
    (folder / "config.json").write_text(json.dumps(CONFIG))


def write_sharded(folder: Path) -> None:
    """Write the tensors as two shards and their index."""
    tensors = draw_tensors()
    names = sorted(tensors)
    places: dict[str, str] = {}
    for number, part in enumerate((names[::2], names[1::2]), 1):
        file = f"model-0000{number}-of-00002.safetensors"
        save_file({name: tensors[name] for name in part}, folder / file)
        places |= dict.fromkeys(part, file)
    index = {"metadata": {"total_size": 0}, "weight_map": places}
    (folder / INDEX).write_text(json.dumps(index))


def embed(folder: Path, precision: str) -> Vectors:
    """Load the checkpoint and embed two sequences."""
    dtype, quantization = PRECISIONS[precision]
    return vectors(CompiledEncoder.from_pretrained(folder, dtype, quantization=quantization))


def vectors(encoder: CompiledEncoder) -> Vectors:
    """Embed two sequences."""
    return np.asarray(encoder.pooled(IDS, CU_SEQLENS), np.float32)


@cache
def whole_vectors(precision: str, folder: Path) -> Vectors:
    """Embed with the undamaged checkpoint, written once a process."""
    write_config(folder)
    save_file(draw_tensors(), folder / SINGLE)
    return embed(folder, precision)


def damage_header(content: bytes, chance: random.Random) -> bytes:
    """Change one thing that the header of a safetensors file says."""
    size = struct.unpack("<Q", content[:8])[0]
    header = json.loads(content[8 : 8 + size])
    names = [name for name in header if name != "__metadata__"]
    name, other = chance.sample(names, 2)
    entry = header[name]
    kind = chance.choice(
        ["dtype", "shape", "offsets", "drop", "rename", "swap", "length", "key", "extra"]
    )
    odd: list[Any] = [0, -1, 1, 2**31, 2**63, 2**64, 1.5, "1", None, True, [], {}]
    if kind == "dtype":
        entry["dtype"] = chance.choice(["F16", "BF16", "F64", "I8", "I32", "F8_E4M3", "X", *odd])
    elif kind in ("shape", "offsets"):
        numbers = entry["shape" if kind == "shape" else "data_offsets"]
        place = chance.randrange(len(numbers))
        near = [numbers[place] + step for step in (-4, -1, 1, 4)]
        changed = chance.choice(["one", "turned", "more", "fewer"])
        if changed == "one":
            numbers[place] = chance.choice([*near, *odd])
        elif changed == "turned":
            numbers.reverse()
        elif changed == "more":
            numbers.append(chance.choice([1, *odd]))
        else:
            numbers.pop()
    elif kind == "drop":
        del header[name]
    elif kind == "rename":
        header[chance.choice([f"{name}.x", name[1:], other, "", "\ud800"])] = header.pop(name)
    elif kind == "swap":
        header[name], header[other] = header[other], header[name]
    elif kind == "key":
        entry.pop(chance.choice(sorted(entry)))
    elif kind == "extra":
        entry[chance.choice(["dtype2", "strides"])] = chance.choice(odd)
    packed = json.dumps(header).encode()
    packed += b" " * (-len(packed) % 8)
    stated = len(packed)
    if kind == "length":
        stated = chance.choice([0, stated - 1, stated + 1, stated * 2, 2**63, 2**64 - 1])
    return struct.pack("<Q", stated) + packed + content[8 + size :]


def damage_index(content: bytes, chance: random.Random) -> bytes:
    """Change one thing that the index of a sharded checkpoint says."""
    index = json.loads(content)
    places = index["weight_map"]
    name, other = chance.sample(sorted(places), 2)
    kind = chance.choice(["drop", "swap", "file", "rename", "whole"])
    if kind == "drop":
        del places[name]
    elif kind == "swap":
        places[name], places[other] = places[other], places[name]
    elif kind == "file":
        places[name] = chance.choice(["absent.safetensors", "../x", "", None, 3, "config.json"])
    elif kind == "rename":
        places[f"{name}.x"] = places.pop(name)
    else:
        index["weight_map"] = chance.choice([None, [], {}, "x", 3])
    return json.dumps(index).encode()


def library_tensors(folder: Path) -> dict[str, Any]:
    """Read the tensors with the safetensors library, as the index says where there is one."""
    if not (folder / INDEX).is_file():
        return dict(load_file(folder / SINGLE))
    places = json.loads((folder / INDEX).read_text())["weight_map"]
    read = {file: load_file(folder / file) for file in set(places.values())}
    return {name: read[file][name] for name, file in places.items()}


def run_case(name: str, folder: Path) -> str:
    """Run the case of this name; return "equal", "refused", or what is wrong."""
    warnings.simplefilter("ignore")
    chance = random.Random(name)
    precision = chance.choice(list(PRECISIONS))
    whole = whole_vectors(precision, folder / "whole")
    case = folder / "case"
    shutil.rmtree(case, ignore_errors=True)
    write_config(case)
    kind = chance.choice(["bytes", "header", "header", "sharded", "compiled", "mapped"])
    prepare: Callable[[Path, random.Random, str], CompiledEncoder | None] = {
        "bytes": damage_bytes,
        "header": damage_single,
        "sharded": damage_sharded,
        "compiled": damage_compiled,
        "mapped": damage_mapped,
    }[kind]
    try:
        loaded = prepare(case, chance, precision)
        found = embed(case, precision) if loaded is None else vectors(loaded)
    except EncoderEngineError:
        return "refused"
    except Exception as error:
        return f"{kind} {precision}: {type(error).__name__}: {error}"
    if found.tobytes() == whole.tobytes():
        return "equal"
    if kind in ("compiled", "mapped"):
        return f"{kind} {precision}: other vectors than before"
    return compare_with_library(case, found, kind, precision)


def compare_with_library(case: Path, found: Vectors, kind: str, precision: str) -> str:
    """Compare with a fresh checkpoint of the tensors that the library reads."""
    try:
        tensors = library_tensors(case)
    except Exception as error:
        return f"{kind} {precision}: loaded here, and refused by the library: {error}"
    fresh = case / "fresh"
    write_config(fresh)
    save_file(tensors, fresh / SINGLE)
    try:
        expected = embed(fresh, precision)
    except EncoderEngineError as error:
        return f"{kind} {precision}: loaded here, and refused when written anew: {error}"
    same = found.tobytes() == expected.tobytes()
    return "equal" if same else f"{kind} {precision}: other vectors than the library's tensors give"


def damage_bytes(case: Path, chance: random.Random, _: str) -> None:
    """Damage any bytes of the file of tensors or of the configuration's."""
    save_file(draw_tensors(), case / SINGLE)
    (case / SINGLE).write_bytes(damage((case / SINGLE).read_bytes(), chance))


def damage_single(case: Path, chance: random.Random, _: str) -> None:
    """Damage the header of the one file of tensors."""
    save_file(draw_tensors(), case / SINGLE)
    (case / SINGLE).write_bytes(damage_header((case / SINGLE).read_bytes(), chance))


def damage_sharded(case: Path, chance: random.Random, _: str) -> None:
    """Damage the index, or the header or the bytes of a shard, or remove one."""
    write_sharded(case)
    shard = chance.choice(sorted(case.glob("model-*.safetensors")))
    kind = chance.choice(["index", "index", "index bytes", "header", "bytes", "remove"])
    if kind == "index":
        (case / INDEX).write_bytes(damage_index((case / INDEX).read_bytes(), chance))
    elif kind == "index bytes":
        (case / INDEX).write_bytes(damage((case / INDEX).read_bytes(), chance))
    elif kind == "remove":
        shard.unlink()
    else:
        change = damage_header if kind == "header" else damage
        shard.write_bytes(change(shard.read_bytes(), chance))


def damage_compiled(case: Path, chance: random.Random, precision: str) -> CompiledEncoder:
    """Compile the model, and damage the compiled file."""
    dtype, quantization = PRECISIONS[precision]
    plain = CompiledEncoder.from_pretrained(
        case.with_name("whole"), dtype, quantization=quantization
    )
    plain.save_compiled(case)
    change = damage_header if chance.random() < 0.5 else damage
    (case / COMPILED).write_bytes(change((case / COMPILED).read_bytes(), chance))
    return CompiledEncoder.from_pretrained(case)


def damage_mapped(case: Path, chance: random.Random, precision: str) -> CompiledEncoder:
    """Load the model, plain or compiled, then write to its file in place, cut it or replace it."""
    dtype, quantization = PRECISIONS[precision]
    save_file(draw_tensors(), case / SINGLE)
    encoder = CompiledEncoder.from_pretrained(case, dtype, quantization=quantization)
    path = case / SINGLE
    if chance.random() < 0.5:
        folder = case / "compiled"
        folder.mkdir()
        encoder.save_compiled(folder)
        encoder = CompiledEncoder.from_pretrained(folder)
        path = folder / COMPILED
    content = path.read_bytes()
    if chance.random() < 0.3:
        path.with_suffix(".new").write_bytes(damage(content, chance))
        path.with_suffix(".new").replace(path)
    elif chance.random() < 0.5:
        with path.open("r+b") as file:
            file.truncate(chance.randrange(len(content)))
    else:
        with path.open("r+b") as file:
            file.seek(chance.randrange(len(content)))
            file.write(chance.randbytes(chance.choice([1, 8, 4096])))
    return encoder


if __name__ == "__main__":
    sys.exit(main(run_case, __doc__))
