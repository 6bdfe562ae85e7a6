/* SPDX-License-Identifier: Apache-2.0 */
/* Three things that depend on the model family: the form of call ids, and the marks around thinking and around the
 * text of answers.  The row of the tool-call format (text/toolcall/formats.c) has the form of ids.
 *
 * Marks surround the model's thinking. They are tokens of the vocabulary or words of the template. Harmony is
 * the exception: it has a channel for thinking. Granite 3.2 has sentences, which any text may have too. */
#include "text/token/chat_priv.h"

#include <stdio.h>
#include <string.h>

static bool is_alphanumeric(struct bytes id)
{
    for (size_t i = 0; i < id.len_bytes; i++) {
        uint8_t c = id.data[i], lower = c | 0x20;

        if ((c < '0' || c > '9') && (lower < 'a' || lower > 'z'))
            return false;
    }
    return true;
}

#define MISTRAL_ID_CHARS 9
#define SOLAR_ID_CHARS   10

/* n of these letters, made from the id.  The same id always gives the same result. */
static struct bytes hashed_id(struct bytes id, const char *letters, unsigned n, char *room)
{
    uint64_t hash = UINT64_C(0xcbf29ce484222325), n_letters = strlen(letters);

    for (size_t i = 0; i < id.len_bytes; i++)
        hash = (hash ^ id.data[i]) * UINT64_C(0x100000001b3);
    hash ^= hash >> 31;
    for (unsigned i = 0; i < n; i++, hash /= n_letters)
        room[i] = letters[hash % n_letters];
    return bytes_of(room, n);
}

static struct bytes mistral_id(struct bytes id, char *room)
{
    static const char letters[] = "0123456789ABCDEFGHIJKLMNOPQRSTUVWXYZabcdefghijklmnopqrstuvwxyz";

    return id.len_bytes == MISTRAL_ID_CHARS && is_alphanumeric(id)
               ? id
               : hashed_id(id, letters, MISTRAL_ID_CHARS, room);
}

static struct bytes solar_id(struct bytes id, char *room)
{
    static const char letters[] = "0123456789abcdefghijklmnopqrstuvwxyz";
    bool is_right = id.len_bytes == SOLAR_ID_CHARS && is_alphanumeric(id);

    for (size_t i = 0; i < id.len_bytes; i++)
        is_right = is_right && (id.data[i] < 'A' || id.data[i] > 'Z');
    return is_right ? id : hashed_id(id, letters, SOLAR_ID_CHARS, room);
}

/* A client may have an id of this form from the model's own words, or from another server. */
static bool is_kimi_id(struct bytes id, struct bytes before)
{
    size_t n = before.len_bytes;

    if (id.len_bytes <= n || !bytes_equal(bytes_of(id.data, n), before))
        return false;
    while (n < id.len_bytes && id.data[n] >= '0' && id.data[n] <= '9')
        n++;
    return n == id.len_bytes;
}

static struct bytes kimi_id(const struct chat_family_call *call, char *room)
{
    const size_t most = CHAT_FAMILY_ID_BYTES - sizeof("functions.:") - 20; /* digits of the index */
    int n;

    if (call->name.len_bytes == 0 || call->name.len_bytes > most)
        return call->id;
    n = snprintf(room, CHAT_FAMILY_ID_BYTES, "functions.%.*s:", (int)call->name.len_bytes,
                 (const char *)call->name.data);
    if (is_kimi_id(call->id, bytes_of(room, (size_t)n)))
        return call->id;
    n += snprintf(room + n, CHAT_FAMILY_ID_BYTES - (size_t)n, "%zu", call->index);
    return bytes_of(room, (size_t)n);
}

struct bytes chat_family_id(enum calls_format calls, const struct chat_family_call *call,
                            char room[CHAT_FAMILY_ID_BYTES])
{
    switch (calls_row_of(calls)->ids) {
    case CALLS_IDS_GIVEN:
        break;
    case CALLS_IDS_SOLAR:
        return solar_id(call->id, room);
    case CALLS_IDS_MISTRAL:
    case CALLS_IDS_MISTRAL_DRAWN:
        return mistral_id(call->id, room);
    case CALLS_IDS_KIMI:
        return kimi_id(call, room);
    }
    return call->id;
}

/* The template decides before the vocabulary does, which may have marks that the template does not use. */
void chat_family_thinking(const struct tokenizer *tokenizer, struct bytes source,
                          struct chat_format_info *info)
{
    static const struct {
        const char *open, *close, *name;
        bool is_words;
        const char *open_also, *close_also;
        const char
            *sign; /* the template has this, rather than a mark, which others have too, or which it builds */
    } marks[] = {
        {.open = "<think:opensource>", .close = "</think:opensource>"}, /* Hunyuan 3 */
        {.open = "<think>", .close = "</think>"},
        {.open = "[THINK]", .close = "[/THINK]"},
        {.open = "<seed:think>", .close = "</seed:think>"},
        {.open = "<|START_THINKING|>", .close = "<|END_THINKING|>"},
        {.open = "<|inner_prefix|>", .close = "<|inner_suffix|>"},          /* Apertus */
        {.open = "<|channel>", .close = "<channel|>", .name = "thought\n"}, /* Gemma 4 */
        {.open = "<mm:think>", .close = "</mm:think>"},                     /* MiniMax M3 */
        {.open = "<|think|>",
         .close = "<|end|><|begin|>assistant", /* Solar Open: a message, and the beginning of the next one */
         .close_also = "<|end|>",
         .sign = "<|tool_call:begin|>"},
        {.open = "<|think:start|>", .close = "<|think:end|>"}, /* Solar Open 2 */
        {.open = "<|open|>think<|sep|>", .close = "<|close|>think<|sep|>", .sign = "<|open|>"}, /* Kimi K3 */
        {.open = "Here is my thought process:", /* Granite 3.2; small quantised ones write "Here's" */
         .close = "Here is my response:",
         .is_words = true,
         .open_also = "Here's my thought process:",
         .close_also = "Here's my response:"},
        {.open = "Here are my reasoning steps:",
         .close = "[BEGIN FINAL RESPONSE]",
         .is_words = true}, /* Apriel */
        {.open = "Here's my thought process:",
         .close = "Here's my response:",
         .is_words = true,
         .open_also = "Here is my thought process:",
         .close_also = "Here is my response:"}};
    const size_t n = sizeof(marks) / sizeof(marks[0]);

    for (size_t i = 0; i < 2 * n && info->think_open == NULL; i++) {
        struct bytes open = bytes_str(marks[i % n].open), close = bytes_str(marks[i % n].close);
        const char *sign = marks[i % n].sign;
        bool is_here =
            i < n ? bytes_find(source, close, 0) != SIZE_MAX || bytes_find(source, open, 0) != SIZE_MAX
                  : tokenizer_find(tokenizer, close) != TOKEN_NONE;

        if (sign != NULL)
            is_here = bytes_find(source, bytes_str(sign), 0) != SIZE_MAX;
        if (!is_here)
            continue;
        info->think_open = marks[i % n].open;
        info->think_close = marks[i % n].close;
        info->think_name = marks[i % n].name;
        info->think_is_words = marks[i % n].is_words;
        info->think_open_also = marks[i % n].open_also;
        info->think_close_also = marks[i % n].close_also;
    }
}

void chat_family_answers(const struct tokenizer *tokenizer, struct bytes source, enum calls_format detected,
                         struct chat_format_info *info)
{
    struct bytes cohere = bytes_str(calls_row_of(CALLS_COHERE)->answer[0]);
    struct bytes response =
        bytes_str("<response></response>"); /* as Granite 3.3's template tells the model */

    info->answers = info->calls;
    if (calls_row_of(detected)->answer[0] != NULL)
        info->answers = detected;
    else if (tokenizer_find(tokenizer, cohere) != TOKEN_NONE)
        info->answers = CALLS_COHERE;
    else if (bytes_find(source, response, 0) != SIZE_MAX)
        info->answers = CALLS_ERNIE;
}
