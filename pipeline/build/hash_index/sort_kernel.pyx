# cython: language_level=3, boundscheck=False, wraparound=False, cdivision=True, initializedcheck=False
"""Sort hashes by counting their upper bits, then by insertion.

A bucket is a group of rows whose hashes have the same upper bits.
"""


def count(const unsigned long long[::1] high, int shift, long long[::1] counts):
    cdef Py_ssize_t i
    with nogil:
        for i in range(high.shape[0]):
            counts[<Py_ssize_t>(high[i] >> shift)] += 1


def scatter(
    const unsigned long long[::1] high,
    const unsigned long long[::1] low,
    const long long[::1] ordinal,
    int shift,
    long long[::1] places,
    unsigned long long[:, ::1] rows,
):
    cdef Py_ssize_t i, bucket
    cdef long long place
    with nogil:
        for i in range(high.shape[0]):
            bucket = <Py_ssize_t>(high[i] >> shift)
            place = places[bucket]
            places[bucket] = place + 1
            rows[place, 0] = high[i]
            rows[place, 1] = low[i]
            rows[place, 2] = <unsigned long long>ordinal[i]


def sort_buckets(
    unsigned long long[:, ::1] rows,
    const long long[::1] ends,
    unsigned long long[::1] high,
    unsigned long long[::1] low,
    long long[::1] ordinal,
):
    cdef Py_ssize_t bucket, i, j
    cdef long long begin = 0
    cdef unsigned long long a, b, c
    with nogil:
        for bucket in range(ends.shape[0]):
            for i in range(begin + 1, ends[bucket]):
                a = rows[i, 0]
                b = rows[i, 1]
                c = rows[i, 2]
                j = i
                while j > begin and (
                    rows[j - 1, 0] > a or (rows[j - 1, 0] == a and rows[j - 1, 1] > b)
                ):
                    rows[j, 0] = rows[j - 1, 0]
                    rows[j, 1] = rows[j - 1, 1]
                    rows[j, 2] = rows[j - 1, 2]
                    j -= 1
                rows[j, 0] = a
                rows[j, 1] = b
                rows[j, 2] = c
            for i in range(begin, ends[bucket]):
                high[i] = rows[i, 0]
                low[i] = rows[i, 1]
                ordinal[i] = <long long>rows[i, 2]
            begin = ends[bucket]
