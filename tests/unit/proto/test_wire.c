/* SPDX-License-Identifier: Apache-2.0 */
/* Rolling upgrades: frames of earlier versions are still read, field by field, and a later version's unknown
 * fields are ignored.  All files of tests/unit/proto/frames are read: a new type of frames adds one.
 * How to write a line: docs/changes-fleet.md, "A message on the link". */
#include "tests/unit/check.h"

#include <dirent.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "base/bytes.h"
#include "proto/frame.h"

#define MAX_LINE 8192

static bool seen[128];

static size_t read_hex(const char *text, uint8_t *out)
{
    size_t n = 0;
    unsigned byte;

    while (sscanf(text + 2 * n, "%2x", &byte) == 1)
        out[n++] = (uint8_t)byte;
    return n;
}

static void assert_reads(enum frame_type type, struct bytes payload, bool packs_the_same)
{
    struct fault fault = {0};
    struct buf frame = {0};
    ProtobufCMessage *message;

    if (frame_unpack(type, payload, &fault, &message) < 0)
        fail_msg("%s: %s", frame_type_name(type), fault.text);
    if (packs_the_same) {
        assert_int_equal(message->n_unknown_fields, 0);
        assert_int_equal(frame_pack(type, message, &frame), 0);
        assert_int_equal(frame.len_bytes - FRAME_HEADER_BYTES, payload.len_bytes);
        assert_memory_equal(frame.data + FRAME_HEADER_BYTES, payload.data, payload.len_bytes);
    }
    buf_fini(&frame);
    frame_message_free(message);
}

static void each_line(const char *path, void (*call)(enum frame_type type, struct bytes payload))
{
    char line[MAX_LINE];
    uint8_t payload[MAX_LINE / 2 + 16];
    int type, at, n_lines = 0;
    FILE *file = fopen(path, "r");

    if (file == NULL)
        fail_msg("%s cannot be read", path);
    while (fgets(line, sizeof(line), file) != NULL) {
        if (line[0] == '#' || sscanf(line, "%d %n", &type, &at) != 1)
            continue;
        if (!frame_type_known((uint16_t)type))
            fail_msg("%s: no frame has the number %d", path, type);
        call((enum frame_type)type, bytes_of(payload, read_hex(line + at, payload)));
        seen[type] = true;
        n_lines++;
    }
    fclose(file);
    if (n_lines == 0)
        fail_msg("%s has no frame", path);
}

static void each_file(void (*call)(enum frame_type type, struct bytes payload))
{
    const char *srcdir = getenv("srcdir");
    char folder[1024], path[2048];
    const struct dirent *entry;
    int n_files = 0;
    DIR *dir;

    snprintf(folder, sizeof(folder), "%s/tests/unit/proto/frames", srcdir != NULL ? srcdir : ".");
    dir = opendir(folder);
    if (dir == NULL)
        fail_msg("%s cannot be read", folder);
    while ((entry = readdir(dir)) != NULL) {
        if (strncmp(entry->d_name, "wire-", 5) != 0)
            continue;
        snprintf(path, sizeof(path), "%s/%s", folder, entry->d_name);
        each_line(path, call);
        n_files++;
    }
    closedir(dir);
    assert_true(n_files >= 7);
}

static void read_one(enum frame_type type, struct bytes payload)
{
    assert_reads(type, payload, true);
}

/* Adds field 1000, a varint: no version has it yet. */
static void read_one_of_the_future(enum frame_type type, struct bytes payload)
{
    uint8_t more[MAX_LINE / 2 + 16];

    memcpy(more, payload.data, payload.len_bytes);
    memcpy(more + payload.len_bytes, "\xc0\x3e\x07", 3);
    assert_reads(type, bytes_of(more, payload.len_bytes + 3), false);
}

static void frames_of_earlier_versions_are_read(void **state)
{
    each_file(read_one);
#define X(name, number, ctype, snake, max_bytes)                                                             \
    if (!seen[number] && number != FRAME_SUBMIT_TOKENS && number != FRAME_RESUME && number != FRAME_RESUMED) \
        fail_msg("no frame of " #name " was kept: tests/unit/proto/frames needs a file with one");
    FRAME_TABLE(X)
#undef X
}

static void fields_of_later_versions_are_ignored(void **state)
{
    each_file(read_one_of_the_future);
}

int main(void)
{
    const struct CMUnitTest tests[] = {cmocka_unit_test(frames_of_earlier_versions_are_read),
                                       cmocka_unit_test(fields_of_later_versions_are_ignored)};

    return cmocka_run_group_tests(tests, NULL, NULL);
}
