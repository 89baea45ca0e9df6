# cython: language_level=3
"""Packed headers: the values of a header in few bytes. `put_header` writes them.

| bytes        | value                                                                            |
|--------------|----------------------------------------------------------------------------------|
| 1            | database + 1 (bits 0 to 3), fragment (bit 4), pe (bits 5 to 7, 0 if not stated)  |
| number       | taxid + 1, or 0 if not stated                                                    |
| number       | cluster size + 1, or 0 if not stated                                             |
| 2 numbers    | accession: index of its first byte in the id, and its size                       |
| number       | name: index of its first byte in the id, plus 1; 0 if the id does not contain it |
| 3 numbers    | sizes of name, organism and gene                                                 |
| these sizes  | name, unless the id contains it; organism; gene                                  |
| the rest     | description, if it is kept                                                       |

A number has 7 bits in each byte, the lowest bits first. Bit 7 is set in all bytes but the last. If
the database is not known, the description follows the first byte. A header without any value and
without a description to keep has no bytes.
"""

from libc.string cimport memcpy

from pipeline.inputs.headers.header_id cimport ACCESSION, GENE, NAME, ORGANISM, UNKNOWN, Header
from pipeline.inputs.headers.header_text cimport text_t

cdef enum:
    MOST_BYTES = 81  # of a packed header, without its texts: 8 numbers of 10 bytes, and 1 byte


cdef struct Reader:
    text_t at
    text_t end
    bint whole  # False after an attempt to read beyond the end


cdef inline unsigned char* put_number(unsigned char* out, size_t value) noexcept nogil:
    while value >= 128:
        out[0] = <unsigned char>(value | 128)
        out += 1
        value >>= 7
    out[0] = <unsigned char>value
    return out + 1


cdef inline unsigned char* put_text(
    unsigned char* out, text_t begin, Py_ssize_t size
) noexcept nogil:
    if size > 0:
        memcpy(out, begin, size)
    return out + size


cdef inline unsigned char* put_header(
    unsigned char* out, text_t id_begin, text_t id_end, Header* h
) noexcept nogil:
    """Write a packed header; return the address after its last byte."""
    cdef Py_ssize_t name_size = h.end[NAME] - h.begin[NAME]
    cdef Py_ssize_t accession_size = h.end[ACCESSION] - h.begin[ACCESSION]
    cdef bint name_in_id = name_size > 0 and id_begin <= h.begin[NAME] <= id_end
    if h.database == UNKNOWN and h.description_size == 0:
        return out
    out[0] = (h.database + 1) | ((h.fragment != 0) << 4) | (h.pe << 5 if h.pe > 0 else 0)
    out += 1
    if h.database != UNKNOWN:
        out = put_number(out, <size_t>h.taxid + 1 if h.taxid >= 0 else 0)
        out = put_number(out, <size_t>h.cluster_size + 1 if h.cluster_size >= 0 else 0)
        out = put_number(out, h.begin[ACCESSION] - id_begin if accession_size else 0)
        out = put_number(out, accession_size)
        out = put_number(out, h.begin[NAME] - id_begin + 1 if name_in_id else 0)
        out = put_number(out, name_size)
        out = put_number(out, h.end[ORGANISM] - h.begin[ORGANISM])
        out = put_number(out, h.end[GENE] - h.begin[GENE])
        if not name_in_id:
            out = put_text(out, h.begin[NAME], name_size)
        out = put_text(out, h.begin[ORGANISM], h.end[ORGANISM] - h.begin[ORGANISM])
        out = put_text(out, h.begin[GENE], h.end[GENE] - h.begin[GENE])
    return put_text(out, h.description, h.description_size)


cdef inline size_t take_number(Reader* r) noexcept nogil:
    cdef size_t value = 0
    cdef int shift = 0
    while r.at < r.end and shift < 63:
        value |= <size_t>(r.at[0] & 127) << shift
        r.at += 1
        if r.at[-1] < 128:
            return value
        shift += 7
    r.whole = False
    return 0


cdef inline int take_optional(Reader* r) noexcept nogil:
    """Return a number that was written plus 1; -1 if it was not stated."""
    cdef size_t value = take_number(r)
    if value > (<size_t>1 << 31):
        r.whole = False
        return -1
    return <int>(<long long>value - 1)


cdef inline size_t bounded(Reader* r, size_t size, size_t most) noexcept nogil:
    """Return a size, but at most `most`."""
    if size > most:
        r.whole = False
        return most
    return size
