"""transformers' own tests of its models: as they come, with our attention, and accelerated.

Its source distribution carries them, its wheel does not:

    pip download --no-deps --no-binary transformers transformers==5.23.0
    tar xzf transformers-5.23.0.tar.gz
    pip install parameterized
    python -m tests.integrations.peer_suite transformers-5.23.0 [FAMILY]...

prints what is in docs/peer-tests.md; exits with 1 where a test fails that passes as they come.
``--write`` writes that file.
"""

from __future__ import annotations

import argparse
import importlib
import sys
import types
import unittest
import warnings
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any, NamedTuple
from unittest import mock

import torch

from encoder_engine import errors
from encoder_engine.integrations.transformers import (
    NAME,
    apply_encoder_engine,
    register,
    revert_encoder_engine,
)
from tests.models.cases import Case, one_per_family

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator
    from contextlib import AbstractContextManager

TARGET = Path(__file__).parents[2] / "docs" / "peer-tests.md"
PACKAGE = "transformers_own_tests"
# What the tests import beside, which the distribution leaves out and encoders have no use of.
LEFT_OUT = {
    "exporters.test_export": "ExportTesterMixin",
    "generation.test_utils": "GenerationTesterMixin",
}
# It asks which attention a model chooses by itself.
ABOUT_NAMES = "test_sdpa_can_dispatch_non_composite_models"
HEADS = (
    "MaskedLM",
    "MultipleChoice",
    "NextSentencePrediction",
    "QuestionAnswering",
    "SequenceClassification",
    "TokenClassification",
)
# Their attention cannot be chosen.
WITHOUT_CHOICE = ("deberta-v2", "mpnet")
# Their tests in transformers' repository replace many of these: one has a decoder, the other lays
# attentions out by window.
LEFT_ALONE = ("t5", "longformer")


def load_mixin(folder: Path) -> type:
    """Import the tests that all models of transformers are held to, from its sources."""
    for name in ("", ".exporters", ".generation"):
        package = types.ModuleType(PACKAGE + name)
        package.__path__ = [str(folder / "tests")] if not name else []
        sys.modules[package.__name__] = package
    for name, mixin in LEFT_OUT.items():
        module = types.ModuleType(f"{PACKAGE}.{name}")
        setattr(module, mixin, type(mixin, (), {}))
        sys.modules[module.__name__] = module
    found: type = importlib.import_module(f"{PACKAGE}.test_modeling_common").ModelTesterMixin
    return found


class Inputs:
    """A small model's configuration and a batch, as transformers' tests ask for them."""

    batch_size, seq_length, num_choices, is_training = 13, 7, 4, True

    def __init__(self, case: Case) -> None:
        self.case = case
        config = self.get_config()
        self.num_hidden_layers = config.num_hidden_layers
        self.num_attention_heads = config.num_attention_heads
        self.hidden_size = config.hidden_size
        self.vocab_size = config.vocab_size

    def get_config(self) -> Any:
        """Make the configuration."""
        import transformers

        layers = "n_layers" if "n_layers" in self.case.sizes else "num_hidden_layers"
        sizes = self.case.sizes | {layers: 2}
        return getattr(transformers, self.case.config_class)(**sizes)

    def prepare_config_and_inputs_for_common(self) -> tuple[Any, dict[str, Any]]:
        """Make both; the last text is shorter than the others."""
        ids_BL = torch.randint(5, self.vocab_size, (self.batch_size, self.seq_length))
        mask_BL = torch.ones_like(ids_BL)
        mask_BL[-1, 4:] = 0
        return self.get_config(), {"input_ids": ids_BL, "attention_mask": mask_BL}


def model_classes(case: Case) -> tuple[Any, ...]:
    """Find transformers' classes of a family: the encoder, and those with a head."""
    import transformers

    stem = case.model_class.removesuffix("Model")
    names = (case.model_class, *(f"{stem}For{head}" for head in HEADS))
    return tuple(getattr(transformers, name) for name in names if hasattr(transformers, name))


def make_tests(mixin: type, case: Case) -> type[unittest.TestCase]:
    """Make the class that transformers' repository writes for each model."""

    def prepare(self: Any) -> None:
        torch.manual_seed(0)
        self.model_tester = Inputs(case)

    body = {"setUp": prepare, "all_model_classes": model_classes(case)}
    name = case.model_class.removesuffix("Model") + "ModelTest"
    return type(name, (mixin, unittest.TestCase), body)


@contextmanager
def our_attention(test: str) -> Iterator[None]:
    """Compute by our attention whatever names none, and in comparisons of SDPA what names that."""
    from transformers import PreTrainedModel

    register()
    plain = PreTrainedModel.get_correct_attn_implementation
    named = (None, "sdpa") if "matches_sdpa" in test else (None,)

    def chosen(self: Any, requested: str | None, is_init_check: bool = False) -> str:
        found: str = plain(self, requested, is_init_check)
        return NAME if requested in named and found == "sdpa" else found

    with mock.patch.object(PreTrainedModel, "get_correct_attn_implementation", chosen):
        yield


@contextmanager
def accelerated(_: str) -> Iterator[None]:
    """Accelerate every model that is made."""
    apply_encoder_engine()
    try:
        yield
    finally:
        revert_encoder_engine()


@contextmanager
def as_it_comes(_: str) -> Iterator[None]:
    """Change nothing."""
    yield


WAYS: dict[str, Callable[[str], AbstractContextManager[None]]] = {
    "as it comes": as_it_comes,
    "our attention": our_attention,
    "accelerated": accelerated,
}


class Outcome(NamedTuple):
    """How a test ended - passed, skipped, refused or failed - and why."""

    status: str
    reason: str


def outcome(tests: type[unittest.TestCase], name: str, way: str) -> Outcome:
    """Run one test; it is refused where we raise a typed error."""
    result = unittest.TestResult()
    with warnings.catch_warnings(), WAYS[way](name):
        warnings.simplefilter("ignore")
        tests(name).run(result)
    if result.skipped:
        return Outcome("skipped", result.skipped[0][1])
    trouble = [text for _, text in [*result.errors, *result.failures]]
    if not trouble:
        return Outcome("passed", "")
    last = trouble[0].strip().splitlines()[-1]
    refused = last.startswith(errors.__name__)
    return Outcome("refused" if refused else "failed", last.partition(": ")[2])


@dataclass(frozen=True, kw_only=True)
class FamilyReport:
    """What became of each test of a family, by the way it ran."""

    model_type: str
    found: dict[str, dict[str, Outcome]]

    @property
    def broken(self) -> list[str]:
        """Name what passes as it comes and fails otherwise."""
        plain = self.found["as it comes"]
        return [
            f"{self.model_type}, {way}: {name}: {ours.reason}"
            for way, outcomes in self.found.items()
            for name, ours in outcomes.items()
            if ours.status == "failed" and plain[name].status == "passed"
        ]

    def cells(self, way: str) -> list[str]:
        """Count what passed, was refused and failed."""
        if way not in self.found:
            return ["", "", ""]
        statuses = [outcome.status for outcome in self.found[way].values()]
        return [str(statuses.count(status)) for status in ("passed", "refused", "failed")]

    def reasons(self) -> Iterator[tuple[str, str]]:
        """Name each test that was refused or failed, and say why."""
        for way, outcomes in self.found.items():
            for name, (status, reason) in outcomes.items():
                if status in ("refused", "failed"):
                    yield f"{way}, {status}: `{name}`", reason


def run_family(mixin: type, case: Case) -> FamilyReport:
    """Run all tests of a family, each way."""
    tests = make_tests(mixin, case)
    names = [n for n in unittest.defaultTestLoader.getTestCaseNames(tests) if n != ABOUT_NAMES]
    ways = [w for w in WAYS if w != "our attention" or case.model_type not in WITHOUT_CHOICE]
    found = {way: {name: outcome(tests, name, way) for name in names} for way in ways}
    return FamilyReport(model_type=case.model_type, found=found)


INTRODUCTION = """# transformers' own tests

Written by `python -m tests.integrations.peer_suite FOLDER --write`; its docstring says where to get
the tests. They are the `ModelTesterMixin` of transformers {version}, with which transformers tests
every model. They run on small models of each family and its heads in three ways:

- **as it comes**: transformers alone;
- **our attention**: with `attn_implementation="encoder_engine"` wherever a test names no attention,
  and in the place of SDPA where a test compares SDPA with eager attention;
- **accelerated**: after `accelerate(model)`.

"Refused" counts tests that end in an error of `encoder_engine.errors`. The tests of gradient
checkpointing are refused because they count calls by hooks on the layers; checkpointing itself
works on accelerated models.

| family | passed as it comes | failed | our attention: passed | refused | failed | accelerated: \
passed | refused | failed |
| --- | --- | --- | --- | --- | --- | --- | --- | --- |
"""


def render(reports: list[FamilyReport]) -> str:
    """Render the page."""
    import transformers

    text = INTRODUCTION.replace("\\\n", "").format(version=transformers.__version__)
    for report in reports:
        plain = report.cells("as it comes")
        cells = [plain[0], plain[2], *report.cells("our attention"), *report.cells("accelerated")]
        text += f"| `{report.model_type}` | {' | '.join(cells)} |\n"
    families: dict[str, list[str]] = {}
    reasons: dict[str, str] = {}
    for report in reports:
        for test, reason in report.reasons():
            families.setdefault(test, []).append(report.model_type)
            reasons.setdefault(test, reason)
    lines = [f"- {test} ({', '.join(families[test])}): {reasons[test]}" for test in sorted(reasons)]
    return (
        text
        + "\nThe refused and failed tests, with the reason of the first family:\n\n"
        + "\n".join(lines)
        + "\n"
    )


def main() -> int:
    """Run the tests and show or write the table."""
    parser = argparse.ArgumentParser(description="transformers' own tests of its models")
    parser.add_argument("folder", type=Path, help="the unpacked source distribution")
    parser.add_argument("families", nargs="*", help="default: all that the tests are about")
    parser.add_argument("--write", action="store_true", help="write docs/peer-tests.md")
    options = parser.parse_args()
    from transformers.utils import logging

    logging.disable_progress_bar()  # type: ignore[no-untyped-call]
    mixin = load_mixin(options.folder)
    cases = {c.model_type: c for c in one_per_family() if c.model_type not in LEFT_ALONE}
    reports = []
    for name in options.families or sorted(cases):
        reports.append(run_family(mixin, cases[name]))
        print(name, *reports[-1].broken, sep="\n", file=sys.stderr, flush=True)
    page = render(reports)
    if options.write:
        TARGET.write_text(page, encoding="utf-8")
    else:
        print(page, end="")
    return int(any(report.broken for report in reports))


if __name__ == "__main__":
    sys.exit(main())
