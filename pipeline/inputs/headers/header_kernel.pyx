# cython: language_level=3, boundscheck=False, wraparound=False, cdivision=True, initializedcheck=False
"""Parse headers of FASTA records, and pack the values that they state.

A header is an id, blanks, and a description. `KEY=` in a description is a key if KEY consists of
ASCII letters and begins the description or follows a space. A key's value ends at the next key or
at the end of the description. If a key occurs twice, the last value counts. The id decides the
family of a header:

| family  | id                           | description                                          |
|---------|------------------------------|------------------------------------------------------|
| UniProt | sp|P69905|HBA_HUMAN          | name OS=organism OX=taxid GN=gene PE=1 SV=2          |
| UniRef  | UniRef50_P69905              | name n=2 Tax=organism TaxID=9606 RepID=HBA_HUMAN     |
| UniParc | UPI0000000001                | not read                                             |
| MGnify  | MGYP000000000001             | PL=10 …; any value other than 00 marks a fragment    |
| NCBI    | NP_000509.1 or gb|AAA12345.1| | name, partial [organism]                         |
| plain   | any other                    | not read                                             |
"""

from libc.stdint cimport uint64_t
from libc.string cimport memset

from pipeline.inputs.headers.header_id cimport (
    ACCESSION, GENE, MGNIFY_FAMILY, NAME, NCBI_FAMILY, ORGANISM, PLAIN_FAMILY, PRF, UNIPROT_FAMILY,
    UNIREF_FAMILY, UNKNOWN, Header, read_id,
)
from pipeline.inputs.headers.header_text cimport (
    CHUNK, WINDOW, ends_with, equals, index_of, is_blank, is_letter, lowest_bit, matches, number,
    text_t, trimmed,
)
from pipeline.inputs.headers.packed_header cimport MOST_BYTES as _MOST_BYTES, put_header

from schemas.records import DATABASES

assert len(DATABASES) == PRF + 1 < 16  # the index plus 1 is packed in four bits

MOST_BYTES = _MOST_BYTES
SPARE_BYTES = CHUNK

cdef enum:
    _AHEAD = 8  # number of headers from the parsed header to the prefetched header


cdef void read_value(
    text_t d, Py_ssize_t key, Py_ssize_t key_end, Py_ssize_t at, Py_ssize_t stop, Header* h
) noexcept nogil:
    """Store the value d[at:stop] of the key d[key:key_end]."""
    cdef int which = -1
    if h.family == UNIPROT_FAMILY:
        if equals(d, key, key_end, b"OS", 2):
            which = ORGANISM
        elif equals(d, key, key_end, b"GN", 2):
            which = GENE
        elif equals(d, key, key_end, b"OX", 2):
            h.taxid = number(d, at, stop)
        elif equals(d, key, key_end, b"PE", 2):
            h.pe = -1
            if stop - at == 1 and c'1' <= d[at] <= c'5':
                h.pe = d[at] - c'0'
    elif h.family == UNIREF_FAMILY:
        if equals(d, key, key_end, b"Tax", 3):
            which = ORGANISM
        elif equals(d, key, key_end, b"RepID", 5):
            which = NAME
        elif equals(d, key, key_end, b"TaxID", 5):
            h.taxid = number(d, at, stop)
        elif equals(d, key, key_end, b"n", 1):
            h.cluster_size = number(d, at, stop)
    elif equals(d, key, key_end, b"PL", 2):
        h.fragment = not equals(d, at, stop, b"00", 2)
    if which >= 0:
        h.begin[which] = d + at
        h.end[which] = d + stop


cdef inline void read_trimmed(
    text_t d, Py_ssize_t key, Py_ssize_t sign, Py_ssize_t stop, Header* h
) noexcept nogil:
    """Store the value of d[key:sign], without surrounding blanks. The value ends before d[stop]."""
    cdef Py_ssize_t at = sign + 1
    stop = trimmed(d, at, stop)
    while at < stop and is_blank(d[at]):
        at += 1
    read_value(d, key, sign, at, stop, h)


cdef Py_ssize_t read_keys(
    text_t d, Py_ssize_t begin, Py_ssize_t end, text_t limit, Header* h
) noexcept nogil:
    """Read all keys of the description d[begin:end]; return the first key's index, or `end`."""
    cdef Py_ssize_t first = end, key = -1, sign = -1, window = begin, i, letter
    cdef uint64_t signs
    while window < end:
        signs = matches(d, window, end, limit, c'=')
        while signs:
            i = window + lowest_bit(signs)
            signs &= signs - 1
            letter = i
            while letter > begin and is_letter(d[letter - 1]):
                letter -= 1
            if letter == i or (letter > begin and d[letter - 1] != c' '):
                continue  # this `=` ends no key
            if key >= 0:
                read_trimmed(d, key, sign, letter, h)
            else:
                first = letter
            key = letter
            sign = i
        window += WINDOW
    if key >= 0:
        read_trimmed(d, key, sign, end, h)
    return first


cdef void read_title(text_t d, Py_ssize_t begin, Py_ssize_t end, Header* h) noexcept nogil:
    """Read a description in the style of NCBI: a title, and an organism in brackets."""
    cdef Py_ssize_t stop, at, depth = 0
    stop = index_of(d, begin, end, 1)  # Ctrl-A separates the titles of equal proteins
    stop = trimmed(d, begin, stop)
    if stop > begin and d[stop - 1] == c']':
        at = stop
        while at > begin:
            at -= 1
            if d[at] == c']':
                depth += 1
            elif d[at] == c'[':
                depth -= 1
            if depth == 0:
                break
        if depth == 0:
            h.begin[ORGANISM] = d + at + 1
            h.end[ORGANISM] = d + stop - 1
            stop = at
            stop = trimmed(d, begin, stop)
    h.fragment = ends_with(d, begin, stop, b", partial", 9)


cdef void read_header(
    text_t t, Py_ssize_t a, Py_ssize_t b,
    text_t d, Py_ssize_t begin, Py_ssize_t end, text_t limit, Header* h
) noexcept nogil:
    """Read the id t[a:b] and the description d[begin:end]. `limit` is the end of all text."""
    cdef Py_ssize_t stop
    memset(h, 0, sizeof(Header))
    h.database = h.pe = -1
    h.taxid = h.cluster_size = -1
    read_id(t, a, b, h)
    if h.family == PLAIN_FAMILY:
        return
    stop = end
    if h.family != NCBI_FAMILY:
        stop = read_keys(d, begin, end, limit, h)
    if h.family == NCBI_FAMILY or (h.family == UNIPROT_FAMILY and stop == end):
        read_title(d, begin, end, h)
    elif h.family != MGNIFY_FAMILY:
        stop = trimmed(d, begin, stop)
        h.fragment = ends_with(d, begin, stop, b"(Fragment)", 10) or ends_with(
            d, begin, stop, b"(Fragments)", 11
        )


cdef extern from *:
    """
    #if defined(__GNUC__)
    #define thdpack_prefetch __builtin_prefetch
    #else
    #define thdpack_prefetch(address) ((void)(address))
    #endif
    """
    void prefetch "thdpack_prefetch"(const void* address) noexcept nogil


def pack(
    const unsigned char[::1] ids,
    const long long[::1] id_edges,
    const unsigned char[::1] descriptions,
    const long long[::1] description_edges,
    const long long[::1] order,
    bint keep_description,
    unsigned char[::1] packed,
    long long[::1] packed_edges,
):
    cdef Py_ssize_t count = order.shape[0], i, r, ahead
    cdef text_t t = &ids[0] if ids.shape[0] else NULL
    cdef text_t d = &descriptions[0] if descriptions.shape[0] else NULL
    cdef text_t limit = d + descriptions.shape[0]
    cdef unsigned char* out = &packed[0] if count else NULL
    cdef unsigned char* begin = out
    cdef Header h
    packed_edges[0] = 0
    with nogil:
        for i in range(count):
            if i + _AHEAD < count:
                ahead = order[i + _AHEAD]
                prefetch(t + id_edges[ahead])
                prefetch(d + description_edges[ahead])
                prefetch(d + description_edges[ahead] + 64)
            r = order[i]
            read_header(
                t, id_edges[r], id_edges[r + 1],
                d, description_edges[r], description_edges[r + 1], limit, &h
            )
            if keep_description:
                h.description = d + description_edges[r]
                h.description_size = description_edges[r + 1] - description_edges[r]
            out = put_header(out, t + id_edges[r], t + id_edges[r + 1], &h, limit)
            packed_edges[i + 1] = out - begin
