# The compiled form of crc.py: what it gives is zlib's CRC-32, in the time that it takes to read the bytes.
from libc.stdint cimport uint8_t, uint32_t

cdef extern from *:
    """
    #include <stddef.h>
    #include <stdint.h>
    #include <string.h>

    static uint32_t canal_crc_table[8][256];

    static void canal_crc_setup(void) {
        for (uint32_t i = 0; i < 256; i++) {
            uint32_t c = i;
            for (int k = 0; k < 8; k++) c = c & 1 ? c >> 1 ^ 0xEDB88320u : c >> 1;
            canal_crc_table[0][i] = c;
        }
        for (int t = 1; t < 8; t++)
            for (int i = 0; i < 256; i++) {
                uint32_t c = canal_crc_table[t - 1][i];
                canal_crc_table[t][i] = c >> 8 ^ canal_crc_table[0][c & 255];
            }
    }

    /* Eight bytes a step; crc is the register, not inverted. */
    static uint32_t canal_crc_by_table(uint32_t crc, const uint8_t *p, size_t n) {
        for (; n >= 8; p += 8, n -= 8) {
            uint32_t a, b;
            memcpy(&a, p, 4);
            memcpy(&b, p + 4, 4);
            a ^= crc;
            crc = canal_crc_table[7][a & 255] ^ canal_crc_table[6][a >> 8 & 255] ^ canal_crc_table[5][a >> 16 & 255]
                ^ canal_crc_table[4][a >> 24] ^ canal_crc_table[3][b & 255] ^ canal_crc_table[2][b >> 8 & 255]
                ^ canal_crc_table[1][b >> 16 & 255] ^ canal_crc_table[0][b >> 24];
        }
        while (n--) crc = crc >> 8 ^ canal_crc_table[0][(crc ^ *p++) & 255];
        return crc;
    }

    #if defined(__GNUC__) && defined(__x86_64__)
    #include <immintrin.h>

    static int canal_crc_folds;

    /* b times x^(its distance to the next 128 bits), added to them: k holds that power for both halves. */
    #define CANAL_FOLD(b, k, next) _mm_xor_si128( \\
        _mm_xor_si128(_mm_clmulepi64_si128(b, k, 0x00), _mm_clmulepi64_si128(b, k, 0x11)), next)
    #define CANAL_LOAD(at) _mm_loadu_si128((const __m128i *)(at))

    /* Carry-less multiplication: "Fast CRC Computation for Generic Polynomials Using PCLMULQDQ", Intel 2009. n >= 16.

    What is more than whole blocks of 16 bytes comes first, behind zeros: before the register they count for nothing. */
    __attribute__((target("pclmul,sse4.1")))
    static uint32_t canal_crc_by_folding(uint32_t crc, const uint8_t *p, size_t n) {
        const __m128i by_4 = _mm_set_epi64x(0x01c6e41596, 0x0154442bd4), by_3 = _mm_set_epi64x(0x0174359406, 0x003db1ecdc);
        const __m128i by_2 = _mm_set_epi64x(0x015a546366, 0x00f1da05aa), by_1 = _mm_set_epi64x(0x00ccaa009e, 0x01751997d0);
        const __m128i low = _mm_set_epi32(0, 0, 0, ~0);
        static const uint8_t zeros_before[32] = {
            128, 128, 128, 128, 128, 128, 128, 128, 128, 128, 128, 128, 128, 128, 128, 128,
            0, 1, 2, 3, 4, 5, 6, 7, 8, 9, 10, 11, 12, 13, 14, 15,
        };
        const size_t odd = n & 15;
        __m128i a = _mm_xor_si128(CANAL_LOAD(p + odd), _mm_cvtsi32_si128(odd < 4 ? (int)(crc >> 8 * odd) : 0)), t;
        if (odd) {
            const __m128i head = _mm_xor_si128(CANAL_LOAD(p), _mm_cvtsi32_si128((int)crc));
            a = CANAL_FOLD(_mm_shuffle_epi8(head, CANAL_LOAD(zeros_before + odd)), by_1, a);
            p += odd, n -= odd;
        }
        p += 16, n -= 16;
        if (n >= 48) {
            __m128i b = CANAL_LOAD(p), c = CANAL_LOAD(p + 16), d = CANAL_LOAD(p + 32);
            p += 48, n -= 48;
            for (; n >= 64; p += 64, n -= 64) {
                a = CANAL_FOLD(a, by_4, CANAL_LOAD(p));
                b = CANAL_FOLD(b, by_4, CANAL_LOAD(p + 16));
                c = CANAL_FOLD(c, by_4, CANAL_LOAD(p + 32));
                d = CANAL_FOLD(d, by_4, CANAL_LOAD(p + 48));
            }
            a = CANAL_FOLD(a, by_3, CANAL_FOLD(b, by_2, CANAL_FOLD(c, by_1, d)));
        }
        if (n >= 32) {
            a = CANAL_FOLD(a, by_2, CANAL_FOLD(CANAL_LOAD(p), by_1, CANAL_LOAD(p + 16)));
            p += 32, n -= 32;
        }
        if (n) a = CANAL_FOLD(a, by_1, CANAL_LOAD(p));
        /* 128 bits to 96, to 64, and to 32 by Barrett's reduction. */
        a = _mm_xor_si128(_mm_clmulepi64_si128(a, by_1, 0x10), _mm_srli_si128(a, 8));
        t = _mm_clmulepi64_si128(_mm_and_si128(a, low), _mm_set_epi64x(0, 0x0163cd6124), 0x00);
        a = _mm_xor_si128(_mm_srli_si128(a, 4), t);
        t = _mm_clmulepi64_si128(_mm_and_si128(a, low), _mm_set_epi64x(0x01f7011641, 0x01db710641), 0x10);
        t = _mm_clmulepi64_si128(_mm_and_si128(t, low), _mm_set_epi64x(0x01f7011641, 0x01db710641), 0x00);
        return (uint32_t)_mm_extract_epi32(_mm_xor_si128(a, t), 1);
    }

    static void canal_crc_choose(void) {
        canal_crc_setup();
        __builtin_cpu_init();
        canal_crc_folds = __builtin_cpu_supports("pclmul") && __builtin_cpu_supports("sse4.1");
    }

    static uint32_t canal_crc32(const uint8_t *p, size_t n) {
        return ~(canal_crc_folds && n >= 16 ? canal_crc_by_folding(~0u, p, n) : canal_crc_by_table(~0u, p, n));
    }
    #else
    #define canal_crc_choose canal_crc_setup
    static uint32_t canal_crc32(const uint8_t *p, size_t n) { return ~canal_crc_by_table(~0u, p, n); }
    #endif
    """
    void canal_crc_choose() noexcept nogil
    uint32_t canal_crc32(const uint8_t* p, size_t n) noexcept nogil

cdef inline setup():
    canal_crc_choose()

cdef inline uint32_t crc32(const uint8_t* p, Py_ssize_t size) noexcept:
    cdef uint32_t crc
    if size < 65536:
        return canal_crc32(p, size)
    with nogil:
        crc = canal_crc32(p, size)
    return crc
