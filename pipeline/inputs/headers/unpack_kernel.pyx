# cython: language_level=3, boundscheck=False, wraparound=False, cdivision=True, initializedcheck=False
"""Unpack packed headers (see packed_header.pxd) into columns."""

from libc.string cimport memcpy

from pipeline.inputs.headers.header_id cimport ACCESSION, GENE, NAME, ORGANISM, PRF, UNKNOWN
from pipeline.inputs.headers.header_text cimport text_t
from pipeline.inputs.headers.packed_header cimport Reader, bounded, take_number, take_optional

cdef enum:
    _DESCRIPTION = GENE + 1
    _TEXTS


cdef struct Column:
    unsigned char* values
    int size


cdef inline void append(Column* column, text_t begin, size_t size) noexcept nogil:
    if size > 0:
        memcpy(column.values + column.size, begin, size)
        column.size += <int>size


cdef inline void take_text(Column* column, Reader* r, size_t size) noexcept nogil:
    """Append the next `size` bytes to a column."""
    size = bounded(r, size, r.end - r.at)
    append(column, r.at, size)
    r.at += size


cdef void take_texts(Column* columns, Reader* r, text_t id, size_t id_size) noexcept nogil:
    """Append accession, name, organism and gene to their columns."""
    cdef size_t accession = bounded(r, take_number(r), id_size), in_id, name, organism, gene
    append(&columns[ACCESSION], id + accession, bounded(r, take_number(r), id_size - accession))
    in_id = bounded(r, take_number(r), id_size)
    name = take_number(r)
    organism = take_number(r)
    gene = take_number(r)
    if in_id > 0:
        append(&columns[NAME], id + in_id - 1, bounded(r, name, id_size - in_id + 1))
    else:
        take_text(&columns[NAME], r, name)
    take_text(&columns[ORGANISM], r, organism)
    take_text(&columns[GENE], r, gene)


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
    cdef unsigned char[::1] column
    cdef Column columns[_TEXTS]
    cdef unsigned char first
    cdef Reader r
    for k in range(_TEXTS):
        column = values[k]
        columns[k] = Column(&column[0], 0)
    r.whole = True
    with nogil:
        for k in range(_TEXTS):
            edges[k, 0] = 0
        for i in range(count):
            r.at = p + packed_edges[i]
            r.end = p + packed_edges[i + 1]
            first = 0
            if r.at < r.end:
                first = r.at[0]
                r.at += 1
            taxid[i] = cluster_size[i] = pe[i] = UNKNOWN
            fragment[i] = first >> 4 & 1
            if first >> 5:
                pe[i] = first >> 5
            database[i] = <signed char>bounded(&r, first & 15, PRF + 1) - 1
            if database[i] != UNKNOWN:
                taxid[i] = take_optional(&r)
                cluster_size[i] = take_optional(&r)
                take_texts(columns, &r, t + id_edges[i], id_edges[i + 1] - id_edges[i])
            take_text(&columns[_DESCRIPTION], &r, r.end - r.at)
            for k in range(_TEXTS):
                edges[k, i + 1] = columns[k].size
    return bool(r.whole)
