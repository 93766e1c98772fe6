"""Reading and writing tokenizer files, and every way in which they can be wrong."""

from __future__ import annotations

import json
import os
import shutil
import stat
from typing import TYPE_CHECKING, Any

import pytest
from tokenizers import Tokenizer as HubTokenizer

from encoder_engine.errors import OutputError, TokenizerFileError
from encoder_engine.text import Tokenizer
from tests.text.conftest import TOY_TOKENS
from tests.text.parity.peers import Settings

if TYPE_CHECKING:
    from collections.abc import Callable
    from pathlib import Path

    from tests.text.parity.peers import Peer


@pytest.fixture
def toy_json(toy_folder: Path) -> Path:
    """Save the toy as tokenizer.json alone."""
    saved = toy_folder.parent / "saved"
    Tokenizer.from_pretrained(toy_folder).save(saved)
    alone = toy_folder.parent / "alone" / "tokenizer.json"
    alone.parent.mkdir()
    shutil.copy(saved / "tokenizer.json", alone)
    return alone


def test_a_vocab_and_its_saved_form_are_one_tokenizer(toy_folder: Path, tmp_path: Path) -> None:
    first = Tokenizer.from_pretrained(toy_folder)
    first.save(tmp_path / "again")
    names = sorted(path.name for path in (tmp_path / "again").iterdir())
    assert names == [
        "special_tokens_map.json",
        "tokenizer.json",
        "tokenizer_config.json",
        "vocab.txt",
    ]
    for path in (tmp_path / "again", tmp_path / "again" / "tokenizer.json"):
        again = Tokenizer.from_pretrained(path)
        assert again.spec == first.spec


@pytest.mark.parametrize("mask", [0o022, 0o077])
def test_saved_files_have_the_modes_of_any_new_file(
    toy_folder: Path, tmp_path: Path, mask: int
) -> None:
    before = os.umask(mask)
    try:
        for _ in range(2):  # the second time over what is there
            Tokenizer.from_pretrained(toy_folder).save(tmp_path / "again")
        kept = os.umask(mask)
    finally:
        os.umask(before)
    assert kept == mask
    modes = {stat.S_IMODE(path.stat().st_mode) for path in (tmp_path / "again").iterdir()}
    assert modes == {0o666 & ~mask}


@pytest.mark.slow
def test_hugging_face_libraries_read_what_is_saved(
    minilm_peer: Peer, variant_peers: list[Peer], tmp_path: Path
) -> None:
    import transformers

    text = "Wörld NORM [MASK] é 中 ab <extra> don't <Raw>  x"
    for peer in [minilm_peer, *variant_peers]:
        folder = tmp_path / peer.name
        peer.ours.save(folder)
        again = Tokenizer.from_pretrained(folder)
        assert again.spec == peer.ours.spec
        hub = HubTokenizer.from_file(str(folder / "tokenizer.json"))
        hub.no_truncation()
        hub.no_padding()
        assert hub.encode(text).ids == again.encode(text).tolist()
        loaded = transformers.AutoTokenizer.from_pretrained(folder)
        if peer.name == "minilm":
            assert loaded(text)["input_ids"] == again.encode(text).tolist()
        assert loaded.mask_token_id == again.mask_token_id == 103


def test_minilm_carries_what_its_files_recommend(minilm: Path) -> None:
    spec = Tokenizer.from_pretrained(minilm).spec
    assert spec.truncation is not None
    assert spec.padding is not None
    assert (spec.truncation.max_length, spec.padding.length) == (128, 128)
    assert spec.model_max_length == 512
    long = Tokenizer(spec).encode("word " * 300)
    assert len(long) == 302  # nothing is cut unasked


def test_a_vocab_alone_reads_as_the_json_does(minilm: Path, minilm_peer: Peer) -> None:
    from_vocab = Tokenizer.from_pretrained(minilm / "vocab.txt")
    text = "Wörld [MASK] don't 中文 [CLS]"
    assert from_vocab.encode(text).tolist() == minilm_peer.ours.encode(text).tolist()


def test_a_cased_vocab_does_not_say_itself_whether_to_lower_case(tmp_path: Path) -> None:
    path = tmp_path / "vocab.txt"
    path.write_text("\n".join([*TOY_TOKENS, "Low"]) + "\n")
    with pytest.raises(TokenizerFileError, match="upper-case piece 'Low'"):
        Tokenizer.from_pretrained(path)
    assert Tokenizer.from_pretrained(path, lowercase=False).encode("Low").tolist() == [2, 26, 3]
    assert Tokenizer.from_pretrained(path, lowercase=True).encode("Low").tolist() == [2, 13, 3]


def test_a_carriage_return_ends_a_line(tmp_path: Path) -> None:
    (tmp_path / "vocab.txt").write_bytes("\r\n".join([*TOY_TOKENS, ""]).encode())
    assert Tokenizer.from_pretrained(tmp_path).encode("low").tolist() == [2, 13, 3]


# What str.strip and str.splitlines take for white space or a line end; the first two are pieces of
# bert-base-chinese.
BLANKS = [
    "\u2028",
    "\u3000",
    "\u2029",
    "\x85",
    "\xa0",
    "\x1c",
    "\x1d",
    "\x1e",
    "\x0b",
    "\x0c",
    "\t",
]


@pytest.mark.slow
@pytest.mark.parametrize("place", ["vocab.txt", "tokenizer.json", "both"])
def test_white_space_is_a_piece_as_for_transformers(tmp_path: Path, place: str) -> None:
    from transformers import BertTokenizer, BertTokenizerLegacy

    # Rust's reader cuts white space at a line's end, so it takes "y\u3000" for "y", as Python's
    # reader and ours do not.
    blanks = [*BLANKS, " ", "", *(f"##{blank}" for blank in BLANKS), " x", "y\u3000", "好"]
    tokens = [*TOY_TOKENS, *blanks]
    path = tmp_path / "vocab.txt"
    path.write_bytes("".join(f"{token}\n" for token in tokens).encode())
    (tmp_path / "tokenizer_config.json").write_text('{"do_lower_case": false}')
    ours = Tokenizer.from_pretrained(tmp_path)
    if place != "vocab.txt":
        ours.save(tmp_path)
        assert path.read_bytes() == "".join(f"{token}\n" for token in tokens).encode()
    if place == "tokenizer.json":
        path.unlink()
    ours = Tokenizer.from_pretrained(tmp_path)
    legacy: Any = BertTokenizerLegacy
    slow = legacy(str(path), do_lower_case=False) if path.exists() else None
    fast = BertTokenizer.from_pretrained(tmp_path, do_lower_case=False)
    assert {token: ours.token_to_id(token) for token in tokens} == {
        token: number for number, token in enumerate(tokens)
    }
    texts = [f"a{blank}b 好{blank} x {blank}" for blank in (*BLANKS, " ", "")]
    for text, row in zip(texts, ours.encode_batch(texts).tolist(), strict=True):
        assert fast(text)["input_ids"] == row
        assert slow is None or slow(text)["input_ids"] == row


@pytest.mark.parametrize(
    ("lines", "message"),
    [
        ([], "is empty"),
        ([*TOY_TOKENS, "", ""], "lines 27 and 28 are both ''"),
        ([*TOY_TOKENS, "want"], "lines 6 and 27 are both 'want'"),
        ([t for t in TOY_TOKENS if t != "[UNK]"], r"lacks '\[UNK\]', the unk token"),
        ([t for t in TOY_TOKENS if t != "[CLS]"], r"lacks '\[CLS\]'"),
        ([t for t in TOY_TOKENS if t != "[SEP]"], r"lacks '\[SEP\]'"),
        (["\ufeff[PAD]", *TOY_TOKENS], "byte order mark"),
    ],
)
def test_vocab_files_that_are_wrong(tmp_path: Path, lines: list[str], message: str) -> None:
    path = tmp_path / "vocab.txt"
    path.write_text("".join(f"{line}\n" for line in lines), encoding="utf-8")
    with pytest.raises(TokenizerFileError, match=message):
        Tokenizer.from_pretrained(tmp_path)


def test_places_that_hold_no_tokenizer(tmp_path: Path) -> None:
    with pytest.raises(
        TokenizerFileError, match=r"looked for tokenizer.json, vocab.txt and sentencepiece"
    ):
        Tokenizer.from_pretrained(tmp_path)
    with pytest.raises(TokenizerFileError, match="does not exist"):
        Tokenizer.from_pretrained(tmp_path / "none")
    (tmp_path / "model.bin").write_bytes(b"")
    with pytest.raises(TokenizerFileError, match=r"not a .json, .txt or .model"):
        Tokenizer.from_pretrained(tmp_path / "model.bin")


@pytest.mark.parametrize(
    ("content", "message"),
    [
        (b"", "not valid JSON"),
        (b"{", "not valid JSON"),
        (b"[]", "must be an object"),
        (b"\xff{}", "not UTF-8: byte 0"),
        (b'{"version": "1.0", "version": "1.0"}', "'version' occurs twice"),
        (b"[" * 100_000, "JSON: maximum recursion depth"),
    ],
)
def test_json_files_that_are_not(tmp_path: Path, content: bytes, message: str) -> None:
    (tmp_path / "tokenizer.json").write_bytes(content)
    with pytest.raises(TokenizerFileError, match=message):
        Tokenizer.from_pretrained(tmp_path)


def put(*path: str | int, value: object) -> Callable[[dict[str, Any]], None]:
    """Make an edit that sets one member."""

    def edit(config: dict[str, Any]) -> None:
        node: Any = config
        for key in path[:-1]:
            node = node[key]
        node[path[-1]] = value

    return edit


NEW = {
    "id": 26,
    "content": "new",
    "single_word": False,
    "lstrip": False,
    "rstrip": False,
    "normalized": True,
    "special": False,
}


def add(*tokens: dict[str, object]) -> Callable[[dict[str, Any]], None]:
    """Make an edit that appends added tokens, each a change to NEW."""

    def edit(config: dict[str, Any]) -> None:
        config["added_tokens"] += [{**NEW, **token} for token in tokens]

    return edit


WRONG: list[tuple[Callable[[dict[str, Any]], None], str]] = [
    (put("version", value="2.0"), "must be '1.0'"),
    (put("extra", value=1), "unknown .*: 'extra'"),
    (put("model", value=None), "no model"),
    (put("model", "type", value="Trie"), "a Trie model is not supported"),
    (put("model", "type", value=3), "model.type must be a string"),
    (put("model", "dropout", value=0.1), "unknown .*: 'dropout'"),
    (put("model", "vocab", value=["a"]), "model.vocab must be an object"),
    (put("model", "vocab", "a", value="15"), r"vocab\['a'\] must be an integer"),
    (put("model", "vocab", "a", value=True), r"vocab\['a'\] must be an integer"),
    (put("model", "vocab", "a", value=-1), "must be an integer"),
    (put("model", "vocab", "a", value=2**31), "must be an integer"),
    (put("model", "vocab", "a", value=16), "share the id 16"),
    (put("model", "max_input_chars_per_word", value=-1), "at least 0"),
    (put("model", "max_input_chars_per_word", value=10**30), "max_input.*at most 2147483647"),
    (put("model", "continuing_subword_prefix", value=None), "must be a string"),
    (put("model", "continuing_subword_prefix", value="\ud800"), "prefix.*lone surrogates"),
    (put("model", "vocab", "\udfff", value=26), "model.vocab must be .*lone surrogates"),
    (put("post_processor", "single", 0, "SpecialToken", "type_id", value=10**30), "type_id.*most"),
    (put("normalizer", "lowercase", value="yes"), "must be true or false"),
    (put("decoder", value={"type": "ByteLevel"}), "the decoder ByteLevel is not supported"),
    (put("post_processor", value={"type": "Lower"}), "the post-processor Lower is not"),
    (put("post_processor", "single", value=[]), "must use A, and no other text"),
    (put("post_processor", "pair", 3, value={"Sequence": {"id": "A", "type_id": 1}}), "A and B"),
    (
        put("post_processor", "pair", 3, value={"Sequence": {"id": "C", "type_id": 1}}),
        "one of A, B",
    ),
    (put("post_processor", "special_tokens", "[CLS]", "ids", value=[3]), "id 3 here but 2"),
    (put("post_processor", "special_tokens", "[CLS]", "ids", value=[]), "1 tokens but 0 ids"),
    (put("post_processor", "special_tokens", value={}), "not among special_tokens"),
    (put("post_processor", "single", 0, value={}), "either a SpecialToken or a Sequence"),
    (put("truncation", value={"max_length": 5, "strategy": "Half", "stride": 0}), "LongestFirst"),
    (put("truncation", value={"max_length": "5"}), "at least 0"),
    (put("padding", value={"strategy": "Longest", "direction": "Right"}), "must be an object"),
    (put("padding", value={"strategy": "BatchLongest", "direction": "Up"}), "one of Right, Left"),
    (add({"id": 27}), "has the id 27, but its position gives it 26"),
    (add({"content": "low"}), "'low' has the id 26, but its position gives it 13"),
    (add({"content": ""}), "is empty or occurs twice"),
    (add({}, {}), "'new' is empty or occurs twice"),
    (add({}, {"content": "NEW", "id": 27}), "'new' and 'NEW' are the same once normalized"),
    (add({"content": "\u0301"}), "nothing is left of the added token"),
    (add({"rank": 1}), "unknown .*: 'rank'"),
    (add({"lstrip": None}), "lstrip must be true or false"),
    (put("added_tokens", value={}), "must be a list"),
]


@pytest.mark.parametrize(("edit", "message"), WRONG, ids=[message for _, message in WRONG])
def test_tokenizer_json_that_is_wrong_or_asks_too_much(
    toy_json: Path, edit: Callable[[dict[str, Any]], None], message: str
) -> None:
    config = json.loads(toy_json.read_text())
    edit(config)
    toy_json.write_text(json.dumps(config))
    with pytest.raises(TokenizerFileError, match=message):
        Tokenizer.from_pretrained(toy_json)


def test_harmless_spellings_of_tokenizer_json_are_read(toy_json: Path) -> None:
    config = json.loads(toy_json.read_text())
    expected = Tokenizer.from_pretrained(toy_json).encode("low a").tolist()
    del config["model"]["type"]
    config["normalizer"] = {"type": "Sequence", "normalizers": [config["normalizer"]]}
    config["pre_tokenizer"] = {"type": "Sequence", "pretokenizers": [config["pre_tokenizer"]]}
    config["post_processor"] = {"type": "BertProcessing", "sep": ["[SEP]", 3], "cls": ["[CLS]", 2]}
    del config["truncation"]
    toy_json.write_text(json.dumps(config))
    tokenizer = Tokenizer.from_pretrained(toy_json)
    assert tokenizer.encode("low a").tolist() == expected
    assert HubTokenizer.from_file(str(toy_json)).encode("low a").ids == expected
    config["post_processor"] = None
    config["normalizer"] = None
    config["decoder"] = None
    toy_json.write_text(json.dumps(config))
    plain = Tokenizer.from_pretrained(toy_json)
    theirs = HubTokenizer.from_file(str(toy_json))
    assert plain.encode("low a").tolist() == theirs.encode("low a").ids == [13, 15]
    assert (
        plain.encode_batch(["low"], ["a"]).type_ids.tolist() == theirs.encode("low", "a").type_ids
    )
    assert plain.decode([5, 7, 13]) == theirs.decode([5, 7, 13])


@pytest.mark.parametrize(
    ("config", "message"),
    [
        ({"do_lower_case": False}, "do_lower_case=False"),
        ({"strip_accents": False}, "strip_accents=False"),
        ({"tokenize_chinese_chars": False}, "tokenize_chinese_chars=False"),
        ({"mask_token": "<none>"}, "mask token '<none>' is not in the vocabulary"),
        ({"do_basic_tokenize": False}, "do_basic_tokenize"),
        ({"never_split": ["x"]}, "never_split"),
        ({"cls_token": 3}, "cls_token must be a string"),
        ({"padding_side": "up"}, "must be one of left, right"),
        ({"model_max_length": float("-inf")}, "model_max_length must be a number of at least 0"),
        ({"model_max_length": float("nan")}, "model_max_length must be a number"),
        ({"model_max_length": "512"}, "model_max_length must be a number"),
    ],
)
def test_a_tokenizer_json_and_its_config_that_contradict(
    toy_json: Path, config: dict[str, Any], message: str
) -> None:
    (toy_json.parent / "tokenizer_config.json").write_text(json.dumps(config))
    with pytest.raises(TokenizerFileError, match=message):
        Tokenizer.from_pretrained(toy_json.parent)


@pytest.mark.parametrize(
    ("config", "message"),
    [
        ({"tokenizer_class": "BertJapaneseTokenizer"}, "BertJapaneseTokenizer is not supported"),
        ({"tokenizer_class": "MPNetTokenizerFast"}, "MPNetTokenizerFast is not supported"),
        ({"sep_token": "</s>"}, "lacks '</s>', the sep token"),
        ({"added_tokens_decoder": {"x": {"content": "a"}}}, "expected a token id"),
        ({"added_tokens_decoder": {"40": {"content": "new"}}}, "its position gives it 26"),
        ({"added_tokens_decoder": {"26": {"content": ""}}}, "an added token is empty"),
    ],
)
def test_a_vocab_and_its_config_that_contradict(
    toy_folder: Path, config: dict[str, Any], message: str
) -> None:
    (toy_folder / "tokenizer_config.json").write_text(json.dumps({"do_lower_case": True} | config))
    with pytest.raises(TokenizerFileError, match=message):
        Tokenizer.from_pretrained(toy_folder)


def test_a_vocab_and_a_tokenizer_json_must_agree(toy_folder: Path, toy_json: Path) -> None:
    shutil.copy(toy_json, toy_folder)
    Tokenizer.from_pretrained(toy_folder)
    lines = list(TOY_TOKENS)
    lines[5], lines[8] = lines[8], lines[5]
    (toy_folder / "vocab.txt").write_text("\n".join(lines) + "\n")
    with pytest.raises(TokenizerFileError, match=r"contradict each other: 'wa' is 5.* and 8"):
        Tokenizer.from_pretrained(toy_folder)
    (toy_folder / "vocab.txt").write_text("\n".join(TOY_TOKENS[:-1]) + "\n")
    with pytest.raises(TokenizerFileError, match='only the latter has "\'"'):
        Tokenizer.from_pretrained(toy_folder)


def test_companions_that_contradict_each_other(toy_folder: Path) -> None:
    (toy_folder / "tokenizer_config.json").write_text('{"do_lower_case": true, "cls_token": "a"}')
    (toy_folder / "special_tokens_map.json").write_text('{"cls_token": {"content": "[CLS]"}}')
    with pytest.raises(TokenizerFileError, match=r"cls_token is '\[CLS\]' here but 'a'"):
        Tokenizer.from_pretrained(toy_folder)
    (toy_folder / "tokenizer_config.json").write_text('{"do_lower_case": true}')
    assert Tokenizer.from_pretrained(toy_folder).cls_token_id == 2


def test_old_added_tokens_files_are_refused(toy_folder: Path) -> None:
    (toy_folder / "added_tokens.json").write_text('{"new": 26}')
    with pytest.raises(TokenizerFileError, match=r"added_tokens.json does not say"):
        Tokenizer.from_pretrained(toy_folder)


def test_lower_casing_is_not_asked_where_the_file_says(toy_folder: Path, toy_json: Path) -> None:
    with pytest.raises(TokenizerFileError, match="leave lowercase out"):
        Tokenizer.from_pretrained(toy_json, lowercase=True)
    with pytest.raises(TokenizerFileError, match="lowercase=False, but"):
        Tokenizer.from_pretrained(toy_folder, lowercase=False)


def test_a_vocabulary_with_gaps_is_read_and_saved(toy_json: Path, tmp_path: Path) -> None:
    config = json.loads(toy_json.read_text())
    config["model"]["vocab"]["zzz"] = 40
    toy_json.write_text(json.dumps(config))
    tokenizer = Tokenizer.from_pretrained(toy_json)
    assert (tokenizer.vocab_size, tokenizer.id_to_token(30)) == (41, None)
    tokenizer.save(tmp_path / "gaps")
    assert not (tmp_path / "gaps" / "vocab.txt").exists()
    assert Tokenizer.from_pretrained(tmp_path / "gaps").encode("zzz").tolist() == [2, 40, 3]


def test_saving_where_a_file_stands_fails_whole(toy_folder: Path, tmp_path: Path) -> None:
    (tmp_path / "file").write_text("")
    with pytest.raises(OutputError, match="cannot be written"):
        Tokenizer.from_pretrained(toy_folder).save(tmp_path / "file")


def test_a_template_with_the_second_text_first_agrees(minilm_peer: Peer, tmp_path: Path) -> None:
    folder = tmp_path / "turned"
    minilm_peer.ours.save(folder)
    path = folder / "tokenizer.json"
    config = json.loads(path.read_text(encoding="utf-8"))
    pair = config["post_processor"]["pair"]
    config["post_processor"]["pair"] = [pair[0], pair[3], pair[2], pair[1]]
    (tmp_path / "turned.json").write_text(json.dumps(config), encoding="utf-8")
    from tests.text.parity.peers import Peer

    peer = Peer("turned", tmp_path / "turned.json")
    texts, pairs = ["a b c d e f", "one"], ["u v w x", "two three four five six seven"]
    for overflow in (False, True):
        settings = Settings(max_length=8, overflow=overflow)
        assert peer.compare(texts, pairs, settings) is None


def test_a_vocabulary_whose_words_need_a_dictionary_is_refused(toy_folder: Path) -> None:
    (toy_folder / "config.json").write_text(json.dumps({"model_type": "roformer"}))
    with pytest.raises(
        TokenizerFileError, match=r"vocab\.txt of RoFormerTokenizer is not supported"
    ):
        Tokenizer.from_pretrained(toy_folder)
