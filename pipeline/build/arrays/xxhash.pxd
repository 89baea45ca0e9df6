# cython: language_level=3
"""Functions of xxhash.h. If pyarrow has no copy of this header, an installed copy is used."""

cdef extern from *:
    """
    #define XXH_INLINE_ALL
    #if __has_include("arrow/vendored/xxhash/xxhash.h")
    #include "arrow/vendored/xxhash/xxhash.h"
    #elif __has_include(<xxhash.h>)
    #include <xxhash.h>
    #else
    #error "no xxhash.h: this pyarrow has no headers. Install its full wheel, libxxhash-dev (apt) or xxhash (conda)"
    #endif
    #if defined(XXH_VERSION_NUMBER) && XXH_VERSION_NUMBER < 800
    #error "this xxhash.h is too old: XXH3 needs xxHash 0.8.0 or later"
    #endif
    """
    ctypedef struct XXH128_hash_t:
        unsigned long long low64
        unsigned long long high64
    ctypedef struct XXH128_canonical_t:
        unsigned char digest[16]
    unsigned long long XXH3_64bits(const void* data, size_t size) nogil
    XXH128_hash_t XXH3_128bits(const void* data, size_t size) nogil
    void XXH128_canonicalFromHash(XXH128_canonical_t* out, XXH128_hash_t value) nogil
