/* SPDX-License-Identifier: Apache-2.0 */
/* The commands of each kind of job, and their replies.
 *
 *     PUT      SET name value EX life                ASK       GET name, for each;  SET claim "" NX EX life
 *     REMOVE   UNLINK name                           EXCHANGE  [TIME]; XADD stream MAXLEN ~ n * s text, for each;
 *                                                              EXPIRE stream; XRANGE stream after + COUNT n; a first
 *                                                              one SET probe 1 EX 60 in its place
 *
 * The stream's ids begin with the server's milliseconds, which gives each message's age without the hosts' clocks.
 * Servers from 5.0 on know all of these. */
#include <inttypes.h>
#include <stdio.h>
#include <stdlib.h>

#include "base/clock.h"
#include "base/err.h"
#include "base/str.h"
#include "net/redis/redis_error.h"
#include "net/state/state_priv.h"

static int state_put_command(struct buf *out, const struct bytes *args, unsigned n)
{
    return resp_command(out, args, n);
}

/* Appends SET with the sealed value. */
static int state_append_set(struct state *state, struct state_job *job, struct buf *out)
{
    uint64_t now_s = clock_unix_ns() / NS_PER_S;
    const uint64_t times_s[2] = {now_s, now_s + job->life_s};
    struct buf sealed = {0};
    char life[24];
    int rc = state_record_seal(state->key, &job->name, times_s, buf_view(&job->value), &sealed);

    snprintf(life, sizeof(life), "%" PRIu64, job->life_s);
    if (rc == 0)
        rc = state_put_command(out,
                               (const struct bytes[]){bytes_str("SET"), bytes_str(job->name.text),
                                                      buf_view(&sealed), bytes_str("EX"), bytes_str(life)},
                               5);
    buf_fini(&sealed);
    job->n_replies = 1;
    return rc;
}

static int state_append_expire(struct state_job *job, struct buf *out)
{
    char life[24];

    snprintf(life, sizeof(life), "%" PRIu64, job->life_s);
    job->n_replies = 1;
    return state_put_command(
        out, (const struct bytes[]){bytes_str("EXPIRE"), bytes_str(job->name.text), bytes_str(life)}, 3);
}

static int state_append_ask(struct state_job *job, struct buf *out)
{
    char life[24];
    int rc = 0;

    for (uint32_t i = 0; i < job->n && rc == 0; i++)
        rc = state_put_command(out, (const struct bytes[]){bytes_str("GET"), bytes_str(job->names[i].text)},
                               2);
    snprintf(life, sizeof(life), "%" PRIu64, job->claim_life_s);
    if (job->has_claim && rc == 0)
        rc = state_put_command(out,
                               (const struct bytes[]){bytes_str("SET"), bytes_str(job->claim.text),
                                                      bytes_str("1"), bytes_str("NX"), bytes_str("EX"),
                                                      bytes_str(life)},
                               6);
    job->n_replies = job->n + job->has_claim;
    return rc;
}

static int state_append_message(struct state *state, struct bytes message, struct buf *out)
{
    uint64_t now_s = clock_unix_ns() / NS_PER_S;
    const uint64_t times_s[2] = {now_s, now_s + STATE_MESSAGE_S};
    struct buf text = {0}, sealed = {0};
    char most[24];
    uint8_t self[8];
    int rc;

    put_u64(self, state->self);
    buf_append(&text, self, sizeof(self));
    buf_append(&text, message.data, message.len_bytes);
    rc = text.is_bad ? E_NOMEM
                     : state_record_seal(state->key, &state->stream, times_s, buf_view(&text), &sealed);
    snprintf(most, sizeof(most), "%d", STATE_STREAM_MAX);
    if (rc == 0)
        rc = state_put_command(out,
                               (const struct bytes[]){bytes_str("XADD"), bytes_str(state->stream.text),
                                                      bytes_str("MAXLEN"), bytes_str("~"), bytes_str(most),
                                                      bytes_str("*"), bytes_str("s"), buf_view(&sealed)},
                               8);
    buf_fini(&text);
    buf_fini(&sealed);
    return rc;
}

static int state_append_range(struct state *state, struct state_job *job, struct buf *out)
{
    char after[64], count[16];

    if (job->cursor.seq == UINT64_MAX)
        job->cursor = (struct state_cursor){job->cursor.ms + 1, UINT64_MAX};
    snprintf(after, sizeof(after), "%" PRIu64 "-%" PRIu64, job->cursor.ms, job->cursor.seq + 1);
    snprintf(count, sizeof(count), "%d", STATE_PAGE);
    return state_put_command(out,
                             (const struct bytes[]){bytes_str("XRANGE"), bytes_str(state->stream.text),
                                                    bytes_str(after), bytes_str("+"), bytes_str("COUNT"),
                                                    bytes_str(count)},
                             6);
}

/* The test writes, because a store that takes no writes is of no use. */
static int state_append_probe(struct state *state, struct state_job *job, struct buf *out)
{
    job->n_replies++;
    return state_put_command(out,
                             (const struct bytes[]){bytes_str("SET"), bytes_str(state->probe.text),
                                                    bytes_str("1"), bytes_str("EX"), bytes_str("60")},
                             5);
}

/* The first fetch only gets the server's time and tests a write; the next one reads from that time on. */
static int state_append_exchange(struct state *state, struct state_job *job, struct buf *out)
{
    int rc = state_put_command(out, (const struct bytes[]){bytes_str("TIME")}, 1);

    job->n_replies = 1;
    for (uint32_t i = 0; i < job->n_outgoing && rc == 0; i++, job->n_replies++)
        rc = state_append_message(state, buf_view(&job->outgoing[i]), out);
    if (rc == 0 && job->n_outgoing > 0) {
        rc = state_put_command(
            out, (const struct bytes[]){bytes_str("EXPIRE"), bytes_str(state->stream.text), bytes_str("600")},
            3);
        job->n_replies++;
    }
    if (rc == 0 && job->is_first)
        rc = state_append_probe(state, job, out);
    if (rc == 0 && !job->is_first) {
        rc = state_append_range(state, job, out);
        job->n_replies++;
    }
    job->at = 0;
    return rc;
}

int state_job_append(struct state *state, struct state_job *job, struct buf *out)
{
    switch (job->kind) {
    case STATE_JOB_PUT:
        return state_append_set(state, job, out);
    case STATE_JOB_REMOVE:
        job->n_replies = 1;
        return state_put_command(out, (const struct bytes[]){bytes_str("UNLINK"), bytes_str(job->name.text)},
                                 2);
    case STATE_JOB_EXPIRE:
        return state_append_expire(job, out);
    case STATE_JOB_ASK:
        return state_append_ask(job, out);
    case STATE_JOB_EXCHANGE:
        return state_append_exchange(state, job, out);
    }
    return E_INTERNAL;
}

/* ---- replies ---- */

static int state_error_code(struct bytes error)
{
    if (bytes_starts_with(error, "OOM") || bytes_starts_with(error, "MISCONF"))
        return E_FULL;
    if (bytes_starts_with(error, "MOVED") || bytes_starts_with(error, "ASK") ||
        bytes_starts_with(error, "READONLY") || bytes_starts_with(error, "CLUSTERDOWN") ||
        bytes_starts_with(error, "LOADING"))
        return E_AGAIN;
    return bytes_starts_with(error, "NOPERM") || bytes_starts_with(error, "NOAUTH") ? E_AUTH : E_PROTO;
}

/* A value that cannot be decrypted counts as missing. */
static void state_take_value(struct state *state, struct state_job *job, struct bytes image)
{
    struct buf *value = &job->values[job->at];

    if (image.len_bytes > STATE_MAX_VALUE + 4096 ||
        atomic_load(&state->answer_bytes) + image.len_bytes > STATE_MAX_BYTES) {
        job->n_damaged++;
        return;
    }
    if (state_record_open(state->key, &job->names[job->at], clock_unix_ns() / NS_PER_S, image, value) < 0) {
        job->n_damaged++;
        buf_fini(value);
        return;
    }
    atomic_fetch_add(&state->answer_bytes, value->cap_bytes);
}

static int state_reply_ask(struct state *state, struct state_job *job, const struct resp_item *item)
{
    if (job->at == job->n)
        job->claimed = item->kind != RESP_NULL ? STATE_CLAIM_SET : STATE_CLAIM_TAKEN;
    else if (item->kind == RESP_TEXT)
        state_take_value(state, job, item->text);
    else if (item->kind != RESP_NULL)
        return E_PROTO;
    return 0;
}

/* Reads "ms-seq". */
static bool state_read_id(struct bytes text, struct state_cursor *out)
{
    const uint8_t *dash = text.len_bytes > 0 ? memchr(text.data, '-', text.len_bytes) : NULL;
    size_t n = dash == NULL ? 0 : (size_t)(dash - text.data);

    return dash != NULL && str_to_u64(bytes_of(text.data, n), &out->ms) == 0 &&
           str_to_u64(bytes_of(dash + 1, text.len_bytes - n - 1), &out->seq) == 0;
}

static int state_take_item(struct bytes *rest, struct resp_item *out)
{
    size_t used = 0;
    int rc = resp_item_parse(*rest, out, &used);

    *rest = bytes_of(rest->data + used, rest->len_bytes - used);
    return rc;
}

/* Queues the message, unless it is this router's own. */
static int state_take_message(struct state *state, struct state_job *job, struct bytes image,
                              const struct state_cursor *id)
{
    struct state_message *message;

    job->cursor = *id;
    message = calloc(1, sizeof(*message));
    if (message == NULL)
        return E_NOMEM;
    if (image.len_bytes > STATE_MAX_MESSAGE + 4096 ||
        state_record_open(state->key, &state->stream, clock_unix_ns() / NS_PER_S, image, &message->text) <
            0 ||
        message->text.len_bytes < 8)
        job->n_damaged++;
    else if (get_u64(message->text.data) != state->self)
        message->age_ms = job->server_ms > id->ms ? job->server_ms - id->ms : 1;
    message->id_ms = id->ms;
    if (message->age_ms == 0) {
        buf_fini(&message->text);
        free(message);
        return 0;
    }
    list_push_back(&job->messages, &message->node);
    return 0;
}

/* [[id, [name, text]], ...] */
static int state_reply_range(struct state *state, struct state_job *job, struct bytes all)
{
    struct resp_item item;
    int64_t n;

    if (state_take_item(&all, &item) < 0 || item.kind != RESP_LIST || item.number > STATE_PAGE)
        return E_PROTO;
    n = item.number;
    job->has_more = n == STATE_PAGE;
    for (int64_t i = 0; i < n; i++) {
        struct state_cursor id;
        struct bytes texts[3];

        if (state_take_item(&all, &item) < 0 || item.kind != RESP_LIST || item.number != 2 ||
            state_take_item(&all, &item) < 0 || item.kind != RESP_TEXT)
            return E_PROTO;
        texts[0] = item.text;
        if (state_take_item(&all, &item) < 0 || item.kind != RESP_LIST || item.number != 2 ||
            state_take_item(&all, &item) < 0 || item.kind != RESP_TEXT || state_take_item(&all, &item) < 0 ||
            item.kind != RESP_TEXT || !state_read_id(texts[0], &id))
            return E_PROTO;
        if (id.ms < job->cursor.ms ||
            (id.ms == job->cursor.ms && id.seq <= job->cursor.seq && job->cursor.seq != UINT64_MAX))
            return E_PROTO; /* the store returned a message twice */
        if (state_take_message(state, job, item.text, &id) < 0)
            return E_NOMEM;
    }
    return 0;
}

static int state_reply_time(struct state_job *job, struct bytes all)
{
    struct resp_item list, seconds, micros;
    uint64_t s, us;

    if (state_take_item(&all, &list) < 0 || list.kind != RESP_LIST || list.number != 2 ||
        state_take_item(&all, &seconds) < 0 || state_take_item(&all, &micros) < 0 ||
        seconds.kind != RESP_TEXT || micros.kind != RESP_TEXT || str_to_u64(seconds.text, &s) < 0 ||
        str_to_u64(micros.text, &us) < 0 || s > UINT32_MAX || us >= 1000000)
        return E_PROTO;
    job->server_ms = s * 1000 + us / 1000;
    if (job->is_first)
        job->cursor = (struct state_cursor){
            job->server_ms > STATE_MESSAGE_S * 1000 ? job->server_ms - STATE_MESSAGE_S * 1000 : 0, 0};
    /* The server's clock went back, so new messages have earlier ids. */
    if (job->cursor.ms > job->server_ms + 2 * STATE_CLOCKS_S * 1000)
        job->cursor = (struct state_cursor){job->server_ms, 0};
    return 0;
}

static int state_reply_exchange(struct state *state, struct state_job *job, const struct resp_item *item,
                                struct bytes all)
{
    if (job->at == 0)
        return state_reply_time(job, all);
    if (job->at <= job->n_outgoing)
        return item->kind == RESP_TEXT ? 0 : E_PROTO;
    if (item->kind == RESP_INTEGER || (job->is_first && item->kind == RESP_TEXT))
        return 0; /* EXPIRE, the probe's SET */
    return state_reply_range(state, job, all);
}

int state_job_reply(struct state *state, struct state_job *job, const struct resp_item *item,
                    struct bytes all)
{
    int rc = item->kind == RESP_ERROR ? state_error_code(item->text) : 0;

    if (rc < 0)
        (void)redis_error_fault(&state->url, item->text, rc, &job->fault);
    else if (job->kind == STATE_JOB_ASK)
        rc = state_reply_ask(state, job, item);
    else if (job->kind == STATE_JOB_EXCHANGE)
        rc = state_reply_exchange(state, job, item, all);
    job->at++;
    return rc;
}
