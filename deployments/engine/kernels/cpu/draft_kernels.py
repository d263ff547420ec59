"""Kernels of a draft head's pass over single tokens, for bfloat16 on a CPU, compiled by numba."""

from functools import cache
from math import inf
from typing import NamedTuple

import numpy as np
from numba import carray, njit

from deployments.engine.kernels.cpu.dispatch import Kernel, reader_of
from deployments.engine.kernels.cpu.draw_kernels import draw_between
from deployments.engine.kernels.cpu.layer_ir import copy_bytes
from deployments.engine.kernels.cpu.layer_kernels import write_norm
from deployments.engine.kernels.cpu.simd import (
    Code,
    at_f32,
    at_i64,
    at_u16,
    at_u64,
    next_task,
    to_float32,
)


class JoinArguments(NamedTuple):
    token_ids: int  # int64 [tokens]
    embeddings: int  # bfloat16 [vocab, width]
    vocab: int  # a token that is none of these is read as token 0
    states: int  # bfloat16 [states, width]
    given: int  # bfloat16 [tokens, width], states of the tokens themselves; or 0
    rows: int  # int64 [tokens], the state of each: -n is number n - 1 of those given
    kept_at: int  # int64 [tokens], the rows of `states` that given ones are copied to
    embedding_weight: int  # bfloat16 [width], of the norm
    state_weight: int  # the same
    out: int  # bfloat16 [tokens, 2 * width]
    residual: int  # bfloat16 [tokens, width]
    tokens: int
    width: int
    norms_residual: int
    epsilon: float


_join_arguments = reader_of(JoinArguments)


@cache
def join_kernel() -> Kernel:
    """The normed embedding of each token beside the normed state, and the residual: the state as it
    is, or normed."""

    def body(block: Code) -> None:
        args = _join_arguments(block)
        n, width = args.tokens, args.width
        epsilon, plus = np.float32(args.epsilon), np.float32(0)
        ids, rows = carray(at_i64(args.token_ids), (n,)), carray(at_i64(args.rows), (n,))
        while True:
            token = next_task(block)
            if token >= n:
                break
            token_id = ids[token]
            if token_id >= args.vocab:
                token_id = 0
            row, source = rows[token], args.states
            if row < 0:
                row, source = -1 - row, args.given
            embedding, state = args.embeddings + 2 * token_id * width, source + 2 * row * width
            into = args.out + 4 * token * width
            own = into + 2 * width
            write_norm(embedding, args.embedding_weight, epsilon, plus, 0, into, width, 0)
            write_norm(state, args.state_weight, epsilon, plus, 0, own, width, 0)
            kept = own if args.norms_residual else state
            copy_bytes(kept, args.residual + 2 * token * width, 2 * width)
            if args.given != 0:
                at = carray(at_i64(args.kept_at), (n,))[token]
                place = args.states + 2 * at * width
                copy_bytes(args.given + 2 * token * width, place, 2 * width)

    return Kernel(body, JoinArguments)


class GuessArguments(NamedTuple):
    logits: int  # bfloat16 [rows, n_said]
    n_said: int
    target_ids: int  # int64 [n_said], the model's id of each; 0: these are all, as they are
    vocab: int  # of the model
    temperatures: int  # float32 [rows]; 0: the likeliest token
    keys: int  # uint64 [rows], of the noise
    scaled: int  # float32 [rows, vocab], which is overwritten
    token_ids: int  # int64 [rows], of the model
    rows: int


_guess_arguments = reader_of(GuessArguments)


# With `fastmath` a division becomes a product with the reciprocal: other bits than torch's.
@njit(error_model="numpy", fastmath=False)
def _scale(scaled: Code, largest: Code, temperature: Code) -> None:
    for i in range(len(scaled)):
        scaled[i] = (scaled[i] - largest) / temperature


@cache
def guess_kernel() -> Kernel:
    """The token of each row that temperature and noise give: as `TemperatureStrategy` and `draw`
    compute it."""

    def body(block: Code) -> None:
        args = _guess_arguments(block)
        n, n_said, vocab = args.rows, args.n_said, args.vocab
        temperatures = carray(at_f32(args.temperatures), (n,))
        keys, token_ids = carray(at_u64(args.keys), (n,)), carray(at_i64(args.token_ids), (n,))
        targets = carray(at_i64(args.target_ids), (n_said,))
        while True:
            row = next_task(block)
            if row >= n:
                break
            logits = carray(at_u16(args.logits + 2 * row * n_said), (n_said,))
            scaled = carray(at_f32(args.scaled + 4 * row * vocab), (vocab,))
            largest = np.float32(-inf)
            for i in range(n_said):
                largest = max(largest, to_float32(logits[i]))
            if args.target_ids != 0:
                for i in range(vocab):
                    scaled[i] = -inf
                for i in range(n_said):
                    scaled[targets[i]] = to_float32(logits[i])
            else:
                for i in range(vocab):
                    scaled[i] = to_float32(logits[i])
            temperature = temperatures[row]
            if temperature == 0:
                token_id = 0
                while token_id < vocab - 1 and scaled[token_id] != largest:
                    token_id += 1
            else:
                if temperature != 1:
                    _scale(scaled, largest, temperature)
                    largest = np.float32(0)
                token_id, _ = draw_between(scaled, largest, keys[row], 0, vocab)
            token_ids[row] = token_id

    return Kernel(body, GuessArguments)
