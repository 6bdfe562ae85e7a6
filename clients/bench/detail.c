/* SPDX-License-Identifier: Apache-2.0 */
/* Numbers go straight to the file; only texts of errors need JSON escapes. */
#include "clients/bench/detail.h"

#include <inttypes.h>

#include "base/str.h"

static double detail_ms(uint64_t from_ns, uint64_t to_ns)
{
    return (double)(to_ns - from_ns) / 1e6;
}

static void detail_put_error(const struct answer *answer, struct buf *out)
{
    if (answer == NULL)
        buf_append_str(out, "\"cut\"");
    else if (answer->is_whole)
        buf_append_str(out, "null");
    else
        json_put_str(out, bytes_str(answer->error_type));
}

void detail_write(const struct detail *detail, FILE *out)
{
    const struct answer *answer = detail->answer;
    struct buf error = {0};

    fprintf(out, "{\"sent_s\": %.6f", detail_ms(detail->began_ns, detail->sent_ns) / 1e3);
    if (answer != NULL && answer->is_whole) /* the counts come at the end */
        fprintf(out,
                ", \"prompt_tokens\": %" PRIu64 ", \"cached_tokens\": %" PRIu64
                ", \"answer_tokens\": %" PRIu64,
                answer_prompt_tokens(answer), answer->cache_read_tokens, answer->output_tokens);
    if (detail->first_ns > 0)
        fprintf(out, ", \"ttft_ms\": %.4f", detail_ms(detail->sent_ns, detail->first_ns));
    fputs(", \"itl_ms\": [", out);
    for (size_t i = 0; i < detail->itl->n; i++)
        fprintf(out, "%s%.4f", i > 0 ? ", " : "", (double)detail->itl->values[i]);
    detail_put_error(answer, &error);
    fprintf(out, "], \"e2e_ms\": %.4f, \"error\": %.*s}\n", detail_ms(detail->sent_ns, detail->ended_ns),
            (int)error.len_bytes, error.data != NULL ? (const char *)error.data : "null");
    buf_fini(&error);
}
