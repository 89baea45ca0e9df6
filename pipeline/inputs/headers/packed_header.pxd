# cython: language_level=3
"""Packed headers: the values of a header in few bytes. `put_header` writes a packed header.

| bytes       | value                                                                             |
|-------------|-----------------------------------------------------------------------------------|
| 1           | database + 1 (bits 0 to 3), fragment (bit 4), pe (bits 5 to 7, 0 if not stated)   |
| 4           | taxid + 1, or 0 if not stated                                                     |
| 4           | cluster size + 1, or 0 if not stated                                              |
| 6           | six sizes, see below                                                              |
| these sizes | name, unless the id contains it; organism; gene                                   |
| the rest    | description, if it is kept                                                        |

The sizes are: index of the accession's first byte in the id; bytes of the accession; index of the
name's first byte in the id, plus 1, or 0 if the id does not contain the name; bytes of the name, of
the organism and of the gene. If all sizes are below 255, each takes one byte. Otherwise a byte of
255 and the sizes as six numbers of 8 bytes take the place of the 6 bytes.

Numbers are in the byte order of the machine. If the database is not known, the description follows
the first byte. A header without any value and without a description to keep has no bytes.
"""

from libc.stdint cimport uint8_t, uint32_t, uint64_t
from libc.string cimport memcpy

from pipeline.inputs.headers.header_id cimport ACCESSION, GENE, NAME, ORGANISM, UNKNOWN, Header
from pipeline.inputs.headers.header_text cimport put_text, text_t

cdef enum:
    SIZES = 6
    LONG = 255  # replaces the first size if a size needs 8 bytes
    FIXED = 15  # bytes of a packed header whose sizes are all below 255, without its texts
    MOST_BYTES = 58  # maximum bytes of a packed header, without its texts


cdef extern from *:
    """
    #define THDPACK_MOST_NUMBER 0x80000000u
    """
    const uint32_t MOST_NUMBER "THDPACK_MOST_NUMBER"  # largest taxid or cluster size, plus 1

cdef struct Stated:
    # values of a packed header other than texts
    uint32_t taxid  # plus 1; 0 if not stated
    uint32_t cluster_size  # plus 1; 0 if not stated
    uint64_t sizes[SIZES]


cdef inline unsigned char* put_header(
    unsigned char* out, text_t id_begin, text_t id_end, Header* h, text_t limit
) noexcept nogil:
    """Write a packed header; return the address after its last byte.

    Args:
        limit: end of the buffer that holds the description.
    """
    cdef Py_ssize_t name_size = h.end[NAME] - h.begin[NAME]
    cdef Py_ssize_t accession_size = h.end[ACCESSION] - h.begin[ACCESSION]
    cdef bint name_in_id = name_size > 0 and id_begin <= h.begin[NAME] <= id_end
    cdef uint64_t sizes[SIZES]
    cdef uint64_t all_bits = 0
    cdef uint32_t number
    cdef int i
    if h.database == UNKNOWN and h.description_size == 0:
        return out
    out[0] = (h.database + 1) | ((h.fragment != 0) << 4) | (h.pe << 5 if h.pe > 0 else 0)
    out += 1
    if h.database != UNKNOWN:
        number = <uint32_t>h.taxid + 1
        memcpy(out, &number, 4)
        number = <uint32_t>h.cluster_size + 1
        memcpy(out + 4, &number, 4)
        out += 8
        sizes[0] = h.begin[ACCESSION] - id_begin if accession_size else 0
        sizes[1] = accession_size
        sizes[2] = h.begin[NAME] - id_begin + 1 if name_in_id else 0
        sizes[3] = name_size
        sizes[4] = h.end[ORGANISM] - h.begin[ORGANISM]
        sizes[5] = h.end[GENE] - h.begin[GENE]
        for i in range(SIZES):
            all_bits |= sizes[i]
            out[i] = <uint8_t>sizes[i]
        if all_bits >= 128:
            out = put_sizes(out, sizes)
        else:
            out += SIZES
        if not name_in_id:
            out = put_text(out, h.begin[NAME], sizes[3], limit)
        out = put_text(out, h.begin[ORGANISM], sizes[4], limit)
        out = put_text(out, h.begin[GENE], sizes[5], limit)
    if h.description_size:
        out = put_text(out, h.description, h.description_size, limit)
    return out


cdef inline unsigned char* put_sizes(unsigned char* out, uint64_t* sizes) noexcept nogil:
    """Write sizes that may be 255 or more; return the address after them."""
    cdef int i
    for i in range(SIZES):
        if sizes[i] >= LONG:
            out[0] = LONG
            memcpy(out + 1, sizes, SIZES * 8)
            return out + 1 + SIZES * 8
    return out + SIZES


cdef inline text_t take_stated(text_t at, text_t end, Stated* values) noexcept nogil:
    """Read what follows the first byte of a packed header; return the address of its texts.

    Returns:
        NULL if the bytes end too early.
    """
    cdef int i
    if end - at < FIXED - 1:
        return NULL
    memcpy(&values.taxid, at, 4)
    memcpy(&values.cluster_size, at + 4, 4)
    at += 8
    if at[0] == LONG:
        if end - at < 1 + SIZES * 8:
            return NULL
        memcpy(values.sizes, at + 1, SIZES * 8)
        return at + 1 + SIZES * 8
    for i in range(SIZES):
        values.sizes[i] = at[i]
    return at + SIZES
