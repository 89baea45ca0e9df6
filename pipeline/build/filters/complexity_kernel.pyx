# cython: language_level=3, boundscheck=False, wraparound=False, cdivision=True, initializedcheck=False
"""Find windows of low complexity: 12 tokens whose entropy is at most 2.2 bits."""

from libc.math cimport log2

import numpy as np

WINDOW = 12
BITS = 2.2


def low_complexity(const unsigned char[::1] tokens, const long long[::1] ends):
    cdef Py_ssize_t r, i, j, begin = 0, end, marked, window = WINDOW
    cdef double[13] terms
    cdef int[256] counts
    cdef double total, least
    cdef unsigned char gone
    found = np.zeros(tokens.shape[0], dtype=np.bool_)
    cdef unsigned char[::1] out = found.view(np.uint8)
    # entropy = log2(window) - Σ n log2(n) / window, so the entropy is low if the sum is high
    terms[0] = 0
    for i in range(1, window + 1):
        terms[i] = i * log2(<double>i)
    least = (log2(<double>window) - BITS) * window - 1e-9
    with nogil:
        for r in range(ends.shape[0]):
            end = ends[r]
            marked = begin
            for i in range(256):
                counts[i] = 0
            total = 0
            for i in range(begin, end):
                total += terms[counts[tokens[i]] + 1] - terms[counts[tokens[i]]]
                counts[tokens[i]] += 1
                if i - begin >= window:
                    gone = tokens[i - window]
                    total += terms[counts[gone] - 1] - terms[counts[gone]]
                    counts[gone] -= 1
                if i - begin >= window - 1 and total >= least:
                    for j in range(max(marked, i - window + 1), i + 1):
                        out[j] = 1
                    marked = i + 1
            begin = end
    return found
