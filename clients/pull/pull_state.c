/* SPDX-License-Identifier: Apache-2.0 */
/* The complete bytes of an unfinished download. Pure.
 *
 * The file is cut into segments; each is filled from its start. As text:
 *
 *     baton pull 1
 *     size 5649120 segment 1048576
 *     id 9f86d081884c7d65...
 *     done 1048576 1048576 77 0 0 1048576
 */
#include "clients/pull/pull.h"

#include "base/err.h"
#include "base/str.h"

#include <string.h>

enum { LEAST_SEGMENT = 256 << 10, USUAL_SEGMENT = 32 << 20, USUAL_SEGMENTS = 16 };

uint32_t pull_state_segments(const struct pull_state *state)
{
    return (uint32_t)((state->size_bytes + state->segment_bytes - 1) / state->segment_bytes);
}

uint64_t pull_state_segment_end(const struct pull_state *state, uint32_t segment)
{
    uint64_t end = (segment + 1) * state->segment_bytes;

    return end < state->size_bytes ? end : state->size_bytes;
}

uint64_t pull_state_done(const struct pull_state *state)
{
    uint64_t sum = 0;

    for (uint32_t i = 0; i < pull_state_segments(state); i++)
        sum += state->done_bytes[i];
    return sum;
}

void pull_state_start(struct pull_state *state, uint64_t size_bytes, const char *id)
{
    uint64_t segment_bytes = size_bytes / USUAL_SEGMENTS;

    segment_bytes = segment_bytes < LEAST_SEGMENT ? LEAST_SEGMENT : segment_bytes;
    segment_bytes = segment_bytes > USUAL_SEGMENT ? USUAL_SEGMENT : segment_bytes;
    if (segment_bytes < size_bytes / PULL_MAX_SEGMENTS + 1)
        segment_bytes = size_bytes / PULL_MAX_SEGMENTS + 1;
    *state = (struct pull_state){.size_bytes = size_bytes, .segment_bytes = segment_bytes};
    str_copy(state->id, sizeof(state->id), id);
}

int pull_state_put(const struct pull_state *state, struct buf *out)
{
    buf_printf(out, "baton pull 1\nsize %llu segment %llu\nid %s\ndone",
               (unsigned long long)state->size_bytes, (unsigned long long)state->segment_bytes, state->id);
    for (uint32_t i = 0; i < pull_state_segments(state); i++)
        buf_printf(out, " %llu", (unsigned long long)state->done_bytes[i]);
    buf_append_byte(out, '\n');
    return out->is_bad ? E_NOMEM : 0;
}

/* Takes the text up to end, which must come; false at the first mistake. */
static bool pull_state_take(struct bytes *text, const char *begin, char end, struct bytes *out)
{
    const uint8_t *found;
    size_t n = strlen(begin);

    if (!bytes_starts_with(*text, begin))
        return false;
    found = memchr(text->data + n, end, text->len_bytes - n);
    if (found == NULL)
        return false;
    *out = bytes_of(text->data + n, (size_t)(found - text->data) - n);
    *text = bytes_of(found + 1, text->len_bytes - (size_t)(found + 1 - text->data));
    return true;
}

static bool read_done(struct bytes list, struct pull_state *state)
{
    for (uint32_t i = 0; i < pull_state_segments(state); i++) {
        uint64_t from = (uint64_t)i * state->segment_bytes, value;
        const uint8_t *blank = memchr(list.data, ' ', list.len_bytes);
        size_t n = blank != NULL ? (size_t)(blank - list.data) : list.len_bytes;

        if (str_to_u64(bytes_of(list.data, n), &value) != 0 ||
            value > pull_state_segment_end(state, i) - from)
            return false;
        state->done_bytes[i] = value;
        n += blank != NULL;
        list = bytes_of(list.data + n, list.len_bytes - n);
    }
    return list.len_bytes == 0;
}

int pull_state_read(struct bytes text, struct pull_state *out)
{
    struct pull_state state = {0};
    struct bytes size, segment, id, done;

    if (!pull_state_take(&text, "baton pull 1\nsize ", ' ', &size) ||
        !pull_state_take(&text, "segment ", '\n', &segment) || !pull_state_take(&text, "id ", '\n', &id) ||
        !pull_state_take(&text, "done ", '\n', &done) || text.len_bytes != 0)
        return E_FORMAT;
    if (str_to_u64(size, &state.size_bytes) != 0 || str_to_u64(segment, &state.segment_bytes) != 0 ||
        state.size_bytes == 0 || state.size_bytes > INT64_MAX || state.segment_bytes == 0 ||
        (state.size_bytes - 1) / state.segment_bytes >= PULL_MAX_SEGMENTS ||
        state.segment_bytes > INT64_MAX || id.len_bytes >= sizeof(state.id) ||
        memchr(id.data, '\0', id.len_bytes) != NULL)
        return E_FORMAT;
    memcpy(state.id, id.data, id.len_bytes);
    if (!read_done(done, &state))
        return E_FORMAT;
    *out = state;
    return 0;
}
