/* SPDX-License-Identifier: Apache-2.0 */
/* Fuzz target: the inputs of a join. The first byte chooses: a message of the other host (m), a token (t), a configuration file
 * (c), a router's status (s), the head and a row of a check (v). A message that parses has printable texts and addresses to dial, and prints and parses to the
 * same message. */
#include <stdlib.h>

#include "base/check.h"
#include "clients/ctl/join.h"
#include "net/link/addr.h"

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size);

static struct join_message one, two;

static void check_places(const struct join_message *message)
{
    struct addr addr;

    ASSERT(message->n_places <= JOIN_MAX_PLACES && message->n_models <= JOIN_MAX_MODELS);
    for (unsigned i = 0; i < message->n_places; i++)
        ASSERT(addr_parse(message->places[i].address, NULL, &addr) == 0 && addr.port != 0);
}

static void check_message(struct bytes text)
{
    struct fault fault = {0};
    struct buf again = {0};

    if (join_message_parse(text, &fault, &one) < 0) {
        ASSERT(fault.text[0] != '\0');
        return;
    }
    check_places(&one);
    ASSERT(one.pad_bytes <= JOIN_MAX_PAD);
    ASSERT(join_message_print(&one, &again) == 0);
    ASSERT(join_message_parse(buf_view(&again), &fault, &two) == 0);
    ASSERT(memcmp(&one, &two, sizeof(one)) == 0);
    buf_fini(&again);
}

/* A head in the first line, rows in the others: the table is printable. */
static void check_table(struct bytes text)
{
    struct check_view *view = NULL;
    struct buf out = {0};
    size_t stop = bytes_find(text, bytes_str("\n"), 0);

    if (stop == SIZE_MAX || check_view_new(bytes_of(text.data, stop), &view) != 0)
        return;
    while (stop < text.len_bytes) {
        size_t from = stop + 1;

        stop = bytes_find(text, bytes_str("\n"), from);
        if (stop == SIZE_MAX)
            stop = text.len_bytes;
        (void)check_view_add(view, bytes_of(text.data + from, stop - from));
    }
    (void)check_view_render(view, &out);
    for (size_t i = 0; i < out.len_bytes; i++)
        ASSERT(out.data[i] == '\n' || (out.data[i] >= 0x20 && out.data[i] < 0x7f));
    buf_fini(&out);
    check_view_free(view);
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size)
{
    static struct join_conf conf;
    struct bytes text;
    uint8_t secret[32];
    char *copy;

    if (size == 0)
        return 0;
    text = bytes_of(data + 1, size - 1);
    copy = malloc(size);
    ASSERT(copy != NULL);
    memcpy(copy, text.data, text.len_bytes);
    copy[text.len_bytes] = '\0';
    memset(&one, 0, sizeof(one));
    memset(&conf, 0, sizeof(conf));
    if (data[0] == 't') {
        (void)join_token_parse(copy, NULL, secret);
    } else if (data[0] == 'c') {
        join_conf_parse(text, &conf);
        check_places(&conf.probe);
        ASSERT(conf.n_models <= JOIN_MAX_MODELS && conf.probe.n_places <= JOIN_MAX_PROBE);
    } else if (data[0] == 's') {
        if (members_parse(text, &one) == 0)
            ASSERT(one.n_places <= JOIN_MAX_PLACES && one.n_models <= JOIN_MAX_MODELS);
    } else if (data[0] == 'v') {
        check_table(text);
    } else {
        check_message(text);
    }
    free(copy);
    return 0;
}
