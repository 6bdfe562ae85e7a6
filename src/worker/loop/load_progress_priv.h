/* SPDX-License-Identifier: Apache-2.0 */
/* Reports the progress of loading a model file: model.c. */
#ifndef WORKER_LOOP_LOAD_PROGRESS_PRIV_H
#define WORKER_LOOP_LOAD_PROGRESS_PRIV_H

#include <stdbool.h>
#include <stdint.h>

struct worker;

struct worker_progress { /* of one file */
    struct worker *worker;
    uint64_t logged_ns; /* when it was last reported */
};

/* Reports to the service manager and the log, once a second. arg: struct worker_progress. False: a stop signal
 * came. Loop thread. */
bool worker_load_on_progress(void *arg, uint64_t done_bytes, uint64_t total_bytes);

#endif
