/* SPDX-License-Identifier: Apache-2.0 */
/* Fuzz target: any bytes through a whole connection of the server, in any pieces.
 *
 * The first byte seeds the cuts, the rest is the client's input.  It is sent once whole and once in pieces.
 * Both must get the same answers, since a client does not choose where TCP cuts.  The output must be
 * well-formed answers, and nothing may follow the answer to a request whose framing was refused. */
#include <stdlib.h>
#include <string.h>

#include "base/check.h"
#include "base/rng.h"
#include "conn_drive.h"
#include "net/http/chunked_priv.h"
#include "net/http/parse.h"

#define MAX_INPUT_BYTES 16384

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size);

struct story {
    unsigned n_answers;
    bool is_over; /* an answer said that it is the last */
    uint64_t sum; /* of statuses and bodies */
};

static void add(struct story *story, struct bytes text)
{
    for (size_t i = 0; i < text.len_bytes; i++)
        story->sum = story->sum * 31 + text.data[i] + 1;
}

/* Reads the body at the start of text.  Returns its length in the text, or SIZE_MAX if it is not complete. */
static size_t read_body(struct story *story, const struct http_head *head, struct bytes text)
{
    struct http_chunked chunked = {0};
    size_t at = 0;

    if (head->framing == HTTP_BODY_NONE)
        return 0;
    if (head->framing == HTTP_BODY_LENGTH) {
        if (text.len_bytes < head->content_length)
            return SIZE_MAX;
        add(story, bytes_of(text.data, (size_t)head->content_length));
        return (size_t)head->content_length;
    }
    if (head->framing == HTTP_BODY_TO_CLOSE) {
        add(story, text);
        return text.len_bytes;
    }
    while (at < text.len_bytes) {
        struct bytes piece;
        size_t used;
        int rc = http_chunked_take(&chunked, bytes_of(text.data + at, text.len_bytes - at), &used, &piece);

        ASSERT(rc >= 0);
        add(story, piece);
        at += used;
        if (rc == 1)
            return at;
    }
    return SIZE_MAX;
}

static void read_answers(struct bytes text, struct story *story)
{
    size_t at = 0;

    while (at < text.len_bytes) {
        struct bytes rest = bytes_of(text.data + at, text.len_bytes - at);
        struct http_head head;
        uint8_t status[2];
        bool is_for_head;
        size_t len;
        int rc = http_parse_response(rest, false, &head);

        ASSERT(rc >= 0);
        if (rc == 0)
            return; /* cut by the end */
        http_head_get(&head, rest, "x-head", &is_for_head);
        at += head.len_bytes;
        if (head.status == 100)
            continue;
        ASSERT(!story->is_over);
        story->n_answers++;
        story->is_over = !head.keeps_alive;
        status[0] = (uint8_t)(head.status >> 8);
        status[1] = (uint8_t)head.status;
        add(story, bytes_of(status, 2));
        rest = bytes_of(text.data + at, text.len_bytes - at);
        if (is_for_head)
            continue;
        len = read_body(story, &head, rest);
        if (len == SIZE_MAX)
            return;
        at += len;
    }
}

static struct story converse(struct bytes text, uint64_t seed)
{
    struct drive drive;
    struct story story = {0};
    struct rng rng;

    rng_init(&rng, seed);
    drive_begin(&drive, false);
    while (text.len_bytes > 0) {
        size_t n =
            seed == 0 ? text.len_bytes : 1 + (size_t)rng_below(&rng, rng_below(&rng, 4) == 0 ? 200 : 12);

        if (n > text.len_bytes)
            n = text.len_bytes;
        drive_send(&drive, bytes_of(text.data, n));
        text = bytes_of(text.data + n, text.len_bytes - n);
    }
    read_answers(buf_view(&drive.answer), &story);
    ASSERT(story.n_answers <= drive.n_done + drive.n_refused + drive.n_aborts);
    drive_end(&drive);
    return story;
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size)
{
    struct bytes text;
    struct story whole, parts;

    if (size < 1 || size > MAX_INPUT_BYTES)
        return 0;
    text = bytes_of(data + 1, size - 1);
    whole = converse(text, 0);
    parts = converse(text, 1 + data[0]);
    ASSERT(whole.n_answers == parts.n_answers && whole.sum == parts.sum);
    ASSERT(whole.is_over == parts.is_over);
    return 0;
}
