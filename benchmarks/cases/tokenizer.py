"""Tokenizers on long, short and unseen texts; the gate compares with tokenizers 0.23."""

from __future__ import annotations

from dataclasses import dataclass, replace
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING, Any, NamedTuple

import numpy as np

from benchmarks.jobs.gates import ParityGate
from benchmarks.jobs.tokenizing import (
    Form,
    PieceFile,
    Task,
    TokenizerJob,
    Way,
    build,
    folder,
    list_rows,
    matrix_rows,
    offset_rows,
    one_row,
    timed_texts,
    truth,
)
from benchmarks.measuring.case import Candidate, Case, CaseSpec, Options, ours
from benchmarks.measuring.worker import run_in_worker
from benchmarks.peers import find_peers, tokenizer_candidates
from benchmarks.peers import tokenizing as truth_peer
from benchmarks.texts import tokenizer_texts as texts_of
from benchmarks.texts.corpus import read_documents
from benchmarks.texts.vocabularies import minilm_missing, tokenizer_json, unigram_model

if TYPE_CHECKING:
    from collections.abc import Callable

    from benchmarks.jobs.tokenizing import Model, Rows, Ways
    from benchmarks.texts.tokenizer_texts import Texts

# Of the batch's texts, one in six has more tokens: rows are cut as well as filled.
MAX_LENGTH = 32
SENTENCE_CALLS = 1000


@dataclass(frozen=True, kw_only=True)
class Vocabulary:
    """A vocabulary of the repository, with the ids that its template puts before and after a text.

    ``pieces``: its SentencePiece model, if it has one. :data:`TRAINED` is the name of a vocabulary
    that is trained on texts of the repository.
    """

    name: str
    model: Model
    before: tuple[int, ...]
    after: tuple[int, ...]
    pieces: PieceFile | None = None


class Kind(NamedTuple):
    """A case, made for every vocabulary: which texts, what output (``form``), and what a call does.

    ``threads``: the number of threads that the case needs; None: any.
    """

    name: str
    texts: Texts
    form: Form
    task: Task
    summary: str
    threads: int | None = None


TRAINED = "bpe"
VOCABULARIES = (
    Vocabulary(
        name="wordpiece",
        model="WordPiece",
        before=(101,),
        after=(102,),
    ),
    Vocabulary(
        name="xlmr",
        model="Unigram",
        before=(0,),
        after=(2,),
        # <unk>, <s> and </s> come first; every other piece follows a padding token of its own.
        pieces=PieceFile(path="xlmr.model", shift=1, ids={0: 3, 1: 0, 2: 2}),
    ),
    Vocabulary(
        name="xlnet",
        model="Unigram",
        before=(),
        after=(4, 3),
        pieces=PieceFile(path="xlnet.model", ids={}),
    ),
    Vocabulary(name="gpt2", model="BPE", before=(), after=()),
    Vocabulary(name="qwen2", model="BPE", before=(), after=()),
    Vocabulary(name=TRAINED, model="BPE", before=(), after=()),
)
KINDS = (
    Kind("english", "english", "arrays", "batch", "1 MB of English in one text, to arrays"),
    Kind("english-lists", "english", "lists", "batch", "the same, to lists of ints"),
    Kind("multilingual", "multilingual", "arrays", "batch", "one text of 15 languages, to arrays"),
    Kind("code", "code", "arrays", "batch", "1 MB of Python in one text, to arrays"),
    Kind("batch", "batch", "arrays", "batch", "512 short texts, to arrays"),
    Kind("batch-lists", "batch", "lists", "batch", "512 short texts, to lists"),
    Kind("sentence", "sentence", "sentence", "batch", "one sentence a call"),
    Kind("matrix", "batch", "matrix", "batch", f"512 short texts, cut and padded to {MAX_LENGTH}"),
    Kind("offsets", "batch", "offsets", "batch", "512 short texts with offsets"),
    Kind("cold", "stream", "arrays", "stream", "20 MB, each text once"),
    Kind("cold-end", "stream", "arrays", "stream end", "its last quarter"),
    Kind("cold-multilingual", "multi-stream", "arrays", "stream", "15 languages, each text once"),
    Kind("files", "stream", "files", "batch", "the lines of a file of 20 MB, to arrays"),
    Kind("two-threads", "stream", "arrays", "batch", "documents by two threads and by one", 2),
    Kind("load", "sentence", "sentence", "load", "from the file to the first ids; memory"),
)
# Documents of the case of two threads: they are tokenized again and again.
NUM_DOCUMENTS = 2000


def case_specs() -> list[CaseSpec]:
    """Return the case of each :class:`Kind` with each vocabulary that permits it."""
    return [
        CaseSpec(
            name=f"tokenizer/{vocabulary.name}-{kind.name}",
            summary=kind.summary,
            make=partial(make_case, vocabulary, kind),
            unavailable=minilm_missing if vocabulary.name == "wordpiece" else lambda: None,
        )
        for vocabulary in VOCABULARIES
        for kind in KINDS
        # The files of BPE name no padding token.
        if not (vocabulary.model == "BPE" and kind.form == "matrix")
    ]


def make_job(vocabulary: Vocabulary, kind: Kind, options: Options) -> TokenizerJob:
    """Read the texts, write the vocabulary's files, and describe what candidates tokenize."""
    place = Path(folder().name)
    texts = texts_of.read_texts(kind.texts, smoke=options.smoke)
    if kind.threads is not None:
        texts = texts[:NUM_DOCUMENTS]
    judged = texts_of.lines_of(texts, smoke=options.smoke) if kind.task == "batch" else []
    if kind.form == "files":
        texts, judged = [line for text in texts for line in text.split("\n") if line.strip()], []
    if kind.form == "sentence" and kind.task == "batch":
        texts = texts * (3 if options.smoke else SENTENCE_CALLS)
    pieces = vocabulary.pieces
    if pieces is not None:
        pieces = replace(
            pieces, path=_written(place / pieces.path, partial(unigram_model, vocabulary.name))
        )
    return TokenizerJob(
        file=_tokenizer_file(vocabulary.name, place, options),
        model=vocabulary.model,
        before=vocabulary.before,
        after=vocabulary.after,
        pieces=pieces,
        form=kind.form,
        task=kind.task,
        texts=tuple(texts),
        judged=tuple(judged),
        max_length=MAX_LENGTH,
        threads=options.threads,
    )


def make_case(vocabulary: Vocabulary, kind: Kind, options: Options) -> Case:
    """Make the case; the gate's reference, tokenizers 0.23, runs in a process of its own."""
    job = make_job(vocabulary, kind, options)
    rows: Rows = _by_tokenizers(partial(truth, truth_peer.load_tokenizers, job), options)
    return Case(
        candidates=(*_ours(kind, job), *tokenizer_candidates(job)),
        gate=ParityGate(truth=rows),
        fingerprint=texts_of.fingerprint([*job.texts, *job.judged], job.file),
        seed=0,
        amounts={
            "texts": len(timed_texts(job)),
            "bytes": sum(len(t.encode()) for t in timed_texts(job)),
        },
        isolated=True,
        fresh=kind.task != "batch",
        rounds=5 if kind.task != "batch" else 7,
    )


def _tokenizer_file(name: str, place: Path, options: Options) -> str:
    """Return the path of a vocabulary's tokenizer.json; the first call writes it."""
    path = place / f"{name}.tokenizer.json"
    if name != TRAINED:
        return _written(path, partial(tokenizer_json, name))
    if not path.is_file():
        documents = read_documents("bundled")
        _by_tokenizers(partial(truth_peer.train_bpe, str(path), documents), options)
    return str(path)


def _written(path: Path, content: Callable[[], bytes]) -> str:
    if not path.is_file():
        path.write_bytes(content())
    return str(path)


def _by_tokenizers(work: Callable[[], Any], options: Options) -> Any:
    """Call ``work`` in the environment that has tokenizers 0.23, and return its result."""
    (reference,) = (peer for peer in find_peers() if peer.name == "tokenizers")
    python = reference.python()
    here = options.smoke and python is None
    return work() if here else run_in_worker(work, options.threads, python)


def _ours(kind: Kind, job: TokenizerJob) -> list[Candidate]:
    """Return the engine's candidates; a case of several threads also gets one of one thread."""
    make = partial(
        build, load, job, modules=("encoder_engine.text.tokenizer", "encoder_engine._native")
    )
    whole = ours(make)
    if kind.threads is None:
        return [whole]
    lacking = f"the run has {job.threads} threads, and the case is about {kind.threads}"
    short = job.threads != kind.threads
    alone = partial(make.func, load, replace(job, threads=1), **make.keywords)
    return [
        replace(whole, unavailable=lacking if short else None),
        ours(alone, "encoder-engine, one thread"),
    ]


def load(job: TokenizerJob) -> Ways:
    """Load the tokenizer.json with the engine; return its calls, one for each form of output."""
    from encoder_engine.text import Tokenizer

    tokenizer = Tokenizer.from_pretrained(job.file)
    threads = job.threads
    encode = partial(tokenizer.encode_batch, num_threads=threads)

    def sentence(texts: list[str]) -> Any:
        for text in texts:
            ids = tokenizer.encode(text)
        return ids

    def matrix(texts: list[str]) -> Any:
        arrays = encode(texts, max_length=job.max_length).to_padded(job.max_length)
        return arrays["input_ids"], arrays["attention_mask"]

    def offset_parts(found: Any) -> Rows:
        return offset_rows(found.tolist(), np.split(found.offsets, found.cu_seqlens[1:-1]))

    return {
        "arrays": Way(call=encode, rows=lambda found: list_rows(found.tolist())),
        "lists": Way(call=lambda texts: encode(texts).tolist(), rows=list_rows),
        "sentence": Way(call=sentence, rows=one_row),
        "matrix": Way(call=matrix, rows=matrix_rows),
        "offsets": Way(call=partial(encode, return_offsets=True), rows=offset_parts),
        "files": Way(
            call=lambda path: list(tokenizer.encode_files(path, num_threads=threads)),
            rows=lambda found: list_rows([row for part in found for row in part.tolist()]),
        ),
    }
