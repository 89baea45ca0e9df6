# cython: language_level=3, boundscheck=False, wraparound=False, cdivision=True, initializedcheck=False
"""Find and hash the residues of sequences in buckets without copying them, and count <unk>.

This kernel shares no code with the kernels that write buckets, so it also finds their errors.
"""

from pipeline.build.arrays.xxhash cimport XXH3_128bits, XXH128_hash_t


def find_ends(
    const unsigned char[::1] ids, const long long[::1] begin, const long long[::1] last,
    unsigned char eos, long long[::1] end,
):
    cdef Py_ssize_t i
    cdef long long at
    with nogil:
        for i in range(begin.shape[0]):
            at = last[i] - 1
            while at > begin[i] and ids[at] != eos:
                at -= 1
            end[i] = at


def measure_sequences(
    const unsigned char[::1] ids, const long long[::1] begin, const long long[::1] end,
    unsigned char unk,
    unsigned long long[::1] high, unsigned long long[::1] low, long long[::1] unknown,
):
    cdef Py_ssize_t i
    cdef long long k, count
    cdef XXH128_hash_t digest
    with nogil:
        for i in range(begin.shape[0]):
            digest = XXH3_128bits(&ids[begin[i]], end[i] - begin[i])
            high[i] = digest.high64
            low[i] = digest.low64
            count = 0
            for k in range(begin[i], end[i]):
                count += ids[k] == unk
            unknown[i] = count
