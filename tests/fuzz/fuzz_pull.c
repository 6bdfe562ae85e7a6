/* SPDX-License-Identifier: Apache-2.0 */
/* Fuzz target: input of baton-model pull from a hub and a folder.  The first byte chooses the parser: a name,
 * the hub's list of files, the state of a download, the head of an answer; 'r': what a cache of the hub's libraries says. */
#include "clients/pull/pull_http_priv.h"

#include "base/check.h"

#include <stdlib.h>
#include <string.h>

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size);

static void try_name(const char *text)
{
    struct pull_name name;
    struct fault fault = {0};

    if (pull_name_read(text, &name, &fault) != 0) {
        ASSERT(fault.text[0] != '\0');
        return;
    }
    ASSERT(name.is_hub || pull_path_is_safe(bytes_str(name.path)));
    ASSERT(!name.is_hub || name.pick[0] == '\0' || pull_path_is_safe(bytes_str(name.pick)));
    ASSERT(!name.is_hub || (name.owner[0] != '.' && name.repo[0] != '.'));
}

/* The first line of the input is the choice, the rest the list. */
static void try_list(const char *text)
{
    size_t n = strcspn(text, "\n");
    struct buf pick = {0}, options = {0};
    struct pull_list list = {0};
    struct fault fault = {0};
    int rc;

    buf_append(&pick, text, n);
    buf_append_byte(&pick, '\0');
    rc = pull_list_read(&list, bytes_str(text[n] != '\0' ? text + n + 1 : ""), &fault);
    for (size_t i = 0; i < list.n; i++)
        ASSERT(pull_path_is_safe(bytes_str(list.files[i].path)) && list.files[i].size_bytes > 0);
    if (rc == 0 && pull_list_choose(&list, (const char *)pick.data, &options, &fault) == 0)
        ASSERT(list.n > 0 && options.len_bytes == 0);
    pull_list_fini(&list);
    buf_fini(&pick);
    buf_fini(&options);
}

static void try_state(struct bytes text)
{
    struct pull_state *state = malloc(sizeof(*state)), *again = malloc(sizeof(*again));
    struct buf out = {0};

    ASSERT(state != NULL && again != NULL);
    if (pull_state_read(text, state) == 0) {
        ASSERT(pull_state_done(state) <= state->size_bytes);
        ASSERT(pull_state_put(state, &out) == 0 && pull_state_read(buf_view(&out), again) == 0);
        ASSERT(memcmp(state->done_bytes, again->done_bytes, sizeof(state->done_bytes)) == 0);
    }
    buf_fini(&out);
    free(state);
    free(again);
}

static void try_head(struct bytes text)
{
    struct pull_heads heads = {0};
    struct pull_range range;

    for (size_t from = 0; from < text.len_bytes;) {
        size_t end = bytes_find(text, bytes_str("\n"), from);

        end = end == SIZE_MAX ? text.len_bytes : end + 1;
        pull_heads_read(&heads, bytes_of(text.data + from, end - from));
        from = end;
    }
    if (pull_range_read(heads.range, &range) == 0)
        ASSERT(range.first <= range.last && range.last < range.total);
}

/* A revision and a digest are names in a folder: nothing that leads out of it. */
static void try_reuse(struct bytes text)
{
    char revision[65], digest[65];

    if (pull_reuse_revision(text, revision))
        ASSERT(strlen(revision) >= 7 && strspn(revision, "0123456789abcdefABCDEF") == strlen(revision));
    if (pull_reuse_digest(text, digest))
        ASSERT(strlen(digest) == 64 && strspn(digest, "0123456789abcdef") == 64);
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size)
{
    struct buf text = {0};

    if (size == 0)
        return 0;
    buf_append(&text, data + 1, size - 1);
    buf_append_byte(&text, '\0');
    ASSERT(!text.is_bad);
    if (data[0] == 'r')
        try_reuse(bytes_of(data + 1, size - 1));
    else if (data[0] % 4 == 0)
        try_name((const char *)text.data);
    else if (data[0] % 4 == 1)
        try_list((const char *)text.data);
    else if (data[0] % 4 == 2)
        try_state(bytes_of(data + 1, size - 1));
    else
        try_head(bytes_of(data + 1, size - 1));
    buf_fini(&text);
    return 0;
}
