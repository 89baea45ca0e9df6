# cython: language_level=3, boundscheck=False, wraparound=False, cdivision=True, initializedcheck=False
"""Read tables of clusters, and join clusters that share a member.

An id's key is the xxh3_64 of its bytes. The table has one line for each member: representative,
tab, member.
"""

from libc.string cimport memchr

from pipeline.build.arrays.xxhash cimport XXH3_64bits


cdef enum:
    _FINE
    _NO_TAB
    _THIRD_COLUMN
    _EMPTY_ID


def parse_clusters(
    const unsigned char[::1] text,
    unsigned long long[::1] members,
    unsigned long long[::1] clusters,
):
    cdef const char* at
    cdef const char* end
    cdef const char* line_end
    cdef Py_ssize_t rows = 0, lines = 0
    cdef int fault = _FINE
    if text.shape[0] == 0:
        return 0, 0, _FINE
    at = <const char*>&text[0]
    end = at + text.shape[0]
    with nogil:
        while at < end:
            line_end = <const char*>memchr(at, c'\n', end - at)
            if line_end == NULL:
                line_end = end
            lines += 1
            fault = _row(at, line_end, rows, members, clusters)
            if fault > 0:
                break
            rows += fault == _FINE
            fault = _FINE
            at = line_end + 1
    return rows, lines, fault


cdef int _row(
    const char* at, const char* end, Py_ssize_t row,
    unsigned long long[::1] members, unsigned long long[::1] clusters,
) noexcept nogil:
    """Store the keys of a line. Return _FINE, -1 for a blank line, or the line's fault."""
    cdef const char* tab
    cdef unsigned long long cluster
    while end > at and ((end - 1)[0] == c'\r' or (end - 1)[0] == c' '):
        end -= 1
    if end == at:
        return -1
    tab = <const char*>memchr(at, c'\t', end - at)
    if tab == NULL:
        return _NO_TAB
    if memchr(tab + 1, c'\t', end - tab - 1) != NULL:
        return _THIRD_COLUMN
    if tab == at or tab + 1 == end:
        return _EMPTY_ID
    cluster = XXH3_64bits(at, tab - at)
    clusters[row] = cluster if cluster else 1  # 0 means that a record is in no cluster
    members[row] = XXH3_64bits(tab + 1, end - tab - 1)
    return _FINE


def text_keys(
    const unsigned char[::1] values, const long long[::1] begin, const long long[::1] end,
    unsigned long long[::1] keys,
):
    cdef Py_ssize_t i
    cdef unsigned char nothing = 0
    cdef const unsigned char* data = &values[0] if values.shape[0] else &nothing
    with nogil:
        for i in range(begin.shape[0]):
            keys[i] = XXH3_64bits(data + begin[i], end[i] - begin[i])


def join(
    const long long[::1] first, const long long[::1] second, long long[::1] root
):
    cdef Py_ssize_t i
    cdef long long a, b
    with nogil:
        for i in range(first.shape[0]):
            a = _root(root, first[i])
            b = _root(root, second[i])
            if a < b:
                root[b] = a
            else:
                root[a] = b
        for i in range(root.shape[0]):
            root[i] = _root(root, i)


cdef inline long long _root(long long[::1] root, long long i) noexcept nogil:
    """Return the smallest member of the set of i, and shorten the path to it."""
    while root[i] != i:
        root[i] = root[root[i]]
        i = root[i]
    return i
