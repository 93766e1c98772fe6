"""Every family, embedder and precision in an environment that holds the base install alone."""

from __future__ import annotations

import os
import re
import subprocess
import sys
from importlib.metadata import distribution, requires
from typing import TYPE_CHECKING

import numpy as np
import pytest

from tests import ROOT
from tests.embedding.test_families import CASES, TOKENIZERS, VOCAB_SIZE, save_tokenizer
from tests.models.test_heads import PAIRS, build

if TYPE_CHECKING:
    from pathlib import Path

pytestmark = [
    pytest.mark.slow,
    pytest.mark.filterwarnings("ignore::DeprecationWarning:transformers.*"),
]
# Its vocabulary of letters is a WordLevel model, which the library encodes.
BY_LIBRARY = "esm"
ENCODERS = [case for case in CASES if case.model_type != BY_LIBRARY]
HEADS = ("masked-lm", "sequence-classification")
OUTPUTS = """
import importlib.util, sys, warnings
from pathlib import Path
import numpy as np
from encoder_engine.embedding import Embedder, MultiVectorEmbedder, Ranker, SparseEmbedder
warnings.simplefilter("ignore")
models, target = map(Path, sys.argv[1:3])
for name in sys.argv[3:]:
    assert importlib.util.find_spec(name) is None, name
texts, found = ["The model of a text", "a", "text of the model, the text"], {}
for precision in ({"dtype": "float32"}, {"dtype": "bfloat16"}, {"quantization": "int8"}):
    for folder in sorted(models.glob("*/*")):
        key = f"{folder.parent.name} {folder.name} {precision}"
        if folder.parent.name == "masked-lm":
            made = SparseEmbedder.from_pretrained(folder, "cpu", **precision)
            found[key] = made.encode(texts).dense()
        elif folder.parent.name == "sequence-classification":
            made = Ranker.from_pretrained(folder, "cpu", **precision)
            found[key] = made.predict([(texts[0], text) for text in texts])
        else:
            made = Embedder.from_pretrained(folder, "cpu", **precision)
            found[key] = made.encode(texts)
            late = MultiVectorEmbedder(made, np.eye(4, found[key].shape[1], dtype=np.float32))
            found[key + " late"] = np.concatenate(late.encode_documents(texts))
        assert made.engine.name == "compiled", key
np.savez(target, **found)
"""


def write_models(folder: Path) -> int:
    """Write every family without a head, and those with each head; return their number."""
    count = 0
    for case in ENCODERS:
        place = folder / "encoder" / case.model_type
        place.mkdir(parents=True)
        tokenizer = save_tokenizer(case.model_type, place)
        case.save(place, vocab_size=VOCAB_SIZE, pad_token_id=tokenizer.pad_token_id)
        count += 1
    for case, layout in PAIRS:
        place = folder / layout.task / case.model_type
        known = case.model_type in TOKENIZERS and case.model_type != BY_LIBRARY
        if layout.task not in HEADS or not known or place.exists():
            continue
        place.mkdir(parents=True)
        pad = save_tokenizer(case.model_type, place).pad_token_id
        build(case, layout, place, vocab_size=VOCAB_SIZE, pad_token_id=pad)
        count += 1
    return count


def link_base_install(folder: Path) -> None:
    """Link what the base install requires."""
    seen: set[str] = set()
    names = ["encoder-engine"]
    while names:
        for requirement in requires(names.pop()) or ():
            name = re.split(r"[^\w.-]", requirement)[0].lower()
            # Those with a condition are extras, and of other systems.
            if ";" not in requirement and name not in seen:
                names.append(name)
                seen.add(name)
    folder.mkdir()
    for name in seen:
        found = distribution(name)
        for top in {file.parts[0] for file in found.files or ()} - {"..", "__pycache__"}:
            (folder / top).symlink_to(str(found.locate_file(top)))


def test_every_family_has_the_same_bits_in_the_base_install(tmp_path: Path) -> None:
    count = write_models(tmp_path / "models")
    link_base_install(tmp_path / "site")
    places = os.pathsep.join((str(tmp_path / "site"), str(ROOT)))
    absent = ("torch", "triton", "transformers", "sentence_transformers", "tokenizers")
    found = []
    for name, options, refused in (("all", (), ()), ("base", ("-S",), absent)):
        target = tmp_path / f"{name}.npz"
        command = [sys.executable, *options, "-c", OUTPUTS, str(tmp_path / "models"), str(target)]
        environment = {**os.environ, "PYTHONPATH": places if options else str(ROOT)}
        ran = subprocess.run(
            [*command, *refused], env=environment, capture_output=True, text=True, check=False
        )
        assert ran.returncode == 0, ran.stderr
        found.append(dict(np.load(target)))
    expected, in_base = found
    assert expected.keys() == in_base.keys()
    assert len(expected) == 3 * (count + len(ENCODERS))
    for name, vectors in expected.items():
        assert np.isfinite(vectors).all(), name
        np.testing.assert_array_equal(in_base[name], vectors, err_msg=name)
