# cython: language_level=3, boundscheck=False, wraparound=False, cdivision=True, initializedcheck=False
"""Find sequences inside other sequences.

A window is 12 consecutive tokens. Its code is an integer that holds 5 bits of each token. A gram is
8 consecutive tokens, read as one integer. Bit tables, which have one bit for each hash of a gram or
of a code, quickly rule out most positions.
"""

from libc.stdint cimport int64_t, uint8_t, uint64_t
from libc.string cimport memcmp, memcpy

import numpy as np

WINDOW = 12

cdef enum:
    LENGTH = 12
    BITS = 60
    GRAM = 8
    # LENGTH - GRAM + 1: number of grams in a window. Exactly one gram of each window begins at a
    # multiple of STRIDE, counted from the record's start.
    STRIDE = 5

cdef uint64_t MIX = 0x9E3779B97F4A7C15ULL


cdef inline bint is_set(const uint64_t *bits, int shift, uint64_t code) noexcept nogil:
    cdef uint64_t at = (code * MIX) >> shift
    return (bits[at >> 6] >> (at & 63)) & 1


cdef inline uint64_t first_code(const uint8_t *tokens) noexcept nogil:
    cdef uint64_t code = 0
    cdef int i
    for i in range(LENGTH):
        code = (code << 5) | tokens[i]
    return code


cdef inline uint64_t gram(const uint8_t *tokens) noexcept nogil:
    cdef uint64_t value
    memcpy(&value, tokens, GRAM)
    return value


cdef inline int compare(
    const uint8_t *text, int64_t text_size, const uint8_t *wanted, int64_t size
) noexcept nogil:
    """Compare the start of a text with `wanted`, as memcmp does: 0 if the text starts with it."""
    cdef int64_t common = min(text_size, size)
    cdef int found = memcmp(text, wanted, common)
    return found if found else (0 if text_size >= size else -1)


def window_codes(const uint8_t[::1] text):
    codes = np.empty(text.shape[0], dtype=np.uint64)
    cdef uint64_t[::1] out = codes
    cdef uint64_t code = 0
    cdef int64_t i
    with nogil:
        for i in range(text.shape[0] - 1, -1, -1):
            code = (code >> 5) | (<uint64_t>text[i] << (BITS - 5)) if text[i] else 0
            out[i] = code
    return codes


def code_bits(const uint64_t[::1] codes, int shift):
    bits = np.zeros(max(1, 1 << (64 - shift) >> 6), dtype=np.uint64)
    cdef uint64_t[::1] out = bits
    cdef uint64_t at
    cdef int64_t i
    with nogil:
        for i in range(codes.shape[0]):
            at = (codes[i] * MIX) >> shift
            out[at >> 6] |= (<uint64_t>1) << (at & 63)
    return bits


def gram_bits(const uint64_t[::1] codes, int shift):
    bits = np.zeros(max(1, 1 << (64 - shift) >> 6), dtype=np.uint64)
    cdef uint64_t[::1] out = bits
    cdef uint8_t[LENGTH] tokens
    cdef uint64_t at
    cdef int64_t i
    cdef int j
    with nogil:
        for i in range(codes.shape[0]):
            for j in range(LENGTH):
                tokens[j] = (codes[i] >> (BITS - 5 - 5 * j)) & 31
            for j in range(STRIDE):
                at = (gram(&tokens[j]) * MIX) >> shift
                out[at >> 6] |= (<uint64_t>1) << (at & 63)
    return bits


cdef inline int64_t entry_at(
    const uint8_t *here,
    int64_t left,
    const uint64_t[::1] codes,
    const int64_t[::1] groups,
    const uint8_t[::1] text,
    const int64_t[::1] begin,
    const int64_t[::1] end,
) noexcept nogil:
    """Return the index of the entry (a sequence of --exclude) that a record contains at `here`; -1
    if there is none. From `here` to its end, the record has `left` tokens."""
    cdef uint64_t code = first_code(here)
    cdef int64_t low = 0, high = codes.shape[0], middle, group, size
    cdef int found
    while low < high:
        middle = (low + high) >> 1
        if codes[middle] < code:
            low = middle + 1
        else:
            high = middle
    if low == codes.shape[0] or codes[low] != code:
        return -1
    group = low
    low, high = groups[group], groups[group + 1]
    # find the last entry of the group that is not greater than the tokens
    while low < high:
        middle = (low + high) >> 1
        size = end[middle] - begin[middle]
        found = memcmp(&text[begin[middle]], here, min(size, left))
        if found > 0 or (found == 0 and size > left):
            high = middle
        else:
            low = middle + 1
    low -= 1
    if low < groups[group]:
        return -1
    size = end[low] - begin[low]
    return low if size <= left and memcmp(&text[begin[low]], here, size) == 0 else -1


def entries_inside(
    const uint8_t[::1] tokens,
    const int64_t[::1] edges,
    const int64_t[::1] rows,
    const uint64_t[::1] grams,
    const uint64_t[::1] bits,
    int shift,
    const uint64_t[::1] codes,
    const int64_t[::1] groups,
    const uint8_t[::1] text,
    const int64_t[::1] begin,
    const int64_t[::1] end,
    const int64_t[::1] rank,
):
    best = np.full(rows.shape[0], -1, dtype=np.int64)
    cdef int64_t[::1] out = best
    cdef int64_t r, i, at, first, last, entry
    with nogil:
        for r in range(rows.shape[0]):
            first, last = edges[rows[r]], edges[rows[r] + 1]
            i = first - STRIDE
            while i + STRIDE <= last - GRAM:
                i += STRIDE
                if not is_set(&grams[0], shift, gram(&tokens[i])):
                    continue
                for at in range(max(first, i - STRIDE + 1), min(i, last - LENGTH) + 1):
                    if not is_set(&bits[0], shift, first_code(&tokens[at])):
                        continue
                    entry = entry_at(&tokens[at], last - at, codes, groups, text, begin, end)
                    if entry >= 0 and (out[r] < 0 or rank[entry] < rank[out[r]]):
                        out[r] = entry
    return best


def sequences_inside(
    const uint8_t[::1] tokens,
    const int64_t[::1] edges,
    const int64_t[::1] rows,
    const uint64_t[::1] bits,
    int shift,
    const uint8_t[::1] text,
    const int64_t[::1] order,
    const int64_t[::1] least,
    int64_t block,
):
    found = np.full(rows.shape[0], -1, dtype=np.int64)
    cdef int64_t[::1] out = found
    cdef int64_t r, first, size, low, high, middle, begin, end, i, best
    cdef const uint8_t *wanted
    with nogil:
        for r in range(rows.shape[0]):
            first, size = edges[rows[r]], edges[rows[r] + 1] - edges[rows[r]]
            if size < LENGTH or not is_set(&bits[0], shift, first_code(&tokens[first])):
                continue
            wanted = &tokens[first]
            low, high = 0, order.shape[0]
            while low < high:
                middle = (low + high) >> 1
                if compare(&text[order[middle]], text.shape[0] - order[middle], wanted, size) < 0:
                    low = middle + 1
                else:
                    high = middle
            begin, high = low, order.shape[0]
            while low < high:
                middle = (low + high) >> 1
                if compare(&text[order[middle]], text.shape[0] - order[middle], wanted, size) > 0:
                    high = middle
                else:
                    low = middle + 1
            i, end, best = begin, low, -1
            while i < end:
                if i % block == 0 and i + block <= end:
                    if best < 0 or least[i // block] < best:
                        best = least[i // block]
                    i += block
                else:
                    if best < 0 or order[i] < best:
                        best = order[i]
                    i += 1
            out[r] = best
    return found
