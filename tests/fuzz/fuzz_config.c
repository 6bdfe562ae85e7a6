/* SPDX-License-Identifier: Apache-2.0 */
/* Fuzz target: configuration text.  Any bytes load as a snapshot or end in error lines.  A dumped snapshot
 * loads again with the same values. */
#include "base/config/config.h"

#include <stdlib.h>
#include <string.h>

#include "base/check.h"
#include "base/err.h"
#include "base/str.h"

struct sample {
    char *name;
    bool is_on;
    uint64_t count;
    double share;
    double ratio;
    uint64_t memory_bytes;
    uint64_t wait_ns;
    int mode;
    char *listen;
    char *folder;
    char *cpus;
    struct config_list peers;
};

#define KEY(section_, name_, type_, member_)                                                                 \
    .section = (section_), .name = (name_), .type = (type_), .offset = offsetof(struct sample, member_)

static const struct config_key keys[] = {
    {KEY("a", "name", CONFIG_STR, name), .default_text = "x", .help = "Name."},
    {KEY("a", "on", CONFIG_BOOL, is_on), .default_text = "yes", .help = "On."},
    {KEY("a", "count", CONFIG_U64, count), .default_text = "1", .max = 1e6, .help = "Count."},
    {KEY("a", "share", CONFIG_F64, share), .default_text = "0.5", .help = "Share."},
    {KEY("a", "ratio", CONFIG_RATIO, ratio), .default_text = "50%", .max = 1, .help = "Ratio."},
    {KEY("b", "memory", CONFIG_SIZE, memory_bytes), .default_text = "1GiB", .help = "Memory."},
    {KEY("b", "wait", CONFIG_DURATION, wait_ns), .default_text = "5s", .help = "Wait."},
    {KEY("b", "mode", CONFIG_ENUM, mode), .default_text = "fast", .choices = "fast|safe", .help = "Mode."},
    {KEY("b", "listen", CONFIG_ADDRESS, listen), .default_text = "127.0.0.1:80", .help = "Listen."},
    {KEY("b", "folder", CONFIG_PATH, folder), .default_text = "/tmp", .help = "Folder."},
    {KEY("b", "cpus", CONFIG_CPUS, cpus), .default_text = "", .help = "CPUs."},
    {KEY("b", "peer", CONFIG_LIST, peers), .default_text = "", .help = "Peers."},
};

static const struct config_table table = {
    .daemon = "fuzz",
    .file_name = "fuzz.conf",
    .intro = "Nothing.",
    .keys = keys,
    .n_keys = ARRAY_LEN(keys),
    .struct_bytes = sizeof(struct sample),
};

static void fail_on_change(void *arg, const struct config_key *key)
{
    (void)arg;
    (void)key;
    abort();
}

static void check_round_trip(const void *config)
{
    char *text = NULL;
    size_t len_bytes = 0;
    FILE *file = open_memstream(&text, &len_bytes);
    struct buf errors = {0};
    void *again;

    ASSERT(file != NULL);
    config_write_dump(&table, config, file);
    fclose(file);
    ASSERT(config_load_text(&table, "dump", bytes_of(text, len_bytes), &errors, &again) == 0);
    config_diff(&table, config, again, fail_on_change, NULL);
    config_free(&table, again);
    buf_fini(&errors);
    free(text);
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size);

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size)
{
    struct buf errors = {0};
    void *config = NULL;
    int rc = config_load_text(&table, "fuzz.conf", bytes_of(data, size), &errors, &config);

    if (rc == 0) {
        check_round_trip(config);
        config_free(&table, config);
    } else {
        ASSERT(rc == E_FORMAT && config == NULL && errors.len_bytes > 0);
        ASSERT(errors.data[errors.len_bytes - 1] == '\n');
        ASSERT(utf8_valid_prefix(buf_view(&errors)) == errors.len_bytes);
    }
    buf_fini(&errors);
    return 0;
}
