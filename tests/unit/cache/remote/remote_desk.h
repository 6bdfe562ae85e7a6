/* SPDX-License-Identifier: Apache-2.0 */
/* A remote tier on a Redis server for one test.  The bytes of the arena follow from the numbers of its blocks. */
#ifndef TESTS_UNIT_CACHE_REMOTE_REMOTE_DESK_H
#define TESTS_UNIT_CACHE_REMOTE_REMOTE_DESK_H

#include "cache/remote/remote.h"
#include "net/redis/resp.h"
#include "redis_rig.h"

enum { BLOCKS = 64, LAYERS = 3, PIECE = 4000 };

struct desk {
    struct redis_rig redis;
    uint8_t *arena;
    struct kv_remote_opts opts;
    struct kv_remote *remote;
};

struct block_hash desk_hash(uint64_t number);
void desk_fill(struct desk *desk, kv_block_id id, uint64_t number);
bool desk_is(const struct desk *desk, kv_block_id id, uint64_t number);
void desk_open(struct desk *desk);
void desk_await(struct desk *desk, bool is_up);
void desk_init(struct desk *desk, const char *const *more);
void desk_fini(struct desk *desk);
struct kv_remote_event desk_wait(struct desk *desk);
int desk_send_write(struct desk *desk, kv_block_id id, uint64_t number);
int desk_send_read(struct desk *desk, kv_block_id id, uint64_t number, uint64_t until_ns);
int desk_write(struct desk *desk, kv_block_id id, uint64_t number);
int desk_read(struct desk *desk, kv_block_id id, uint64_t number);
void desk_write_run(struct desk *desk, uint64_t from, uint64_t to, int result);
void desk_read_run(struct desk *desk, uint64_t from, uint64_t to, uint64_t end, int result);
void desk_expect_ends(struct desk *desk, const uint32_t *ends, uint32_t n);
void desk_command(struct desk *desk, const char *const *words, struct resp_item *item);
void desk_name(uint64_t number, const struct desk *desk, char out[REMOTE_NAME_BYTES]);

#endif
