/* SPDX-License-Identifier: Apache-2.0 */
/* Stop strings: by example, and compared with a matcher that searches the whole text each time. */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>
#include <cmocka.h>

#include "base/check.h"
#include "base/err.h"
#include "base/rng.h"
#include "base/str.h"
#include "compute/sample/sampler.h"
#include "compute/sample/stop.h"

#define STRINGS_MAX 8

struct fixture {
    struct stop_set *set;
    struct stop *stop;
    struct buf out;
};

static void begin(struct fixture *f, const char *const *strings, size_t n)
{
    struct bytes views[STRINGS_MAX] = {{0}};

    memset(f, 0, sizeof(*f));
    for (size_t i = 0; i < n; i++)
        views[i] = bytes_str(strings[i]);
    assert_int_equal(stop_set_new(views, n, &f->set), 0);
    assert_int_equal(stop_new(f->set, &f->stop), 0);
}

static int feed(struct fixture *f, const char *text)
{
    return stop_feed(f->stop, bytes_str(text), &f->out);
}

static void assert_out(struct fixture *f, const char *expected)
{
    assert_true(bytes_is(buf_view(&f->out), expected));
}

static void end(struct fixture *f)
{
    stop_free(f->stop);
    stop_set_free(f->set);
    buf_fini(&f->out);
}

static void without_strings_all_passes(void **state)
{
    struct fixture f;

    begin(&f, NULL, 0);
    assert_int_equal(feed(&f, "anything"), -1);
    assert_out(&f, "anything");
    assert_int_equal(feed(&f, ""), -1);
    assert_int_equal(stop_flush(f.stop, &f.out), 0);
    assert_out(&f, "anything");
    end(&f);
}

static void holds_back_only_what_may_match(void **state)
{
    static const char *const strings[] = {"\n\nHuman:", "END"};
    struct fixture f;

    begin(&f, strings, 2);
    assert_int_equal(feed(&f, "one\n"), -1);
    assert_out(&f, "one");
    assert_int_equal(feed(&f, "\nHu"), -1);
    assert_out(&f, "one");
    assert_int_equal(feed(&f, "go"), -1);
    assert_out(&f, "one\n\nHugo");
    assert_int_equal(feed(&f, " E"), -1);
    assert_out(&f, "one\n\nHugo ");
    assert_int_equal(feed(&f, "EN"), -1);
    assert_out(&f, "one\n\nHugo E");
    assert_int_equal(feed(&f, "D of it"), 1);
    assert_out(&f, "one\n\nHugo E");
    end(&f);
}

static void flush_gives_the_rest(void **state)
{
    static const char *const strings[] = {"stop now"};
    struct fixture f;

    begin(&f, strings, 1);
    assert_int_equal(feed(&f, "please stop"), -1);
    assert_out(&f, "please ");
    assert_int_equal(stop_flush(f.stop, &f.out), 0);
    assert_out(&f, "please stop");
    end(&f);
}

static void match_at_the_start_delivers_nothing(void **state)
{
    static const char *const strings[] = {"</answer>"};
    struct fixture f;

    begin(&f, strings, 1);
    assert_int_equal(feed(&f, "</answer>"), 0);
    assert_out(&f, "");
    end(&f);
}

static void passed_text_ends_no_match(void **state)
{
    static const char *const strings[] = {"END", "ND of"};
    struct fixture f;

    begin(&f, strings, 2);
    assert_int_equal(stop_pass(f.stop, bytes_str("an END to EN"), &f.out), 0);
    assert_out(&f, "an END to ");
    assert_int_equal(feed(&f, "D of"), 0); /* it begins in the text before */
    assert_out(&f, "an END to ");
    end(&f);

    begin(&f, strings, 2);
    assert_int_equal(stop_pass(f.stop, bytes_str("END"), &f.out), 0);
    assert_int_equal(feed(&f, " of"), 1);
    assert_out(&f, "E");
    end(&f);

    begin(&f, strings, 2);
    assert_int_equal(stop_pass(f.stop, bytes_str("END"), &f.out), 0);
    assert_int_equal(stop_flush(f.stop, &f.out), 0);
    assert_out(&f, "END");
    end(&f);
}

static void within_one_token_the_earliest_begin_wins(void **state)
{
    static const char *const strings[] = {"c", "bcd", "abcd", "d"};
    struct fixture f;

    begin(&f, strings, 4); /* "c" completes first, but "abcd" begins earliest, all within one token */
    assert_int_equal(feed(&f, "xabcdy"), 2);
    assert_out(&f, "x");
    end(&f);

    begin(&f, strings, 4); /* the first token that completes any string decides */
    assert_int_equal(feed(&f, "xab"), -1);
    assert_out(&f, "x");
    assert_int_equal(feed(&f, "c"), 0);
    assert_out(&f, "xab");
    end(&f);
}

static void of_the_same_begin_the_shorter_wins(void **state)
{
    static const char *const strings[] = {"abc", "ab", "ab"};
    struct fixture f;

    begin(&f, strings, 3);
    assert_int_equal(feed(&f, "zabc"), 1);
    assert_out(&f, "z");
    end(&f);
}

static void overlaps_with_itself(void **state)
{
    static const char *const strings[] = {"aab"};
    struct fixture f;

    begin(&f, strings, 1);
    assert_int_equal(feed(&f, "a"), -1);
    assert_int_equal(feed(&f, "a"), -1);
    assert_int_equal(feed(&f, "a"), -1);
    assert_out(&f, "a");
    assert_int_equal(feed(&f, "b"), 0);
    assert_out(&f, "a");
    end(&f);
}

static void characters_stay_whole(void **state)
{
    /* Strings and text share lead bytes: "é" c3a9, "è" c3a8, "€" e282ac, "→" e28692. */
    static const char *const strings[] = {"é→", "€€"};
    static const char *const tokens[] = {"è", "é", "é", "€", "é", "€x", "→", "é", "→"};
    struct fixture f;
    size_t i;

    begin(&f, strings, 2);
    for (i = 0; i < ARRAY_LEN(tokens); i++) {
        int match = feed(&f, tokens[i]);

        assert_int_equal(utf8_valid_prefix(buf_view(&f.out)), f.out.len_bytes);
        assert_int_equal(match, i == ARRAY_LEN(tokens) - 1 ? 0 : -1);
    }
    assert_out(&f, "èéé€é€x→");
    end(&f);
}

static void bad_strings_are_refused(void **state)
{
    struct stop_set *set = NULL;
    struct stop *stop;
    struct bytes strings[2] = {bytes_str("a"), bytes_str("")};
    char *large = calloc(1, SAMPLE_MAX_STOP_BYTES);

    assert_non_null(large);
    memset(large, 'x', SAMPLE_MAX_STOP_BYTES);
    assert_int_equal(stop_set_new(strings, 2, &set), E_INVAL);
    strings[1] = bytes_of(large, SAMPLE_MAX_STOP_BYTES);
    assert_int_equal(stop_set_new(strings, 2, &set), E_LIMIT);
    assert_null(set);
    assert_int_equal(stop_set_new(&strings[1], 1, &set), 0);
    assert_int_equal(stop_new(set, &stop), 0);

    struct buf out = {0};
    assert_int_equal(stop_feed(stop, bytes_of(large, SAMPLE_MAX_STOP_BYTES - 1), &out), -1);
    assert_int_equal(out.len_bytes, 0);
    assert_int_equal(stop_feed(stop, bytes_str("yx"), &out), -1);
    assert_int_equal(out.len_bytes, SAMPLE_MAX_STOP_BYTES);
    stop_free(stop);
    stop_free(NULL);
    stop_set_free(set);
    stop_set_free(NULL);
    buf_fini(&out);
    free(large);
}

static void texts_share_a_set(void **state)
{
    static const char *const strings[] = {"END", "stop"};
    struct buf out = {0};
    struct stop *other;
    struct fixture f;

    begin(&f, strings, 2);
    assert_int_equal(stop_new(f.set, &other), 0);
    assert_int_equal(feed(&f, "a EN"), -1);
    assert_int_equal(stop_feed(other, bytes_str("b sto"), &out), -1);
    assert_int_equal(feed(&f, "D"), 0);
    assert_out(&f, "a ");
    assert_int_equal(stop_feed(other, bytes_str("D stop"), &out), 1);
    assert_true(bytes_is(buf_view(&out), "b stoD "));
    stop_free(other);
    buf_fini(&out);
    end(&f);
}

/* Processor time of making a set of the long string and n short ones that begin with other bytes; the least of five. */
static uint64_t set_ns(struct bytes long_string, size_t n)
{
    static char shorts[255][2];
    struct bytes strings[256] = {long_string};
    uint64_t least_ns = UINT64_MAX;

    for (size_t i = 0; i < n; i++) {
        shorts[i][0] = (char)(i + 1);
        shorts[i][1] = '!';
        strings[i + 1] = bytes_of(shorts[i], 2);
    }
    for (int i = 0; i < 5; i++) {
        struct stop_set *set;
        struct timespec begun, ended;

        assert_int_equal(clock_gettime(CLOCK_THREAD_CPUTIME_ID, &begun), 0);
        assert_int_equal(stop_set_new(strings, n + 1, &set), 0);
        assert_int_equal(clock_gettime(CLOCK_THREAD_CPUTIME_ID, &ended), 0);
        stop_set_free(set);
        uint64_t took_ns = (uint64_t)(ended.tv_sec - begun.tv_sec) * 1000000000u + (uint64_t)ended.tv_nsec -
                           (uint64_t)begun.tv_nsec;
        least_ns = took_ns < least_ns ? took_ns : least_ns;
    }
    return least_ns;
}

/* Each byte of the long string looks for itself among the first bytes of all strings. */
static void many_first_bytes_cost_little(void **state)
{
    struct buf text = {0};
    uint64_t alone_ns, among_ns;

    buf_append_byte(&text, 0);
    while (text.len_bytes < SAMPLE_MAX_STOP_BYTES - 1000)
        buf_append_byte(&text, '~' + 1);
    alone_ns = set_ns(buf_view(&text), 0);
    among_ns = set_ns(buf_view(&text), 255);
    print_message("64 KiB in one string: %.2f ms, among 256: %.2f ms\n", (double)alone_ns / 1e6,
                  (double)among_ns / 1e6);
    assert_true(among_ns < 12 * alone_ns);
    buf_fini(&text);
}

/* ---- against a naive matcher ---- */

struct expected {
    int match;
    size_t n_delivered;
};

/* Computes the expected result once text[0..fed) is fed and the last feed began at `before`. */
static struct expected expect(const char *text, size_t before, size_t fed, char strings[][8], size_t n)
{
    struct expected e = {.match = -1};
    size_t begin_best = SIZE_MAX, end_best = SIZE_MAX, n_held = 0;

    for (size_t s = 0; s < n; s++) {
        size_t len = strlen(strings[s]);

        for (size_t at = 0; at + len <= fed; at++) {
            if (memcmp(text + at, strings[s], len) != 0 || at + len <= before)
                continue;
            if (at < begin_best || (at == begin_best && at + len < end_best)) {
                begin_best = at;
                end_best = at + len;
                e.match = (int)s;
            }
        }
        for (size_t held = 1; held < len && held <= fed; held++) {
            if (held > n_held && memcmp(text + fed - held, strings[s], held) == 0)
                n_held = held;
        }
    }
    e.n_delivered = e.match >= 0 ? begin_best : fed - n_held;
    return e;
}

static void random_case(struct rng *rng)
{
    char strings[5][8], text[40];
    struct bytes views[5];
    size_t n = 1 + rng_below(rng, 5), len = rng_below(rng, sizeof(text)), fed = 0;
    struct stop_set *set;
    struct stop *stop;
    struct buf out = {0};
    int match = -1;

    for (size_t s = 0; s < n; s++) {
        size_t length = 1 + rng_below(rng, 6);

        for (size_t i = 0; i < length; i++)
            strings[s][i] = (char)('a' + rng_below(rng, 2));
        strings[s][length] = '\0';
        views[s] = bytes_str(strings[s]);
    }
    for (size_t i = 0; i < len; i++)
        text[i] = (char)('a' + (rng_below(rng, 9) ? rng_below(rng, 2) : 2));

    assert_int_equal(stop_set_new(views, n, &set), 0);
    assert_int_equal(stop_new(set, &stop), 0);
    while (fed < len && match < 0) {
        size_t piece = rng_below(rng, len - fed + 1), before = fed;

        match = stop_feed(stop, bytes_of(text + fed, piece), &out);
        fed += piece;
        struct expected e = expect(text, before, fed, strings, n);
        assert_int_equal(match, e.match);
        assert_int_equal(out.len_bytes, e.n_delivered);
    }
    if (match < 0) {
        assert_int_equal(stop_flush(stop, &out), 0);
        assert_int_equal(out.len_bytes, len);
    }
    if (out.len_bytes)
        assert_memory_equal(out.data, text, out.len_bytes);
    buf_fini(&out);
    stop_free(stop);
    stop_set_free(set);
}

static void agrees_with_a_naive_matcher(void **state)
{
    struct rng rng;

    rng_init(&rng, 20);
    for (int i = 0; i < 30000; i++)
        random_case(&rng);
}

/* A match across a boundary is found at every boundary. */
static void every_split_finds_the_match(void **state)
{
    static const char *const strings[] = {"<|end|>"};
    static const char text[] = "a <|e <|<|end|> b";

    for (size_t i = 0; i <= strlen(text); i++) {
        for (size_t j = i; j <= strlen(text); j++) {
            struct fixture f;
            int match;

            begin(&f, strings, 1);
            match = stop_feed(f.stop, bytes_of(text, i), &f.out);
            if (match < 0)
                match = stop_feed(f.stop, bytes_of(text + i, j - i), &f.out);
            if (match < 0)
                match = stop_feed(f.stop, bytes_of(text + j, strlen(text) - j), &f.out);
            assert_int_equal(match, 0);
            assert_out(&f, "a <|e <|");
            end(&f);
        }
    }
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(without_strings_all_passes),
        cmocka_unit_test(holds_back_only_what_may_match),
        cmocka_unit_test(flush_gives_the_rest),
        cmocka_unit_test(match_at_the_start_delivers_nothing),
        cmocka_unit_test(passed_text_ends_no_match),
        cmocka_unit_test(within_one_token_the_earliest_begin_wins),
        cmocka_unit_test(of_the_same_begin_the_shorter_wins),
        cmocka_unit_test(overlaps_with_itself),
        cmocka_unit_test(characters_stay_whole),
        cmocka_unit_test(bad_strings_are_refused),
        cmocka_unit_test(texts_share_a_set),
        cmocka_unit_test(many_first_bytes_cost_little),
        cmocka_unit_test(agrees_with_a_naive_matcher),
        cmocka_unit_test(every_split_finds_the_match),
    };
    return cmocka_run_group_tests_name("compute/sample/stop", tests, NULL, NULL);
}
