/* SPDX-License-Identifier: Apache-2.0 */
/* Chooses the copy method by measuring all methods in turns on this machine.  No rule by maker or model is
 * right on all processors: on one, a single stream of 32-byte stores is three times as fast as four streams,
 * and on the next it is slower.
 *
 *     round 1   memcpy  stream16  stream32 ...      one stretch of pieces each, in no cache
 *     round 2   memcpy  stream16  stream32 ...
 *     ...                                           each method's best stretch counts
 *
 * Other work on the machine can only slow a stretch down, so the best stretch is nearest to the truth.  A
 * method that is disturbed in one round has the others. */
#include "base/mem_copy.h"

#include <stdatomic.h>
#include <string.h>

#include "base/clock.h"
#include "base/mem.h"

#define PIECE_BYTES  ((size_t)512 << 10) /* a large piece of KV */
#define BUFFER_BYTES ((size_t)8 << 20)   /* bytes of sources, and the same of targets */

enum { STRETCH_PIECES = 2, MIN_ROUNDS = 3, MAX_ROUNDS = 20 };

/* A method must be faster than the C library's by this factor, so that noise alone does not choose it. */
static const double CLEARLY = 1.03;

static void copy_plainly(void *restrict to, const void *restrict from, size_t len_bytes)
{
    memcpy(to, from, len_bytes);
}

static const struct mem_copy_method plain = {"memcpy", copy_plainly};
static _Atomic(const struct mem_copy_method *) chosen = &plain;

void mem_copy_past_caches(void *restrict to, const void *restrict from, size_t len_bytes)
{
    atomic_load_explicit(&chosen, memory_order_relaxed)->copy(to, from, len_bytes);
}

const struct mem_copy_method *mem_copy_method_at(uint32_t index)
{
    return index == 0 ? &plain : mem_copy_own_method(index - 1);
}

const struct mem_copy_method *mem_copy_method_find(const char *name)
{
    const struct mem_copy_method *method;

    for (uint32_t i = 0; (method = mem_copy_method_at(i)) != NULL; i++)
        if (strcmp(method->name, name) == 0)
            return method;
    return NULL;
}

const struct mem_copy_method *mem_copy_chosen(void)
{
    return atomic_load_explicit(&chosen, memory_order_relaxed);
}

void mem_copy_choose(const struct mem_copy_method *method)
{
    atomic_store_explicit(&chosen, method, memory_order_relaxed);
}

/* ---- measuring ---- */

#define HARD_LIMITS 3 /* the first rounds may take so many limits on a busy machine */

struct measuring {
    struct mem_region region; /* sources, then targets */
    size_t at_bytes;          /* the next piece */
    uint64_t best_ns[MEM_COPY_MAX_METHODS];
};

static uint64_t time_stretch(struct measuring *measuring, const struct mem_copy_method *method)
{
    uint64_t sum_ns = 0;

    for (int i = 0; i < STRETCH_PIECES; i++) {
        char *from = (char *)measuring->region.base + measuring->at_bytes, *to = from + BUFFER_BYTES;

        mem_copy_forget(from, PIECE_BYTES);
        mem_copy_forget(to, PIECE_BYTES);
        uint64_t start_ns = clock_now_ns();
        method->copy(to, from, PIECE_BYTES);
        sum_ns += clock_now_ns() - start_ns;
        measuring->at_bytes = (measuring->at_bytes + PIECE_BYTES) % BUFFER_BYTES;
    }
    return sum_ns;
}

/* Touches the buffers piece by piece, because fresh memory takes long on a busy machine. False: the time is over. */
static bool touch_buffers(const struct mem_region *region, uint64_t end_ns)
{
    for (size_t at = 0; at + PIECE_BYTES <= region->len_bytes; at += PIECE_BYTES) {
        if (clock_now_ns() >= end_ns)
            return false;
        memset((char *)region->base + at, 1, PIECE_BYTES);
    }
    return true;
}

/* Returns the number of methods; 0: the time is over. */
static uint32_t measure_round(struct measuring *measuring, uint64_t end_ns)
{
    const struct mem_copy_method *method;
    uint32_t i = 0;

    for (; i < MEM_COPY_MAX_METHODS && (method = mem_copy_method_at(i)) != NULL; i++) {
        if (clock_now_ns() >= end_ns)
            return 0;
        uint64_t ns = time_stretch(measuring, method);

        if (measuring->best_ns[i] == 0 || ns < measuring->best_ns[i])
            measuring->best_ns[i] = ns;
    }
    return i;
}

const struct mem_copy_method *mem_copy_measure(uint64_t limit_ns, double *gbs_out)
{
    const uint64_t start_ns = clock_now_ns(), end_ns = start_ns + HARD_LIMITS * limit_ns;
    struct measuring measuring = {0};
    uint32_t n = 0, best = 0;

    if (mem_region_open(2 * BUFFER_BYTES, false, false, "copy", &measuring.region) != 0)
        return NULL;
    bool has_time = touch_buffers(&measuring.region, end_ns);
    for (int round = 0; has_time && round < MAX_ROUNDS; round++) {
        if (round >= MIN_ROUNDS && clock_now_ns() - start_ns >= limit_ns)
            break;
        n = measure_round(&measuring, end_ns);
        if (n == 0)
            break;
    }
    mem_region_close(&measuring.region);
    if (n == 0)
        return NULL;
    for (uint32_t i = 0; i < n; i++) {
        gbs_out[i] = (double)(STRETCH_PIECES * PIECE_BYTES) / (double)(measuring.best_ns[i] + 1);
        if (gbs_out[i] > gbs_out[best])
            best = i;
    }
    return mem_copy_method_at(gbs_out[best] > gbs_out[0] * CLEARLY ? best : 0);
}
