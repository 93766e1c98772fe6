"""Types of the C++ extension."""

from collections.abc import Iterable, Sequence
from mmap import mmap

import numpy as np
import numpy.typing as npt

_Int32 = npt.NDArray[np.int32]
_Float64 = npt.NDArray[np.float64]
_Steps = list[tuple[object, ...]]
_Added = list[tuple[str, int, bool, bool, bool, bool]]
_Template = list[tuple[int, list[int]]]
_Request = tuple[bool, int, int, int, bool, bool, bool, bool, int, tuple[float, int, int] | None]
_Optional = _Int32 | None
_Rows = tuple[_Int32, _Int32, _Optional, _Optional, _Optional, _Optional, npt.NDArray[np.bool_]]

class NormalizerOptions:
    def __init__(
        self, *, clean_text: bool, handle_cjk: bool, strip_accents: bool, lowercase: bool
    ) -> None: ...

class Normalizer:
    def __init__(self, options: NormalizerOptions) -> None: ...
    def normalize(self, text: str) -> str: ...

_Int64 = npt.NDArray[np.int64]

class IntTable:
    def __init__(self, size: int) -> None: ...
    def rows(
        self, ids: _Int32, cu_seqlens: _Int32, width: int = 0, pad: int = 0, left: bool = False
    ) -> list[list[int]]: ...
    def pairs(self, matrix: _Int32, cu_seqlens: _Int32) -> list[list[tuple[int, int]]]: ...

class StepNormalizer:
    def __init__(self, steps: _Steps) -> None: ...
    def normalize(self, text: str) -> str: ...

class Vocabulary:
    def __init__(self, *, texts: Iterable[str], ids: _Int32) -> None: ...
    def id_of(self, text: str) -> int | None: ...
    def token_of(self, number: int) -> str | None: ...
    def text(self, place: int) -> str: ...
    def texts(self) -> list[str]: ...
    def ids(self) -> _Int32: ...
    def has_lines(self, file: bytes) -> bool: ...
    @property
    def num_tokens(self) -> int: ...
    @property
    def num_distinct(self) -> int: ...

class Merges:
    def __init__(self, *, tokens: Vocabulary, parts: Iterable[str]) -> None: ...
    def texts(self) -> list[tuple[str, str]]: ...
    @property
    def num_merges(self) -> int: ...

def read_vocabulary(
    file: bytes,
) -> tuple[list[int], Vocabulary, _Float64 | None, Merges | None] | None: ...

class BpeModel:
    def __init__(
        self, *, merges: Merges, rules: tuple[int, str, bool, bool, int, bool]
    ) -> None: ...
    def refusal(self) -> tuple[str, int] | None: ...
    def count_blanks(self, tokens: Vocabulary) -> None: ...

def bpe_encoder(
    *,
    model: BpeModel,
    steps: _Steps,
    splitting: tuple[int, bool, bool, int],
    added: _Added,
    single: _Template,
    pair: _Template,
    trim: int,
) -> BatchEncoder: ...

class WordPieceModel:
    def __init__(
        self, *, tokens: Vocabulary, unknown_id: int, prefix: str, max_word_characters: int
    ) -> None: ...

class TextRows:
    def __init__(self) -> None: ...
    def add_lines(
        self,
        file: bytes | mmap,
        begin: int,
        wanted: int,
        *,
        column: str | None,
        most_bytes: int,
        most_characters: int | None,
    ) -> tuple[int, int]: ...
    def add_text(self, text: str, num_bytes: int) -> None: ...
    def __len__(self) -> int: ...
    def __getitem__(self, row: int) -> str: ...
    @property
    def num_bytes(self) -> int: ...

def find_sentences(
    texts: Sequence[str],
) -> tuple[npt.NDArray[np.int64], npt.NDArray[np.int64]]: ...

class BatchEncoder:
    @staticmethod
    def wordpiece(
        *,
        model: WordPieceModel,
        normalizer: NormalizerOptions,
        added: _Added,
        single: _Template,
        pair: _Template,
        trim: int,
    ) -> BatchEncoder: ...
    def encode_batch(self, texts: object, pairs: object | None, request: _Request) -> _Rows: ...
    def encode(self, text: str, add_special_tokens: bool, /) -> _Int32: ...
    def encode_nbest(
        self, text: str, count: int, add_special_tokens: bool
    ) -> list[tuple[_Int32, float]]: ...

def pad_rows(
    values: _Int32, cu_seqlens: _Int32, width: int, fill: int, left: bool, with_mask: bool
) -> tuple[_Int64, _Int64]: ...

class UnigramModel:
    def __init__(
        self, *, pieces: Vocabulary, scores: _Float64, unknown_score: float, narrow: bool, mark: str
    ) -> None: ...

def unigram_encoder(
    *,
    model: UnigramModel,
    unknown_id: int,
    byte_ids: list[int],
    steps: _Steps,
    splitting: tuple[bool, str, int, bool],
    added: _Added,
    single: _Template,
    pair: _Template,
    trim: int,
) -> BatchEncoder: ...
def sentencepiece_encoder(
    *,
    model: UnigramModel,
    symbols: list[str],
    charsmap: bytes,
    unknown_id: int,
    byte_ids: list[int],
    add_dummy_prefix: bool,
    remove_extra_whitespaces: bool,
    escape_whitespaces: bool,
    whitespace_as_suffix: bool,
    scores: npt.NDArray[np.float32],
    single: _Template,
    pair: _Template,
) -> BatchEncoder: ...
def attention(
    half: bool,
    query: int,
    query_token: int,
    query_head: int,
    key: int,
    key_token: int,
    key_head: int,
    value: int,
    value_token: int,
    value_head: int,
    output: int,
    cu_seqlens: int,
    num_sequences: int,
    num_heads: int,
    num_key_heads: int,
    head_dim: int,
    scale: float,
    window: int,
    causal: bool,
    alibi_slopes: int,
    num_threads: int,
    # All of these or none, and the last four or not.
    query_rows: int = ...,
    cu_queries: int = ...,
    relative_bias: int = ...,
    bias_reach: int = ...,
    distance_keys: tuple[int, int, int] = ...,
    distance_queries: tuple[int, int, int] = ...,
    entries: int = ...,
    entries_reach: int = ...,
    global_rows: int = ...,
    cu_global: int = ...,
    marks: int = ...,
    num_marks: int = ...,
    statistics: int = ...,
    offsets: int = ...,
    /,
) -> None: ...
def normalize_rows(
    half: bool,
    rows: int,
    residual: int,
    weight: int,
    bias: int,
    total: int,
    output: int,
    quantized: int,
    scales: int,
    num_rows: int,
    width: int,
    epsilon: float,
    centred: bool,
    num_threads: int,
    /,
) -> None: ...
def embed_rows(
    half: bool,
    tokens: int,
    token_ids: int,
    num_tokens: int,
    positions: int,
    position_ids: int,
    num_positions: int,
    segments: int,
    segment_ids: int,
    num_segments: int,
    weight: int,
    bias: int,
    output: int,
    num_rows: int,
    width: int,
    epsilon: float,
    num_threads: int,
    token_scales: int,
    /,
) -> None: ...
def pool_rows(
    half: bool,
    mode: str,
    normalized: bool,
    rows: int,
    cu_seqlens: int,
    output: int,
    num_rows: int,
    width: int,
    num_threads: int,
    /,
) -> None: ...
def mean_static_rows(
    kind: str,
    table: int,
    ids: int,
    cu_seqlens: int,
    mapping: int,
    weights: int,
    left_out: int,
    normalized: bool,
    output: int,
    num_rows: int,
    row_width: int,
    width: int,
    num_ids: int,
    num_threads: int,
    /,
) -> None: ...
def activate_rows(
    half: bool,
    function: str,
    gated: bool,
    rows: int,
    bias: int,
    output: int,
    num_rows: int,
    width: int,
    num_threads: int,
    /,
) -> None: ...
def rotate_rows(
    half: bool,
    rows: int,
    row_stride: int,
    table: int,
    positions: int,
    output: int,
    num_rows: int,
    width: int,
    head_dim: int,
    num_threads: int,
    /,
) -> None: ...
def add_softmax_sums(
    half: bool,
    rows: int,
    largest: int,
    sums: int,
    num_rows: int,
    width: int,
    num_threads: int,
    /,
) -> None: ...
def quantize_rows(
    half: bool,
    rows: int,
    output: int,
    scales: int,
    num_rows: int,
    width: int,
    num_threads: int,
    /,
) -> None: ...
def read_json_number(text: str) -> float: ...
def hash_memory(places: list[tuple[int, int]], num_threads: int) -> int: ...
def instruction_set() -> str: ...
def supported_instruction_sets() -> tuple[str, ...]: ...
def missing_instruction_sets() -> tuple[str, ...]: ...
def default_threads() -> int: ...
def is_amd() -> bool: ...
def quantized_linear(
    half: bool,
    function: str,
    rows: int,
    row_scales: int,
    weight: int,
    weight_scales: int,
    bias: int,
    output: int,
    quantized: int,
    scales: int,
    num_rows: int,
    depth: int,
    width: int,
    num_threads: int,
    /,
) -> None: ...
def packed_linear(
    half: bool,
    function: str,
    rows: int,
    weight: int,
    output: int,
    num_rows: int,
    depth: int,
    width: int,
    num_threads: int,
    /,
) -> None: ...
def quantize_weight(
    half: bool,
    weight: int,
    num_rows: int,
    width: int,
    target: int,
    scales: int,
    num_threads: int,
    /,
) -> None: ...
def panels_bytes(width: int, row_bytes: int, /) -> int: ...
def pack_linear(
    half: bool,
    weight: int,
    bias: int,
    width: int,
    depth: int,
    packed: int,
    num_threads: int,
    /,
) -> None: ...
def pack_weight(plain: int, width: int, depth: int, packed: int, num_threads: int, /) -> None: ...
def take_from_panels(packed: int, width: int, row_bytes: int, plain: int, /) -> None: ...

PANEL_WIDTH: int

class Plan:
    def __init__(self) -> None: ...
    def add_buffer(self, row_bytes: int, rows: str = "tokens") -> int: ...
    def embed(
        self,
        half: bool,
        tokens: int,
        num_tokens: int,
        positions: int,
        num_positions: int,
        segments: int,
        num_segments: int,
        weight: int,
        bias: int,
        width: int,
        epsilon: float,
        target: int,
        scaled: bool = False,
    ) -> None: ...
    def normalize_heads(
        self,
        half: bool,
        weight: int,
        bias: int,
        width: int,
        num_heads: int,
        row_width: int,
        first: int,
        epsilon: float,
        centred: bool,
        heads: int,
        /,
    ) -> None: ...
    def take_rows(
        self, half: bool, width: int, source: int, target: int, rows: str = "selected"
    ) -> None: ...
    def take_heads(
        self, half: bool, width: int, source: tuple[int, int, int], target: int, /
    ) -> None: ...
    def pool(
        self, half: bool, mode: str, normalized: bool, width: int, source: int, target: int, /
    ) -> None: ...
    def widen(self, width: int, source: int, target: int, /) -> None: ...
    def put_rows(self, half: bool, width: int, source: int, target: int, /) -> None: ...
    def take_neighbours(
        self, half: bool, width: int, kernel_size: int, source: int, target: int, /
    ) -> None: ...
    def attend(
        self,
        half: bool,
        num_heads: int,
        num_key_heads: int,
        head_dim: int,
        scale: float,
        query: tuple[int, int, int],
        key: tuple[int, int, int],
        value: tuple[int, int, int],
        target: int,
        window: int = -1,
        causal: bool = False,
        alibi_slopes: int = 0,
        relative_bias: int = 0,
        bias_reach: int = 0,
        distance_keys: tuple[int, int, int] = (0, 0, 0),
        distance_queries: tuple[int, int, int] = (0, 0, 0),
        entries: int = 0,
        entries_reach: int = 0,
        sees_global: bool = False,
    ) -> None: ...
    def packed_linear(
        self,
        half: bool,
        function: str,
        weight: int,
        depth: int,
        width: int,
        source: int,
        target: int,
        gated: bool = False,
    ) -> None: ...
    def quantized_linear(
        self,
        half: bool,
        function: str,
        weight: int,
        weight_scales: int,
        bias: int,
        depth: int,
        width: int,
        source: int,
        source_scales: int,
        target: int,
        quantized: int,
        scales: int,
        gated: bool = False,
    ) -> None: ...
    def normalize(
        self,
        half: bool,
        weight: int,
        bias: int,
        width: int,
        epsilon: float,
        centred: bool,
        source: int,
        residual: int,
        total: int,
        target: int,
        quantized: int,
        scales: int,
        /,
    ) -> None: ...
    def activate(
        self, half: bool, function: str, gated: bool, width: int, source: int, target: int, /
    ) -> None: ...
    def add(self, half: bool, width: int, source: int, other: int, target: int, /) -> None: ...
    def rotate(
        self,
        half: bool,
        table: int,
        width: int,
        head_dim: int,
        row_width: int,
        heads: int,
        turned: int = 0,
    ) -> None: ...
    def quantize(
        self, half: bool, width: int, source: int, target: int, scales: int, /
    ) -> None: ...
    def buffer_bytes(
        self, num_rows: int, num_sequences: int = 1, num_selected: int = 0, num_global: int = 0
    ) -> int: ...
    def run(
        self,
        source: int,
        target: int,
        cu_seqlens: int,
        positions: int,
        num_sequences: int,
        num_rows: int,
        num_threads: int,
        ids: int = 0,
        type_ids: int = 0,
        position_ids: int = 0,
        selected_rows: int = 0,
        cu_selected: int = 0,
        global_rows: int = 0,
        cu_global: int = 0,
        token_scales: int = 0,
        key_tokens: int = 0,
        cu_keys: int = 0,
        token_keys: int = 0,
        selected_keys: int = 0,
    ) -> None: ...

# Of training: whether a matrix is bfloat16, its address, and the elements between its rows; the
# address of heads and the elements between tokens and heads; a dropout's probability and seed.
_Matrix = tuple[bool, int, int]
_Heads = tuple[int, int, int]
_Dropout = tuple[float, int]

class KeptMemory:
    def __init__(self, num_bytes: int, /) -> None: ...
    def __buffer__(self, flags: int, /) -> memoryview: ...

def release_kept_memory() -> int: ...
def multiply_matrices(
    half: bool,
    left: _Matrix,
    left_turned: bool,
    right: _Matrix,
    right_turned: bool,
    bias: int,
    output: _Matrix,
    adds: bool,
    num_rows: int,
    num_columns: int,
    depth: int,
    num_threads: int,
    /,
) -> None: ...
def normalize_for_training(
    input_half: bool,
    half: bool,
    source: int,
    residual: int,
    weight: int,
    bias: int,
    total: int,
    target: int,
    statistics: int,
    num_rows: int,
    width: int,
    epsilon: float,
    centred: bool,
    dropout: _Dropout,
    num_threads: int,
    /,
) -> None: ...
def norm_gradient(
    input_half: bool,
    half: bool,
    summed_half: bool,
    summed: int,
    statistics: int,
    weight: int,
    grad_output: int,
    grad_sum: int,
    grad_input: int,
    grad_residual: int,
    grad_weight: int,
    grad_bias: int,
    num_rows: int,
    width: int,
    centred: bool,
    dropout: _Dropout,
    num_threads: int,
    /,
) -> None: ...
def activation_gradient(
    half: bool,
    function: str,
    gated: bool,
    source: int,
    bias: int,
    grad_output: int,
    grad_input: int,
    grad_bias: int,
    num_rows: int,
    width: int,
    num_threads: int,
    /,
) -> None: ...
def sum_columns(
    half: bool,
    source: int,
    stride: int,
    factors: int,
    target: int,
    num_rows: int,
    width: int,
    num_threads: int,
    /,
) -> None: ...
def drop_features(
    half: bool,
    source: int,
    target: int,
    num_rows: int,
    width: int,
    dropout: _Dropout,
    num_threads: int,
    /,
) -> None: ...
def add_table_rows(
    rows: int,
    ids: int,
    factors: int,
    table: int,
    num_rows: int,
    width: int,
    num_threads: int,
    /,
) -> None: ...
def cross_entropy_rows(
    half: bool,
    logits: int,
    labels: int,
    lse: int,
    label_logits: int,
    logit_sums: int,
    predictions: int,
    num_rows: int,
    vocabulary: int,
    keeps_gradient: bool,
    label_smoothing: float,
    z_loss: float,
    num_threads: int,
    /,
) -> None: ...
def attend_for_training(
    half: bool,
    query: _Heads,
    key: _Heads,
    value: _Heads,
    target: int,
    statistics: int,
    cu_seqlens: int,
    num_sequences: int,
    num_heads: int,
    num_key_heads: int,
    head_dim: int,
    terms: tuple[float, int, bool, int, int, int, int, int],
    dropout: _Dropout,
    gradients: tuple[int, _Heads, _Heads, _Heads, int],
    num_threads: int,
    /,
) -> None: ...
def sum_squares(tensors: list[tuple[int, int]], num_threads: int, /) -> float: ...
def take_adamw_step(
    tensors: list[tuple[int, int, int, int, int, float, float, float]],
    beta1: float,
    beta2: float,
    epsilon: float,
    gradient_factor: float,
    num_threads: int,
    /,
) -> None: ...
