/* SPDX-License-Identifier: Apache-2.0 */
/* Recognises our own answers in the messages that a client sends back.
 *
 *     key[0] = hash(system)     key[i + 1] = hash(key[i] | message i)
 *
 * An answer's key is the key of the conversation up to it.  The same words elsewhere ("Done.") are
 * therefore another answer, with other hidden thinking.  Clients send answers back in their own
 * serialisation: blocks joined or trimmed, members of an input in another order.  So the key of an
 * assistant message covers only what survives that: characters that are not blank, ids and names of
 * calls.  A comparison of values then decides whether it is the same answer.
 *
 * No look-up needs a key after the last answer; storing the request's own answer needs the key of the
 * whole conversation.  The client's new turn is often the longest part, and a worker waits for the
 * request.  So the last messages are hashed only when the answer is stored, unless they are too long for
 * the loop thread. */
#include "serve/conversation/replay.h"

#include <openssl/evp.h>
#include <string.h>

#include "text/json/json.h"
#include "base/check.h"
#include "base/err.h"
#include "base/rng.h"
#include "base/str.h"
#include "cache/prefix/tenant.h"

#define BLOCK_COST 64 /* hashing a block without text costs as much as this many bytes of text */

static bool replay_is_blank(uint8_t c)
{
    return c == ' ' || (c >= '\t' && c <= '\r');
}

/* ---- keys ---- */

static void replay_put_text(struct buf *out, struct bytes text)
{
    uint8_t len[4];

    put_u32(len, (uint32_t)text.len_bytes);
    buf_append(out, len, sizeof(len));
    buf_append(out, text.data, text.len_bytes);
}

static void put_dense(struct buf *out, struct bytes text)
{
    for (size_t i = 0, from; i < text.len_bytes;) {
        while (i < text.len_bytes && replay_is_blank(text.data[i]))
            i++;
        from = i;
        while (i < text.len_bytes && !replay_is_blank(text.data[i]))
            i++;
        buf_append(out, text.data + from, i - from);
    }
}

static void replay_put_block(struct buf *out, const struct gen_block *block)
{
    buf_append_byte(out, (uint8_t)('a' + block->kind));
    replay_put_text(out, block->text);
    replay_put_text(out, block->id);
    buf_append_byte(out, block->is_error ? '!' : '.');
}

static void replay_put_answer(struct buf *out, const struct gen_message *message)
{
    for (size_t i = 0; i < message->n_blocks; i++)
        if (message->blocks[i].kind == GEN_TEXT)
            put_dense(out, message->blocks[i].text);
    buf_append_byte(out, 0);
    for (size_t i = 0; i < message->n_blocks; i++) {
        if (message->blocks[i].kind != GEN_TOOL_USE)
            continue;
        replay_put_text(out, message->blocks[i].id);
        replay_put_text(out, message->blocks[i].name);
    }
}

static int replay_hash(const struct buf *text, struct answer_key *out)
{
    unsigned len = sizeof(out->bytes);

    if (text->is_bad || EVP_Digest(text->data, text->len_bytes, out->bytes, &len, EVP_sha256(), NULL) != 1)
        return E_NOMEM;
    return 0;
}

static int next_key(const struct answer_key *before, const struct gen_message *message, struct buf *room,
                    struct answer_key *out)
{
    buf_clear(room);
    buf_append(room, before->bytes, sizeof(before->bytes));
    buf_append_byte(room, (uint8_t)('0' + message->role));
    if (message->role == GEN_ASSISTANT) {
        replay_put_answer(room, message);
    } else {
        for (size_t i = 0; i < message->n_blocks; i++)
            replay_put_block(room, &message->blocks[i]);
    }
    return replay_hash(room, out);
}

static size_t replay_cost(const struct gen_message *message)
{
    size_t n = 0;

    for (size_t i = 0; i < message->n_blocks; i++)
        n += BLOCK_COST + message->blocks[i].text.len_bytes + message->blocks[i].id.len_bytes;
    return n;
}

/* Returns how many messages must be hashed now. */
static size_t n_now(const struct gen_request *request)
{
    size_t n = request->n_messages, left = REPLAY_LATER_BYTES;

    while (n > 0 && request->messages[n - 1].role != GEN_ASSISTANT &&
           replay_cost(&request->messages[n - 1]) <= left)
        left -= replay_cost(&request->messages[--n]);
    return n;
}

int replay_read(struct gen_request *request, struct replay *out)
{
    struct replay replay = {.n = request->n_messages};
    size_t n_first = n_now(request);
    struct buf room = {0};
    struct answer_key key;
    int rc;

    replay.keys = arena_take(&request->arena, (replay.n + 1) * sizeof(*replay.keys));
    replay.answers = arena_take(&request->arena, (replay.n + 1) * sizeof(struct cached_answer *));
    if (replay.keys == NULL || replay.answers == NULL)
        return E_NOMEM;
    replay_put_text(&room, request->system);
    rc = replay_hash(&room, &key);
    for (size_t i = 0; i < n_first && rc == 0; i++) {
        rc = next_key(&key, &request->messages[i], &room, &replay.keys[i]);
        key = replay.keys[i];
    }
    buf_fini(&room);
    if (rc < 0)
        return rc;
    replay.end = key;
    replay.later = request->messages + n_first;
    replay.n_later = replay.n - n_first;
    for (size_t i = 0; i < replay.n; i++)
        if (i >= n_first || request->messages[i].role != GEN_ASSISTANT)
            memset(&replay.keys[i], 0, sizeof(replay.keys[i]));
    *out = replay;
    return 0;
}

int replay_key_of(struct replay *replay, const struct gen_message *answer, struct answer_key *out)
{
    struct buf room = {0};
    int rc = 0;

    for (; replay->n_later > 0 && rc == 0; replay->n_later--)
        rc = next_key(&replay->end, replay->later++, &room, &replay->end);
    if (rc == 0)
        rc = next_key(&replay->end, answer, &room, out);

    buf_fini(&room);
    return rc;
}

void replay_key_for(const struct answer_key *key, const char *tenant, const char *fingerprint,
                    struct answer_key *out)
{
    const char *const names[] = {tenant, fingerprint};
    uint8_t text[sizeof(key->bytes) + 2 * 128];
    size_t n = sizeof(key->bytes);
    unsigned len = sizeof(out->bytes);

    memcpy(text, key->bytes, n);
    for (size_t i = 0; i < ARRAY_LEN(names); i++) {
        size_t len_bytes = strnlen(names[i], 127);

        memcpy(text + n, names[i], len_bytes);
        text[n + len_bytes] = '\0';
        n += len_bytes + 1;
    }
    EVP_Digest(text, n, out->bytes, &len, EVP_sha256(), NULL);
}

void replay_owner(const char *tenant, struct bytes salt, char out[64])
{
    struct buf text = {0};
    struct answer_key key = {0};

    if (salt.len_bytes == 0) {
        str_copy(out, 64, tenant);
        return;
    }
    replay_put_text(&text, bytes_str(tenant));
    replay_put_text(&text, salt);
    if (replay_hash(&text, &key) < 0) /* an owner of no request: finds nothing and shares nothing */
        rng_system(&key, sizeof(key));
    buf_fini(&text);
    tenant_salted_name(tenant, key.bytes, out);
}

/* ---- answers ---- */

void replay_find(struct replay *replay, struct answer_cache *cache, const char *tenant,
                 const char *fingerprint, bool is_use)
{
    static const struct answer_key none;

    for (size_t i = 0; replay->keys != NULL && i < replay->n; i++) {
        struct answer_key key;

        if (memcmp(&replay->keys[i], &none, sizeof(none)) == 0)
            continue;
        replay_key_for(&replay->keys[i], tenant, fingerprint, &key);
        replay->answers[i] = answer_cache_get(cache, &key, is_use);
    }
}

void replay_fini(struct replay *replay)
{
    for (size_t i = 0; replay->keys != NULL && i < replay->n; i++)
        cached_answer_unref(replay->answers[i]);
    memset(replay, 0, sizeof(*replay));
}

/* ---- equality ---- */

struct reading { /* the texts of some blocks, concatenated */
    const struct gen_block *blocks;
    size_t n_blocks, block;
    size_t at;
};

/* Drops the blanks at both ends of a block, which do not count. */
static struct bytes replay_trimmed(struct bytes text)
{
    while (text.len_bytes > 0 && replay_is_blank(text.data[0])) {
        text.data++;
        text.len_bytes--;
    }
    while (text.len_bytes > 0 && replay_is_blank(text.data[text.len_bytes - 1]))
        text.len_bytes--;
    return text;
}

/* Returns the rest of the current block, or the next block that is not empty; empty at the end. */
static struct bytes text_now(struct reading *reading)
{
    for (; reading->block < reading->n_blocks; reading->block++, reading->at = 0) {
        const struct gen_block *block = &reading->blocks[reading->block];
        struct bytes text = block->kind == GEN_TEXT ? replay_trimmed(block->text) : (struct bytes){0};

        if (reading->at < text.len_bytes)
            return text;
    }
    return (struct bytes){0};
}

static void replay_skip_blanks(struct reading *reading, struct bytes text)
{
    while (reading->at < text.len_bytes && replay_is_blank(text.data[reading->at]))
        reading->at++;
}

static bool are_texts_equal(const struct cached_answer *answer, const struct gen_message *message)
{
    struct reading a = {.blocks = answer->blocks, .n_blocks = answer->n_blocks};
    struct reading b = {.blocks = message->blocks, .n_blocks = message->n_blocks};

    for (;;) {
        struct bytes x = text_now(&a), y = text_now(&b);

        if (x.len_bytes == 0 || y.len_bytes == 0)
            return x.len_bytes == y.len_bytes;
        /* Where a block begins on one side, the other side may have any blanks. */
        if (a.at == 0)
            replay_skip_blanks(&b, y);
        if (b.at == 0)
            replay_skip_blanks(&a, x);
        size_t n = x.len_bytes - a.at < y.len_bytes - b.at ? x.len_bytes - a.at : y.len_bytes - b.at;
        if (memcmp(x.data + a.at, y.data + b.at, n) != 0)
            return false;
        a.at += n;
        b.at += n;
    }
}

static bool is_call_equal(const struct cached_answer *answer, size_t i, const struct gen_block *call)
{
    const struct gen_block *ours = &answer->blocks[i];
    struct buf sorted = {0};
    bool is_equal = bytes_equal(ours->id, call->id) && bytes_equal(ours->name, call->name) &&
                    api_json_sort(call->input, &sorted) == 0 &&
                    bytes_equal(answer->sorted[i], buf_view(&sorted));

    buf_fini(&sorted);
    return is_equal;
}

static bool are_calls_equal(const struct cached_answer *answer, const struct gen_message *message)
{
    size_t i = 0;

    for (size_t k = 0; k < message->n_blocks; k++) {
        if (message->blocks[k].kind != GEN_TOOL_USE)
            continue;
        while (i < answer->n_blocks && answer->blocks[i].kind != GEN_TOOL_USE)
            i++;
        if (i == answer->n_blocks || !is_call_equal(answer, i, &message->blocks[k]))
            return false;
        i++;
    }
    while (i < answer->n_blocks && answer->blocks[i].kind != GEN_TOOL_USE)
        i++;
    return i == answer->n_blocks;
}

/* Missing or empty thinking counts as equal. */
static bool is_thinking_equal(const struct cached_answer *answer, const struct gen_message *message)
{
    for (size_t i = 0; i < message->n_blocks; i++) {
        struct bytes text = replay_trimmed(message->blocks[i].text);

        if (message->blocks[i].kind == GEN_THINKING && text.len_bytes > 0 &&
            bytes_find(answer->thinking, text, 0) == SIZE_MAX)
            return false;
    }
    return true;
}

bool replay_is_equal(const struct cached_answer *answer, const struct gen_message *message)
{
    return are_texts_equal(answer, message) && are_calls_equal(answer, message) &&
           is_thinking_equal(answer, message);
}
