/* SPDX-License-Identifier: Apache-2.0 */
/* Tuning at start: the content and place of the cache file.  No problem with the file is an error. */
#include "check.h"
#include "base/check.h"
#include "base/clock.h"
#include "base/mem_copy.h"
#include "base/err.h"
#include "compute/tensor/tune_priv.h"
#include "compute/tensor/weight_priv.h"

#include <fcntl.h>
#include <stdio.h>
#include <sys/stat.h>
#include <unistd.h>

#define HEAD  "baton-tune 1\n"
#define GOOD  "copy=memcpy wide=all panels=one slices=long fetch=far plain=second keys=second"
#define OTHER "copy=memcpy wide=six panels=one slices=long fetch=near plain=second keys=first"

static char folder[] = "tune_XXXXXX", path[64];
static struct team *team;

static bool find(const char *text, const char *key, struct kern_choice *choice)
{
    const struct mem_copy_method *copy = NULL;
    bool is_found = tune_record_find(bytes_str(text), key, choice, &copy);

    assert_true(is_found == (copy != NULL));
    return is_found;
}

static void a_record_is_found_by_its_key(void **state)
{
    static const char text[] = HEAD OTHER " for a\n" GOOD " for b\n" OTHER " for b\n";
    struct kern_choice choice = {{0}};

    assert_true(find(text, "b", &choice));
    for (int field = 0; field < KERN_N_FIELDS; field++)
        assert_int_equal(choice.at[field], 1);
    assert_true(find(text, "a", &choice));
    assert_int_equal(choice.at[KERN_WIDE], WIDE_SIX);
    assert_int_equal(choice.at[KERN_FETCH], FETCH_NEAR);
    assert_false(find(text, "c", &choice));
    assert_true(find(HEAD GOOD " for no end", "no end", &choice));
}

/* Each record has one fault, and no record is used. */
static void near_misses_are_no_records(void **state)
{
    static const char *const texts[] = {
        "",
        "baton-tune 1",
        "baton-tune 2\n" GOOD " for k\n",
        " baton-tune 1\n" GOOD " for k\n",
        GOOD " for k\n",
        HEAD GOOD " for  k\n",
        HEAD GOOD "  for k\n",
        HEAD GOOD " for k \n",
        HEAD GOOD " for k\r\n",
        HEAD " " GOOD " for k\n",
        HEAD GOOD " more=1 for k\n",
        HEAD "copy=memcp wide=all panels=one slices=long fetch=far plain=second keys=second for k\n",
        HEAD "copy=memcpyy wide=all panels=one slices=long fetch=far plain=second keys=second for k\n",
        HEAD "copy= wide=all panels=one slices=long fetch=far plain=second keys=second for k\n",
        HEAD "copy wide=all panels=one slices=long fetch=far plain=second keys=second for k\n",
        HEAD "copy=memcpy wide=3 panels=one slices=long fetch=far plain=second keys=second for k\n",
        HEAD "copy=memcpy wide=one panels=one slices=long fetch=far plain=second keys=second for k\n",
        HEAD "copy=memcpy wide=all wide=all slices=long fetch=far plain=second keys=second for k\n",
        HEAD "copy=memcpy panels=one wide=all slices=long fetch=far plain=second keys=second for k\n",
        HEAD "copy=memcpy wide=all panels=one slices=long fetch=far plain=second for k\n",
        HEAD "copy=memcpy wide=all panels=one slices=long fetch=far plain=second keys=third for k\n",
        HEAD "for k\n",
        HEAD " for k\n",
        HEAD GOOD " for \n",
    };

    for (size_t i = 0; i < sizeof(texts) / sizeof(texts[0]); i++) {
        struct kern_choice choice = {{7, 7, 7, 7, 7, 7}};

        if (find(texts[i], "k", &choice))
            fail_msg("taken for a record: %s", texts[i]);
        assert_int_equal(choice.at[KERN_WIDE], 7); /* unchanged */
        assert_false(find(texts[i], "", &choice));
    }
}

/* After any change of one byte, a good record is ignored, or gives a valid choice. */
static void changed_bytes_choose_among_the_variants(void **state)
{
    char text[] = HEAD GOOD " for k\n";
    const char good[] = HEAD GOOD " for k\n";

    for (size_t i = 0; i + 1 < sizeof(text); i++)
        for (int byte = 0; byte < 256; byte++) {
            struct kern_choice choice = {{0}};
            const struct mem_copy_method *copy = NULL;

            text[i] = (char)byte;
            if (tune_record_find(bytes_of(text, sizeof(text) - 1), "k", &choice, &copy))
                kern_choice_set(&choice); /* asserts that the choice is valid */
            text[i] = good[i];
        }
    check_choice_end();
}

static void a_new_record_is_first_and_alone(void **state)
{
    struct tuned tuned = {.copy = mem_copy_method_at(0), .choice.at[KERN_FETCH] = FETCH_SPREAD};
    struct buf out = {0}, again = {0};
    struct kern_choice choice;

    tune_record_put(bytes_str(HEAD GOOD " for a\n\x01 for b\nnothing\n" GOOD " for k\n" OTHER " for c\n"),
                    "k", &tuned, &out);
    assert_string_equal(
        (char *)out.data,
        HEAD "copy=memcpy wide=six panels=several slices=short fetch=spread plain=first keys=first "
             "for k\n" GOOD " for a\n" OTHER " for c\n");
    assert_true(find((char *)out.data, "k", &choice));
    assert_int_equal(choice.at[KERN_FETCH], FETCH_SPREAD);
    for (int i = 0; i < 3 * TUNE_MAX_RECORDS; i++) { /* the file does not grow for ever */
        char key[16];

        snprintf(key, sizeof(key), "k%d", i);
        buf_clear(&again);
        tune_record_put(buf_view(&out), key, &tuned, &again);
        struct buf before = out;
        out = again;
        again = before;
    }
    assert_true(out.len_bytes < TUNE_FILE_BYTES / 2);
    assert_true(find((char *)out.data, "k95", &choice) && find((char *)out.data, "k64", &choice));
    assert_false(find((char *)out.data, "k63", &choice));
    buf_fini(&out);
    buf_fini(&again);
}

static void put_file(const char *text)
{
    FILE *file = fopen(path, "w");

    assert_non_null(file);
    fputs(text, file);
    fclose(file);
}

static struct tuned tune(enum tune_mode mode)
{
    struct tuned tuned;

    tensor_tune(team, kern_table_get("auto"), mode, &tuned);
    for (int field = 0; field < KERN_N_FIELDS; field++)
        assert_int_equal(kern_choice_get()->at[field], tuned.choice.at[field]);
    assert_ptr_equal(mem_copy_chosen(), tuned.copy);
    return tuned;
}

/* The first start measures, the second reads, unless it must measure; off chooses the defaults. */
static void the_file_remembers(void **state)
{
    struct kern_choice none = {{0}};
    struct tuned first = tune(TUNE_AUTO);

    for (int i = 0; i < 20 && !first.is_saved; i++) /* a busy machine leaves no time for all of it */
        first = tune(TUNE_AUTO);
    if (first.is_saved) {
        uint64_t began_ns = clock_thread_cpu_ns();
        struct tuned second = tune(TUNE_AUTO);

        assert_true(!first.is_from_cache && second.is_from_cache && !second.is_saved);
        assert_memory_equal(&first.choice, &second.choice, sizeof(first.choice));
        assert_ptr_equal(first.copy, second.copy);
        assert_true(clock_thread_cpu_ns() - began_ns < 100 * NS_PER_MS);
    }
    assert_false(tune(TUNE_REDO).is_from_cache);
    struct tuned off = tune(TUNE_OFF);
    assert_memory_equal(&off.choice, &none, sizeof(none));
    assert_string_equal(off.copy->name, "memcpy");
}

/* Packing and the copies' buffers were what made a measurement longer than its limit on a busy machine. */
static void packing_gives_up_in_time(void **state)
{
    enum { ROWS = 64, COLS = 256 };
    uint16_t *rows = calloc(ROWS * COLS, sizeof(*rows));
    const struct weight_part part = {rows, ROWS};
    struct weight_packing packing = {.table = kern_table_get("auto"),
                                     .type = DTYPE_F16,
                                     .parts = &part,
                                     .n_parts = 1,
                                     .cols = COLS,
                                     .team = team,
                                     .end_ns = clock_now_ns()};
    struct weight weight = {0};

    assert_non_null(rows);
    assert_int_equal(weight_pack(&packing, &weight), E_TIMEOUT);
    assert_null(weight.panels);
    packing.end_ns += 3600 * NS_PER_S;
    assert_int_equal(weight_pack(&packing, &weight), 0);
    assert_int_equal(weight.rows, ROWS);
    weight_fini(&weight);
    free(rows);
}

static void any_content_of_the_file_is_no_error(void **state)
{
    char *large = malloc(TUNE_FILE_BYTES + 100);

    assert_non_null(large);
    memset(large, 'x', TUNE_FILE_BYTES + 99);
    large[TUNE_FILE_BYTES + 99] = '\0';
    put_file(large);
    assert_false(tune(TUNE_AUTO).is_from_cache);
    put_file("\xff\xfe\n\n\n for  for  for ");
    assert_false(tune(TUNE_AUTO).is_from_cache);
    assert_int_equal(unlink(path), 0);
    assert_int_equal(mkfifo(path, 0600), 0); /* does not wait for a writer */
    assert_false(tune(TUNE_AUTO).is_from_cache);
    unlink(path);
    assert_int_equal(mkdir(path, 0700), 0);
    struct tuned tuned = tune(TUNE_AUTO);
    assert_true(!tuned.is_from_cache && !tuned.is_saved);
    assert_int_equal(rmdir(path), 0);
    setenv("BATON_TUNE_FILE", "/proc/no/such/place", 1);
    tuned = tune(TUNE_AUTO);
    assert_true(!tuned.is_from_cache && !tuned.is_saved);
    setenv("BATON_TUNE_FILE", "", 1);
    assert_string_equal(tune(TUNE_OFF).path, "");
    tuned = tune(TUNE_AUTO);
    assert_true(!tuned.is_from_cache && !tuned.is_saved && tuned.path[0] == '\0');
    setenv("BATON_TUNE_FILE", path, 1);
    free(large);
}

/* The first of the set variables gives the place. */
static void places_by_rank(void **state)
{
    char found[512], small[8];

    unsetenv("CACHE_DIRECTORY");
    setenv("HOME", "/h", 1);
    unsetenv("XDG_CACHE_HOME");
    unsetenv("BATON_TUNE_FILE");
    tune_file_path(found, sizeof(found));
    assert_string_equal(found, "/h/.cache/baton/tune");
    setenv("XDG_CACHE_HOME", "relative", 1); /* invalid by the specification, so it is ignored */
    tune_file_path(found, sizeof(found));
    assert_string_equal(found, "/h/.cache/baton/tune");
    setenv("XDG_CACHE_HOME", "/x", 1);
    tune_file_path(found, sizeof(found));
    assert_string_equal(found, "/x/baton/tune");
    setenv("CACHE_DIRECTORY", "/c/baton:/c/other", 1);
    tune_file_path(found, sizeof(found));
    assert_string_equal(found, "/c/baton/tune");
    tune_file_path(small, sizeof(small));
    assert_string_equal(small, "");
    setenv("BATON_TUNE_FILE", path, 1);
    tune_file_path(found, sizeof(found));
    assert_string_equal(found, path);
}

/* At most two folders are made, and no other user can read the file. */
static void a_file_makes_its_folders(void **state)
{
    char deep[64], deeper[64], below[64];
    struct buf text = {0};
    struct stat stat_of;

    snprintf(deep, sizeof(deep), "%s/a/b/tune", folder);
    snprintf(deeper, sizeof(deeper), "%s/c/d/e/tune", folder);
    assert_true(tune_file_write(deep, bytes_str("text")));
    tune_file_read(deep, &text);
    assert_string_equal((char *)text.data, "text");
    assert_int_equal(stat(deep, &stat_of), 0);
    assert_int_equal(stat_of.st_mode & 0777, 0600);
    assert_false(tune_file_write(deeper, bytes_str("text")));
    assert_int_equal(unlink(deep), 0);
    snprintf(below, sizeof(below), "%s/a/b", folder);
    assert_int_equal(rmdir(below), 0); /* it is empty: no half-written file was left */
    snprintf(below, sizeof(below), "%s/a", folder);
    assert_int_equal(rmdir(below), 0);
    buf_fini(&text);
}

static void shows_every_variant(void **state)
{
    struct tuned tuned = tune(TUNE_REDO);
    struct buf out = {0};

    tuned_table(&tuned, &out);
    for (int field = 0; field < KERN_N_FIELDS; field++)
        for (uint32_t variant = 0; variant < kern_choice_n_variants((enum kern_field)field); variant++)
            assert_non_null(
                strstr((char *)out.data, kern_choice_variant_name((enum kern_field)field, variant)));
    for (uint32_t i = 0; mem_copy_method_at(i) != NULL; i++)
        assert_non_null(strstr((char *)out.data, mem_copy_method_at(i)->name));
    print_message("%s", (char *)out.data);
    buf_fini(&out);
}

/* Set-up counts too.  When the time is over, variants that were not tried keep their defaults. */
static void an_unmeasured_choice_keeps_its_default(void **state)
{
    static const uint64_t times_ns[] = {0, 1, NS_PER_MS, 3 * NS_PER_MS, 10 * NS_PER_MS};

    for (size_t i = 0; i < ARRAY_LEN(times_ns); i++) {
        struct tuned tuned = {.copy = mem_copy_method_at(0)}, before = tuned;
        bool is_whole = tune_kernels(team, kern_table_get("auto"), clock_now_ns() + times_ns[i], &tuned);

        for (int field = 0; field < KERN_N_FIELDS; field++) {
            double most = 0;

            for (uint32_t variant = 0; variant < kern_choice_n_variants((enum kern_field)field); variant++)
                most = variant != before.choice.at[field] && tuned.ratios[field][variant] > most
                           ? tuned.ratios[field][variant]
                           : most;
            if (most == 0 && tuned.start_ratio == 0)
                assert_int_equal(tuned.choice.at[field], before.choice.at[field]);
        }
        if (times_ns[i] <= 1) {
            assert_false(is_whole);
            assert_memory_equal(&tuned.choice, &before.choice, sizeof(before.choice));
        }
    }
}

static int set_up(void **state)
{
    if (mkdtemp(folder) == NULL)
        return -1;
    snprintf(path, sizeof(path), "%s/tune", folder);
    setenv("BATON_TUNE_FILE", path, 1);
    team = check_team(2);
    return 0;
}

static int tear_down(void **state)
{
    team_free(team);
    unlink(path);
    return rmdir(folder);
}

int main(void)
{
    const struct CMUnitTest tests[] = {cmocka_unit_test(a_record_is_found_by_its_key),
                                       cmocka_unit_test(near_misses_are_no_records),
                                       cmocka_unit_test(changed_bytes_choose_among_the_variants),
                                       cmocka_unit_test(a_new_record_is_first_and_alone),
                                       cmocka_unit_test(the_file_remembers),
                                       cmocka_unit_test(packing_gives_up_in_time),
                                       cmocka_unit_test(any_content_of_the_file_is_no_error),
                                       cmocka_unit_test(places_by_rank),
                                       cmocka_unit_test(a_file_makes_its_folders),
                                       cmocka_unit_test(shows_every_variant),
                                       cmocka_unit_test(an_unmeasured_choice_keeps_its_default)};

    return cmocka_run_group_tests(tests, set_up, tear_down);
}
