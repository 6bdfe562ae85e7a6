/* SPDX-License-Identifier: Apache-2.0 */
/* A redis-server of its own for a test, on a free port of the loopback, without files. */
#ifndef TESTS_UNIT_CACHE_REMOTE_REDIS_RIG_H
#define TESTS_UNIT_CACHE_REMOTE_REDIS_RIG_H

#include <stdbool.h>
#include <stdint.h>
#include <sys/types.h>

struct redis_rig {
    pid_t pid; /* 0: none */
    uint16_t port;
    char url[64];
};

bool redis_rig_can(void); /* true if a redis-server is installed */
/* Starts a server and waits until it answers.  more: further arguments, ended by NULL.  port 0: any free port. */
void redis_rig_start(struct redis_rig *rig, uint16_t port, const char *const *more);
void redis_rig_stop(struct redis_rig *rig); /* kills the server and waits for its end */

#endif
