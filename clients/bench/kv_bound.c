/* SPDX-License-Identifier: Apache-2.0 */
/* The upper bound of encrypted KV where sender and receiver share the cores of one host:
 *
 *     bound = cores / (seal + open + sockets)          each in processor seconds for a byte
 *
 * Every byte is sealed once, opened once, and goes through a pair of sockets.  The bound is the throughput
 * when all cores do only this.  With two cores it lies below the sealing speed of one core.  So no transport
 * can come near the reference of the table's row.
 *
 * The pieces are timed by the processor time of this process; its other threads rest.  Other processes on
 * these cores slow the transport, but do not change the bound. */
#include <openssl/evp.h>
#include <sched.h>
#include <string.h>
#include <time.h>

#include "base/clock.h"
#include "clients/bench/kv.h"

#define RECORD_BYTES ((size_t)16 << 10)
#define TAG_BYTES    16

static const uint8_t key[32] = {1};
static const uint8_t nonce[12] = {2};
static const uint8_t head[5] = {23, 3, 3, 0x40, 0x11}; /* of a TLS 1.3 record, its additional data */

static uint64_t kv_bound_used_ns(void)
{
    struct timespec used;

    clock_gettime(CLOCK_PROCESS_CPUTIME_ID, &used);
    return (uint64_t)used.tv_sec * NS_PER_S + (uint64_t)used.tv_nsec;
}

static bool seal_record(EVP_CIPHER_CTX *cipher, const uint8_t *plain, uint8_t *record)
{
    int n;

    return EVP_EncryptInit_ex(cipher, EVP_aes_256_gcm(), NULL, key, nonce) == 1 &&
           EVP_EncryptUpdate(cipher, NULL, &n, head, sizeof(head)) == 1 &&
           EVP_EncryptUpdate(cipher, record, &n, plain, RECORD_BYTES) == 1 &&
           EVP_EncryptFinal_ex(cipher, record + RECORD_BYTES, &n) == 1 &&
           EVP_CIPHER_CTX_ctrl(cipher, EVP_CTRL_AEAD_GET_TAG, TAG_BYTES, record + RECORD_BYTES) == 1;
}

static bool open_record(EVP_CIPHER_CTX *cipher, uint8_t *record, uint8_t *plain)
{
    int n;

    return EVP_DecryptInit_ex(cipher, NULL, NULL, NULL, nonce) == 1 &&
           EVP_DecryptUpdate(cipher, NULL, &n, head, sizeof(head)) == 1 &&
           EVP_DecryptUpdate(cipher, plain, &n, record, RECORD_BYTES) == 1 &&
           EVP_CIPHER_CTX_ctrl(cipher, EVP_CTRL_AEAD_SET_TAG, TAG_BYTES, record + RECORD_BYTES) == 1 &&
           EVP_DecryptFinal_ex(cipher, plain + RECORD_BYTES, &n) == 1;
}

uint64_t kv_reference_open(const struct kv_bench *bench)
{
    static uint8_t record[RECORD_BYTES + TAG_BYTES];
    EVP_CIPHER_CTX *cipher = EVP_CIPHER_CTX_new();
    bool is_good = cipher != NULL && seal_record(cipher, bench->arenas[0].base, record) &&
                   EVP_DecryptInit_ex(cipher, EVP_aes_256_gcm(), NULL, key, NULL) == 1;
    uint64_t begin_ns = clock_now_ns();

    for (size_t at = 0; is_good && at < bench->total_bytes; at += RECORD_BYTES)
        is_good = open_record(cipher, record, (uint8_t *)bench->arenas[1].base + at);
    begin_ns = clock_now_ns() - begin_ns;
    EVP_CIPHER_CTX_free(cipher);
    return is_good ? begin_ns : 0;
}

unsigned kv_bound_cores(void)
{
    cpu_set_t set;

    return sched_getaffinity(0, sizeof(set), &set) == 0 ? (unsigned)CPU_COUNT(&set) : 1;
}

double kv_bound_tls(const struct kv_bench *bench)
{
    uint64_t (*const pieces[])(const struct kv_bench *) = {kv_reference_seal, kv_reference_open,
                                                           kv_reference_sockets};
    uint64_t begin_ns = kv_bound_used_ns();

    for (size_t i = 0; i < sizeof(pieces) / sizeof(pieces[0]); i++)
        if (pieces[i](bench) == 0)
            kv_die("the bound of tls could not be measured");
    return kv_bound_cores() * (double)bench->total_bytes / (double)(kv_bound_used_ns() - begin_ns);
}
