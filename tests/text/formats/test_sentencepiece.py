"""Bare .model files: the same ids and offsets as SentencePiece itself."""

from __future__ import annotations

import json
import lzma
import random
from typing import TYPE_CHECKING

import numpy as np
import pytest
from hypothesis import HealthCheck, given, settings

from encoder_engine.errors import TokenizerFileError
from encoder_engine.text import Tokenizer
from tests.text.oracle.reference import ReferenceTokenizer
from tests.text.oracle.test_unigram_oracle import texts as any_texts
from tests.text.parity.long import corpus_files, read_lines
from tests.text.parity.peers import Peer, Settings
from tests.text.sentencepiece_models import KINDS, SentencePiecePeer, train, write_model
from tests.text.strings import StringMaker

if TYPE_CHECKING:
    from pathlib import Path

sentencepiece = pytest.importorskip(
    "sentencepiece", reason="sentencepiece is not installed; it comes with the extra train"
)
SEED = 7_041_776


@pytest.fixture(scope="module")
def model_paths(tmp_path_factory: pytest.TempPathFactory) -> dict[str, Path]:
    """Train a small model of each kind."""
    return train(tmp_path_factory.mktemp("sentencepiece"))


@pytest.fixture(scope="module")
def peers(model_paths: dict[str, Path]) -> list[SentencePiecePeer]:
    """Read each model here and there."""
    return [SentencePiecePeer(name, path) for name, path in model_paths.items()]


@pytest.fixture(scope="module")
def published(
    shared_data: Path, tmp_path_factory: pytest.TempPathFactory
) -> list[SentencePiecePeer]:
    """Read XLNet's model, and XLM-R's."""
    path = tmp_path_factory.mktemp("published") / "xlmr.model"
    packed = shared_data / "vocab/xlmr_rebuilt.model.xz"
    path.write_bytes(lzma.decompress(packed.read_bytes()))
    xlnet = shared_data / "vocab/xlnet_spiece.model"
    return [SentencePiecePeer("xlmr", path), SentencePiecePeer("xlnet", xlnet)]


@pytest.mark.parametrize("count", [500, pytest.param(1500, marks=pytest.mark.exhaustive)])
def test_generated_strings_agree(peers: list[SentencePiecePeer], count: int) -> None:
    for peer in peers:
        rng = random.Random(SEED)
        maker = StringMaker(rng, sorted(peer.ours.spec.model.vocab))
        assert peer.compare([maker.text() for _ in range(count)]) is None


@pytest.mark.parametrize("count", [8, pytest.param(60, marks=pytest.mark.exhaustive)])
def test_lines_of_every_corpus_and_fixture_agree(
    published: list[SentencePiecePeer],
    peers: list[SentencePiecePeer],
    shared_data: Path,
    count: int,
) -> None:
    rng = random.Random(SEED)
    for path in corpus_files(shared_data):
        if path.stat().st_size > 4_000_000:
            continue
        lines = read_lines(path)
        sample = [line[:400] for line in rng.sample(lines, min(len(lines), count))]
        for peer in (rng.choice(published), rng.choice(peers)):
            assert peer.compare(sample) is None, path.name


def test_ties_are_decided_by_the_sum_before(
    published: list[SentencePiecePeer], peers: list[SentencePiecePeer]
) -> None:
    """Of paths with equal scores, float32 prefers one by what came before."""
    rng = random.Random(SEED)
    dots = "".join(rng.choices((".", ". ", " ...", "a", "1"), k=4000))
    runs = " ".join("a" * rng.randrange(1, 40) for _ in range(200))
    for peer in [*peers, *published]:
        assert peer.compare([dots[:start] for start in range(0, 600, 7)]) is None
        assert peer.compare([runs, dots, "aab " + runs]) is None


def test_sums_begin_anew_at_a_hundred_thousand(
    published: list[SentencePiecePeer], peers: list[SentencePiecePeer]
) -> None:
    rng = random.Random(SEED)
    for peer in [*peers[::3], *published]:
        pieces = sorted(peer.ours.spec.model.vocab)
        words = [rng.choice(pieces) * rng.choice((1, 1, 3)) for _ in range(300)] + ["中文字"]
        text = " ".join(rng.choices(words, k=9_000)) + "中文字" * 1500
        whole = [text, "a" * 20_000]
        assert peer.compare(whole) is None
        plain = peer.ours.encode_batch(whole).tolist()
        assert plain == peer.ours.encode_batch(whole, return_offsets=True).tolist()
        assert plain == peer.ours.encode_batch(whole).tolist()


@pytest.mark.parametrize(("least", "jump"), [(-2730.0, 2), (-990.0, 4), (-490.0, 8)])
def test_sums_begin_anew_at_places_that_the_best_path_jumps_over(
    tmp_path: Path, least: float, jump: int
) -> None:
    """A long piece's single characters are beyond 100,000, whatever its own score.

    Which pieces "abc" has, depends on the size of the sum before it.
    """
    scores = {"▁": -30.0, "ab": -100.1, "c": -200.2, "a": -150.15, "bc": -150.15, "b": -250.0}
    long = "xyzzy" * jump
    path = tmp_path / "jumps.model"
    write_model(path, scores | {f"▁{long}": -0.6, "▁q": least, "q": least})
    peer = SentencePiecePeer("jumps", path)
    rng = random.Random(SEED)
    texts = [" ".join(rng.choices(["abc", long, "q"], (1, 1, 3), k=1500)) for _ in range(5)]
    assert [peer.ours.encode(text).tolist() for text in texts] == peer.theirs.encode(texts)
    assert peer.ours.encode_batch(texts, return_offsets=True).tolist() == peer.theirs.encode(texts)


@pytest.mark.parametrize("scale", [1, 30, 97.3, 300])
def test_scores_of_every_size_agree(tmp_path: Path, scale: float) -> None:
    """The greater scores are, the sooner sums begin anew."""
    rng = random.Random(f"{SEED} {scale}")
    for _ in range(4):
        drawn = ["".join(rng.choices("abcdef", k=rng.randrange(1, 7))) for _ in range(60)]
        pieces = [rng.choice(("", "", "▁")) + piece for piece in [*drawn, *"abcd"]] + ["▁"]
        scores = {piece: -scale * len(piece) * rng.choice((0.1, 0.7, 0.9, 1.3)) for piece in pieces}
        jumps = ["".join(rng.choices("xyzw", k=rng.randrange(5, 14))) for _ in range(6)]
        write_model(path := tmp_path / "drawn.model", scores | {f"▁{jump}": -0.6 for jump in jumps})
        peer = SentencePiecePeer(f"scale {scale}", path)
        words = ["".join(rng.choices("abcdef", k=rng.randrange(1, 10))) for _ in range(40)]
        words += [*jumps, *jumps, "QQ", "Z", "é"]
        texts = [" ".join(rng.choices(words, k=count)) for count in (50, 400, 2500)]
        assert peer.compare(texts) is None
        assert [peer.ours.encode(t).tolist() for t in texts] == peer.theirs.encode(texts)


@pytest.mark.parametrize(
    "text",
    [
        *("", " ", "  ", "▁", " ▁ ", "▁▁a▁▁", "a  b ", " \u3000 a", "\x01", "a\x01", "\0a"),
        *("ab" * 3000, "x " * 3000, "😀" * 2000, "e\u0301" * 2000, "<ctl><foo> is  is a==b"),
        *("ﬁﬁ ½½", "ｶﾞ ﾊﾟ", "<unk> <s> </s>", "<0x41>", "a\u00a0b\u2028c", "<foo", "== = =="),
    ],
)
def test_awkward_texts_agree(peers: list[SentencePiecePeer], text: str) -> None:
    for peer in peers:
        assert peer.compare([text, f"{text} x", f"x{text}"]) is None


@pytest.fixture(scope="module")
def oracles(peers: list[SentencePiecePeer]) -> list[ReferenceTokenizer]:
    """Build the slow twin of each tokenizer once."""
    return [ReferenceTokenizer(peer.ours.spec) for peer in peers]


@pytest.mark.exhaustive
@settings(max_examples=60, deadline=None, suppress_health_check=list(HealthCheck))
@given(text=any_texts)
def test_the_oracle_agrees(
    peers: list[SentencePiecePeer], oracles: list[ReferenceTokenizer], text: str
) -> None:
    for peer, oracle in zip(peers, oracles, strict=True):
        ours = peer.ours.encode_batch([text], return_offsets=True)
        row = oracle.encode(text)[0]
        assert ours.tolist() == [row.ids]
        assert [tuple(offset) for offset in ours.offsets.tolist()] == row.offsets
        assert ours.word_ids.tolist() == row.word_ids


def test_a_cut_text_is_the_beginning_of_the_whole(peers: list[SentencePiecePeer]) -> None:
    text = "The naïve ünïcode, 中文字 of ab == is  words and x. " * 30
    for peer in peers:
        whole = peer.ours.encode(text)
        for room in (0, 1, 2, 7, 40):
            row = peer.ours.encode_batch([text], max_length=room)
            assert np.array_equal(row.ids, whole[:room])


def test_a_saved_model_is_the_same_file(model_paths: dict[str, Path], tmp_path: Path) -> None:
    for name, path in model_paths.items():
        tokenizer = Tokenizer.from_pretrained(path)
        tokenizer.save(tmp_path / name)
        assert (tmp_path / name / "tokenizer.model").read_bytes() == path.read_bytes()
        again = Tokenizer.from_pretrained(tmp_path / name)
        assert again.spec == tokenizer.spec


FAMILIES = {
    "albert": ("spiece.model", "AlbertTokenizer"),
    "t5": ("spiece.model", "T5Tokenizer"),
    "xlnet": ("spiece.model", "XLNetTokenizer"),
    "deberta": ("spm.model", "DebertaV2Tokenizer"),
    "plain": ("sentencepiece.bpe.model", "XLMRobertaTokenizer"),
    "camembert": ("sentencepiece.bpe.model", "CamembertTokenizer"),
}


def write_family(folder: Path, model: Path, name: str, **config: object) -> Path:
    """Write a directory as the hub has them: the model file and a tokenizer_config.json."""
    file, kind = FAMILIES[name]
    folder.mkdir(parents=True)
    (folder / file).write_bytes(model.read_bytes())
    config = {"tokenizer_class": kind} | config
    (folder / "tokenizer_config.json").write_text(json.dumps(config), encoding="utf-8")
    return folder


@pytest.mark.parametrize("name", FAMILIES)
@pytest.mark.parametrize(
    "config",
    [
        {},
        {"do_lower_case": True, "keep_accents": True, "extra_ids": 3},
        {"additional_special_tokens": ["<a>", "<b>"], "add_prefix_space": False},
    ],
    ids=["plain", "lower", "extra"],
)
def test_families_are_those_of_transformers(
    model_paths: dict[str, Path], tmp_path: Path, name: str, config: dict[str, object]
) -> None:
    pytest.importorskip("google.protobuf", reason="transformers reads .model files with protobuf")
    from transformers import AutoTokenizer

    # The backend gives types whatever the class says; here they are compared too.
    types = {"model_input_names": ["input_ids", "token_type_ids", "attention_mask"]}
    path = model_paths["plain" if name == "camembert" else name]
    folder = write_family(tmp_path / name, path, name, **config, **types)
    peer = object.__new__(Peer)
    peer.name, peer.ours = name, Tokenizer.from_pretrained(folder)
    theirs = AutoTokenizer.from_pretrained(folder)
    peer.theirs = theirs.backend_tokenizer
    rng = random.Random(SEED)
    maker = StringMaker(rng, sorted(peer.ours.spec.model.vocab))
    texts = [maker.text() for _ in range(300)] + ["<a> x<b>", "<extra_id_1> x"]
    texts.append("a <mask> b [MASK] c")
    assert peer.compare(texts, None, Settings()) is None
    assert peer.compare(texts, texts[::-1], Settings()) is None
    for part in ("unk", "sep", "pad", "cls", "mask"):
        # Theirs has no separator where nothing calls it so.
        named = getattr(theirs, f"{part}_token")
        assert named in (None, getattr(peer.ours.spec.special, part)), part


def test_what_a_directory_says_about_its_model(
    model_paths: dict[str, Path], tmp_path: Path
) -> None:
    bare = tmp_path / "bare"
    bare.mkdir()
    (bare / "spiece.model").write_bytes(model_paths["t5"].read_bytes())
    assert repr(Tokenizer.from_pretrained(bare)).startswith("Tokenizer(SentencePiece")
    (bare / "config.json").write_text(json.dumps({"model_type": "mt5"}))
    assert Tokenizer.from_pretrained(bare).spec.special.sep == "</s>"
    (bare / "config.json").write_text(json.dumps({"model_type": "marian"}))
    with pytest.raises(TokenizerFileError, match="model of a marian model is not supported"):
        Tokenizer.from_pretrained(bare)
    (bare / "spm.model").write_bytes(b"")
    with pytest.raises(TokenizerFileError, match=r"holds spiece.model and spm.model"):
        Tokenizer.from_pretrained(bare)
    wrong = write_family(tmp_path / "wrong", model_paths["t5"], "albert")
    with pytest.raises(TokenizerFileError, match="where the family's unknown token '<unk>'"):
        Tokenizer.from_pretrained(wrong)
    punct = write_family(tmp_path / "punct", model_paths["deberta"], "deberta", split_by_punct=True)
    with pytest.raises(TokenizerFileError, match="split_by_punct is not supported"):
        Tokenizer.from_pretrained(punct)


def test_a_model_beside_a_tokenizer_json_must_be_the_same(
    model_paths: dict[str, Path], tmp_path: Path
) -> None:
    folder = write_family(tmp_path / "t5", model_paths["t5"], "t5")
    Tokenizer.from_pretrained(folder).save(tmp_path / "both")
    (tmp_path / "both/spiece.model").write_bytes(model_paths["t5"].read_bytes())
    assert Tokenizer.from_pretrained(tmp_path / "both").spec.special.sep == "</s>"
    (tmp_path / "both/spiece.model").write_bytes(model_paths["suffix"].read_bytes())
    with pytest.raises(TokenizerFileError, match="contradict each other"):
        Tokenizer.from_pretrained(tmp_path / "both")


@pytest.mark.parametrize("kind", ["bpe", "char", "word"])
def test_models_of_other_types_are_refused_by_name(tmp_path: Path, kind: str) -> None:
    path = train(tmp_path, ["plain"], model_type=kind)["plain"]
    with pytest.raises(TokenizerFileError, match=f"of type {kind.upper()} is not supported"):
        Tokenizer.from_pretrained(path)


def test_a_published_toy_agrees(shared_data: Path) -> None:
    peer = SentencePiecePeer("toy", shared_data / "tokenization/toy/toy.model")
    maker = StringMaker(random.Random(SEED), sorted(peer.ours.spec.model.vocab))
    assert peer.compare([maker.text() for _ in range(500)]) is None


@pytest.mark.parametrize(
    "name",
    [
        "plain",
        pytest.param("bytes", marks=pytest.mark.exhaustive),
        pytest.param("symbols", marks=pytest.mark.exhaustive),
    ],
)
def test_damaged_models_raise_our_error_or_still_work(
    model_paths: dict[str, Path], tmp_path: Path, name: str
) -> None:
    whole = model_paths[name].read_bytes()
    path = tmp_path / "damaged.model"
    rng = random.Random(SEED)
    places = [rng.randrange(len(whole)) for _ in range(150)]
    places += [rng.randrange(min(len(whole), 12_000)) for _ in range(250)]
    refused = 0
    for place in places:
        damaged = bytearray(whole)
        damaged[place] ^= 1 << rng.randrange(8)
        if rng.random() < 0.2:
            del damaged[place : place + rng.randrange(1, 9)]
        path.write_bytes(bytes(damaged))
        try:
            tokenizer = Tokenizer.from_pretrained(path)
        except TokenizerFileError:
            refused += 1
            continue
        tokenizer.encode_batch(["Some téxt ﬁ ab 中文 <foo> \U0001f600 ｶﾞ ① é"], return_offsets=True)
    assert refused > len(places) // 20


def test_every_kind_was_trained(model_paths: dict[str, Path]) -> None:
    assert model_paths.keys() == KINDS.keys()
