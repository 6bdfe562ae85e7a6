/* SPDX-License-Identifier: Apache-2.0 */
/* Two ends of a reliable connection on one device, and the operations that test_provider.c needs.  Every call
 * that does not succeed fails the test. */
#ifndef TESTS_RDMA_PAIR_H
#define TESTS_RDMA_PAIR_H

#include <infiniband/verbs.h>
#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

enum {
    BUFFER = 1 << 20,
    PIECE = 65536,
    LIMIT_MS = 30000, /* an emulated machine on a busy host */
    N_RECEIVES = 16,
    SIGNALLED = 1,
    POISON = 0xa5
};

struct end {
    struct ibv_context *device;
    struct ibv_pd *pd;
    struct ibv_comp_channel *channel;
    struct ibv_cq *cq;
    struct ibv_qp *qp;
    struct ibv_mr *mr;
    uint8_t *buffer; /* [BUFFER] */
    uint32_t psn;
};

struct pair {
    struct end writer, target;
    struct ibv_mw *window; /* over the target's whole buffer, bound to its qp */
    uint32_t window_key;
};

/* The device under test; find_device() chooses it. */
extern struct ibv_device *device;
extern int gid_index;
extern enum ibv_mtu mtu;

void sleep_ms(unsigned ms);
bool find_device(const char *address);
void end_open(struct end *end, int access);
void end_close(struct end *end);
void qp_connect(struct end *end, uint32_t peer_qp, uint32_t peer_psn, int access);
void qp_to(struct end *end, enum ibv_qp_state state);
void post_receives(struct end *end, unsigned n);
void write_to(struct pair *pair, size_t at, size_t len_bytes, uint32_t key, unsigned flags);
void write_imm(struct pair *pair, size_t at, size_t len_bytes, uint32_t number);
bool completion(struct end *end, unsigned limit_ms, struct ibv_wc *out);
void expect(struct end *end, enum ibv_wc_status status);
void window_bind(struct pair *pair);
void window_revoke(struct pair *pair, uint32_t key);
void fill(struct pair *pair, unsigned seed);
bool arrived(const struct pair *pair, size_t at, size_t len_bytes);
bool is_untouched(const struct pair *pair, size_t at, size_t len_bytes);
void pair_connect(struct pair *pair);

#endif
