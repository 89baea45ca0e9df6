# cython: language_level=3, boundscheck=False, wraparound=False, cdivision=True, initializedcheck=False
"""Write sequences into buckets, and check buckets against every rule of the format."""

from libc.string cimport memcpy, memset

from pipeline.build.arrays.prefetch cimport AHEAD, prefetch


def gather(
    const unsigned char[::1] values, const long long[::1] begin, const long long[::1] end,
    unsigned char[::1] out,
):
    cdef Py_ssize_t i, at = 0, size, last = begin.shape[0] - AHEAD
    if out.shape[0] == 0:
        return
    with nogil:
        for i in range(begin.shape[0]):
            if i < last:
                prefetch(&values[begin[i + AHEAD]], end[i + AHEAD] - begin[i + AHEAD])
            size = end[i] - begin[i]
            if size > 0:
                memcpy(&out[at], &values[begin[i]], size)
                at += size


def fill_cu_seqlens(
    const long long[::1] spans, const long long[::1] count, const long long[::1] pieces,
    long long capacity, long long piece, int[::1] cu,
):
    cdef Py_ssize_t at = 0, sequence = 0, b, k
    cdef long long end
    with nogil:
        for b in range(count.shape[0]):
            end = 0
            cu[at] = 0
            at += 1
            for k in range(count[b]):
                end += spans[sequence]
                sequence += 1
                cu[at] = <int>end
                at += 1
            for k in range(pieces[b]):
                end = min(end + piece, capacity)
                cu[at] = <int>end
                at += 1


def fill_buckets(
    const unsigned char[::1] tokens,
    const long long[::1] begin,
    const long long[::1] residues,
    const long long[::1] spans,
    const long long[::1] bucket,
    unsigned char[::1] ids,
    long long capacity,
    unsigned char cls,
    unsigned char pad,
    unsigned char eos,
    long long[::1] token_counts,
):
    cdef unsigned int pairs[65536]
    cdef unsigned short pair
    cdef const unsigned char* source
    cdef unsigned char* out = &ids[0]
    cdef unsigned char* row
    cdef Py_ssize_t s, k, size, at = 0, current = -1, pad_to
    cdef Py_ssize_t last = begin.shape[0] - AHEAD
    cdef bint counting = token_counts.shape[0] > 0
    if counting:
        memset(pairs, 0, sizeof(pairs))
    with nogil:
        for s in range(begin.shape[0]):
            if bucket[s] != current:
                current = bucket[s]
                memset(out + at, pad, current * capacity - at)
                at = current * capacity
            if s < last:
                prefetch(&tokens[0] + begin[s + AHEAD], residues[s + AHEAD])
            size = residues[s]
            source = &tokens[begin[s]]
            row = out + at
            row[0] = cls
            memcpy(row + 1, source, size)
            row[size + 1] = eos
            pad_to = spans[s] - size - 2
            if pad_to > 0:
                memset(row + size + 2, pad, pad_to)
            at += spans[s]
            if not counting:
                continue
            k = 0
            while k + 2 <= size:  # count pairs of tokens: half as many additions
                memcpy(&pair, source + k, 2)
                pairs[pair] += 1
                k += 2
            if k < size:
                token_counts[source[k]] += 1
        memset(out + at, pad, ids.shape[0] - at)
        if counting:
            for k in range(65536):
                token_counts[k & 255] += pairs[k]
                token_counts[k >> 8] += pairs[k]
            token_counts[cls] += begin.shape[0]
            token_counts[eos] += begin.shape[0]


def check_buckets(
    const unsigned char[::1] ids,
    const int[::1] cu,
    const int[::1] cu_at,
    const int[::1] num_seqs,
    const int[::1] num_tokens,
    const int[::1] max_seqlen,
    const int[::1] record_at,
    const int[::1] start_at,
    const int[::1] start,
    const long long[::1] limits,
    const unsigned char[::1] specials,
    long long[::1] codes,
):
    cdef Py_ssize_t b
    cdef long long capacity = limits[0]
    with nogil:
        for b in range(num_seqs.shape[0]):
            codes[b] = _check_bucket(
                &ids[b * capacity],
                &cu[cu_at[b]],
                cu_at[b + 1] - cu_at[b],
                num_seqs[b],
                num_tokens[b],
                max_seqlen[b],
                record_at[b + 1] - record_at[b],
                start_at[b + 1] - start_at[b],
                &start[start_at[b]] if start_at[b + 1] > start_at[b] else NULL,
                &limits[0],
                &specials[0],
            )


cdef int _check_bucket(
    const unsigned char* ids,
    const int* cu,
    Py_ssize_t cu_size,
    int num_seqs,
    int num_tokens,
    int max_seqlen,
    int records,
    int starts,
    const int* start,
    const long long* limits,
    const unsigned char* specials,
) noexcept nogil:
    """Return the code of the first rule that a bucket breaks, or 0 if it breaks no rule.

    `pipeline.build.verify.check_shards` holds the text of each rule.
    """
    cdef long long capacity = limits[0], longest = limits[1], multiple = limits[2]
    cdef long long max_seqs = limits[3], slots = limits[4]
    cdef unsigned char cls = specials[0], pad = specials[1], eos = specials[2]
    cdef unsigned char lowest = specials[3], width = specials[4] - specials[3], wrong
    cdef Py_ssize_t pieces = cu_size - 1, i, k
    cdef long long first, last, span, padding, tokens = 0, longest_here = 0, used
    if pieces < 1 or cu[0] != 0 or cu[pieces] != capacity:
        return 1
    for i in range(pieces):
        if cu[i + 1] <= cu[i]:
            return 1
    if num_seqs < 1 or num_seqs > pieces or records != num_seqs or starts != num_seqs:
        return 2
    if num_seqs > max_seqs or pieces > slots:
        return 3
    for i in range(num_seqs):
        first = cu[i]
        last = cu[i + 1] - 1
        span = last + 1 - first
        longest_here = max(longest_here, span)
        if span > longest or span % multiple != 0:
            return 4
        if ids[first] != cls:
            return 5
        padding = 0
        while padding < multiple - 1 and last > first and ids[last] == pad:
            last -= 1
            padding += 1
        if ids[last] != eos:
            return 6
        if last < first + 2:
            return 8
        wrong = 0
        for k in range(first + 1, last):
            wrong |= <unsigned char>(ids[k] - lowest) > width
        if wrong:
            return 7
        tokens += last + 1 - first
        if start[i] < 0:
            return 12
    used = cu[num_seqs]
    wrong = 0
    for k in range(used, capacity):
        wrong |= ids[k] != pad
    if wrong or pieces - num_seqs != (capacity - used + longest - 1) // longest:
        return 9
    for i in range(num_seqs, pieces):
        if cu[i + 1] - cu[i] > longest:
            return 9
    if tokens != num_tokens:
        return 10
    if longest_here != max_seqlen:
        return 11
    return 0
