/* SPDX-License-Identifier: Apache-2.0 */
/* Copy methods for x86-64: streaming stores of several widths, and the string move instruction.  Hot path.
 *
 * An ordinary store first reads the line that it overwrites, so copying n bytes moves 3 n over the memory
 * bus.  A streaming store of a whole line moves 2 n.  The C library streams too, but only from a size
 * related to the last-level cache (tens of MiB here); a piece of KV is far smaller.
 *
 *     from   |..page..|..page..|..page..|..page..|      a group of stream16x4
 *                ^ line   ^        ^        ^           copied together, then the next line of each
 *
 * Four pages at once are four streams for the processor.  Some processors keep more lines in flight like that
 * than along one page; others lose two thirds of their speed. mem_copy.c measures which.
 *
 * Streaming stores are not ordered with other stores.  The fence at the end lets the caller set a flag after
 * them. */
#include <immintrin.h>
#include <stdint.h>
#include <string.h>

#include "base/cpu.h"
#include "base/mem_copy.h"

#define LINE_BYTES  ((size_t)64)
#define PAGE_BYTES  ((size_t)4096)
#define N_STREAMS   4
#define GROUP_BYTES (N_STREAMS * PAGE_BYTES)
#define AHEAD_BYTES (4 * LINE_BYTES)
#define MIN_BYTES   (GROUP_BYTES + LINE_BYTES) /* shorter runs use memcpy() */

/* to is line-aligned; len_bytes is a multiple of a line. */
typedef void (*stream_lines)(uint8_t *to, const uint8_t *from, size_t len_bytes);

static inline void stream_line(uint8_t *to, const uint8_t *from)
{
    __m128i a = _mm_loadu_si128((const __m128i *)(const void *)from);
    __m128i b = _mm_loadu_si128((const __m128i *)(const void *)(from + 16));
    __m128i c = _mm_loadu_si128((const __m128i *)(const void *)(from + 32));
    __m128i d = _mm_loadu_si128((const __m128i *)(const void *)(from + 48));

    _mm_stream_si128((__m128i *)(void *)to, a);
    _mm_stream_si128((__m128i *)(void *)(to + 16), b);
    _mm_stream_si128((__m128i *)(void *)(to + 32), c);
    _mm_stream_si128((__m128i *)(void *)(to + 48), d);
}

static void lines_by_16(uint8_t *to, const uint8_t *from, size_t len_bytes)
{
    for (size_t i = 0; i < len_bytes; i += LINE_BYTES)
        stream_line(to + i, from + i);
}

__attribute__((target("avx"))) static void lines_by_32(uint8_t *to, const uint8_t *from, size_t len_bytes)
{
    for (size_t i = 0; i < len_bytes; i += LINE_BYTES) {
        __m256i a = _mm256_loadu_si256((const __m256i *)(const void *)(from + i));
        __m256i b = _mm256_loadu_si256((const __m256i *)(const void *)(from + i + 32));

        _mm256_stream_si256((__m256i *)(void *)(to + i), a);
        _mm256_stream_si256((__m256i *)(void *)(to + i + 32), b);
    }
}

__attribute__((target("avx512f"))) static void lines_by_64(uint8_t *to, const uint8_t *from, size_t len_bytes)
{
    for (size_t i = 0; i < len_bytes; i += LINE_BYTES)
        _mm512_stream_si512((__m512i *)(void *)(to + i), _mm512_loadu_si512(from + i));
}

/* The prefetch may reach past the end: a hint reads nothing and cannot fail. */
static void stream_group(uint8_t *to, const uint8_t *from)
{
    for (size_t line = 0; line < PAGE_BYTES; line += LINE_BYTES) {
        for (size_t page = 0; page < GROUP_BYTES; page += PAGE_BYTES)
            _mm_prefetch((const char *)(uintptr_t)((uintptr_t)from + page + line + AHEAD_BYTES), _MM_HINT_T0);
        for (size_t page = 0; page < GROUP_BYTES; page += PAGE_BYTES)
            stream_line(to + page + line, from + page + line);
    }
}

static void lines_by_16_of_four(uint8_t *to, const uint8_t *from, size_t len_bytes)
{
    for (; len_bytes >= GROUP_BYTES; len_bytes -= GROUP_BYTES) {
        stream_group(to, from);
        to += GROUP_BYTES;
        from += GROUP_BYTES;
    }
    lines_by_16(to, from, len_bytes);
}

static inline void copy_streaming(uint8_t *restrict to, const uint8_t *restrict from, size_t len_bytes,
                                  stream_lines lines)
{
    const size_t head_bytes = -(uintptr_t)to % LINE_BYTES;

    if (len_bytes < MIN_BYTES) {
        memcpy(to, from, len_bytes);
        return;
    }
    const size_t tail_bytes = (len_bytes - head_bytes) % LINE_BYTES;
    memcpy(to, from, head_bytes);
    lines(to + head_bytes, from + head_bytes, len_bytes - head_bytes - tail_bytes);
    memcpy(to + len_bytes - tail_bytes, from + len_bytes - tail_bytes, tail_bytes);
    _mm_sfence();
}

static void copy_stream16(void *restrict to, const void *restrict from, size_t len_bytes)
{
    copy_streaming(to, from, len_bytes, lines_by_16);
}

static void copy_stream32(void *restrict to, const void *restrict from, size_t len_bytes)
{
    copy_streaming(to, from, len_bytes, lines_by_32);
}

static void copy_stream64(void *restrict to, const void *restrict from, size_t len_bytes)
{
    copy_streaming(to, from, len_bytes, lines_by_64);
}

static void copy_stream16x4(void *restrict to, const void *restrict from, size_t len_bytes)
{
    copy_streaming(to, from, len_bytes, lines_by_16_of_four);
}

/* The fence is needed because a processor may use weakly ordered stores for this too. */
static void copy_movsb(void *restrict to, const void *restrict from, size_t len_bytes)
{
    __asm__ volatile("rep movsb" : "+D"(to), "+S"(from), "+c"(len_bytes) : : "memory");
    _mm_sfence();
}

const struct mem_copy_method *mem_copy_own_method(uint32_t index)
{
    static const struct mem_copy_method methods[] = {{"stream16", copy_stream16},
                                                     {"stream16x4", copy_stream16x4},
                                                     {"movsb", copy_movsb},
                                                     {"stream32", copy_stream32},
                                                     {"stream64", copy_stream64}};
    const struct cpu_features *cpu = cpu_features_get();
    const bool can[] = {true, true, cpu->has_erms, cpu->has_avx2, cpu->has_avx512};

    for (uint32_t i = 0; i < sizeof(methods) / sizeof(methods[0]); i++)
        if (can[i] && index-- == 0)
            return &methods[i];
    return NULL;
}

void mem_copy_forget(const void *at, size_t len_bytes)
{
    for (size_t i = 0; i < len_bytes; i += LINE_BYTES)
        _mm_clflush((const char *)at + i);
    _mm_mfence();
}
