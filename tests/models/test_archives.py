"""Archives of ``torch.save`` are read without PyTorch: the same tensors, and nothing else."""

from __future__ import annotations

import zipfile
from collections import OrderedDict
from dataclasses import replace
from typing import TYPE_CHECKING, Any

import numpy as np
import pytest
import torch

from encoder_engine.errors import CheckpointFileError
from encoder_engine.families.checkpoints.archives import read_archive
from encoder_engine.models.checkpoints.stacking import to_tensor

if TYPE_CHECKING:
    from pathlib import Path

DTYPES = (
    torch.float64,
    torch.float32,
    torch.float16,
    torch.bfloat16,
    torch.int64,
    torch.int32,
    torch.int8,
    torch.uint8,
    torch.bool,
)


@pytest.mark.parametrize("dtype", DTYPES, ids=str)
def test_every_tensor_is_read_bit_for_bit(dtype: torch.dtype, tmp_path: Path) -> None:
    drawn = torch.arange(24).reshape(4, 6).to(dtype)
    tensors = OrderedDict(
        whole=drawn,
        turned=drawn.T,
        part=drawn[1:3, ::2],
        empty=drawn[:0],
        one=drawn[2, 3],
        parameter=torch.nn.Parameter(drawn, requires_grad=False),
    )
    torch.save(tensors, tmp_path / "weights.pt")
    found = read_archive(tmp_path / "weights.pt")
    assert list(found) == list(tensors)
    for name, tensor in tensors.items():
        array = np.asarray(found[name].read())
        assert array.flags.c_contiguous
        assert torch.equal(to_tensor(array), tensor), name


def test_a_state_dictionary_is_read(tmp_path: Path) -> None:
    layer = torch.nn.Linear(3, 2)
    torch.save(layer.state_dict(), tmp_path / "layer.pt")
    found = read_archive(tmp_path / "layer.pt")
    assert np.array_equal(found["weight"].read(), layer.weight.detach().numpy())
    assert np.array_equal(found["bias"].read(), layer.bias.detach().numpy())


class Harmful:
    """Runs code where a pickle is loaded by an unpickler that allows it."""

    def __reduce__(self) -> tuple[Any, ...]:
        return (print, ("executed",))


@pytest.mark.parametrize(
    "content", [{"a": Harmful()}, torch.nn.Linear(1, 1)], ids=["code", "class"]
)
def test_anything_but_tensors_is_refused(
    content: Any, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    torch.save(content, tmp_path / "weights.pt")
    with pytest.raises(CheckpointFileError, match="weights only: it asks for"):
        read_archive(tmp_path / "weights.pt")
    assert "executed" not in capsys.readouterr().out


def test_a_tensor_beyond_its_storage_is_refused(tmp_path: Path) -> None:
    torch.save({"a": torch.ones(8)}, tmp_path / "whole.pt")
    with (
        zipfile.ZipFile(tmp_path / "whole.pt") as whole,
        zipfile.ZipFile(tmp_path / "cut.pt", "w") as cut,
    ):
        for name in whole.namelist():
            content = whole.read(name)
            cut.writestr(name, content[:-4] if "/data/" in name else content)
    found = read_archive(tmp_path / "cut.pt")
    with pytest.raises(CheckpointFileError, match="holds 7 numbers"):
        found["a"].read()


def test_a_damaged_storage_is_refused(tmp_path: Path) -> None:
    path = tmp_path / "weights.pt"
    torch.save({"a": torch.full((64,), 1.5)}, path)
    content = bytearray(path.read_bytes())
    content[content.index(torch.full((64,), 1.5).numpy().tobytes()) + 7] ^= 1
    path.write_bytes(bytes(content))
    with pytest.raises(CheckpointFileError, match="cannot be read: Bad CRC-32"):
        read_archive(path)["a"].read()


def test_a_tensor_before_its_storage_is_refused(tmp_path: Path) -> None:
    torch.save({"a": torch.ones(8)}, tmp_path / "weights.pt")
    tensor = read_archive(tmp_path / "weights.pt")["a"]
    changes: list[dict[str, Any]] = [{"strides": (-1,)}, {"offset": -1}, {"strides": ()}]
    for change in changes:
        with pytest.raises(CheckpointFileError, match="fetch the file again"):
            replace(tensor, **change).read()
