/* SPDX-License-Identifier: Apache-2.0 */
/* The cost of tokenising one hostile word: a megabyte without a blank, of several kinds.
 *
 *     bench_tokens MODEL.gguf [REPEATS [KIB]]
 *
 * Processor time of this thread in ms, the median and the minimum, and a hash of the ids, to compare programs.
 * The vocabulary decides how much of a kind is one word: some split digits, for instance. */
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>

#include "base/clock.h"
#include "base/err.h"
#include "base/rng.h"
#include "base/str.h"
#include "tests/bench/bench_help.h"
#include "text/token/tokenizer.h"

#define REPEATS_MAX 101

static const struct kind {
    const char *name;
    const char *letters; /* drawn from; NULL: CJK characters */
} kinds[] = {
    {"one letter", "a"},
    {"two letters in turns", "ab"},
    {"random letters", "abcdefghijklmnopqrstuvwxyz"},
    {"both cases", "abcdefghijklmnopqrstuvwxyzABCDEFGHIJKLMNOPQRSTUVWXYZ"},
    {"base pairs", "ACGT"},
    {"digits", "0123456789"},
    {"hexadecimal", "0123456789abcdef"},
    {"base64", "ABCDEFGHIJKLMNOPQRSTUVWXYZabcdefghijklmnopqrstuvwxyz0123456789+/"},
    {"CJK", NULL},
};

static void die(const char *what)
{
    fprintf(stderr, "bench_tokens: %s\n", what);
    exit(1);
}

static void make_text(const struct kind *kind, size_t len_bytes, struct buf *out)
{
    struct rng rng;
    uint8_t code[4];

    rng_init(&rng, 3);
    buf_clear(out);
    for (size_t i = 0; out->len_bytes < len_bytes; i++) {
        size_t n = kind->letters != NULL ? strlen(kind->letters) : 0;

        if (n == 0)
            buf_append(out, code, utf8_put(0x4e00 + (uint32_t)rng_below(&rng, 20000), code));
        else
            buf_append(out, kind->letters + (n <= 2 ? i % n : rng_below(&rng, n)), 1);
    }
}

static uint64_t hash_ids(const struct token_ids *ids)
{
    uint64_t hash = 0;

    for (size_t i = 0; i < ids->n; i++)
        hash = (hash ^ ids->ids[i]) * UINT64_C(0x9e3779b97f4a7c15);
    return hash;
}

static double now_ms(void)
{
    struct timespec now;

    if (clock_gettime(CLOCK_THREAD_CPUTIME_ID, &now) < 0)
        die("no processor clock");
    return (double)now.tv_sec * 1e3 + (double)now.tv_nsec / NS_PER_MS;
}

static void measure(const struct tokenizer *tokenizer, const struct kind *kind, struct bytes text,
                    unsigned repeats)
{
    double times[REPEATS_MAX], least = 1e9;
    struct token_ids ids = {0};

    for (unsigned i = 0; i < repeats; i++) {
        double began = now_ms();

        ids.n = 0;
        if (tokenizer_encode(tokenizer, text, 0, SIZE_MAX, &ids) < 0)
            die("out of memory");
        times[i] = now_ms() - began;
        least = times[i] < least ? times[i] : least;
    }
    printf("%-22s %8zu tokens  %7.1f ms, least %7.1f  %016llx\n", kind->name, ids.n,
           bench_median(times, repeats), least, (unsigned long long)hash_ids(&ids));
    token_ids_fini(&ids);
}

int main(int argc, char **argv)
{
    unsigned repeats = argc > 2 ? (unsigned)atoi(argv[2]) : 5;
    size_t kib = argc > 3 ? (size_t)atoi(argv[3]) : 1024;
    struct tokenizer *tokenizer;
    struct fault fault = {0};
    struct buf text = {0};
    struct gguf *gguf;

    if (argc < 2 || repeats == 0 || repeats > REPEATS_MAX)
        die("bench_tokens MODEL.gguf [REPEATS [KIB]]");
    if (gguf_open(argv[1], &fault, &gguf) < 0 || tokenizer_new(gguf, &fault, &tokenizer) < 0)
        die(fault.text);
    for (size_t i = 0; i < sizeof(kinds) / sizeof(kinds[0]); i++) {
        make_text(&kinds[i], kib * 1024, &text);
        measure(tokenizer, &kinds[i], buf_view(&text), repeats);
    }
    buf_fini(&text);
    tokenizer_unref(tokenizer);
    gguf_close(gguf);
    return 0;
}
