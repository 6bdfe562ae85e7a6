/* SPDX-License-Identifier: Apache-2.0 */
/* gpt-oss (harmony): an answer is a list of messages, each with a header that names its channel.
 *
 *     <|channel|>analysis<|message|>...<|end|>                                                  thinking
 *     <|start|>assistant<|channel|>commentary to=functions.N <|constrain|>json<|message|>{...}  a call
 *     <|start|>assistant<|channel|>final<|message|>...                                          text
 *
 * The mark that ends a call also ends the answer and does not arrive here.  "to=" may also come before the
 * channel.  Commentary without a recipient is text: it announces calls. */
#include <string.h>

#include "text/toolcall/calls_priv.h"
#include "base/err.h"

static const char message_mark[] = "<|message|>";
static const char channel_mark[] = "<|channel|>";

/* Marks that end a message, and marks that begin the next message without an end mark. */
static const char *const ends[] = {"<|end|>", "<|call|>", "<|return|>", "<|start|>", "<|channel|>"};
#define N_ENDS 3

size_t calls_harmony_end(struct bytes text, size_t *n_out)
{
    size_t first = SIZE_MAX;

    for (size_t i = 0; i < 5; i++) {
        size_t at = bytes_find(text, bytes_str(ends[i]), 0);

        if (at >= first)
            continue;
        first = at;
        *n_out = i < N_ENDS ? strlen(ends[i]) : 0;
    }
    return first;
}

size_t calls_harmony_partial(struct bytes text)
{
    size_t most = 0;

    for (size_t i = 0; i < 5; i++) {
        size_t n = calls_partial(text, ends[i]);

        if (n > most)
            most = n;
    }
    return most;
}

/* The word at this place, up to a blank or a mark. */
static struct bytes word_at(struct bytes text, size_t at)
{
    size_t end = at;

    while (end < text.len_bytes && text.data[end] != '<' && !calls_is_blank(text.data[end]))
        end++;
    return bytes_of(text.data + at, end - at);
}

struct message {
    struct bytes channel;
    struct bytes to; /* empty: no recipient */
};

static struct message read_header(const struct calls *calls, struct bytes header)
{
    size_t channel =
        strcmp(calls->opened, channel_mark) == 0 ? 0 : bytes_find(header, bytes_str(channel_mark), 0);
    size_t to = bytes_find(header, bytes_str("to="), 0);
    struct message message = {0};

    if (channel != SIZE_MAX) {
        channel += channel == 0 && strcmp(calls->opened, channel_mark) == 0 ? 0 : sizeof(channel_mark) - 1;
        message.channel = word_at(header, calls_skip_blanks(header, channel));
    }
    if (to != SIZE_MAX)
        message.to = word_at(header, to + 3);
    if (bytes_starts_with(message.to, "functions."))
        message.to = bytes_of(message.to.data + 10, message.to.len_bytes - 10);
    return message;
}

int calls_harmony_header(struct calls *calls)
{
    struct bytes text = buf_view(&calls->held);
    size_t at = bytes_find(text, bytes_str(message_mark), 0);
    size_t body = at + sizeof(message_mark) - 1;
    struct message message;
    bool is_analysis;

    if (at == SIZE_MAX)
        return 0;
    message = read_header(calls, bytes_of(text.data, at));
    if (message.to.len_bytes > 0 && !calls->opts.ignores_calls)
        return calls_begin_at_brace(calls, message.to, body);
    is_analysis = bytes_is(message.channel, "analysis");
    buf_consume(&calls->held, body);
    calls_begin_text(calls);
    if (is_analysis) {
        calls->state = CALLS_THINKING;
        calls->has_thinking = false;
    }
    return 1;
}

int calls_harmony_tail(struct calls *calls)
{
    struct bytes text = buf_view(&calls->held);
    size_t at = calls_skip_blanks(text, 0);

    if (at == text.len_bytes)
        return 0;
    buf_consume(&calls->held, at);
    calls_begin_text(calls);
    return 1;
}
