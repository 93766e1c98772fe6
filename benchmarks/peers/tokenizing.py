"""Loads other libraries' tokenizers: ids and offsets, in the forms of output that each has."""

from __future__ import annotations

import json
import os
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np

from benchmarks.jobs.tokenizing import (
    Way,
    list_rows,
    matrix_rows,
    offset_rows,
    one_row,
    packed_rows,
    with_template,
)
from benchmarks.measuring.case import Work
from benchmarks.peers import Peer, TokenizerPeer

if TYPE_CHECKING:
    from collections.abc import Sequence

    from benchmarks.jobs.tokenizing import Load, PieceFile, Rows, TokenizerJob, Ways


def load_fastokens(job: TokenizerJob) -> Ways:
    """Load fastokens, in Rust: BPE, ids only."""
    import fastokens

    return flat_ways(fastokens.Tokenizer.from_file(job.file))


def flat_ways(tokenizer: Any) -> Ways:
    """Return the calls of fastokens, or of a tokenizer that has the same methods."""

    def sentence(texts: list[str]) -> Any:
        for text in texts:
            ids = tokenizer.encode(text, True).ids
        return ids

    def arrays(texts: list[str]) -> Any:
        ids, starts = tokenizer.encode_batch_flat(texts, True)
        return np.frombuffer(ids, dtype=np.uint32), np.frombuffer(starts, dtype=np.uint64)

    return {
        "arrays": Way(call=arrays, rows=lambda packed: packed_rows(*packed)),
        "lists": Way(
            call=lambda texts: [row.ids for row in tokenizer.encode_batch(texts, True)],
            rows=list_rows,
        ),
        "sentence": Way(call=sentence, rows=one_row),
    }


def load_gigatoken(job: TokenizerJob) -> Ways:
    """Load gigatoken, in Rust: BPE, ids only; it does not add special tokens."""
    import gigatoken

    tokenizer = gigatoken.Tokenizer.from_json(Path(job.file).read_bytes())
    parallel = job.threads > 1

    def sentence(texts: list[str]) -> Any:
        for text in texts:
            ids = tokenizer.encode(text)
        return ids

    def rows(found: Any) -> Rows:
        return with_template(job, found)

    return {
        "arrays": Way(
            call=lambda texts: tokenizer.encode_batch(texts, parallel=parallel),
            rows=lambda found: rows(found.to_list()),
        ),
        "files": Way(
            call=lambda path: tokenizer.encode_files(
                gigatoken.TextFileSource([path], separator="\n"), parallel=parallel
            ),
            rows=lambda found: rows(found.to_list()),
        ),
        "lists": Way(
            call=lambda texts: tokenizer.encode_batch_list(texts, parallel=parallel), rows=rows
        ),
        "sentence": Way(call=sentence, rows=lambda ids: rows([ids])),
    }


def load_kitoken(job: TokenizerJob) -> Ways:
    """Load kitoken, in Rust: lists of ids only; it does not add special tokens."""
    import kitoken

    tokenizer = kitoken.Kitoken.from_tokenizers_file(job.file)

    def sentence(texts: list[str]) -> Any:
        for text in texts:
            ids = tokenizer.encode(text, True)
        return ids

    def rows(found: list[list[int]]) -> Rows:
        return with_template(job, found)

    return {
        "lists": Way(call=lambda texts: tokenizer.encode_all(texts, True), rows=rows),
        "sentence": Way(call=sentence, rows=lambda ids: rows([ids])),
    }


def load_nanotoken(job: TokenizerJob) -> Ways:
    """Load nanotoken, in Rust: WordPiece, ids only."""
    import nanotoken

    tokenizer = nanotoken.Tokenizer.from_json(Path(job.file).read_bytes())
    parallel = job.threads > 1

    def sentence(texts: list[str]) -> Any:
        for text in texts:
            ids = tokenizer.encode(text)
        return ids

    def matrix(texts: list[str]) -> Any:
        found = tokenizer.encode_batch_padded(
            texts,
            max_length=job.max_length,
            truncation=True,
            padding="max_length",
            return_token_type_ids=False,
            parallel=parallel,
        )
        return found["input_ids"], found["attention_mask"]

    return {
        "arrays": Way(
            call=lambda texts: tokenizer.encode_batch(texts, parallel=parallel),
            rows=lambda found: packed_rows(found.ids, found.offsets),
        ),
        "files": Way(
            call=lambda path: tokenizer.encode_files(
                nanotoken.TextFileSource([path], separator="\n"), parallel=parallel
            ),
            rows=lambda found: packed_rows(found.ids, found.offsets),
        ),
        "lists": Way(
            call=lambda texts: tokenizer.encode_batch_list(texts, parallel=parallel), rows=list_rows
        ),
        "sentence": Way(call=sentence, rows=one_row),
        "matrix": Way(call=matrix, rows=matrix_rows),
    }


def call_nanotoken(file: str, texts: list[str], settings: dict[str, Any]) -> Work:
    """Load nanotoken's stand-in for a tokenizer of transformers; a call encodes all texts."""
    # Its pool starts with the first call.
    os.environ["RAYON_NUM_THREADS"] = "1"
    import nanotoken

    tokenizer = nanotoken.Tokenizer.from_json(Path(file).read_bytes()).as_hf()

    def call() -> Any:
        return tokenizer(texts, **settings)

    return Work(call=call, answer=lambda: dict(call()))


def load_sentencepiece(job: TokenizerJob) -> Ways:
    """Load sentencepiece, Unigram's origin, from the .model; only the gate adds special tokens."""
    import sentencepiece

    pieces = job.pieces
    assert pieces is not None
    processor: Any = sentencepiece.SentencePieceProcessor(model_file=pieces.path)
    threads = job.threads

    def sentence(texts: list[str]) -> Any:
        for text in texts:
            ids = processor.encode(text)
        return ids

    def rows(found: Sequence[Any]) -> Rows:
        return with_template(job, [translate(pieces, ids) for ids in found])

    return {
        "arrays": Way(
            call=lambda texts: processor.encode(texts, return_type="numpy", num_threads=threads),
            rows=rows,
        ),
        "lists": Way(call=lambda texts: processor.encode(texts, num_threads=threads), rows=rows),
        "sentence": Way(call=sentence, rows=lambda ids: rows([ids])),
    }


def translate(pieces: PieceFile, ids: Any) -> list[int]:
    """Map ids of a SentencePiece model to those of the tokenizer.json."""
    return [pieces.ids.get(int(number), int(number) + pieces.shift) for number in np.asarray(ids)]


def load_snaptokens(job: TokenizerJob) -> Ways:
    """Load snaptokens, in Rust: BPE of bytes, ids only."""
    import snaptokens

    return flat_ways(snaptokens.Tokenizer.from_file(job.file))


def load_splintr(job: TokenizerJob) -> Ways:
    """Load splintr, in Rust: ids only."""
    import splintr

    tokenizer = splintr.from_json(job.file)

    def sentence(texts: list[str]) -> Any:
        for text in texts:
            ids = tokenizer.encode(text)
        return ids

    def arrays(texts: list[str]) -> Any:
        ids, starts = tokenizer.encode_batch_flat(texts)
        return np.frombuffer(ids, dtype=np.uint32), np.frombuffer(starts, dtype=np.uint64)

    return {
        "arrays": Way(call=arrays, rows=lambda packed: packed_rows(*packed)),
        "lists": Way(call=tokenizer.encode_batch, rows=list_rows),
        "sentence": Way(call=sentence, rows=one_row),
    }


def train_bpe(path: str, documents: list[str]) -> None:
    """Train byte-level BPE with GPT-2's regular expression, and write its tokenizer.json."""
    from tokenizers import Tokenizer, decoders, models, pre_tokenizers, trainers

    tokenizer: Any = Tokenizer(models.BPE())
    tokenizer.pre_tokenizer = pre_tokenizers.ByteLevel(add_prefix_space=False)
    tokenizer.decoder = decoders.ByteLevel()
    letters = pre_tokenizers.ByteLevel.alphabet()
    trainer = trainers.BpeTrainer(vocab_size=8192, initial_alphabet=letters, show_progress=False)
    tokenizer.train_from_iterator(documents, trainer)
    tokenizer.save(path)


def load_tokenizers(job: TokenizerJob) -> Ways:
    """Load tokenizers 0.23, the reference for all other candidates."""
    from tokenizers import Tokenizer

    tokenizer = Tokenizer.from_file(job.file)
    if job.form == "matrix":
        tokenizer.enable_truncation(job.max_length)
        tokenizer.enable_padding(length=job.max_length, **pad_token(job))
    # The fast way leaves offsets out.
    encode = tokenizer.encode_batch_fast

    def sentence(texts: list[str]) -> Any:
        for text in texts:
            ids = tokenizer.encode(text).ids
        return ids

    def matrix(texts: list[str]) -> Any:
        rows = encode(texts)
        return (
            np.array([row.ids for row in rows]),
            np.array([row.attention_mask for row in rows]),
        )

    def offsets(texts: list[str]) -> Any:
        rows = tokenizer.encode_batch(texts)
        return [row.ids for row in rows], [row.offsets for row in rows]

    return {
        "arrays": Way(
            call=lambda texts: [np.array(row.ids, dtype=np.uint32) for row in encode(texts)],
            rows=list_rows,
        ),
        "files": Way(
            call=lambda path: [
                np.array(row.ids, dtype=np.uint32)
                for row in encode(Path(str(path)).read_text("utf-8").split("\n"))
            ],
            rows=list_rows,
        ),
        "lists": Way(call=lambda texts: [row.ids for row in encode(texts)], rows=list_rows),
        "sentence": Way(call=sentence, rows=one_row),
        "matrix": Way(call=matrix, rows=matrix_rows),
        "offsets": Way(call=offsets, rows=lambda found: offset_rows(*found)),
    }


def pad_token(job: TokenizerJob) -> dict[str, Any]:
    """Return the padding token of the tokenizer.json as options ``pad_id`` and ``pad_token``."""
    added = json.loads(Path(job.file).read_text(encoding="utf-8"))["added_tokens"]
    return next(
        {"pad_id": token["id"], "pad_token": token["content"]}
        for token in added
        if token["content"] in ("[PAD]", "<pad>")
    )


def load_tokenizers_1(job: TokenizerJob) -> Ways:
    """Load tokenizers 1.0, a pre-release of the rewrite: without offsets and word ids."""
    import tokenizers

    # Its types are those of another version than the one that is checked here.
    library: Any = tokenizers
    tokenizer = library.Tokenizer.from_file(job.file)
    encode = tokenizer.encode_batch
    if job.form == "matrix":
        tokenizer.truncation = library.Truncation(max_length=job.max_length)
        tokenizer.padding = library.Padding(length=job.max_length, **pad_token(job))

    def sentence(texts: list[str]) -> Any:
        for text in texts:
            ids = tokenizer.encode(text).ids_array
        return ids

    def matrix(texts: list[str]) -> Any:
        rows = encode(texts)
        return (
            np.stack([row.ids_array for row in rows]),
            np.stack([row.attention_mask_array for row in rows]),
        )

    return {
        "arrays": Way(call=lambda texts: [row.ids_array for row in encode(texts)], rows=list_rows),
        "lists": Way(call=lambda texts: [row.ids for row in encode(texts)], rows=list_rows),
        "sentence": Way(call=sentence, rows=one_row),
        "matrix": Way(call=matrix, rows=matrix_rows),
    }


def load_tokie(job: TokenizerJob) -> Ways:
    """Load tokie, in Rust; its offsets are bytes of the normalized text."""
    import tokie

    # Its stub lacks encode_batch_flat.
    tokenizer: Any = tokie.Tokenizer.from_json(job.file)
    # With Unigram it leaves out the template's last token: it is held to the others, without any.
    whole = job.pieces is None
    if job.form == "matrix":
        tokenizer.enable_truncation(job.max_length)
        tokenizer.enable_padding(length=job.max_length, pad_id=pad_token(job)["pad_id"])

    def sentence(texts: list[str]) -> Any:
        for text in texts:
            ids, _ = tokenizer.encode_batch_flat([text], whole)
        return ids

    def rows(found: Any) -> Rows:
        return list_rows(found) if whole else with_template(job, found)

    def matrix(texts: list[str]) -> Any:
        rows = tokenizer.encode_batch(texts)
        return (
            np.array([row.ids for row in rows]),
            np.array([row.attention_mask for row in rows]),
        )

    def offsets(texts: list[str]) -> Any:
        rows = [tokenizer.encode_with_offsets(text) for text in texts]
        return [row.ids for row in rows], [row.offsets for row in rows]

    def packed(found: Any) -> Any:
        ids, lengths = found
        return rows(packed_rows(ids, np.concatenate([[0], np.cumsum(lengths)])))

    return {
        "arrays": Way(call=lambda texts: tokenizer.encode_batch_flat(texts, whole), rows=packed),
        "lists": Way(
            call=lambda texts: [row.ids for row in tokenizer.encode_batch(texts, whole)], rows=rows
        ),
        "sentence": Way(call=sentence, rows=lambda ids: rows([ids])),
        "matrix": Way(call=matrix, rows=matrix_rows),
        "offsets": Way(call=offsets, rows=lambda found: offset_rows(*found)),
    }


def _library(
    name: str, load: Load, forms: str, module: str, distribution: str = "", **options: Any
) -> Peer:
    return Peer(
        name=name,
        modules={module: distribution or module},
        tokenizing=TokenizerPeer(
            load=load,
            forms=frozenset(forms.split()),  # type: ignore[arg-type]
            models=frozenset(options.pop("models", "WordPiece Unigram BPE").split()),
            by_pieces=options.pop("by_pieces", False),
        ),
        **{"environment": "tokenizers", **options},
    )


ALL, IDS = "arrays lists sentence matrix offsets", "arrays lists sentence"
PEERS = (
    _library("fastokens", load_fastokens, IDS, "fastokens", models="BPE"),
    _library("gigatoken", load_gigatoken, f"{IDS} files", "gigatoken", models="BPE"),
    _library("kitoken", load_kitoken, "lists sentence", "kitoken"),
    _library("nanotoken", load_nanotoken, f"{IDS} files matrix", "nanotoken", models="WordPiece"),
    _library("sentencepiece", load_sentencepiece, IDS, "sentencepiece", by_pieces=True),
    _library("snaptokens", load_snaptokens, IDS, "snaptokens", models="BPE"),
    _library("splintr", load_splintr, IDS, "splintr", "splintr-rs"),
    _library("tokenizers", load_tokenizers, f"{ALL} files", "tokenizers"),
    _library(
        "tokenizers 1.0",
        load_tokenizers_1,
        f"{IDS} matrix",
        "tokenizers",
        environment="tokenizers-1",
        only_there=True,
    ),
    _library("tokie", load_tokie, ALL, "tokie"),
)
