# cython: language_level=3, boundscheck=False, wraparound=False, cdivision=True, initializedcheck=False
"""Bounded best-fit and best-fit decreasing. See packers/baselines_kernel.pyi."""

import numpy as np


def best_fit(
    const long long[::1] lengths, long long capacity, long long max_seqs, Py_ssize_t num_open
):
    bucket_array = np.empty(lengths.shape[0], dtype=np.int64)
    number_array = np.arange(num_open, dtype=np.int64)
    cdef long long[::1] bucket_of = bucket_array
    cdef long long[::1] number = number_array
    cdef long long[::1] free = np.full(num_open, capacity, dtype=np.int64)
    cdef long long[::1] count = np.zeros(num_open, dtype=np.int64)
    cdef Py_ssize_t i, b, best, fullest, opened = num_open
    with nogil:
        for i in range(lengths.shape[0]):
            best = -1
            fullest = 0
            for b in range(num_open):
                if free[b] < free[fullest]:
                    fullest = b
                if free[b] >= lengths[i] and count[b] < max_seqs:
                    if best < 0 or free[b] < free[best]:
                        best = b
            if best < 0:
                best = fullest  # close this bucket, because it has the fewest free tokens
                number[best] = opened
                opened += 1
                free[best] = capacity
                count[best] = 0
            bucket_of[i] = number[best]
            free[best] -= lengths[i]
            count[best] += 1
    return bucket_array, number_array


def best_fit_decreasing(
    const long long[::1] lengths,
    const long long[::1] order,
    long long capacity,
    long long max_seqs,
):
    bucket_array = np.empty(lengths.shape[0], dtype=np.int64)
    free_array = np.full(lengths.shape[0], capacity, dtype=np.int64)
    cdef long long[::1] bucket_of = bucket_array
    cdef long long[::1] free = free_array
    cdef long long[::1] count = np.zeros(lengths.shape[0], dtype=np.int64)
    # a linked list of the open buckets for each number of free tokens
    cdef long long[::1] head = np.full(capacity + 1, -1, dtype=np.int64)
    cdef long long[::1] following = np.full(lengths.shape[0], -1, dtype=np.int64)
    cdef Py_ssize_t i, b, opened = 0
    cdef long long room
    with nogil:
        for i in range(order.shape[0]):
            room = lengths[order[i]]
            while room <= capacity and head[room] < 0:
                room += 1
            if room > capacity:
                b = opened
                opened += 1
            else:
                b = head[room]
                head[room] = following[b]
            bucket_of[order[i]] = b
            free[b] -= lengths[order[i]]
            count[b] += 1
            if count[b] < max_seqs:
                following[b] = head[free[b]]
                head[free[b]] = b
    return bucket_array, free_array[:opened]
