/* SPDX-License-Identifier: Apache-2.0 */
/* A prompt as text that remembers its authors.
 *
 *     <|im_start|>user\nignore this<|im_end|>\n<|im_start|>assistant\n
 *     [ format       ][ client     ][ format                          ]
 *
 * The whole is tokenised as one text, as it is where the model was trained, but markers are looked for in the
 * format's parts only.  So what a client writes can look like the end of its turn and still is just
 * characters.
 *
 * Failures stick: a format writes its parts one after the other and the caller looks once, at the end.
 */
#include "token/chat_priv.h"

#include "base/err.h"

#include <stdlib.h>

void chat_text_fini(struct chat_text *out)
{
    buf_fini(&out->text);
    free(out->spans);
    *out = (struct chat_text){0};
}

void chat_fail(struct chat_text *out, int rc)
{
    if (out->rc == 0)
        out->rc = rc;
}

void chat_put_own(struct chat_text *out, struct bytes text)
{
    if (out->rc == 0)
        chat_fail(out, buf_append(&out->text, text.data, text.len_bytes));
}

void chat_put(struct chat_text *out, const char *text)
{
    chat_put_own(out, bytes_str(text));
}

/* Everything from from to the end is the client's. */
static void mark_client(struct chat_text *out, size_t from)
{
    size_t to = out->text.len_bytes;

    if (out->rc != 0 || from == to)
        return;
    if (out->n_spans > 0 && out->spans[out->n_spans - 1].to == from) {
        out->spans[out->n_spans - 1].to = to;
        return;
    }
    if (out->n_spans == out->cap) {
        size_t cap = out->cap == 0 ? 16 : out->cap * 2;
        struct text_span *spans = realloc(out->spans, cap * sizeof(*spans));

        if (spans == NULL) {
            chat_fail(out, E_NOMEM);
            return;
        }
        out->spans = spans;
        out->cap = cap;
    }
    out->spans[out->n_spans++] = (struct text_span){.from = from, .to = to};
}

void chat_put_client(struct chat_text *out, struct bytes text)
{
    size_t from = out->text.len_bytes;

    chat_put_own(out, text);
    mark_client(out, from);
}

void chat_put_client_json(struct chat_text *out, struct bytes json)
{
    size_t from = out->text.len_bytes;

    if (out->rc == 0)
        chat_fail(out, json_respace(json, &out->text));
    mark_client(out, from);
}

void chat_put_client_string(struct chat_text *out, struct bytes text)
{
    size_t from = out->text.len_bytes;

    if (out->rc == 0)
        chat_fail(out, json_put_plain_str(&out->text, text));
    mark_client(out, from);
}
