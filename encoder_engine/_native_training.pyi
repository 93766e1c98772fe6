"""Types of the C++ extension's functions of training, which are in ``_native``."""

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
