/* SPDX-License-Identifier: Apache-2.0 */
/* Fuzz target: outside input of the commands, an answer's event stream, a daemon's status, a trace file.
 * Every input goes to all three, since each refuses foreign input quickly.  An answer must be the same in one
 * piece and in two, in whole characters.  A displayed status must hold no terminal control characters. */
#include <string.h>

#include "base/check.h"
#include "base/str.h"
#include "clients/bench/trace.h"
#include "clients/common/answer.h"
#include "clients/ctl/status.h"

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size);

static void add(void *arg, enum answer_part part, struct bytes text)
{
    ASSERT(text.len_bytes > 0 && utf8_valid_prefix(text) == text.len_bytes);
    buf_append_byte(arg, (uint8_t)part);
    buf_append(arg, text.data, text.len_bytes);
}

static void read_answer(const uint8_t *data, size_t size, size_t split, struct answer *answer,
                        struct buf *text)
{
    ASSERT(answer_init(answer, add, text) == 0);
    if (answer_feed(answer, bytes_of(data, split)) == 0)
        (void)answer_feed(answer, bytes_of(data + split, size - split));
    answer_fini(answer);
}

static void check_answer(const uint8_t *data, size_t size)
{
    struct answer whole;
    struct answer parts;
    struct buf whole_text = {0};
    struct buf parts_text = {0};

    read_answer(data, size, size, &whole, &whole_text);
    read_answer(data, size, size / 2, &parts, &parts_text);
    ASSERT(bytes_equal(buf_view(&whole_text), buf_view(&parts_text)));
    ASSERT(whole.is_whole == parts.is_whole && whole.is_failed == parts.is_failed);
    ASSERT(whole.output_tokens == parts.output_tokens && strcmp(whole.error_text, parts.error_text) == 0);
    answer_refused(&whole, 500, bytes_of(data, size));
    ASSERT(whole.is_failed && whole.error_text[0] != '\0');
    buf_fini(&whole_text);
    buf_fini(&parts_text);
}

static void check_status(struct bytes json)
{
    struct status_work work;

    for (int is_line = 0; is_line < 2; is_line++) {
        struct buf text = {0};

        if (status_render(json, is_line, &text) == 0) {
            ASSERT(text.len_bytes > 0 && text.data[text.len_bytes - 1] == '\n');
            for (size_t i = 0; i < text.len_bytes - 1; i++)
                ASSERT(text.data[i] >= ' ' || (text.data[i] == '\n' && !is_line));
        }
        buf_fini(&text);
    }
    (void)status_work(json, &work);
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size)
{
    struct trace trace;

    check_answer(data, size);
    check_status(bytes_of(data, size));
    if (trace_parse("trace", bytes_of(data, size), NULL, &trace) == 0) {
        ASSERT(trace.n_entries > 0 && trace.entries[0].at_ns == 0);
        for (size_t i = 0; i < trace.n_entries; i++)
            ASSERT((size_t)trace.entries[i].first_block + trace.entries[i].n_blocks <= trace.n_block_ids);
        trace_fini(&trace);
    }
    return 0;
}
