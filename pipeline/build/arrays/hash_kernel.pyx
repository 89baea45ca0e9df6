# cython: language_level=3, boundscheck=False, wraparound=False, cdivision=True, initializedcheck=False
"""Hash many short byte strings with xxh3_128, and count byte values.

The kernel hashes 11 M sequences/s. With a Python call for each sequence, the speed was 1.25 M
sequences/s, and hashing took a third of the map stage's time.
"""

from pipeline.build.arrays.xxhash cimport (
    XXH3_128bits,
    XXH128_canonical_t,
    XXH128_canonicalFromHash,
)


def xxh3_128_digests(
    const unsigned char[::1] values, const long long[::1] ends, unsigned char[::1] digests
):
    cdef Py_ssize_t i, begin = 0
    cdef unsigned char nothing = 0
    cdef const unsigned char* data = &values[0] if values.shape[0] else &nothing
    with nogil:
        for i in range(ends.shape[0]):
            XXH128_canonicalFromHash(
                <XXH128_canonical_t*>&digests[16 * i], XXH3_128bits(data + begin, ends[i] - begin)
            )
            begin = ends[i]


def count_values(const unsigned char[::1] values, long long[::1] counts):
    cdef Py_ssize_t i, whole = values.shape[0] // 4 * 4
    # use four tables in turn, because an increment waits for the previous one of the same counter
    cdef long long[4][256] tables
    cdef int k
    with nogil:
        for k in range(4):
            for i in range(256):
                tables[k][i] = 0
        for i in range(0, whole, 4):
            tables[0][values[i]] += 1
            tables[1][values[i + 1]] += 1
            tables[2][values[i + 2]] += 1
            tables[3][values[i + 3]] += 1
        for i in range(whole, values.shape[0]):
            tables[0][values[i]] += 1
        for i in range(256):
            counts[i] += tables[0][i] + tables[1][i] + tables[2][i] + tables[3][i]
