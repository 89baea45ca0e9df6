# cython: language_level=3
"""Inline functions on bytes of text, for the kernels of headers."""

from libc.string cimport memchr, memcmp

ctypedef const unsigned char* text_t


cdef inline bint is_letter(unsigned char c) noexcept nogil:
    return c'A' <= c <= c'Z' or c'a' <= c <= c'z'


cdef inline bint is_upper(unsigned char c) noexcept nogil:
    return c'A' <= c <= c'Z'


cdef inline bint is_digit(unsigned char c) noexcept nogil:
    return c'0' <= c <= c'9'


cdef inline bint is_blank(unsigned char c) noexcept nogil:
    return c == c' ' or 9 <= c <= 13


cdef inline bint equals(
    text_t t, Py_ssize_t begin, Py_ssize_t end, const char* word, Py_ssize_t size
) noexcept nogil:
    return end - begin == size and memcmp(t + begin, word, size) == 0


cdef inline bint ends_with(
    text_t t, Py_ssize_t begin, Py_ssize_t end, const char* word, Py_ssize_t size
) noexcept nogil:
    return end - begin >= size and memcmp(t + end - size, word, size) == 0


cdef inline Py_ssize_t digits(text_t t, Py_ssize_t begin, Py_ssize_t end) noexcept nogil:
    """Return the index after the digits that begin at `begin`."""
    while begin < end and is_digit(t[begin]):
        begin += 1
    return begin


cdef inline int number(text_t t, Py_ssize_t begin, Py_ssize_t end) noexcept nogil:
    """Return the number that t[begin:end] states; -1 if it is not a whole number below 2^31."""
    cdef long long value = 0
    if begin == end or end - begin > 10:
        return -1
    while begin < end:
        if not is_digit(t[begin]):
            return -1
        value = 10 * value + t[begin] - c'0'
        begin += 1
    return <int>value if value <= 0x7FFFFFFF else -1


cdef inline bint versioned(text_t t, Py_ssize_t at, Py_ssize_t end) noexcept nogil:
    """Return whether t[at:end] is empty, or a `.` followed by digits."""
    return at == end or (t[at] == c'.' and at + 1 < end and digits(t, at + 1, end) == end)


cdef inline Py_ssize_t index_of(
    text_t t, Py_ssize_t begin, Py_ssize_t end, unsigned char c
) noexcept nogil:
    """Return the index of the first `c` in t[begin:end], or `end`. This is fast for long texts."""
    cdef const void* found = NULL
    if begin < end:
        found = memchr(t + begin, c, end - begin)
    return end if found == NULL else <text_t>found - t


cdef inline Py_ssize_t bar(text_t t, Py_ssize_t begin, Py_ssize_t end) noexcept nogil:
    """Return the index of the first `|` in t[begin:end], or `end`. This is fast for short texts."""
    while begin < end and t[begin] != c'|':
        begin += 1
    return begin


cdef inline Py_ssize_t trimmed(text_t t, Py_ssize_t begin, Py_ssize_t stop) noexcept nogil:
    """Return the end of t[begin:stop] without trailing blanks."""
    while stop > begin and is_blank(t[stop - 1]):
        stop -= 1
    return stop
