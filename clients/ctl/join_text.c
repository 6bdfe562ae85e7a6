/* SPDX-License-Identifier: Apache-2.0 */
/* Lines of words.  Everything is bounded and printable, so the text may be shown on a terminal as it is. */
#include "clients/ctl/join_text.h"

#include <inttypes.h>
#include <openssl/crypto.h>
#include <openssl/evp.h>
#include <stdio.h>

#include "base/err.h"
#include "base/name.h"
#include "base/str.h"
#include "net/link/addr.h"
#include "net/link/tls.h"

#define JOIN_PREFIX     "bj1-"
#define JOIN_FIRST      "baton-join "
#define JOIN_END        "\nend\n"
#define JOIN_HEX_BYTES  64
#define JOIN_CHECK_SIZE 4

static const char *const join_kinds[JOIN_N_KINDS] = {
    [JOIN_HELLO] = "hello", [JOIN_WELCOME] = "welcome", [JOIN_PROBE] = "probe", [JOIN_PROBED] = "probed"};

/* ---- token ---- */

static int join_token_check(const uint8_t secret[32], uint8_t out[JOIN_CHECK_SIZE])
{
    uint8_t hash[EVP_MAX_MD_SIZE], bound[32 + sizeof(JOIN_PREFIX)];
    unsigned n = 0;
    int rc = 0;

    memcpy(bound, JOIN_PREFIX, sizeof(JOIN_PREFIX));
    memcpy(bound + sizeof(JOIN_PREFIX), secret, 32);
    if (EVP_Digest(bound, sizeof(bound), hash, &n, EVP_sha256(), NULL) == 1 && n == 32)
        memcpy(out, hash, JOIN_CHECK_SIZE);
    else
        rc = E_INTERNAL;
    OPENSSL_cleanse(bound, sizeof(bound));
    return rc;
}

int join_token_print(const uint8_t secret[32], char out[JOIN_TOKEN_BYTES])
{
    uint8_t check[JOIN_CHECK_SIZE];
    int rc = join_token_check(secret, check);

    if (rc != 0)
        return rc;
    memcpy(out, JOIN_PREFIX, sizeof(JOIN_PREFIX));
    hex_encode(secret, 32, out + sizeof(JOIN_PREFIX) - 1);
    hex_encode(check, JOIN_CHECK_SIZE, out + sizeof(JOIN_PREFIX) - 1 + JOIN_HEX_BYTES);
    return 0;
}

int join_token_parse(const char *text, struct fault *fault, uint8_t secret_out[32])
{
    uint8_t secret[32], check[JOIN_CHECK_SIZE], wanted[JOIN_CHECK_SIZE];
    size_t prefix = sizeof(JOIN_PREFIX) - 1;
    int rc;

    if (strncmp(text, JOIN_PREFIX, prefix) != 0)
        return fault_set(fault, E_FORMAT,
                         "a token begins with " JOIN_PREFIX "; copy the whole line of batonctl token");
    if (strlen(text) != JOIN_TOKEN_BYTES - 1)
        return fault_set(fault, E_FORMAT, "a token has %d characters, this one has %zu; copy it whole",
                         JOIN_TOKEN_BYTES - 1, strlen(text));
    rc = hex_decode(bytes_of(text + prefix, JOIN_HEX_BYTES), secret, sizeof(secret));
    if (rc == 0)
        rc = hex_decode(bytes_of(text + prefix + JOIN_HEX_BYTES, 2 * (size_t)JOIN_CHECK_SIZE), check,
                        sizeof(check));
    if (rc == 0)
        rc = join_token_check(secret, wanted);
    if (rc != 0 || CRYPTO_memcmp(check, wanted, sizeof(check)) != 0)
        rc = fault_set(fault, E_FORMAT, "the token is mistyped; copy it from the output of batonctl token");
    else
        memcpy(secret_out, secret, sizeof(secret));
    OPENSSL_cleanse(secret, sizeof(secret));
    return rc;
}

int join_token_key(const uint8_t secret[32], uint8_t key_out[32])
{
    return cluster_key_derive(secret, "join token 1", key_out);
}

/* ---- parsing ---- */

size_t join_message_end(struct bytes text)
{
    size_t at = bytes_find(text, bytes_str(JOIN_END), 0);

    return at == SIZE_MAX ? 0 : at + sizeof(JOIN_END) - 1;
}

/* Takes the next word of a line. An empty view: there is none. */
static struct bytes join_word(struct bytes *line)
{
    size_t at = bytes_find(*line, bytes_str(" "), 0), n = at == SIZE_MAX ? line->len_bytes : at;
    struct bytes word = bytes_of(line->data, n);

    if (at != SIZE_MAX)
        n++;
    *line = bytes_of(line->data + n, line->len_bytes - n);
    return word;
}

bool join_is_name(struct bytes text)
{
    return name_is_valid(text, SIZE_MAX);
}

static bool join_is_printable(struct bytes text)
{
    for (size_t i = 0; i < text.len_bytes; i++)
        if (text.data[i] < 0x20 || text.data[i] > 0x7e)
            return false;
    return true;
}

static bool join_copy(char *out, size_t cap, struct bytes text)
{
    if (text.len_bytes >= cap)
        return false;
    memcpy(out, text.data, text.len_bytes);
    out[text.len_bytes] = '\0';
    return true;
}

static int join_read_place(struct bytes line, struct join_message *m)
{
    struct join_place *place = &m->places[m->n_places];
    struct bytes name = join_word(&line), address = join_word(&line);
    struct addr addr;

    if (m->n_places == JOIN_MAX_PLACES)
        return E_LIMIT;
    if (!join_is_name(name) || !join_copy(place->name, sizeof(place->name), name) ||
        !join_copy(place->address, sizeof(place->address), address) ||
        !join_copy(place->result, sizeof(place->result), line) ||
        addr_parse(place->address, NULL, &addr) != 0 || addr.port == 0)
        return E_FORMAT;
    m->n_places++;
    return 0;
}

static int join_read_model(struct bytes line, struct join_message *m)
{
    struct join_model *model = &m->models[m->n_models];
    struct bytes fingerprint = join_word(&line);
    uint8_t digest[16];

    if (m->n_models == JOIN_MAX_MODELS)
        return E_LIMIT;
    if (hex_decode(fingerprint, digest, sizeof(digest)) != 0 || line.len_bytes == 0 ||
        !join_copy(model->name, sizeof(model->name), line))
        return E_FORMAT;
    (void)join_copy(model->fingerprint, sizeof(model->fingerprint), fingerprint);
    m->n_models++;
    return 0;
}

/* Appends a line of a key file to its text. */
static int join_add_key_line(struct bytes line, struct buf *text)
{
    if (text->len_bytes + line.len_bytes + 1 > CLUSTER_KEY_FILE_BYTES)
        return E_FORMAT;
    buf_append(text, line.data, line.len_bytes);
    buf_append_str(text, "\n");
    return text->is_bad ? E_NOMEM : 0;
}

static int join_read_line(struct bytes line, struct join_message *m, struct buf *key_text)
{
    struct bytes word = join_word(&line);
    uint64_t number;

    if (bytes_is(word, "host"))
        return m->host[0] == '\0' && join_is_name(line) && join_copy(m->host, sizeof(m->host), line)
                   ? 0
                   : E_FORMAT;
    if (bytes_is(word, "clock"))
        return m->clock_ns == 0 ? str_to_u64(line, &m->clock_ns) : E_FORMAT;
    if (bytes_is(word, "key"))
        return join_add_key_line(line, key_text);
    if (bytes_is(word, "certificates"))
        m->has_certificates = true;
    if (bytes_is(word, "place"))
        return join_read_place(line, m);
    if (bytes_is(word, "model"))
        return join_read_model(line, m);
    if (bytes_is(word, "pad")) {
        if (str_to_u64(line, &number) != 0 || number > JOIN_MAX_PAD)
            return E_FORMAT;
        m->pad_bytes = (uint32_t)number;
    }
    return 0; /* a newer version's word */
}

static int join_read_first(struct bytes line, struct fault *fault, struct join_message *m)
{
    struct bytes version, kind;

    if (!bytes_starts_with(line, JOIN_FIRST))
        return fault_set(fault, E_FORMAT, "line 1: not a message of batonctl join");
    line = bytes_of(line.data + strlen(JOIN_FIRST), line.len_bytes - strlen(JOIN_FIRST));
    version = join_word(&line);
    kind = join_word(&line);
    if (!bytes_is(version, "1"))
        return fault_set(fault, E_VERSION,
                         "line 1: another version of batonctl join; install the same on both hosts");
    for (int i = 0; i < JOIN_N_KINDS; i++)
        if (bytes_is(kind, join_kinds[i])) {
            m->kind = (enum join_kind)i;
            return 0;
        }
    return fault_set(fault, E_FORMAT, "line 1: not a kind of message");
}

int join_message_parse(struct bytes text, struct fault *fault, struct join_message *out)
{
    struct join_message *m = out;
    size_t end = join_message_end(text), at = 0;
    struct buf keys = {0};
    int rc;

    memset(m, 0, sizeof(*m));
    if (text.len_bytes > JOIN_MAX_TEXT)
        return fault_set(fault, E_LIMIT, "the message is longer than %d bytes", JOIN_MAX_TEXT);
    if (end == 0 || end != text.len_bytes)
        return fault_set(fault, E_FORMAT, "the message has no end, or more behind it");
    rc = buf_reserve(&keys, CLUSTER_KEY_FILE_BYTES); /* it never moves, so one wipe is enough */
    if (rc != 0)
        return fault_set(fault, rc, "%s", err_text(rc));
    for (unsigned n = 1; rc == 0 && at + 4 < end; n++) {
        size_t stop = bytes_find(text, bytes_str("\n"), at);
        struct bytes line = bytes_of(text.data + at, stop - at);

        at = stop + 1;
        if (!join_is_printable(line))
            rc = fault_set(fault, E_FORMAT, "line %u has bytes that are not printable", n);
        else if (n == 1)
            rc = join_read_first(line, fault, m);
        else if ((rc = join_read_line(line, m, &keys)) != 0)
            rc = fault_set(fault, rc == E_LIMIT ? E_LIMIT : E_FORMAT, "line %u: %s", n,
                           rc == E_LIMIT ? "too many of this kind" : "malformed");
    }
    if (rc == 0 && keys.len_bytes > 0)
        rc = cluster_keys_parse("the cluster's key", buf_view(&keys), fault, &m->keys);
    m->has_keys = rc == 0 && keys.len_bytes > 0;
    if (keys.data != NULL)
        OPENSSL_cleanse(keys.data, keys.len_bytes);
    buf_fini(&keys);
    return rc;
}

/* ---- printing ---- */

static void join_put_keys(const struct cluster_keys *keys, struct buf *out)
{
    char text[CLUSTER_KEY_FILE_BYTES];
    size_t n = cluster_keys_print(keys, text), at = 0;

    while (at < n) {
        size_t end = at;

        while (text[end++] != '\n')
            ;
        (void)buf_printf(out, "key %.*s", (int)(end - at), text + at);
        at = end;
    }
    OPENSSL_cleanse(text, sizeof(text));
}

int join_message_print(const struct join_message *m, struct buf *out)
{
    (void)buf_printf(out, JOIN_FIRST "1 %s\n", join_kinds[m->kind]);
    if (m->host[0] != '\0')
        (void)buf_printf(out, "host %s\n", m->host);
    if (m->clock_ns != 0)
        (void)buf_printf(out, "clock %" PRIu64 "\n", m->clock_ns);
    if (m->has_keys)
        join_put_keys(&m->keys, out);
    if (m->has_certificates)
        (void)buf_append_str(out, "certificates\n");
    for (unsigned i = 0; i < m->n_models; i++)
        (void)buf_printf(out, "model %s %s\n", m->models[i].fingerprint, m->models[i].name);
    for (unsigned i = 0; i < m->n_places; i++)
        (void)buf_printf(out, "place %s %s%s%s\n", m->places[i].name, m->places[i].address,
                         m->places[i].result[0] != '\0' ? " " : "", m->places[i].result);
    if (m->pad_bytes > 0)
        (void)buf_printf(out, "pad %u\n", m->pad_bytes);
    (void)buf_append_str(out, "end\n");
    return out->is_bad ? E_NOMEM : 0;
}

bool join_message_place(struct join_message *message, const char *name, const char *address)
{
    struct join_place *place = &message->places[message->n_places];

    if (message->n_places == JOIN_MAX_PLACES || !str_copy(place->name, sizeof(place->name), name) ||
        !str_copy(place->address, sizeof(place->address), address))
        return false;
    place->result[0] = '\0';
    message->n_places++;
    return true;
}
