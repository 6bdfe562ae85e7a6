/* SPDX-License-Identifier: Apache-2.0 */
/* TLS with the cluster's key: which peers are accepted; key files. */
#include "net/link/tls.h"

#include "base/err.h"

#include <fcntl.h>
#include <openssl/err.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

#include <cmocka.h>

static const uint8_t key_a[32] = {1, 2, 3};
static const uint8_t key_b[32] = {1, 2, 4};

/* Runs both sides over memory.  Returns whether both finished. */
static bool shake(SSL *client, SSL *server)
{
    BIO *a, *b;
    int client_rc = 0, server_rc = 0;

    assert_int_equal(BIO_new_bio_pair(&a, 0, &b, 0), 1);
    SSL_set_bio(client, a, a);
    SSL_set_bio(server, b, b);
    SSL_set_connect_state(client);
    SSL_set_accept_state(server);
    for (unsigned i = 0; i < 20 && !(client_rc == 1 && server_rc == 1); i++) {
        client_rc = SSL_do_handshake(client);
        server_rc = SSL_do_handshake(server);
    }
    ERR_clear_error();
    return client_rc == 1 && server_rc == 1;
}

static void same_key_gets_through(void **state)
{
    struct tls_context *tls;
    char text[6] = "";

    assert_int_equal(tls_context_new(key_a, NULL, &tls), 0);
    SSL *client = SSL_new(tls_client(tls)), *server = SSL_new(tls_server(tls));
    assert_true(shake(client, server));
    assert_string_equal(SSL_get_version(client), "TLSv1.3");
    assert_string_equal(SSL_get_cipher_name(server), "TLS_AES_256_GCM_SHA384");
    assert_int_equal(SSL_session_reused(client), 1);
    assert_int_equal(SSL_session_reused(server), 1);
    assert_int_equal(SSL_write(client, "hello", 5), 5);
    assert_int_equal(SSL_read(server, text, 5), 5);
    assert_string_equal(text, "hello");
    /* Forward secrecy: an ephemeral group was used in addition to the key. */
    assert_int_not_equal(SSL_get_negotiated_group(client), NID_undef);
    SSL_free(client);
    SSL_free(server);
    tls_context_free(tls);
}

static void other_key_does_not(void **state)
{
    struct tls_context *a, *b;

    assert_int_equal(tls_context_new(key_a, NULL, &a), 0);
    assert_int_equal(tls_context_new(key_b, NULL, &b), 0);
    SSL *client = SSL_new(tls_client(a)), *server = SSL_new(tls_server(b));
    assert_false(shake(client, server));
    SSL_free(client);
    SSL_free(server);
    tls_context_free(a);
    tls_context_free(b);
}

static void client_without_key_does_not(void **state)
{
    struct tls_context *tls;
    SSL_CTX *plain = SSL_CTX_new(TLS_client_method());

    assert_int_equal(tls_context_new(key_a, NULL, &tls), 0);
    SSL *client = SSL_new(plain), *server = SSL_new(tls_server(tls));
    assert_false(shake(client, server));
    SSL_free(client);
    SSL_free(server);
    SSL_CTX_free(plain);
    tls_context_free(tls);
}

/* A server that ignores the PSK and shows its own certificate must be refused. */
static void server_without_key_is_not_believed(void **state)
{
    struct tls_context *tls;
    SSL_CTX *plain = SSL_CTX_new(TLS_server_method());
    EVP_PKEY *pkey = EVP_EC_gen("P-256");
    X509 *cert = X509_new();

    ASN1_INTEGER_set(X509_get_serialNumber(cert), 1);
    X509_gmtime_adj(X509_getm_notBefore(cert), 0);
    X509_gmtime_adj(X509_getm_notAfter(cert), 3600);
    X509_set_pubkey(cert, pkey);
    assert_true(X509_sign(cert, pkey, EVP_sha256()) > 0);
    assert_int_equal(SSL_CTX_use_certificate(plain, cert), 1);
    assert_int_equal(SSL_CTX_use_PrivateKey(plain, pkey), 1);
    assert_int_equal(tls_context_new(key_a, NULL, &tls), 0);
    SSL *client = SSL_new(tls_client(tls)), *server = SSL_new(plain);
    assert_false(shake(client, server));
    SSL_free(client);
    SSL_free(server);
    SSL_CTX_free(plain);
    X509_free(cert);
    EVP_PKEY_free(pkey);
    tls_context_free(tls);
}

static void old_versions_are_refused(void **state)
{
    struct tls_context *tls;

    assert_int_equal(tls_context_new(key_a, NULL, &tls), 0);
    SSL_CTX *old = SSL_CTX_new(TLS_client_method());
    SSL_CTX_set_max_proto_version(old, TLS1_2_VERSION);
    SSL *client = SSL_new(old), *server = SSL_new(tls_server(tls));
    assert_false(shake(client, server));
    SSL_free(client);
    SSL_free(server);
    SSL_CTX_free(old);
    tls_context_free(tls);
}

static void purposes_have_different_keys(void **state)
{
    uint8_t link[32], prefix[32], again[32];

    assert_int_equal(cluster_key_derive(key_a, "link", link), 0);
    assert_int_equal(cluster_key_derive(key_a, "prefix", prefix), 0);
    assert_int_equal(cluster_key_derive(key_a, "link", again), 0);
    assert_memory_not_equal(link, prefix, 32);
    assert_memory_not_equal(link, key_a, 32);
    assert_memory_equal(link, again, 32);
    assert_int_equal(cluster_key_derive(key_b, "link", again), 0);
    assert_memory_not_equal(link, again, 32);
}

static void write_file(const char *path, const char *text, mode_t mode)
{
    FILE *file = fopen(path, "w");

    assert_non_null(file);
    fputs(text, file);
    fclose(file);
    assert_int_equal(chmod(path, mode), 0);
}

static void key_files(void **state)
{
    static const char good[] = "00112233445566778899aabbccddeeff00112233445566778899AABBCCDDEEFF\n";
    char folder[] = "/tmp/baton-test-tls-XXXXXX", path[64];
    uint8_t key[32] = {0}, again[32];
    struct fault fault;
    struct stat st;

    assert_non_null(mkdtemp(folder));
    snprintf(path, sizeof(path), "%s/key", folder);
    assert_int_equal(cluster_key_load(path, &fault, key), E_NOT_FOUND);
    assert_int_equal(cluster_key_create(path, &fault), 0);
    assert_int_equal(cluster_key_create(path, &fault), E_EXISTS);
    assert_int_equal(stat(path, &st), 0);
    assert_int_equal(st.st_mode & 07777, 0600);
    assert_int_equal(cluster_key_load(path, &fault, key), 0);
    assert_int_equal(cluster_key_load(path, &fault, again), 0);
    assert_memory_equal(key, again, 32);

    write_file(path, good, 0640);
    assert_int_equal(cluster_key_load(path, &fault, key), 0);
    assert_int_equal(key[1], 0x11);
    assert_int_equal(key[31], 0xff);
    write_file(path, good, 0644);
    assert_int_equal(cluster_key_load(path, &fault, again), E_AUTH);
    assert_non_null(strstr(fault.text, path));
    write_file(path, "0011\n", 0600);
    assert_int_equal(cluster_key_load(path, &fault, again), E_FORMAT);
    write_file(path, "zz112233445566778899aabbccddeeff00112233445566778899AABBCCDDEEFF\n", 0600);
    assert_int_equal(cluster_key_load(path, &fault, again), E_FORMAT);
    write_file(path, "00112233445566778899aabbccddeeff00112233445566778899AABBCCDDEEFF\n\n", 0600);
    assert_int_equal(cluster_key_load(path, &fault, again), E_FORMAT);
    assert_int_equal(cluster_key_load(folder, &fault, again), E_INVAL);
    unlink(path);
    rmdir(folder);
}

/* ---- two keys at once ---- */

static struct cluster_keys keys_of(enum cluster_step step, const uint8_t *current, const uint8_t *second,
                                   const uint8_t *data)
{
    struct cluster_keys keys = {.step = step};

    memcpy(keys.current, current, sizeof(keys.current));
    if (second != NULL)
        memcpy(keys.second, second, sizeof(keys.second));
    memcpy(keys.data, data, sizeof(keys.data));
    return keys;
}

static bool keys_meet(const struct cluster_keys *a, const struct cluster_keys *b)
{
    const struct tls_conf none = {0};
    struct tls_context *dialler, *acceptor;

    assert_int_equal(tls_context_open(a, &none, NULL, &dialler), 0);
    assert_int_equal(tls_context_open(b, &none, NULL, &acceptor), 0);
    SSL *client = SSL_new(tls_client(dialler)), *server = SSL_new(tls_server(acceptor));
    bool is_through = shake(client, server);

    if (is_through) {
        assert_int_equal(tls_key_used(client), cluster_key_id(a->current));
        assert_int_equal(tls_key_used(server), cluster_key_id(a->current));
    }
    SSL_free(client);
    SSL_free(server);
    tls_context_free(dialler);
    tls_context_free(acceptor);
    return is_through;
}

/* Neighbouring steps of a rotation work in both directions; the first and the last do not. The fifth row is a file
 * whose data line is gone, which only daemons at the end of the rotation understand. */
static void steps_of_a_rotation(void **state)
{
    struct cluster_keys steps[] = {
        keys_of(CLUSTER_STEP_NONE, key_a, NULL, key_a), keys_of(CLUSTER_STEP_NEXT, key_a, key_b, key_a),
        keys_of(CLUSTER_STEP_FORMER, key_b, key_a, key_a), keys_of(CLUSTER_STEP_NONE, key_b, NULL, key_a),
        keys_of(CLUSTER_STEP_NONE, key_b, NULL, key_b)};

    static const bool meets[5][5] = {/* dialler: row */ {true, true, true, false, false},
                                     {true, true, true, false, false},
                                     {false, true, true, true, true},
                                     {false, true, true, true, true},
                                     {false, false, false, true, true}};

    for (int i = 0; i < 5; i++)
        for (int k = 0; k < 5; k++)
            assert_int_equal(keys_meet(&steps[i], &steps[k]), meets[i][k]);
}

static void proofs_are_of_one_connection(void **state)
{
    struct cluster_keys keys = keys_of(CLUSTER_STEP_NEXT, key_a, key_b, key_a);
    const struct tls_conf none = {0};
    struct tls_proof proofs[TLS_MAX_KEYS], single[TLS_MAX_KEYS];
    struct tls_context *one, *two;

    assert_int_equal(tls_context_new(key_a, NULL, &one), 0);
    assert_int_equal(tls_context_open(&keys, &none, NULL, &two), 0);
    SSL *client = SSL_new(tls_client(two)), *server = SSL_new(tls_server(two));
    SSL *other_client = SSL_new(tls_client(two)), *other_server = SSL_new(tls_server(two));
    SSL *old_client = SSL_new(tls_client(one)), *old_server = SSL_new(tls_server(two));
    assert_true(shake(client, server));
    assert_true(shake(other_client, other_server));
    assert_true(shake(old_client, old_server));
    assert_int_equal(tls_prove(one, old_client, single), 0); /* the handshake has proved it */
    assert_int_equal(tls_prove(two, client, proofs), 2);
    assert_int_equal(proofs[1].id, cluster_key_id(key_b));
    assert_true(tls_proof_holds(two, server, &proofs[0]));
    assert_true(tls_proof_holds(two, server, &proofs[1]));
    assert_false(tls_proof_holds(two, client, &proofs[1]));       /* not when it comes back */
    assert_false(tls_proof_holds(two, other_server, &proofs[1])); /* not on another connection */
    assert_false(tls_proof_holds(one, server, &proofs[1]));       /* not without the key */
    proofs[1].mac[31] ^= 1;
    assert_false(tls_proof_holds(two, server, &proofs[1]));
    proofs[0].id = proofs[1].id;
    assert_false(tls_proof_holds(two, server, &proofs[0]));
    SSL_free(client);
    SSL_free(server);
    SSL_free(other_client);
    SSL_free(other_server);
    SSL_free(old_client);
    SSL_free(old_server);
    tls_context_free(one);
    tls_context_free(two);
}

/* Connections keep the context that they were made from. */
static void a_context_changes_under_connections(void **state)
{
    struct tls_context *tls, *fresh;
    char text[6] = "";

    assert_int_equal(tls_context_new(key_a, NULL, &tls), 0);
    SSL *client = SSL_new(tls_client(tls)), *server = SSL_new(tls_server(tls));
    SSL *late = SSL_new(tls_client(tls));
    assert_true(shake(client, server));
    assert_int_equal(tls_context_new(key_b, NULL, &fresh), 0);
    tls_context_take(tls, fresh);
    assert_int_equal(SSL_write(client, "hello", 5), 5);
    assert_int_equal(SSL_read(server, text, 5), 5);
    SSL *late_server = SSL_new(tls_server(tls));
    assert_false(shake(late, late_server));
    SSL_free(client);
    SSL_free(server);
    SSL_free(late);
    SSL_free(late_server);
    tls_context_free(tls);
}

#define A64 "00112233445566778899aabbccddeeff00112233445566778899aabbccddeeff"
#define B64 "10112233445566778899aabbccddeeff00112233445566778899aabbccddeeff"

static void key_texts(void **state)
{
    static const char *const bad[] = {"",
                                      A64 "\nnext " A64 "\n",
                                      A64 "\nnext " B64,
                                      A64 "\nnext  " B64 "\n",
                                      A64 "\nnext " B64 "\nformer " B64 "\n",
                                      A64 "\nnext " B64 "\nnext " B64 "\n",
                                      A64 "\ndata " A64 "\ndata " A64 "\n",
                                      A64 "\n" B64 "\n",
                                      A64 "\nlater " B64 "\n",
                                      "next " B64 "\n" A64 "\n"};
    struct cluster_keys keys;
    struct fault fault;

    for (size_t i = 0; i < sizeof(bad) / sizeof(bad[0]); i++) {
        assert_int_equal(cluster_keys_parse("file", bytes_str(bad[i]), &fault, &keys), E_FORMAT);
        assert_non_null(strstr(fault.text, "file: "));
    }
    assert_int_equal(cluster_keys_parse("f", bytes_str(A64), &fault, &keys), 0);
    assert_int_equal(keys.step, CLUSTER_STEP_NONE);
    assert_memory_equal(keys.data, keys.current, 32);
    assert_int_equal(
        cluster_keys_parse("f", bytes_str(B64 "\ndata " A64 "\nformer " A64 "\n"), &fault, &keys), 0);
    assert_int_equal(keys.step, CLUSTER_STEP_FORMER);
    assert_memory_equal(keys.data, keys.second, 32);
    assert_int_equal(keys.current[0], 0x10);
}

static void a_file_goes_round(void **state)
{
    char folder[] = "/tmp/baton-test-keys-XXXXXX", path[64];
    struct cluster_keys first, keys, again;
    struct fault fault;
    struct stat st;

    assert_non_null(mkdtemp(folder));
    snprintf(path, sizeof(path), "%s/key", folder);
    assert_int_equal(cluster_keys_save(path, &(struct cluster_keys){0}, &fault), E_NOT_FOUND);
    assert_int_equal(cluster_key_create(path, &fault), 0);
    assert_int_equal(chmod(path, 0640), 0);
    assert_int_equal(cluster_keys_load(path, &fault, &first), 0);
    keys = first;
    for (int i = 0; i < 3; i++) {
        cluster_keys_rotate(&keys);
        assert_int_equal(cluster_keys_save(path, &keys, &fault), 0);
        assert_int_equal(cluster_keys_load(path, &fault, &again), 0);
        assert_memory_equal(&again, &keys, sizeof(keys));
        assert_memory_equal(keys.data, first.current, 32);
    }
    assert_int_equal(keys.step, CLUSTER_STEP_NONE);
    assert_memory_not_equal(keys.current, first.current, 32);
    assert_int_equal(stat(path, &st), 0);
    assert_int_equal(st.st_mode & 07777, 0640);
    unlink(path);
    rmdir(folder);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(same_key_gets_through),
        cmocka_unit_test(other_key_does_not),
        cmocka_unit_test(client_without_key_does_not),
        cmocka_unit_test(server_without_key_is_not_believed),
        cmocka_unit_test(old_versions_are_refused),
        cmocka_unit_test(purposes_have_different_keys),
        cmocka_unit_test(key_files),
        cmocka_unit_test(steps_of_a_rotation),
        cmocka_unit_test(proofs_are_of_one_connection),
        cmocka_unit_test(a_context_changes_under_connections),
        cmocka_unit_test(key_texts),
        cmocka_unit_test(a_file_goes_round),
    };

    return cmocka_run_group_tests(tests, NULL, NULL);
}
