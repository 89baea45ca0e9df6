# cython: language_level=3, boundscheck=False, wraparound=False, cdivision=True, initializedcheck=False
"""Unpack packed headers (see packed_header.pxd) into columns."""

from libc.stdint cimport uint64_t

from pipeline.inputs.headers.header_id cimport ACCESSION, GENE, NAME, ORGANISM, PRF, UNKNOWN
from pipeline.inputs.headers.header_text cimport put_text, text_t
from pipeline.inputs.headers.packed_header cimport MOST_NUMBER, Stated, take_stated

cdef enum:
    _DESCRIPTION = GENE + 1
    _TEXTS


cdef struct Column:
    unsigned char* begin
    unsigned char* end


cdef inline void append(Column* column, text_t begin, size_t size, text_t limit) noexcept nogil:
    column.end = put_text(column.end, begin, size, limit)


cdef inline bint fits(Stated* v, uint64_t id_size, uint64_t left) noexcept nogil:
    """Return whether the texts of a header fit into its id and the last `left` packed bytes."""
    if v.sizes[0] > id_size or v.sizes[1] > id_size - v.sizes[0]:
        return False
    if v.sizes[2] > 0:
        if v.sizes[2] > id_size + 1 or v.sizes[3] > id_size + 1 - v.sizes[2]:
            return False
    else:
        if v.sizes[3] > left:
            return False
        left -= v.sizes[3]
    if v.sizes[4] > left:
        return False
    return v.sizes[5] <= left - v.sizes[4]


def unpack(
    const unsigned char[::1] ids,
    const long long[::1] id_edges,
    const unsigned char[::1] packed,
    const long long[::1] packed_edges,
    values,
    int[:, ::1] edges,
    int[::1] taxid,
    signed char[::1] pe,
    unsigned char[::1] fragment,
    int[::1] cluster_size,
    signed char[::1] database,
):
    cdef Py_ssize_t count = id_edges.shape[0] - 1, i, k
    cdef text_t t = &ids[0] if ids.shape[0] else NULL
    cdef text_t p = &packed[0] if packed.shape[0] else NULL
    cdef text_t t_limit = t + ids.shape[0], p_limit = p + packed.shape[0], at, end, id
    cdef unsigned char[::1] column
    cdef Column columns[_TEXTS]
    cdef unsigned char first
    cdef bint whole = True
    cdef Stated v
    for k in range(_TEXTS):
        column = values[k]
        columns[k] = Column(&column[0], &column[0])
    with nogil:
        for k in range(_TEXTS):
            edges[k, 0] = 0
        for i in range(count):
            at = p + packed_edges[i]
            end = p + packed_edges[i + 1]
            id = t + id_edges[i]
            first = 0
            if at < end:
                first = at[0]
                at += 1
            taxid[i] = cluster_size[i] = pe[i] = UNKNOWN
            fragment[i] = first >> 4 & 1
            if first >> 5:
                pe[i] = first >> 5
            database[i] = <signed char>(first & 15) - 1
            if first & 15:
                at = take_stated(at, end, &v)
                if (
                    at == NULL or database[i] > PRF
                    or v.taxid > MOST_NUMBER or v.cluster_size > MOST_NUMBER
                    or not fits(&v, id_edges[i + 1] - id_edges[i], end - at)
                ):
                    whole = False
                    break
                taxid[i] = <int>(v.taxid - 1)
                cluster_size[i] = <int>(v.cluster_size - 1)
                append(&columns[ACCESSION], id + v.sizes[0], v.sizes[1], t_limit)
                if v.sizes[2] > 0:
                    append(&columns[NAME], id + v.sizes[2] - 1, v.sizes[3], t_limit)
                else:
                    append(&columns[NAME], at, v.sizes[3], p_limit)
                    at += v.sizes[3]
                append(&columns[ORGANISM], at, v.sizes[4], p_limit)
                at += v.sizes[4]
                append(&columns[GENE], at, v.sizes[5], p_limit)
                at += v.sizes[5]
            append(&columns[_DESCRIPTION], at, end - at, p_limit)
            for k in range(_TEXTS):
                edges[k, i + 1] = <int>(columns[k].end - columns[k].begin)
    return bool(whole)
