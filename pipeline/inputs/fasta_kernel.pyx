# cython: language_level=3, boundscheck=False, wraparound=False, cdivision=True, initializedcheck=False
"""Find and tokenize the records of FASTA text in one pass.

The table `letter_classes` of `pipeline.inputs.residues` holds the rules for letters. The functions
of that module are far slower, and parse only two kinds of records: those with a byte outside ASCII
in the id or the residues, and those with unusual white space (such as tabs) among the residues.
"""

from libc.string cimport memcpy

from pipeline.inputs.headers.header_text cimport index_of

from pipeline.inputs.residues import Letter

cdef enum:
    _DONE
    _FULL
    _ODD_RECORD
    _BINARY_BYTE
    # Token ids are below this power of two, and values of `Letter` are not. The bitwise or of
    # several classes is therefore below 64 only if none of the classes is a `Letter`.
    _CLASSES = 64

DONE = _DONE
FULL = _FULL
ODD = _ODD_RECORD
BINARY = _BINARY_BYTE

assert min(Letter) == _CLASSES
cdef unsigned char _NEWLINE = Letter.NEWLINE
cdef unsigned char _BLANK = Letter.BLANK
cdef unsigned char _UNKNOWN = Letter.UNKNOWN
cdef unsigned char _STAR = Letter.STAR
cdef unsigned char _SPACE = Letter.SPACE
cdef unsigned char _NOT_ASCII = Letter.NOT_ASCII
cdef unsigned char _BINARY = Letter.BINARY

cdef enum:
    _WINDOW = 512


cdef inline Py_ssize_t header_end(
    const unsigned char* text, Py_ssize_t begin, Py_ssize_t size
) noexcept nogil:
    """Return the index of the first line end or NUL in text[begin:size], or `size`.

    The search goes window by window. Otherwise, if all line ends are carriage returns, the search
    for a line feed would read the rest of the text for each header.
    """
    cdef Py_ssize_t window, stop
    while begin < size:
        window = min(begin + _WINDOW, size)
        stop = index_of(text, begin, window, c'\n')
        stop = index_of(text, begin, stop, c'\r')
        stop = index_of(text, begin, stop, 0)
        if stop < window:
            return stop
        begin = window
    return size


def parse(
    const unsigned char[::1] text,
    Py_ssize_t begin,
    const unsigned char[::1] letter_classes,
    unsigned char unk,
    unsigned char[::1] tokens,
    long long[::1] ends,
    unsigned char[::1] ids,
    long long[::1] id_ends,
    unsigned char[::1] descriptions,
    long long[::1] description_ends,
    long long[::1] offset,
    long long[::1] unknown,
    Py_ssize_t first_record,
):
    cdef const unsigned char* buf = &text[0]
    cdef const unsigned char* classes = &letter_classes[0]
    cdef unsigned char* out = &tokens[0]
    cdef unsigned char* id_out = &ids[0]
    cdef unsigned char* description_out = &descriptions[0]
    cdef Py_ssize_t size = text.shape[0], most = ends.shape[0]
    cdef Py_ssize_t i = begin, r = first_record, o = 0, d = 0, s = 0, record, star, misses
    cdef Py_ssize_t line_end, stop
    cdef unsigned char c, high, t0, t1, t2, t3, t4, t5, t6, t7, letter
    cdef unsigned char newline = _NEWLINE, blank = _BLANK, space = _SPACE, binary = _BINARY
    cdef int state = _DONE
    if r > 0:
        o = ends[r - 1]
        d = id_ends[r - 1]
        s = description_ends[r - 1]
    with nogil:
        while i < size:
            if r == most:
                state = _FULL
                break
            record = i
            i += 1
            high = 0
            while i < size and (classes[buf[i]] == blank or classes[buf[i]] == space):
                i += 1  # blanks before the id
            while i < size:  # the id, up to the first blank or NUL
                c = buf[i]
                letter = classes[c]
                if letter == blank or letter == newline or letter == space or c == 0:
                    break
                high |= c
                id_out[d] = c
                d += 1
                i += 1
            if high >= 128:
                state = _ODD_RECORD  # the id may end with white space that is not ASCII
                i = record
                break
            while i < size and (classes[buf[i]] == blank or classes[buf[i]] == space):
                i += 1
            stop = header_end(buf, i, size)
            line_end = stop
            while stop > i and (classes[buf[stop - 1]] == blank or classes[buf[stop - 1]] == space):
                stop -= 1  # blanks at the end of the line
            memcpy(description_out + s, buf + i, stop - i)
            s += stop - i
            i = line_end
            if i < size and buf[i] == 0:
                state = _BINARY_BYTE
                break
            misses = 0
            star = -1  # index after the last `*`
            while i < size:
                while i + 8 <= size:
                    t0 = classes[buf[i]]
                    t1 = classes[buf[i + 1]]
                    t2 = classes[buf[i + 2]]
                    t3 = classes[buf[i + 3]]
                    t4 = classes[buf[i + 4]]
                    t5 = classes[buf[i + 5]]
                    t6 = classes[buf[i + 6]]
                    t7 = classes[buf[i + 7]]
                    if (t0 | t1 | t2 | t3 | t4 | t5 | t6 | t7) >= _CLASSES:
                        break
                    out[o] = t0
                    out[o + 1] = t1
                    out[o + 2] = t2
                    out[o + 3] = t3
                    out[o + 4] = t4
                    out[o + 5] = t5
                    out[o + 6] = t6
                    out[o + 7] = t7
                    i += 8
                    o += 8
                letter = 255
                while i < size:
                    letter = classes[buf[i]]
                    if letter >= _CLASSES:
                        break
                    out[o] = letter
                    o += 1
                    i += 1
                if i == size:
                    break
                if letter == newline:
                    i += 1
                    if i < size and buf[i] == c'>':
                        break
                    if i < size and buf[i] == c';':
                        while i < size and classes[buf[i]] != newline and classes[buf[i]] != binary:
                            i += 1
                        if i < size and classes[buf[i]] == binary:
                            state = _BINARY_BYTE
                            break
                elif letter == blank:
                    i += 1
                elif letter == _UNKNOWN or letter == _STAR:
                    out[o] = unk
                    o += 1
                    i += 1
                    misses += 1
                    if letter == _STAR:
                        star = o
                elif letter == space or letter == _NOT_ASCII:
                    state = _ODD_RECORD
                    break
                else:
                    state = _BINARY_BYTE
                    break
            if state == _ODD_RECORD:
                i = record
            if state != _DONE:
                break
            if star == o:
                o -= 1
                misses -= 1
            ends[r] = o
            id_ends[r] = d
            description_ends[r] = s
            offset[r] = record
            unknown[r] = misses
            r += 1
    return state, i, r
