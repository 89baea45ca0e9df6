# cython: language_level=3, boundscheck=False, wraparound=False, cdivision=True, initializedcheck=False
"""Pack one window of the balanced packer.

`packers.balanced` defines a window. packers/balanced_kernel.pyi documents each function.
"""

import numpy as np

cdef enum:
    _MOVES = 4  # maximum number of exchanges to close the gap of one bucket


def long_to_short(const long long[::1] lengths, const long long[::1] indices):
    cdef Py_ssize_t i, rank, size = indices.shape[0]
    cdef long long longest = 0, at = 0, here
    for i in range(size):
        longest = max(longest, lengths[indices[i]])
    ordered_array = np.empty(size, dtype=np.int64)
    cdef long long[::1] ordered = ordered_array
    cdef long long[::1] slots = np.zeros(longest + 1, dtype=np.int64)
    for i in range(size):
        slots[longest - lengths[indices[i]]] += 1
    for rank in range(longest + 1):
        here = slots[rank]
        slots[rank] = at
        at += here
    for i in range(size):
        rank = longest - lengths[indices[i]]
        ordered[slots[rank]] = indices[i]
        slots[rank] += 1
    return ordered_array


cdef inline bint _cheaper(const long long* cost, long long a, long long b) noexcept nogil:
    return cost[a] < cost[b] or (cost[a] == cost[b] and a < b)


cdef void _sift_down(long long* heap, const long long* cost, Py_ssize_t size) noexcept nogil:
    cdef Py_ssize_t parent = 0, child
    cdef long long moving
    if size < 2:
        return
    moving = heap[0]
    while True:
        child = 2 * parent + 1
        if child >= size:
            break
        if child + 1 < size and _cheaper(cost, heap[child + 1], heap[child]):
            child += 1
        if not _cheaper(cost, heap[child], moving):
            break
        heap[parent] = heap[child]
        parent = child
    heap[parent] = moving


cdef void _sift_up(long long* heap, const long long* cost, Py_ssize_t child) noexcept nogil:
    cdef Py_ssize_t parent
    cdef long long moving = heap[child]
    while child > 0:
        parent = (child - 1) // 2
        if not _cheaper(cost, moving, heap[parent]):
            break
        heap[child] = heap[parent]
        child = parent
    heap[child] = moving


def place(
    const long long[::1] lengths,
    const long long[::1] members,
    long long capacity,
    long long max_seqs,
    int[::1] bucket_of,
    long long first_bucket,
    long long[::1] by_length,
    long long[::1] free,
    long long[::1] cost,
    long long[::1] count,
):
    cdef Py_ssize_t buckets = free.shape[0], size = buckets, i
    cdef long long[::1] heap_array = np.arange(buckets, dtype=np.int64)
    cdef long long[::1] next_parked = np.full(buckets, -1, dtype=np.int64)
    cdef long long* heap = &heap_array[0]
    cdef long long length, index, chosen
    if members.shape[0] == 0:
        return
    length = lengths[members[0]]
    with nogil:
        for i in range(members.shape[0]):
            index = members[i]
            while length > lengths[index]:
                length -= 1
                while by_length[length] >= 0:
                    heap[size] = by_length[length]
                    by_length[length] = next_parked[heap[size]]
                    _sift_up(heap, &cost[0], size)
                    size += 1
            while size > 0 and free[heap[0]] < length:
                chosen = heap[0]
                next_parked[chosen] = by_length[free[chosen]]
                by_length[free[chosen]] = chosen
                size -= 1
                heap[0] = heap[size]
                _sift_down(heap, &cost[0], size)
            if size == 0:
                continue
            chosen = heap[0]
            bucket_of[index] = <int>(first_bucket + chosen)
            free[chosen] -= length
            cost[chosen] += length * length
            count[chosen] += 1
            if count[chosen] == max_seqs:
                size -= 1
                heap[0] = heap[size]
            _sift_down(heap, &cost[0], size)
        for i in range(length + 1):
            by_length[i] = -1


def close_gaps(
    const long long[::1] lengths,
    const long long[::1] members,
    const long long[::1] candidates,
    long long max_seqs,
    int[::1] bucket_of,
    long long first_bucket,
    long long[::1] by_length,
    long long[::1] free,
    long long[::1] cost,
    long long[::1] count,
):
    cdef Py_ssize_t buckets = free.shape[0], pool_size = candidates.shape[0], i, b, move
    cdef long long index, exchanged, target = 0
    cdef Py_ssize_t most = pool_size + _MOVES * buckets  # includes room for exchanged sequences
    cdef long long[::1] pool = np.empty(most, dtype=np.int64)
    cdef long long[::1] chain = np.full(most, -1, dtype=np.int64)  # links pool entries of equal length
    cdef long long[::1] offsets = np.zeros(buckets + 1, dtype=np.int64)
    cdef long long[::1] packed = np.empty(members.shape[0], dtype=np.int64)
    with nogil:
        for i in range(pool_size - 1, -1, -1):
            pool[i] = candidates[i]
            chain[i] = by_length[lengths[pool[i]]]
            by_length[lengths[pool[i]]] = i
        for b in range(buckets):
            target += cost[b]
            if b > 0:
                offsets[b] = offsets[b - 1] + count[b - 1]
        target = target // buckets
        for i in range(members.shape[0]):
            index = members[i]
            if bucket_of[index] >= 0:
                b = bucket_of[index] - first_bucket
                packed[offsets[b]] = index
                offsets[b] += 1
        for b in range(buckets):  # offsets[b] is now the end of bucket b in `packed`
            for move in range(_MOVES):
                if free[b] == 0:
                    break
                exchanged = _close_gap(
                    lengths,
                    pool,
                    chain,
                    by_length,
                    packed,
                    offsets[b - 1] if b else 0,
                    offsets[b],
                    b,
                    free,
                    cost,
                    count,
                    max_seqs,
                    target,
                    bucket_of,
                    first_bucket,
                )
                if exchanged < 0:
                    break
                pool[pool_size] = exchanged
                chain[pool_size] = by_length[lengths[exchanged]]
                by_length[lengths[exchanged]] = pool_size
                pool_size += 1
        for i in range(pool_size):
            by_length[lengths[pool[i]]] = -1


cdef long long _close_gap(
    const long long[::1] lengths,
    long long[::1] pool,
    long long[::1] chain,
    long long[::1] by_length,
    long long[::1] packed,
    Py_ssize_t begin,
    Py_ssize_t end,
    Py_ssize_t b,
    long long[::1] free,
    long long[::1] cost,
    long long[::1] count,
    long long max_seqs,
    long long target,
    int[::1] bucket_of,
    long long first_bucket,
) noexcept nogil:
    """Make the move (an exchange or an addition) that leaves the smallest gap in bucket `b`.

    Among several such moves, choose the move after which Σ length² is nearest to `target`.
    Return the index of the sequence that was taken out of the bucket, or -1 if there was none.
    """
    cdef long long longest = by_length.shape[0] - 1, remainder, gap, off, best_off
    cdef long long out_length, in_length, exchanged
    cdef Py_ssize_t k, best_out, taken
    for remainder in range(free[b]):  # tokens that stay empty after this move
        gap = free[b] - remainder
        best_off = -1
        best_out = -1
        if gap <= longest and by_length[gap] >= 0 and count[b] < max_seqs:
            best_off = _distance(cost[b] + gap * gap, target)
        for k in range(begin, end):
            out_length = lengths[packed[k]]
            in_length = out_length + gap
            if in_length <= longest and by_length[in_length] >= 0:
                off = _distance(cost[b] + in_length * in_length - out_length * out_length, target)
                if best_off < 0 or off < best_off:
                    best_off = off
                    best_out = k
        if best_off < 0:
            continue
        out_length = lengths[packed[best_out]] if best_out >= 0 else 0
        in_length = out_length + gap
        taken = by_length[in_length]
        by_length[in_length] = chain[taken]
        bucket_of[pool[taken]] = <int>(first_bucket + b)
        free[b] = remainder
        cost[b] += in_length * in_length - out_length * out_length
        if best_out < 0:
            count[b] += 1
            return -1
        exchanged = packed[best_out]
        bucket_of[exchanged] = -1
        packed[best_out] = pool[taken]
        return exchanged
    return -1


cdef inline long long _distance(long long a, long long b) noexcept nogil:
    return a - b if a > b else b - a


def place_rest(
    const long long[::1] lengths,
    const long long[::1] rest,
    long long max_seqs,
    int[::1] bucket_of,
    long long first_bucket,
    Py_ssize_t opened,
    long long[::1] free,
    long long[::1] count,
):
    cdef Py_ssize_t i, b, chosen
    cdef long long length
    with nogil:
        for i in range(rest.shape[0]):
            length = lengths[rest[i]]
            chosen = -1
            for b in range(opened):
                if free[b] >= length and count[b] < max_seqs:
                    if chosen < 0 or free[b] < free[chosen]:
                        chosen = b
            if chosen < 0:
                chosen = opened
                opened += 1
            bucket_of[rest[i]] = <int>(first_bucket + chosen)
            free[chosen] -= length
            count[chosen] += 1
