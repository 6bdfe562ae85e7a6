/* SPDX-License-Identifier: Apache-2.0 */
/* Reports to routers which blocks the shared store has (remote_seen_priv.h).
 *
 *    written, found, read --> set --first time--> log --each turn--> report --> STORE_BLOCKS (worker/loop/send_blocks.c)
 *    not there any more -----------------------> log                   ^
 *    BLOCKS_WANTED --> the whole set ----------------------------------' */
#include "worker/runner/remote_seen_priv.h"

#include <stdio.h>
#include <stdlib.h>

#include "base/str.h"
#include "worker/runner/messages.h"

void remote_seen_open(struct remote_seen *seen, const char *url, const char *generation)
{
    char text[768];

    snprintf(text, sizeof(text), "%s %s", url, generation);
    *seen = (struct remote_seen){.blocks = block_set_new(), .store = str_digest(text) | 1};
}

void remote_seen_close(struct remote_seen *seen)
{
    block_set_free(seen->blocks);
    block_log_fini(&seen->changes);
}

void remote_seen_add(struct remote_seen *seen, const struct block_hash *hash)
{
    if (seen->blocks != NULL && block_set_add(seen->blocks, hash))
        block_log_add(&seen->changes, hash, BLOCK_IN_MEMORY);
}

uint32_t remote_seen_run(const struct remote_seen *seen, const struct block_hash *hashes, uint32_t n)
{
    uint32_t n_run = 0;

    while (seen->blocks != NULL && n_run < n && block_set_has(seen->blocks, &hashes[n_run]))
        n_run++;
    return n_run;
}

void remote_seen_remove(struct remote_seen *seen, const struct block_hash *hash)
{
    if (seen->blocks == NULL)
        return;
    (void)block_set_remove(seen->blocks, hash);
    block_log_add(&seen->changes, hash, BLOCK_GONE);
}

static void remote_seen_send(const struct remote_seen *seen, struct mailbox *reports, struct report *report)
{
    report->load.store = seen->store;
    if (mailbox_send(reports, report) < 0)
        report_free(report);
}

void remote_seen_publish_changes(struct remote_seen *seen, struct mailbox *reports)
{
    struct report *report;
    uint64_t first;
    uint32_t n;
    struct block_event *events = block_log_take(&seen->changes, &n, &first);

    report = events != NULL ? report_new(REPORT_STORE, 0) : NULL;
    if (report == NULL) {
        free(events);
        return;
    }
    report->events = events;
    report->n_events = n;
    remote_seen_send(seen, reports, report);
}

void remote_seen_publish_all(const struct remote_seen *seen, struct mailbox *reports, uint32_t router,
                             uint32_t most)
{
    uint32_t n = seen->blocks != NULL ? block_set_count(seen->blocks) : 0;
    struct block_hash *hashes;
    struct report *report;

    n = n < most ? n : most;
    if (n == 0)
        return;
    hashes = calloc(n, sizeof(*hashes));
    report = report_new(REPORT_STORE, router);
    if (report != NULL)
        report->events = calloc(n, sizeof(*report->events));
    if (hashes == NULL || report == NULL || report->events == NULL) {
        free(hashes);
        report_free(report);
        return; /* the router will ask again */
    }
    report->is_snapshot = true;
    report->n_events = block_set_list(seen->blocks, hashes, n);
    for (uint32_t i = 0; i < report->n_events; i++)
        report->events[i] = (struct block_event){.hash = hashes[i], .tier = BLOCK_IN_MEMORY};
    free(hashes);
    remote_seen_send(seen, reports, report);
}
