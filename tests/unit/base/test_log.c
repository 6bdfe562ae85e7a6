/* SPDX-License-Identifier: Apache-2.0 */
/* A log line in each format.  Hostile values must stay inside it.  Each event has a limit. */
#include "tests/unit/check.h"

#include "base/clock.h"
#include "base/err.h"
#include "base/log.h"
#include "base/log_priv.h"
#include "base/str.h"

#include <errno.h>
#include <math.h>
#include <pthread.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

static char captured[1 << 16];

static FILE *capture_file;
static int capture_stderr;

static void capture_begin(void)
{
    capture_file = tmpfile();
    assert_non_null(capture_file);
    capture_stderr = dup(STDERR_FILENO);
    dup2(fileno(capture_file), STDERR_FILENO);
}

static void capture_end(void)
{
    dup2(capture_stderr, STDERR_FILENO);
    close(capture_stderr);
    rewind(capture_file);
    captured[fread(captured, 1, sizeof(captured) - 1, capture_file)] = '\0';
    fclose(capture_file);
}

static unsigned count_lines(const char *holding)
{
    unsigned n = 0;

    for (char *line = captured, *end; (end = strchr(line, '\n')) != NULL; line = end + 1) {
        *end = '\0';
        n += strstr(line, holding) != NULL;
        *end = '\n';
    }
    return n;
}

static const char *format_with(void (*format)(const struct log_line *, struct buf *), const char *event,
                               const struct log_field *fields)
{
    struct log_line line = {
        .program = "test",
        .level = LOG_LEVEL_WARN,
        .event = event,
        .fields = fields,
        .unix_ns = UINT64_C(1795213560) * NS_PER_S + 123456789,
    };
    struct buf out = {0};

    format(&line, &out);
    assert_false(out.is_bad);
    assert_int_equal(utf8_valid_prefix(buf_view(&out)), out.len_bytes);
    assert_true(str_copy(captured, sizeof(captured), (char *)out.data));
    buf_fini(&out);
    return captured;
}

static void formats(void **state)
{
    const struct log_field *fields = LOG_FIELDS(LOG_STR("peer", "a b"), LOG_U64("n", 3), LOG_I64("d", -3),
                                                LOG_F64("s", 0.25), LOG_BOOL("ok", true), LOG_ERR(E_FULL));

    assert_string_equal(
        format_with(log_format_json, "link_down", fields),
        "{\"ts\":\"2026-11-20T22:26:00.123456Z\",\"level\":\"warn\",\"program\":\"test\",\"event\":"
        "\"link_down\",\"peer\":\"a b\",\"n\":3,\"d\":-3,\"s\":0.25,\"ok\":true,"
        "\"error\":\"E_FULL\"}\n");
    assert_string_equal(format_with(log_format_text, "link_down", fields),
                        "22:26:00.123 warn  link_down peer=\"a b\" n=3 d=-3 s=0.25 ok=true error=E_FULL\n");
    assert_string_equal(format_with(log_format_journal, "link_down", fields),
                        "MESSAGE=link_down peer=\"a b\" n=3 d=-3 s=0.25 ok=true error=E_FULL\nPRIORITY=4\n"
                        "SYSLOG_IDENTIFIER=test\nEVENT=link_down\nPEER=\"a b\"\nN=3\nD=-3\nS=0.25\nOK=true\n"
                        "ERROR=E_FULL\n");
}

static void hostile_values_stay_in_their_field(void **state)
{
    char longer[3000];

    memset(longer, 'x', sizeof(longer) - 1);
    longer[sizeof(longer) - 1] = '\0';
    memcpy(longer + 1022, "\xe2\x82\xac", 3); /* the cut lies inside a character */
    const struct log_field *fields =
        LOG_FIELDS(LOG_STR("a", "x\"\n\033[2J\xff"), LOG_STR("b", NULL), LOG_STR("c", longer),
                   LOG_F64("d", NAN), LOG_STR("1-weird key", "v"));

    assert_non_null(
        strstr(format_with(log_format_json, "e", fields), "\"a\":\"x\\\"\\n\\u001b[2J\xef\xbf\xbd\""));
    assert_non_null(strstr(captured, "\"b\":\"\""));
    assert_non_null(strstr(captured, "x...\""));
    assert_non_null(strstr(captured, "\"d\":null"));
    assert_true(strlen(captured) < 1400);
    format_with(log_format_journal, "e", fields);
    assert_int_equal(count_lines(""), 4 + 5);
    assert_int_equal(count_lines("X_1_WEIRD_KEY=v"), 1);
    format_with(log_format_text, "e", fields);
    assert_int_equal(count_lines(""), 1);
    assert_null(strchr(captured, '\033'));
}

static void level_filters_and_errno_survives(void **state)
{
    log_setup("test", LOG_LEVEL_INFO, LOG_FORMAT_JSON);
    capture_begin();
    errno = 1234;
    log_debug("unseen");
    log_info("seen", LOG_U64("n", 1));
    assert_int_equal(errno, 1234);
    log_set_level(LOG_LEVEL_ERROR);
    log_warn("unseen");
    assert_false(log_enabled(LOG_LEVEL_WARN));
    log_set_level(LOG_LEVEL_DEBUG);
    log_debug("bare");
    capture_end();
    assert_int_equal(count_lines(""), 2);
    assert_int_equal(count_lines("\"event\":\"seen\",\"n\":1}"), 1);
    assert_int_equal(count_lines("\"event\":\"bare\"}"), 1);
}

static void a_flood_is_limited_and_counted(void **state)
{
    log_setup("test", LOG_LEVEL_INFO, LOG_FORMAT_JSON);
    assert_int_equal(log_set_limit("flood", 5), 0);
    assert_int_equal(log_set_limit("access", 0), 0);
    /* Begin early in a second, so that the whole test falls into it. */
    clock_sleep_ns(NS_PER_S - clock_now_ns() % NS_PER_S);
    capture_begin();
    for (int i = 0; i < 300; i++) {
        log_info("flood");
        log_info("access");
        log_info("common");
    }
    clock_sleep_ns(NS_PER_S - clock_now_ns() % NS_PER_S);
    log_info("later");
    capture_end();
    assert_int_equal(count_lines("\"flood\"}"), 5);
    assert_int_equal(count_lines("\"access\"}"), 300);
    assert_int_equal(count_lines("\"common\"}"), 200);
    assert_int_equal(count_lines("\"log_suppressed\",\"of_event\":\"flood\",\"lines\":295"), 1);
    assert_int_equal(count_lines("\"log_suppressed\",\"of_event\":\"common\",\"lines\":100"), 1);
    assert_int_equal(count_lines("\"later\"}"), 1);
}

static void *write_lines(void *arg)
{
    for (int i = 0; i < 100; i++)
        log_info("access", LOG_STR("text", "abcdefghijklmnopqrstuvwxyz"));
    return NULL;
}

static void lines_of_threads_do_not_mix(void **state)
{
    pthread_t threads[4];

    log_setup("test", LOG_LEVEL_INFO, LOG_FORMAT_JSON);
    capture_begin();
    for (int i = 0; i < 4; i++)
        assert_int_equal(pthread_create(&threads[i], NULL, write_lines, NULL), 0);
    for (int i = 0; i < 4; i++)
        pthread_join(threads[i], NULL);
    capture_end();
    assert_int_equal(count_lines(""), 400);
    assert_int_equal(count_lines("\"event\":\"access\",\"text\":\"abcdefghijklmnopqrstuvwxyz\"}"), 400);
}

static void the_journal_is_found_by_its_stream(void **state)
{
    struct stat status;
    char stream[64];

    capture_begin();
    assert_int_equal(fstat(STDERR_FILENO, &status), 0);
    snprintf(stream, sizeof(stream), "%ju:%ju", (uintmax_t)status.st_dev, (uintmax_t)status.st_ino);
    setenv("JOURNAL_STREAM", stream, 1);
    log_setup("baton-test", LOG_LEVEL_INFO, LOG_FORMAT_AUTO);
    log_info("to_the_journal");
    unsetenv("JOURNAL_STREAM");
    log_setup("baton-test", LOG_LEVEL_INFO, LOG_FORMAT_AUTO);
    log_info("to_stderr");
    capture_end();
    if (access("/run/systemd/journal/socket", W_OK) != 0)
        assert_int_equal(count_lines("<6>{"), 1); /* the text that journald would read */
    assert_int_equal(count_lines("\"event\":\"to_stderr\"}"), 1);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(formats),
        cmocka_unit_test(hostile_values_stay_in_their_field),
        cmocka_unit_test(level_filters_and_errno_survives),
        cmocka_unit_test(a_flood_is_limited_and_counted),
        cmocka_unit_test(lines_of_threads_do_not_mix),
        cmocka_unit_test(the_journal_is_found_by_its_stream),
    };

    return cmocka_run_group_tests(tests, NULL, NULL);
}
