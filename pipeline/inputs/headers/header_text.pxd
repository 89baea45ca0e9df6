# cython: language_level=3
"""Inline functions on bytes of text, for the kernels of headers."""

from libc.stdint cimport uint64_t
from libc.string cimport memchr, memcmp, memcpy

ctypedef const unsigned char* text_t

cdef enum:
    WINDOW = 64  # bytes that `matches` compares at once
    CHUNK = 64  # bytes that `put_text` copies at once


cdef extern from *:
    """
    #if defined(__GNUC__)
    #define thdpack_lowest_bit(bits) ((int)__builtin_ctzll(bits))
    #else
    static int thdpack_lowest_bit(unsigned long long bits) {
        int index = 0;
        while (!(bits >> index & 1)) index++;
        return index;
    }
    #endif
    """
    int lowest_bit "thdpack_lowest_bit"(uint64_t bits) noexcept nogil


cdef inline bint is_letter(unsigned char c) noexcept nogil:
    return <unsigned char>((c | 32) - c'a') < 26


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


cdef inline uint64_t matches_in_word(text_t t, uint64_t pattern) noexcept nogil:
    """Return eight bits: bit i is set if t[i] equals the byte that `pattern` repeats eight
    times."""
    cdef uint64_t low = 0x7F7F7F7F7F7F7F7FULL, word
    memcpy(&word, t, 8)
    word ^= pattern  # equal bytes become zero
    word = ~(((word & low) + low) | word | low)  # 128 for each byte that is zero, else 0
    return (word >> 7) * 0x0102040810204080ULL >> 56


cdef inline uint64_t matches(
    text_t t, Py_ssize_t begin, Py_ssize_t end, text_t limit, unsigned char c
) noexcept nogil:
    """Return 64 bits: bit i is set if begin + i < end and t[begin + i] is `c`.

    Args:
        limit: end of the buffer that holds the text.
    """
    cdef uint64_t pattern = c * 0x0101010101010101ULL, found = 0
    cdef unsigned char copy[WINDOW]
    cdef text_t at = t + begin
    cdef int i
    if limit - at < WINDOW:
        memcpy(copy, at, end - begin if end - begin < WINDOW else WINDOW)
        at = copy
    for i in range(0, WINDOW, 8):
        found |= matches_in_word(at + i, pattern) << i
    if end - begin < WINDOW:
        found &= (<uint64_t>1 << (end - begin)) - 1
    return found


cdef inline unsigned char* put_text(
    unsigned char* out, text_t begin, Py_ssize_t size, text_t limit
) noexcept nogil:
    """Copy a text to `out`, and up to CHUNK further bytes; return the address after the text.

    Copies of a fixed size take less time, because they need no branches that depend on the size.

    Args:
        limit: end of the buffer that holds the text.
    """
    if size > 0:
        if size <= CHUNK and limit - begin >= CHUNK:
            memcpy(out, begin, CHUNK)
        else:
            memcpy(out, begin, size)
    return out + size
