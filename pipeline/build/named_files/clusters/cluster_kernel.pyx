# cython: language_level=3, boundscheck=False, wraparound=False, cdivision=True, initializedcheck=False
"""Read tables of clusters, and join clusters that share a member.

An id's key is the xxh3_64 of its bytes. The table has one line for each member: representative,
tab, member. In a table with weights, a tab and a weight follow.
"""

from libc.string cimport memchr, memcpy

from pipeline.build.arrays.xxhash cimport XXH3_64bits


cdef enum:
    _FINE
    _NO_TAB
    _THIRD_COLUMN
    _EMPTY_ID
    _NO_WEIGHT
    _BAD_WEIGHT


cdef extern from "Python.h":
    double PyOS_string_to_double(const char* text, char** end, void* error) except? -1.0


cdef double _LEAST_WEIGHT = 1e-6
cdef double _MOST_WEIGHT = 1e6
cdef double _UNITS = 1 << 30  # the weight 1 is stored as this number


def parse_clusters(
    const unsigned char[::1] text,
    unsigned long long[::1] members,
    unsigned long long[::1] clusters,
    unsigned long long[::1] weights,
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
            fault = _row(at, line_end, rows, members, clusters, weights)
            if fault > 0:
                break
            rows += fault == _FINE
            fault = _FINE
            at = line_end + 1
    return rows, lines, fault


cdef int _row(
    const char* at, const char* end, Py_ssize_t row,
    unsigned long long[::1] members, unsigned long long[::1] clusters,
    unsigned long long[::1] weights,
) noexcept nogil:
    """Store the keys and the weight of a line. Return _FINE, -1 for a blank line, or the line's
    fault."""
    cdef const char* tab
    cdef const char* member_end = end
    cdef unsigned long long cluster
    while end > at and ((end - 1)[0] == c'\r' or (end - 1)[0] == c' '):
        end -= 1
    member_end = end
    if end == at:
        return -1
    tab = <const char*>memchr(at, c'\t', end - at)
    if tab == NULL:
        return _NO_TAB
    if weights.shape[0]:
        member_end = <const char*>memchr(tab + 1, c'\t', end - tab - 1)
        if member_end == NULL:
            return _NO_WEIGHT
        weights[row] = _weight(member_end + 1, end)
        if weights[row] == 0:
            return _BAD_WEIGHT
    elif memchr(tab + 1, c'\t', end - tab - 1) != NULL:
        return _THIRD_COLUMN
    if tab == at or tab + 1 == member_end:
        return _EMPTY_ID
    cluster = XXH3_64bits(at, tab - at)
    clusters[row] = cluster if cluster else 1  # 0 means that a record is in no cluster
    members[row] = XXH3_64bits(tab + 1, member_end - tab - 1)
    return _FINE


cdef unsigned long long _weight(const char* begin, const char* end) noexcept with gil:
    """Return a weight in units of 2^-30; 0 if the text is not a number in the allowed range."""
    cdef char text[64]
    cdef double value
    if end - begin >= 64:
        return 0
    memcpy(text, begin, end - begin)
    text[end - begin] = 0
    try:
        value = PyOS_string_to_double(text, NULL, NULL)  # correctly rounded on every machine
    except ValueError:
        return 0
    if not _LEAST_WEIGHT <= value <= _MOST_WEIGHT:
        return 0
    return <unsigned long long>(value * _UNITS + 0.5)


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
    """Return the smallest element of the set that holds i, and shorten the path to it."""
    while root[i] != i:
        root[i] = root[root[i]]
        i = root[i]
    return i
