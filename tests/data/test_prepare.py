"""Texts become the corpus they should, and the same one however often the work is interrupted."""

from __future__ import annotations

import itertools
import json
import os
import signal
import subprocess
import sys
import time
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import numpy as np
import pytest

from encoder_engine import Tokenizer
from encoder_engine.data.prepare import Prepared, Text, _changes, prepare, word_starts
from encoder_engine.data.sentences import split_sentences
from encoder_engine.data.shards import Corpus, write_shard
from encoder_engine.errors import CorpusError, LockedError, TextError
from encoder_engine.locks import FolderLock
from tests.embedding.test_families import save_tokenizer

WORDS = ["the", "cat", "sat", "on", "a", "mat", "##s", "##ting", "dog", ".", "!", "?", "ran"]
SPECIAL = ["[PAD]", "[UNK]", "[CLS]", "[SEP]", "[MASK]"]


@pytest.fixture(scope="module")
def tokenizer(tmp_path_factory: pytest.TempPathFactory) -> Tokenizer:
    path = tmp_path_factory.mktemp("tokenizer") / "vocab.txt"
    path.write_text("\n".join([*SPECIAL, *WORDS]) + "\n", encoding="utf-8")
    return Tokenizer.from_pretrained(path)


def draw_texts(number: int, num_languages: int = 1) -> list[Text]:
    generator = np.random.default_rng(0)
    words = ["the", "cat", "cats", "sat", "sitting", "dog", "mats", "ran"]

    def sentence() -> str:
        return " ".join(generator.choice(words, generator.integers(1, 9))) + "."

    return [
        Text(" ".join(sentence() for _ in range(generator.integers(0, 5))), number % num_languages)
        for number in range(number)
    ]


def files(directory: Path) -> dict[str, bytes]:
    found = (path for path in sorted(directory.rglob("*")) if path.is_file())
    return {str(path.relative_to(directory)): path.read_bytes() for path in found}


def test_a_corpus_holds_what_the_tokenizer_makes_of_each_sentence(
    tmp_path: Path, tokenizer: Tokenizer
) -> None:
    texts = draw_texts(1200, num_languages=2)
    done = prepare(iter(texts), tokenizer, tmp_path, source="x", languages=("en", "de"))
    corpus = Corpus.open(tmp_path)
    found = []
    for shard in corpus.shards:
        for first, last in zip(shard.documents[:-1], shard.documents[1:], strict=True):
            ends = shard.sentences[first : last + 1]
            pieces = itertools.pairwise(ends)
            found.append([shard.tokens[begin:end].tolist() for begin, end in pieces])
    kept = [text for text in texts if text.text]
    assert found == [
        [tokenizer.encode(s, add_special_tokens=False).tolist() for s in split_sentences(t.text)]
        for t in kept
    ]
    assert corpus.shards[0].languages.tolist() == [text.language for text in kept]
    assert corpus.languages == ("en", "de")
    assert (done.texts, done.tokens) == (1200, corpus.num_tokens)
    assert done.characters == sum(len(text.text) for text in texts)
    assert done.used_tokens == len({int(t) for s in corpus.shards for t in s.tokens})
    starts = {tokenizer.id_to_token(int(n)) for n in np.flatnonzero(~corpus.word_starts)}
    assert starts == {"##s", "##ting"}


@pytest.mark.slow
def test_a_corpus_of_bytes_decodes_to_its_texts(tmp_path: Path) -> None:
    """The white space between sentences was lost."""
    save_tokenizer("roberta", tmp_path)
    tokenizer = Tokenizer.from_pretrained(tmp_path)
    texts = [
        "The text. A query?  The row.\n\nThe end",
        "  \n",
        "",
        "One",
        " \u00fc\u4e2d. \U0001f642 ",
    ]
    corpus_of = [Text(text) for text in texts]
    for name, salient in (("plain", False), ("salient", True)):
        prepare(corpus_of, tokenizer, tmp_path / name, source="x", salient=salient)
        (shard,) = Corpus.open(tmp_path / name).shards
        ends = shard.sentences[shard.documents]
        found = [tokenizer.decode(shard.tokens[a:b]) for a, b in itertools.pairwise(ends)]
        # White space alone is no document.
        assert found == [texts[0], texts[3], texts[4]]
        assert np.diff(shard.documents).tolist() == [4, 1, 2]


def test_an_interrupted_run_goes_on_and_ends_in_the_same_bytes(
    tmp_path: Path, tokenizer: Tokenizer
) -> None:
    texts = draw_texts(5000, num_languages=2)
    whole, broken = tmp_path / "whole", tmp_path / "broken"
    options: dict[str, Any] = {"source": "x", "languages": ("en", "de"), "shard_tokens": 9000}
    prepare(texts, tokenizer, whole, **options)
    assert len(list(whole.glob("*.tokens.npy"))) > 4

    class StoppedError(Exception):
        """The work is interrupted."""

    for limit in (600, 2500, 2600, 4500):

        def watch(done: Prepared, limit: int = limit) -> None:
            if done.texts >= limit:
                raise StoppedError

        with pytest.raises(StoppedError):
            prepare(texts, tokenizer, broken, **options, watch=watch)
        assert not (broken / "manifest.json").exists()
    done = prepare(texts, tokenizer, broken, **options)
    assert done.resumed_texts > 2600
    assert files(broken) == files(whole)
    again = prepare(texts, tokenizer, broken, **options)
    assert files(broken) == files(whole)
    assert again.tokens == done.tokens
    # An address or a pipe has no time of change, and its source stays the same.
    others = [Text(texts[0].text, 1), *texts[1:]], [*texts[:9], texts[0], *texts[10:]], texts[:99]
    for other in others:
        with pytest.raises(CorpusError, match="its first 5,000 texts are others now"):
            prepare(other, tokenizer, broken, **options)
    progress = broken / "progress.json"
    recorded = json.loads(progress.read_text(encoding="utf-8"))
    del recorded["texts_sha256"]
    progress.write_text(json.dumps(recorded), encoding="utf-8")
    prepare(texts, tokenizer, broken, **options)


KILLED = """
import sys
from pathlib import Path
from encoder_engine import Tokenizer
from encoder_engine.data.prepare import prepare
from tests.data.test_prepare import draw_texts
prepare(draw_texts(5000), Tokenizer.from_pretrained(sys.argv[1]), Path(sys.argv[2]), source="x",
        shard_tokens=2000)
"""


def written_at(path: Path) -> int | None:
    """Return when a file was last written; None: it is not there."""
    try:
        return path.stat().st_mtime_ns
    except FileNotFoundError:
        return None


@pytest.mark.exhaustive
@pytest.mark.skipif(not hasattr(signal, "SIGKILL"), reason="no SIGKILL here")
def test_killed_at_any_time_it_goes_on(tmp_path: Path, tokenizer: Tokenizer) -> None:
    vocabulary = tmp_path / "model"
    tokenizer.save(vocabulary)
    whole, broken = tmp_path / "whole", tmp_path / "broken"
    saved = Tokenizer.from_pretrained(vocabulary)
    prepare(draw_texts(5000), saved, whole, source="x", shard_tokens=2000)
    generator = np.random.default_rng(1)
    root = Path(__file__).parents[2]
    progress, killed = broken / "progress.json", 0
    for _ in range(4):
        known = written_at(progress)
        command = [sys.executable, "-c", KILLED, str(vocabulary), str(broken)]
        with subprocess.Popen(command, cwd=root, env=os.environ | {"PYTHONPATH": "."}) as process:
            ends = time.monotonic() + 60
            while written_at(progress) == known and time.monotonic() < ends:
                if process.poll() is not None:
                    break
                time.sleep(0.001)
            # A whole run takes 0.1 s and writes its progress eleven times.
            time.sleep(float(generator.random()) * 0.02)
            process.send_signal(signal.SIGKILL)
        assert time.monotonic() < ends
        killed += process.returncode == -signal.SIGKILL
    assert killed
    prepare(draw_texts(5000), saved, broken, source="x", shard_tokens=2000)
    expected = files(whole)
    found = {name: data for name, data in files(broken).items() if not name.endswith(".partial")}
    assert found == expected


def test_another_source_tokenizer_or_size_is_refused(tmp_path: Path, tokenizer: Tokenizer) -> None:
    texts = draw_texts(10)
    prepare(texts, tokenizer, tmp_path / "a", source="x")
    with pytest.raises(CorpusError, match="started with other settings: source was"):
        prepare(texts, tokenizer, tmp_path / "a", source="y")
    with pytest.raises(CorpusError, match="shard_tokens was"):
        prepare(texts, tokenizer, tmp_path / "a", source="x", shard_tokens=5)
    path = tmp_path / "vocab.txt"
    path.write_text("\n".join([*SPECIAL, *WORDS[::-1]]) + "\n", encoding="utf-8")
    with pytest.raises(CorpusError, match="the tokenizer is another"):
        prepare(texts, Tokenizer.from_pretrained(path), tmp_path / "a", source="x")
    progress = tmp_path / "a" / "progress.json"
    recorded = json.loads(progress.read_text(encoding="utf-8"))
    del recorded["begun"]["version"]
    progress.write_text(json.dumps(recorded), encoding="utf-8")
    with pytest.raises(CorpusError, match="another version of encoder-engine began it"):
        prepare(texts, tokenizer, tmp_path / "a", source="x")
    (tmp_path / "b").mkdir()
    (tmp_path / "b" / "thesis.txt").write_text("mine", encoding="utf-8")
    with pytest.raises(CorpusError, match="is not empty, and no corpus was started in it"):
        prepare(texts, tokenizer, tmp_path / "b", source="x")


@pytest.mark.slow
@pytest.mark.parametrize(("name", "part"), [("xlm-roberta", "vocab"), ("roberta", "merges")])
def test_a_tokenizer_of_the_same_tokens_may_be_another(
    name: str, part: str, tmp_path: Path
) -> None:
    # Scores and merges decide the tokens too: shards of two tokenizers were mixed.
    save_tokenizer(name, tmp_path)
    tokenizer = Tokenizer.from_pretrained(tmp_path)
    path = tmp_path / "tokenizer.json"
    values = json.loads(path.read_text(encoding="utf-8"))
    if part == "vocab":
        values["model"]["vocab"][-1][1] -= 9.0
    else:
        values["model"]["merges"].pop()
    path.write_text(json.dumps(values), encoding="utf-8")
    other = Tokenizer.from_pretrained(tmp_path)
    prepare([Text("The text.")], tokenizer, tmp_path / "corpus", source="x")
    with pytest.raises(CorpusError, match="the tokenizer is another"):
        prepare([Text("The text.")], other, tmp_path / "corpus", source="x")


def test_what_was_begun_before_a_shard_was_noted_goes_on_or_begins_anew(
    tmp_path: Path, tokenizer: Tokenizer, monkeypatch: pytest.MonkeyPatch
) -> None:
    texts = draw_texts(600)

    def stop(*given: Any) -> None:
        write_shard(*given)
        raise KeyboardInterrupt

    prepare(texts, tokenizer, tmp_path / "whole", source="x")
    with monkeypatch.context() as patched:
        patched.setattr("encoder_engine.data.prepare.write_shard", stop)
        for source in ("y", "x", "x"):
            with pytest.raises(KeyboardInterrupt):
                prepare(texts, tokenizer, tmp_path / "broken", source=source)
    prepare(texts, tokenizer, tmp_path / "broken", source="x")
    assert files(tmp_path / "broken") == files(tmp_path / "whole")


def test_a_second_run_in_a_folder_is_refused(tmp_path: Path, tokenizer: Tokenizer) -> None:
    with FolderLock(tmp_path), pytest.raises(LockedError, match="written by another run"):
        prepare(draw_texts(10), tokenizer, tmp_path, source="x")
    prepare(draw_texts(10), tokenizer, tmp_path, source="x")


def test_a_tokenizer_is_made_once_and_kept_whole(tmp_path: Path, tokenizer: Tokenizer) -> None:
    made = []

    def make() -> Tokenizer:
        made.append(1)
        if len(made) == 1:
            raise KeyboardInterrupt
        return tokenizer

    with pytest.raises(KeyboardInterrupt):
        prepare(draw_texts(10), make, tmp_path, source="x")
    for _ in range(2):
        prepare(draw_texts(10), make, tmp_path, source="x")
    assert len(made) == 2
    kept = Tokenizer.from_pretrained(tmp_path / "tokenizer")
    assert kept.vocab_size == tokenizer.vocab_size


def test_texts_of_nothing_are_no_corpus(tmp_path: Path, tokenizer: Tokenizer) -> None:
    with pytest.raises(CorpusError, match="none of the 3 texts"):
        prepare([Text(""), Text(" "), Text("\n")], tokenizer, tmp_path, source="x")
    assert not (tmp_path / "manifest.json").exists()
    prepare(draw_texts(10), tokenizer, tmp_path, source="mended")


def test_what_is_no_text_of_a_named_language_is_refused_by_its_number(
    tmp_path: Path, tokenizer: Tokenizer
) -> None:
    texts = draw_texts(600)
    for text, error, message in (
        (Text("a \ud800 cat"), TextError, "text 600 has a lone surrogate U\\+D800 at character 2"),
        (Text(None), TextError, "text 600 is NoneType, expected str"),  # type: ignore[arg-type]
        # The corpus was written, and pretrain refused it.
        (Text("a cat", 1), CorpusError, "text 600 has language 1, and languages has 0 names"),
        (Text("a cat", -1), CorpusError, "text 600 has language -1"),
    ):
        with pytest.raises(error, match=message):
            prepare([*texts, text], tokenizer, tmp_path, source="x")
    done = prepare(texts, tokenizer, tmp_path, source="x")
    assert done.tokens == Corpus.open(tmp_path).num_tokens


def test_sentences_without_a_token_are_not_counted(tmp_path: Path, tokenizer: Tokenizer) -> None:
    texts = [Text("the cat sat.\n\u200b\nthe dog ran.")]
    assert len(split_sentences(texts[0].text)) == 3
    done = prepare(texts, tokenizer, tmp_path, source="x")
    assert done.sentences == Corpus.open(tmp_path).num_sentences == 2


def test_a_vocabulary_without_marks_or_special_tokens_is_refused(tmp_path: Path) -> None:
    path = tmp_path / "vocab.txt"
    path.write_text("[PAD]\n[UNK]\n[CLS]\n[SEP]\nthe\n", encoding="utf-8")
    bare = Tokenizer.from_pretrained(path)
    assert word_starts(bare).all()
    with pytest.raises(CorpusError, match="the tokenizer has no mask token"):
        prepare([], bare, tmp_path / "c", source="x")


def test_the_mark_of_another_kind_of_vocabulary_is_a_letter() -> None:
    # A Maltese letter began a word within every word.
    pieces = ["<s>", "\u2581\u0120or", "\u0120", "\u0121"]
    spec = SimpleNamespace(model=None, added_tokens=[SimpleNamespace(id=0)])
    tokenizer: Any = SimpleNamespace(
        spec=spec, vocab_size=len(pieces), id_to_token=lambda number: pieces[number]
    )
    assert word_starts(tokenizer).tolist() == [True, True, False, False]


def test_a_part_of_the_source_that_is_gone_is_a_change() -> None:
    """A corpus of added tokens went on without them, and said nothing."""
    before = {"source": json.dumps({"inputs": {"": [1]}, "add_tokens": [3, 4]}), "shard_tokens": 9}
    now = {"source": json.dumps({"inputs": {"": [1]}}), "shard_tokens": 9}
    assert _changes(before, now) == ["add_tokens was [3, 4], is None"]
    assert _changes(now, before) == ["add_tokens was None, is [3, 4]"]
    assert _changes(now, now) == []
    assert _changes({**now, "source": "old"}, now) != []
    others = {**now, "source": json.dumps({"inputs": {"": [2], "de": [1]}})}
    assert _changes(now, others) == ["the inputs are others, or were changed"]
