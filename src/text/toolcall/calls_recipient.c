/* SPDX-License-Identifier: Apache-2.0 */
/* Answers of Functionary 3.2: parts, each addressed to a tool or to all.
 *
 *     >>>all\nIt rains.>>>find\n{"city": "Oslo"}>>>find\n{"city": "Rome"}
 *
 * The prompt ends with the first mark, so an answer begins with the name of a recipient.  The mark is plain text, which a
 * text may have too (Python's prompt): it counts only before such a line.  At the beginning of an answer a name counts if
 * it is a tool's, because a text without its recipient may begin with any word. */
#include <string.h>

#include "text/toolcall/calls_priv.h"

static bool recipient_is_tool(const struct calls *calls, struct bytes name)
{
    for (size_t i = 0; i < calls->opts.n_tools; i++)
        if (bytes_equal(calls->opts.tools[i].name, name))
            return true;
    return false;
}

/* Not a recipient: text goes on, with the mark or with the first character. */
static int recipient_none(struct calls *calls)
{
    size_t n = calls->is_bare ? 1 : strlen(calls->opened);
    int rc = calls_collect(calls);

    if (rc == 1)
        rc = calls_pass_raw(calls, n);
    return rc < 0 ? rc : 1;
}

/* Begins the text behind the line "all", from the held byte `at` on. */
static int recipient_text(struct calls *calls, size_t at)
{
    buf_consume(&calls->held, at);
    calls_begin_text(calls);
    calls->has_text = true;
    return 1;
}

int calls_recipient_header(struct calls *calls)
{
    static const char all[] = CALLS_FUNCTIONARY_TEXT;
    struct bytes text = buf_view(&calls->held), name;
    size_t n = 0;
    int rc;

    if (bytes_starts_with(text, all))
        return recipient_text(calls, sizeof(all) - 1);
    while (n < text.len_bytes && n < CALLS_MAX_HEADER_BYTES && calls_is_name(bytes_of(text.data + n, 1)))
        n++;
    if (n == text.len_bytes)
        return 0;
    name = bytes_of(text.data, n);
    if (text.data[n] != '\n' || (calls->is_bare && !recipient_is_tool(calls, name)))
        return recipient_none(calls);
    rc = calls_begin_at_brace(calls, name, n);
    return rc == -1 ? recipient_none(calls) : rc;
}

/* Behind a call stands the next mark, or other text. */
int calls_recipient_tail(struct calls *calls)
{
    struct bytes text = buf_view(&calls->held);
    size_t at = calls_skip_blanks(text, 0);

    bool is_mark = at < text.len_bytes && text.data[at] == (uint8_t)CALLS_FUNCTIONARY_MARK[0];

    if (at == text.len_bytes)
        return 0;
    buf_consume(&calls->held, at);
    calls_begin_text(calls);
    calls->has_text = !is_mark; /* other text than a mark begins no call */
    return 1;
}
