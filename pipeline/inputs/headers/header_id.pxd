# cython: language_level=3
"""A parsed header, and inline functions that read a header's id, for header_kernel.pyx."""

from libc.string cimport memcmp

from pipeline.inputs.headers.header_text cimport (
    bar, digits, equals, is_digit, is_upper, text_t, versioned,
)

cdef enum:
    ACCESSION
    NAME
    ORGANISM
    GENE

cdef enum:  # indices into DATABASES
    UNKNOWN = -1
    SWISS_PROT, TREMBL, UNIREF50, UNIREF90, UNIREF100, UNIPARC, MGNIFY
    REFSEQ, GENBANK, EMBL, DDBJ, PDB, PIR, PRF

cdef enum:
    PLAIN_FAMILY  # also UniParc; descriptions of both are not read
    UNIPROT_FAMILY
    UNIREF_FAMILY
    MGNIFY_FAMILY
    NCBI_FAMILY

cdef struct Header:
    int family
    signed char database
    signed char pe
    bint fragment
    int taxid
    int cluster_size
    text_t begin[4]  # spans of accession, name, organism and gene
    text_t end[4]
    text_t description  # description to keep; NULL if it is not kept
    Py_ssize_t description_size


cdef inline int bare_ncbi(text_t t, Py_ssize_t begin, Py_ssize_t end) noexcept nogil:
    """Return RefSeq for ids such as NP_000509.1, GenBank for AAA12345.1, else UNKNOWN."""
    cdef Py_ssize_t at
    if end - begin >= 9 and is_upper(t[begin]) and t[begin + 1] == c'P' and t[begin + 2] == c'_':
        at = digits(t, begin + 3, end)
        if at - begin >= 9 and versioned(t, at, end):
            return REFSEQ
    at = begin
    while at < end and is_upper(t[at]):
        at += 1
    if at - begin == 3:
        at = digits(t, at, end)
        if 8 <= at - begin <= 10 and at < end and versioned(t, at, end):
            return GENBANK
    return UNKNOWN


cdef inline int database_of(text_t t, Py_ssize_t begin, Py_ssize_t end) noexcept nogil:
    """Return the database that the word t[begin:end] of an id stands for."""
    if equals(t, begin, end, b"sp", 2):
        return SWISS_PROT
    if equals(t, begin, end, b"tr", 2):
        return TREMBL
    if equals(t, begin, end, b"ref", 3):
        return REFSEQ
    if equals(t, begin, end, b"gb", 2):
        return GENBANK
    if equals(t, begin, end, b"emb", 3):
        return EMBL
    if equals(t, begin, end, b"dbj", 3):
        return DDBJ
    if equals(t, begin, end, b"pdb", 3):
        return PDB
    if equals(t, begin, end, b"pir", 3):
        return PIR
    if equals(t, begin, end, b"prf", 3):
        return PRF
    return UNKNOWN


cdef inline void read_id_with_bars(text_t t, Py_ssize_t a, Py_ssize_t b, Header* h) noexcept nogil:
    """Read an id such as sp|P69905|HBA_HUMAN, or gi|4504349|ref|NP_000509.1|."""
    cdef Py_ssize_t first = a, at = bar(t, a, b), after
    if equals(t, first, at, b"gi", 2):
        first = bar(t, at + 1, b) + 1
        if first >= b:
            return
        at = bar(t, first, b)
    if at == b:
        return
    h.database = database_of(t, first, at)
    if h.database == UNKNOWN:
        return
    if h.database == SWISS_PROT or h.database == TREMBL:
        h.family = UNIPROT_FAMILY
    else:
        h.family = NCBI_FAMILY
    after = bar(t, at + 1, b)
    h.begin[ACCESSION] = t + at + 1
    h.end[ACCESSION] = t + after
    if after < b:
        h.begin[NAME] = t + after + 1
        h.end[NAME] = t + bar(t, after + 1, b)
    if after == at + 1:  # pir||A12345 has the accession in the place of the name
        h.begin[ACCESSION] = h.begin[NAME]
        h.end[ACCESSION] = h.end[NAME]
        h.begin[NAME] = h.end[NAME] = NULL


cdef inline void read_id(text_t t, Py_ssize_t a, Py_ssize_t b, Header* h) noexcept nogil:
    """Set family, database and accession from the id t[a:b]."""
    cdef Py_ssize_t first = a, at, i
    h.family = PLAIN_FAMILY
    if b - a > 9 and memcmp(t + a, b"UniRef", 6) == 0:
        at = digits(t, a + 6, b)
        if at < b - 1 and t[at] == c'_':
            if equals(t, a + 6, at, b"50", 2):
                h.database = UNIREF50
            elif equals(t, a + 6, at, b"90", 2):
                h.database = UNIREF90
            elif equals(t, a + 6, at, b"100", 3):
                h.database = UNIREF100
            if h.database != UNKNOWN:
                h.family = UNIREF_FAMILY
                first = at + 1
    elif b - a == 13 and memcmp(t + a, b"UPI", 3) == 0:
        h.database = UNIPARC
        for i in range(a + 3, b):
            if not (is_digit(t[i]) or c'A' <= t[i] <= c'F'):
                h.database = UNKNOWN
    elif b - a >= 13 and memcmp(t + a, b"MGYP", 4) == 0 and digits(t, a + 4, b) == b:
        h.database = MGNIFY
        h.family = MGNIFY_FAMILY
    elif bar(t, a, b) < b:
        read_id_with_bars(t, a, b, h)
        return
    else:
        h.database = bare_ncbi(t, a, b)
        if h.database != UNKNOWN:
            h.family = NCBI_FAMILY
    if h.database != UNKNOWN:
        h.begin[ACCESSION] = t + first
        h.end[ACCESSION] = t + b
