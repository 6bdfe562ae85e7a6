/* SPDX-License-Identifier: Apache-2.0 */
/* A disk tier on its own folder, blocks whose bytes follow from their hash, and waiting for results. */
#ifndef TESTS_UNIT_KV_TIER_HELP_H
#define TESTS_UNIT_KV_TIER_HELP_H

#include "cache/kv/tier.h"
#include "cache/kv/pool_quota.h"

enum { RIG_BLOCKS = 64, RIG_LAYERS = 3, RIG_PIECE = 1000 };

struct rig {
    char path[128];
    uint8_t *arena; /* [layer][block][piece] */
    struct kv_tier_opts opts;
    struct kv_tier *tier;
    kv_tenant tenant; /* tenant of the writes; anonymous at first */
};

void rig_init(struct rig *rig, const char *name); /* an empty folder; the tier is not open */
void rig_fini(struct rig *rig);                   /* closes, and removes the folder */
int rig_open(struct rig *rig);                    /* the result of kv_tier_open() */
void rig_close(struct rig *rig);
void rig_reopen(struct rig *rig);

struct block_hash rig_hash(uint64_t number);
void rig_fill(struct rig *rig, kv_block_id id, uint64_t number);     /* fills it with this block's bytes */
bool rig_is(const struct rig *rig, kv_block_id id, uint64_t number); /* true if it has this block's bytes */
struct kv_tier_event rig_wait(struct rig *rig); /* the next result; fails after a minute */
/* Write a block, or read one into id, and wait.  Return the result. */
int rig_write(struct rig *rig, uint64_t number, uint64_t pin_end_unix_ns);
int rig_read(struct rig *rig, kv_block_id id, uint64_t number);
/* Number of files in the folder; path of one, sorted by name. */
unsigned rig_n_files(const struct rig *rig);
bool rig_file(const struct rig *rig, unsigned index, char out[400]);
uint64_t rig_bytes(const struct rig *rig); /* size of all files */

#endif
