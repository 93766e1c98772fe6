"""The precision of a run whose recipe names none, and that a resumed run keeps it."""

from __future__ import annotations

import json
from typing import TYPE_CHECKING, Any

import pytest
import torch

from encoder_engine.errors import ConfigError, ResumeError
from encoder_engine.objectives.objective import PretrainingModel
from encoder_engine.ops import cpu
from encoder_engine.training import Trainer, loop
from encoder_engine.training.precision import choose_precision
from encoder_engine.training.recipe import RunRecipe
from encoder_engine.training.world import World
from tests.training.runs import run, small_recipe

if TYPE_CHECKING:
    from pathlib import Path

GPU = World(device=torch.device("cuda"))


def recorded(folder: Path, setting: str) -> str:
    name: str = json.loads((folder / "recipe.json").read_text("utf-8"))["run"][setting]
    return name


@pytest.mark.parametrize("has_bfloat16", [True, False])
def test_a_gpu_that_has_bfloat16_computes_in_it(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, has_bfloat16: bool
) -> None:
    # Emulated on older GPUs it would be slower than float32.
    monkeypatch.setattr(
        torch.cuda,
        "is_bf16_supported",
        lambda *, including_emulation: including_emulation or has_bfloat16,
    )
    usual = ("bfloat16", "bfloat16") if has_bfloat16 else ("float32", None)
    assert choose_precision(tmp_path, GPU, RunRecipe()) == usual
    named = RunRecipe(precision="bfloat16")
    assert choose_precision(tmp_path, GPU, named) == ("bfloat16", "bfloat16")
    assert choose_precision(tmp_path, World(), named) == ("bfloat16", "float32")
    # What was begun in another precision says nothing about the stream.
    recipe = {"run": {"precision": "float32", "residual": None}}
    (tmp_path / "recipe.json").write_text(json.dumps(recipe), "utf-8")
    assert choose_precision(tmp_path, GPU, named) == ("bfloat16", "bfloat16")
    (tmp_path / "recipe.json").unlink()
    stream = RunRecipe(residual="float32", precision="bfloat16")
    assert choose_precision(tmp_path, GPU, stream) == ("bfloat16", "float32")
    single = RunRecipe(precision="float32")
    assert choose_precision(tmp_path, GPU, single) == ("float32", None)


@pytest.mark.parametrize(
    "instruction_set", ["portable", "avx2", "avx_vnni", "avx512", "avx512_bf16", "amx"]
)
def test_a_cpu_computes_in_bfloat16_where_that_is_faster(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, instruction_set: str
) -> None:
    monkeypatch.setattr(cpu, "native_instruction_set", lambda: instruction_set)
    monkeypatch.setattr(cpu, "is_amd", lambda: instruction_set == "avx512_bf16")
    has_bfloat16 = instruction_set in ("avx512_bf16", "amx")
    usual = ("bfloat16", "float32") if has_bfloat16 else ("float32", None)
    assert choose_precision(tmp_path, World(), RunRecipe()) == usual
    named = RunRecipe(precision="float32")
    assert choose_precision(tmp_path, World(), named) == ("float32", None)
    # Requested on Intel, AVX-512's products of bfloat16 are the slower ones.
    monkeypatch.setattr(cpu, "is_amd", lambda: False)
    on_intel = ("bfloat16", "float32") if instruction_set == "amx" else ("float32", None)
    assert choose_precision(tmp_path, World(), RunRecipe()) == on_intel


def test_evaluations_compute_in_float32(
    corpus: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    cast: list[tuple[bool, bool]] = []
    forward = PretrainingModel.forward

    def watch(self: PretrainingModel, *given: Any, **named: Any) -> Any:
        cast.append((self.training, torch.is_autocast_enabled("cpu")))
        return forward(self, *given, **named)

    monkeypatch.setattr(PretrainingModel, "forward", watch)
    run(corpus, tmp_path / "run", "run.precision=bfloat16", "run.steps=2")
    assert set(cast) == {(True, True), (False, False)}


@pytest.mark.slow
def test_a_run_goes_on_elsewhere_in_the_precision_it_began_with(
    corpus: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    assert small_recipe(corpus).run.precision is None
    with monkeypatch.context() as patch:
        # The choice for a GPU.
        patch.setattr(loop, "choose_precision", lambda *_: ("bfloat16", "bfloat16"))
        run(corpus, tmp_path / "run", stop_at=7)
    assert recorded(tmp_path / "run", "precision") == "bfloat16"
    assert recorded(tmp_path / "run", "residual") == "bfloat16"
    trainer = run(corpus, tmp_path / "run")
    assert trainer.recipe.run.precision == trainer.recipe.run.residual == "bfloat16"
    # A folder's choice is for those settings that the recipe does not name.
    run(corpus, tmp_path / "run", "run.precision=bfloat16")
    run(corpus, tmp_path / "named", "run.precision=bfloat16", "run.residual=bfloat16")
    logs = [(tmp_path / name / "log.jsonl").read_bytes() for name in ("run", "named")]
    assert logs[0] == logs[1]


def test_another_precision_than_the_recorded_one_is_refused(corpus: Path, tmp_path: Path) -> None:
    run(corpus, tmp_path / "run", "run.precision=float32", stop_at=5)
    assert recorded(tmp_path / "run", "precision") == "float32"
    trainer = Trainer(small_recipe(corpus, "run.precision=bfloat16"), tmp_path / "run")
    with pytest.raises(ResumeError, match=r"run\.precision was 'float32', is 'bfloat16'"):
        trainer.run()


def test_a_stream_in_bfloat16_is_for_products_in_bfloat16(
    corpus: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(cpu, "native_instruction_set", lambda: "portable")
    recipe = small_recipe(corpus, "run.residual=bfloat16")
    with pytest.raises(ConfigError, match=r"computes them in float32; .* set run\.precision to bf"):
        Trainer(recipe, tmp_path)


def test_a_recorded_recipe_that_is_damaged_is_named(corpus: Path, tmp_path: Path) -> None:
    (tmp_path / "recipe.json").write_text('{"run": {"precision": "float8"}}', "utf-8")
    with pytest.raises(ResumeError, match=r"recipe\.json.*precision.*float8"):
        Trainer(small_recipe(corpus), tmp_path)
