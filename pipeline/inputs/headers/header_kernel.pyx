# cython: language_level=3, boundscheck=False, wraparound=False, cdivision=True, initializedcheck=False
"""Parse headers of FASTA records in one pass.

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

from libc.string cimport memcmp, memset, strlen

from pipeline.inputs.headers.header_text cimport (
    bar, digits, ends_with, equals, is_blank, is_digit, is_letter, is_upper, number, text_t,
    trimmed, versioned,
)

from schemas.records import DATABASES

cdef enum:
    _ACCESSION
    _NAME
    _ORGANISM
    _GENE

cdef enum:  # indices into DATABASES
    _NONE = -1
    _SWISS_PROT, _TREMBL, _UNIREF50, _UNIREF90, _UNIREF100, _UNIPARC, _MGNIFY
    _REFSEQ, _GENBANK, _EMBL, _DDBJ, _PDB, _PIR, _PRF

assert len(DATABASES) == _PRF + 1

cdef enum:
    _PLAIN_FAMILY  # or UniParc, whose descriptions are not read either
    _UNIPROT_FAMILY
    _UNIREF_FAMILY
    _MGNIFY_FAMILY
    _NCBI_FAMILY

cdef struct Header:
    int family
    signed char database
    signed char pe
    bint fragment
    int taxid
    int cluster_size
    Py_ssize_t begin[4]  # spans of accession, name, organism and gene
    Py_ssize_t end[4]


cdef int bare_ncbi(text_t t, Py_ssize_t begin, Py_ssize_t end) noexcept nogil:
    """Return RefSeq for ids such as NP_000509.1, GenBank for AAA12345.1, else none."""
    cdef Py_ssize_t at
    if end - begin >= 9 and is_upper(t[begin]) and t[begin + 1] == c'P' and t[begin + 2] == c'_':
        at = digits(t, begin + 3, end)
        if at - begin >= 9 and versioned(t, at, end):
            return _REFSEQ
    at = begin
    while at < end and is_upper(t[at]):
        at += 1
    if at - begin == 3:
        at = digits(t, at, end)
        if 8 <= at - begin <= 10 and at < end and versioned(t, at, end):
            return _GENBANK
    return _NONE


cdef const char** PREFIXES = [b"sp", b"tr", b"ref", b"gb", b"emb", b"dbj", b"pdb", b"pir", b"prf"]
cdef int* MEANINGS = [_SWISS_PROT, _TREMBL, _REFSEQ, _GENBANK, _EMBL, _DDBJ, _PDB, _PIR, _PRF]


cdef int database_of(text_t t, Py_ssize_t begin, Py_ssize_t end) noexcept nogil:
    """Return the database of the word before the first `|` of an id."""
    cdef int i
    for i in range(9):
        if equals(t, begin, end, PREFIXES[i], strlen(PREFIXES[i])):
            return MEANINGS[i]
    return _NONE


cdef void read_id(text_t t, Py_ssize_t a, Py_ssize_t b, Header* h) noexcept nogil:
    """Set family, database and accession from the id t[a:b]."""
    cdef Py_ssize_t first = a, at, i
    h.family = _PLAIN_FAMILY
    if b - a > 9 and memcmp(t + a, b"UniRef", 6) == 0:
        at = digits(t, a + 6, b)
        if at < b - 1 and t[at] == c'_':
            if equals(t, a + 6, at, b"50", 2):
                h.database = _UNIREF50
            elif equals(t, a + 6, at, b"90", 2):
                h.database = _UNIREF90
            elif equals(t, a + 6, at, b"100", 3):
                h.database = _UNIREF100
            if h.database != _NONE:
                h.family = _UNIREF_FAMILY
                first = at + 1
    elif b - a == 13 and memcmp(t + a, b"UPI", 3) == 0:
        h.database = _UNIPARC
        for i in range(a + 3, b):
            if not (is_digit(t[i]) or c'A' <= t[i] <= c'F'):
                h.database = _NONE
    elif b - a >= 13 and memcmp(t + a, b"MGYP", 4) == 0 and digits(t, a + 4, b) == b:
        h.database = _MGNIFY
        h.family = _MGNIFY_FAMILY
    elif bar(t, a, b) < b:
        read_id_with_bars(t, a, b, h)
        return
    else:
        h.database = bare_ncbi(t, a, b)
        if h.database != _NONE:
            h.family = _NCBI_FAMILY
    if h.database != _NONE:
        h.begin[_ACCESSION] = first
        h.end[_ACCESSION] = b


cdef void read_id_with_bars(text_t t, Py_ssize_t a, Py_ssize_t b, Header* h) noexcept nogil:
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
    if h.database == _NONE:
        return
    if h.database == _SWISS_PROT or h.database == _TREMBL:
        h.family = _UNIPROT_FAMILY
    else:
        h.family = _NCBI_FAMILY
    after = bar(t, at + 1, b)
    h.begin[_ACCESSION] = at + 1
    h.end[_ACCESSION] = after
    if after < b:
        h.begin[_NAME] = after + 1
        h.end[_NAME] = bar(t, after + 1, b)
    if after == at + 1:  # pir||A12345 has the accession in the place of the name
        h.begin[_ACCESSION] = h.begin[_NAME]
        h.end[_ACCESSION] = h.end[_NAME]
        h.begin[_NAME] = h.end[_NAME] = 0


cdef void read_value(
    text_t d, Py_ssize_t key, Py_ssize_t key_end, Py_ssize_t at, Py_ssize_t stop,
    Py_ssize_t before, Header* h
) noexcept nogil:
    """Store the value d[at:stop] of the key d[key:key_end].

    Spans are positions in all ids followed by all descriptions. `before`, the number of bytes of
    all ids, is therefore added to positions in descriptions.
    """
    cdef int which = -1
    if h.family == _UNIPROT_FAMILY:
        if equals(d, key, key_end, b"OS", 2):
            which = _ORGANISM
        elif equals(d, key, key_end, b"GN", 2):
            which = _GENE
        elif equals(d, key, key_end, b"OX", 2):
            h.taxid = number(d, at, stop)
        elif equals(d, key, key_end, b"PE", 2):
            h.pe = -1
            if stop - at == 1 and c'1' <= d[at] <= c'5':
                h.pe = d[at] - c'0'
    elif h.family == _UNIREF_FAMILY:
        if equals(d, key, key_end, b"Tax", 3):
            which = _ORGANISM
        elif equals(d, key, key_end, b"RepID", 5):
            which = _NAME
        elif equals(d, key, key_end, b"TaxID", 5):
            h.taxid = number(d, at, stop)
        elif equals(d, key, key_end, b"n", 1):
            h.cluster_size = number(d, at, stop)
    elif equals(d, key, key_end, b"PL", 2):
        h.fragment = not equals(d, at, stop, b"00", 2)
    if which >= 0:
        h.begin[which] = before + at
        h.end[which] = before + stop


cdef Py_ssize_t read_keys(
    text_t d, Py_ssize_t begin, Py_ssize_t end, Py_ssize_t before, Header* h
) noexcept nogil:
    """Read all keys of the description d[begin:end]; return the first key's index, or `end`."""
    cdef Py_ssize_t first = end, key = -1, sign = -1, i = begin, next_key, at, stop
    while True:
        next_key = end
        while i < end:  # find the next `=` that ends a key
            if d[i] == c'=':
                next_key = i
                while next_key > begin and is_letter(d[next_key - 1]):
                    next_key -= 1
                if next_key < i and (next_key == begin or d[next_key - 1] == c' '):
                    break
                next_key = end
            i += 1
        if key >= 0:
            at = sign + 1
            stop = next_key
            stop = trimmed(d, at, stop)
            while at < stop and is_blank(d[at]):
                at += 1
            read_value(d, key, sign, at, stop, before, h)
        else:
            first = next_key
        if i >= end:
            return first
        key = next_key
        sign = i
        i += 1


cdef void read_title(
    text_t d, Py_ssize_t begin, Py_ssize_t end, Py_ssize_t before, Header* h
) noexcept nogil:
    """Read a description in the style of NCBI: a title, and an organism in brackets."""
    cdef Py_ssize_t stop = begin, at, depth = 0
    while stop < end and d[stop] != 1:  # Ctrl-A separates the titles of equal proteins
        stop += 1
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
            h.begin[_ORGANISM] = before + at + 1
            h.end[_ORGANISM] = before + stop - 1
            stop = at
            stop = trimmed(d, begin, stop)
    h.fragment = ends_with(d, begin, stop, b", partial", 9)


cdef void read_header(
    text_t t, Py_ssize_t a, Py_ssize_t b, text_t d, Py_ssize_t begin, Py_ssize_t end,
    Py_ssize_t before, Header* h
) noexcept nogil:
    """Read the id t[a:b] and the description d[begin:end]."""
    cdef Py_ssize_t stop
    memset(h, 0, sizeof(Header))
    h.database = h.pe = -1
    h.taxid = h.cluster_size = -1
    read_id(t, a, b, h)
    if h.family == _PLAIN_FAMILY:
        return
    stop = end
    if h.family != _NCBI_FAMILY:
        stop = read_keys(d, begin, end, before, h)
    if h.family == _NCBI_FAMILY or (h.family == _UNIPROT_FAMILY and stop == end):
        read_title(d, begin, end, before, h)
    elif h.family != _MGNIFY_FAMILY:
        stop = trimmed(d, begin, stop)
        h.fragment = ends_with(d, begin, stop, b"(Fragment)", 10) or ends_with(
            d, begin, stop, b"(Fragments)", 11
        )


def parse(
    const unsigned char[::1] ids,
    const long long[::1] id_edges,
    const unsigned char[::1] descriptions,
    const long long[::1] description_edges,
    long long[:, :, ::1] spans,
    int[::1] taxid,
    signed char[::1] pe,
    unsigned char[::1] fragment,
    int[::1] cluster_size,
    signed char[::1] database,
):
    cdef Py_ssize_t count = id_edges.shape[0] - 1, before = ids.shape[0], r, i
    cdef text_t t = &ids[0] if before else NULL
    cdef text_t d = &descriptions[0] if descriptions.shape[0] else NULL
    cdef Header h
    with nogil:
        for r in range(count):
            read_header(
                t, id_edges[r], id_edges[r + 1],
                d, description_edges[r], description_edges[r + 1], before, &h
            )
            for i in range(4):
                spans[i, 0, r] = h.begin[i]
                spans[i, 1, r] = h.end[i]
            taxid[r] = h.taxid
            pe[r] = h.pe
            fragment[r] = h.fragment
            cluster_size[r] = h.cluster_size
            database[r] = h.database
