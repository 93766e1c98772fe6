"""The targets on a processor, as values: what is wanted, which case answers it, why one is missed.

Reasons are qualitative, and name the entry of LOG.md that has the figures.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from benchmarks.records.words import MODELS, SHAPES, TOKENIZER_KINDS, VOCABULARIES
from benchmarks.targets import quantities as by
from benchmarks.targets.gpu_targets import gpu_targets
from benchmarks.targets.target import Target

if TYPE_CHECKING:
    from collections.abc import Iterator, Mapping

__all__ = ["all_targets"]

TOKENIZERS, ENCODER = "Tokenizers", "Text to vectors on a processor"
TRAINING, JOBS, DOOR = "Pretraining on a processor", "Embedding jobs", "Front door"
# Kind of work: how many times the best peer, with WordPiece and with Unigram of 250,000 pieces.
TOKENIZER_TIMES = {
    "english": (10.0, 8.0),
    "english-lists": (10.0, 8.0),
    "multilingual": (6.0, 5.0),
    "code": (8.0, 4.0),
    "batch": (10.0, 7.0),
    "batch-lists": (6.0, 5.0),
    "sentence": (5.0, 4.0),
    "matrix": (20.0, 18.0),
    "cold": (4.0, 3.0),
}
_WORDS = "looking up words and cutting them take most of the time (LOG.md, 2026-11-21)"
_CALL = "a good part of a sentence is the interpreter and numpy around it (LOG.md, 2026-11-21)"
_PATHS = "finding words and following their paths take the most time (LOG.md, 2026-11-22)"
_START = "starting up weighs in: past it the aim is reached (LOG.md, 2026-11-21)"
TOKENIZER_REASONS: dict[tuple[str, str], str] = {
    ("wordpiece", "english"): _WORDS,
    ("wordpiece", "english-lists"): _WORDS,
    ("xlmr", "english"): "finding words, walking and the trie share the time (LOG.md, 2026-11-21)",
    ("xlmr", "english-lists"): "as with arrays: the lists cost little (LOG.md, 2026-11-21)",
    ("wordpiece", "multilingual"): "looking up words of two-byte characters and cutting them take "
    "most of the time (LOG.md, 2026-11-21)",
    ("xlmr", "multilingual"): "the trie, classifying characters and finding words share the time "
    "(LOG.md, 2026-11-21)",
    ("wordpiece", "code"): "looking up words and cutting them take most of the time (LOG.md, "
    "2026-11-22)",
    ("wordpiece", "batch"): "looking up words and cutting them take half of the time (LOG.md, "
    "2026-11-22)",
    ("xlmr", "code"): _PATHS,
    ("wordpiece", "sentence"): _CALL,
    ("xlmr", "sentence"): _CALL,
    ("xlmr", "cold"): _START,
}

# Precision: what the gate asks for, and times the best peer on short, skewed and long texts.
QUALITY = {
    "float32": ("min_cosine", 0.999999),
    "bfloat16": ("mean_cosine", 0.9995),
    "int8": ("mean_cosine", 0.995),
}
ENCODER_TIMES: Mapping[str, Mapping[str, float]] = {
    "float32": {"short": 1.2, "skewed": 1.2, "long": 1.15},
    "bfloat16": {"short": 1.25, "skewed": 1.25, "long": 1.25},
    "int8": {"short": 1.4, "skewed": 1.6, "long": 1.5},
}
ENCODER_SHARE = {"float32": 0.8, "bfloat16": 0.8, "int8": 0.65}
_PRODUCTS = (
    "float32 is nearly all matrix products, the best peer's run as fast, and batches sorted by "
    "length hold little padding (LOG.md, 2026-11-22)"
)
_CEILING = (
    "float32 is nearly all matrix products, and beside the share stands the most that the limit "
    "permits over sentence-transformers (LOG.md, 2026-11-22)"
)
_SHARES = {
    "float32": "products take a sixth to a third longer than at the limit, and attention adds to "
    "them (LOG.md, 2026-11-22)",
    "bfloat16": "with AMX products take nearly twice as long as at the limit (LOG.md, 2026-11-22), "
    "on AMD a fifth longer (LOG.md, 2026-11-23), and attention a tenth to a fifth of all",
    "int8": "with AMX what follows a sum takes as long as its products (LOG.md, 2026-11-22); on "
    "AMD products take nearly twice as long as at the limit, and attention a sixth of all (LOG.md, "
    "2026-11-23)",
}
_PYTORCH = "the process holds PyTorch, which the most frugal peers do without"
_FLOAT32 = "its weights are as large as their file, and the process holds PyTorch beside them"
_TESTS = "nearly all of it are the tests"
_NUMPY = "numpy is most of it"
_NO_BLOCKS = (
    "blocks of one length have no padding to leave out, and on Intel both multiply float32 "
    "matrices by the same library (LOG.md, 2026-11-22)"
)


def all_targets() -> list[Target]:
    """Every target, in the order of the plan."""
    return [
        *tokenizer_targets(),
        *encoder_targets(),
        *single_text_targets(),
        *gpu_targets(),
        *training_targets(),
        *job_targets(),
        *door_targets(),
    ]


def tokenizer_targets() -> Iterator[Target]:
    """Every cell of the tokenizers' table, and half of its speeds without AVX-512."""
    for isa in (None, "avx2", "portable"):
        for column, vocabulary in enumerate(("wordpiece", "xlmr")):
            for kind, aims in TOKENIZER_TIMES.items():
                yield _times(vocabulary, kind, aims[column], isa=isa)
            yield _times(vocabulary, "offsets", 100.0, "tokenizers", isa=isa)
            yield _times(vocabulary, "offsets", 15.0, isa=isa)
            yield from _loads(vocabulary, isa)
            yield Target(
                group=TOKENIZERS,
                what=f"{VOCABULARIES[vocabulary]}: two threads over one of its own{_build(isa)}",
                wanted=">= 1.8x",
                at_least=1.8,
                case=f"tokenizer/{vocabulary}-two-threads",
                threads=2,
                isa=isa,
                quantity=by.times_own("encoder-engine, one thread"),
            )
        most = 0.3 * _slack(isa)
        yield Target(
            group=TOKENIZERS,
            what=f"{VOCABULARIES['wordpiece']}: one sentence{_build(isa)}",
            wanted=f"<= {most:g} us",
            at_most=most,
            case="tokenizer/wordpiece-sentence",
            isa=isa,
            quantity=by.microseconds_a_text,
            reason=_CALL,
        )


def _slack(isa: str | None) -> float:
    """Say how much slower a build without AVX-512 may be."""
    return 1.0 if isa is None else 2.0


def _build(isa: str | None) -> str:
    names = {None: "", "avx2": " (AVX2 build)", "portable": " (portable build)"}
    return names[isa]


def _times(vocabulary: str, kind: str, least: float, peer: str = "", *, isa: str | None) -> Target:
    """Ask for times the speed of the best peer, or of one."""
    least /= _slack(isa)
    return Target(
        group=TOKENIZERS,
        what=f"{VOCABULARIES[vocabulary]}: {TOKENIZER_KINDS[kind]}{_build(isa)}",
        wanted=f">= {least:g}x {f'{peer} 0.23' if peer else 'the best peer'}",
        at_least=least,
        case=f"tokenizer/{vocabulary}-{kind}",
        threads=1,
        isa=isa,
        quantity=by.times_peer(peer) if peer else by.times_best(),
        reason=TOKENIZER_REASONS.get((vocabulary, kind), ""),
    )


def _loads(vocabulary: str, isa: str | None) -> Iterator[Target]:
    """Ask that a file is loaded no later than by the best peer."""
    yield Target(
        group=TOKENIZERS,
        what=f"{VOCABULARIES[vocabulary]}: loading its tokenizer.json{_build(isa)}",
        wanted=">= 1x the best peer",
        at_least=1.0,
        case=f"tokenizer/{vocabulary}-load",
        isa=isa,
        quantity=by.times_best(),
    )


def encoder_targets() -> Iterator[Target]:
    """Every model, precision and length: exact, fast, near the limit, and frugal."""
    for model in MODELS:
        for precision, aims in ENCODER_TIMES.items():
            for shape, least in aims.items():
                yield from _encoder(model, precision, shape, least)


def _encoder(model: str, precision: str, shape: str, least: float) -> Iterator[Target]:
    what = f"{MODELS[model]} in {precision}, {SHAPES[shape]}"
    case = f"embedding/{model}-{precision}-{shape}"
    figure, cosine = QUALITY[precision]
    share = ENCODER_SHARE[precision]
    yield Target(
        group=ENCODER,
        what=f"{what}: exactness",
        wanted=f"{figure.replace('_', ' ')} >= {cosine}",
        at_least=cosine,
        case=case,
        quantity=by.gate_figure(figure),
    )
    yield Target(
        group=ENCODER,
        what=f"{what}: speed",
        wanted=f">= {least:g}x the best peer",
        at_least=least,
        case=case,
        quantity=by.times_best(),
        reason=_PRODUCTS if precision == "float32" else _SHARES[precision],
    )
    if precision == "float32":
        yield Target(
            group=ENCODER,
            what=f"{what}: speed",
            wanted=">= 3x sentence-transformers as it comes",
            at_least=3.0,
            case=case,
            quantity=by.times_peer("sentence-transformers"),
            reason=_CEILING,
        )
    yield Target(
        group=ENCODER,
        what=f"{what}: share of the limit",
        wanted=f">= {share:.0%}",
        at_least=share,
        case=case,
        quantity=by.share_of_limit,
        reason=_SHARES[precision],
    )
    yield Target(
        group=ENCODER,
        what=f"{what}: peak memory",
        wanted="<= the most frugal peer's",
        at_most=1.0,
        case=case,
        quantity=by.memory_over_best,
        reason=_FLOAT32 if precision == "float32" and model != "minilm" else _PYTORCH,
    )


def single_text_targets() -> Iterator[Target]:
    """One text in a running process, and the first of a new one."""
    for precision in ENCODER_TIMES:
        yield Target(
            group=ENCODER,
            what=f"MiniLM in {precision}: one short text",
            wanted="<= 0.7x the best peer's time",
            at_most=0.7,
            case=f"latency/minilm-{precision}",
            quantity=by.time_over_best(),
            reason="one text reads all weights, as it does everywhere, and the interpreter is a "
            "good part of what is left (LOG.md, 2026-11-22)",
        )
    for peer, most in (("sentence-transformers", 0.5), ("onnxruntime", 1.3)):
        yield Target(
            group=ENCODER,
            what="MiniLM in float32: cold start",
            wanted=f"<= {most:g}x the time of {peer}"
            + (", beside torch's own import" if peer == "onnxruntime" else ""),
            at_most=most,
            case="cold_start/minilm-float32",
            quantity=by.time_over_best(peer),
            reason="importing PyTorch is most of it, which the target leaves aside"
            if peer == "onnxruntime"
            else "",
        )


def training_targets() -> Iterator[Target]:
    """Put steps beside transformers' loop; tests hold the rest."""
    for name, words in (("tiny", "the tiny recipe"), ("base", "BERT-base")):
        yield Target(
            group=TRAINING,
            what=f"tokens a second of {words}",
            wanted=">= 2x transformers' loop",
            at_least=2.0,
            case=f"pretraining/{name}",
            quantity=by.times_best(),
            reason=_NO_BLOCKS if name == "base" else "",
        )
    yield Target(
        group=TRAINING,
        what="the loader over the steps of the tiny recipe",
        wanted=">= 10x",
        at_least=10.0,
        case="pretraining/loader",
        quantity=by.times_own("encoder-engine, the steps alone"),
    )
    for what, wanted, why in (
        ("rows of a batch that are filled", ">= 99.5 %", "a test holds it (tests/data)"),
        ("memory of the head", "O(masked rows)", "a test of the operation holds it"),
        ("loss over the entropy of the text", "<= 0.1 nat", "a test holds it (tests/training)"),
    ):
        yield Target(group=TRAINING, what=what, wanted=wanted, unmeasured=why)


def job_targets() -> Iterator[Target]:
    """Put a long run beside sentence-transformers."""
    peer = "sentence-transformers"
    yield Target(
        group=JOBS,
        what="encode in float32, passages of mixed length",
        wanted=f">= 2x {peer}",
        at_least=2.0,
        case="embedding/minilm-float32-skewed",
        quantity=by.times_peer(peer),
        reason=_CEILING,
    )
    for precision in ("bfloat16", "int8"):
        yield Target(
            group=JOBS,
            what=f"a million sentences in {precision}",
            wanted=f">= 5x {peer}",
            at_least=5.0,
            case=f"dataset/minilm-{precision}-sentences",
            quantity=by.times_best(),
        )
    yield Target(
        group=JOBS,
        what="a million sentences: growth of resident memory over the second half",
        wanted="flat: <= 5 % of the most",
        at_most=0.05,
        long_run=by.trend,
    )
    yield Target(
        group=JOBS,
        what="a million sentences: going on after a kill",
        wanted="< 2 s beside the shard in flight",
        at_most=2.0,
        long_run=by.again,
        reason="every finished row is compared with what was recorded (LOG.md, 2026-11-22)",
    )


def door_targets() -> Iterator[Target]:
    """Tell what a first visitor meets."""
    yield Target(
        group=DOOR,
        what="`import encoder_engine`",
        wanted="<= 1.2x `import torch`",
        at_most=1.2,
        case="import/package",
        quantity=by.time_over_best("torch"),
        reason="a collection of the garbage of PyTorch's own import falls into it, a third to "
        "half of what it adds (LOG.md, 2026-11-22)",
    )
    for what, most, unit, quantity, why in (
        (
            "`make run` on a new machine, measured in a new clone",
            3.0,
            "minutes",
            by.minutes_to_run,
            "",
        ),
        (
            "`make test` on a new machine, measured in a new clone",
            12.0,
            "minutes",
            by.minutes_to_test,
            _TESTS,
        ),
        ("installed beyond torch and triton", 60.0, "MB", by.installed_mb, _NUMPY),
    ):
        yield Target(
            group=DOOR,
            what=what,
            wanted=f"<= {most:g} {unit}",
            at_most=most,
            front_door=quantity,
            reason=why,
        )
