/* SPDX-License-Identifier: Apache-2.0 */
/* Tests whether addresses can be reached: connects to all of them at the same time and closes at once.  Blocks the
 * calling thread for the name look-ups and then for up to wait_ns, so never call it on a loop.  Any thread. */
#ifndef NET_LINK_PROBE_H
#define NET_LINK_PROBE_H

#include <stdatomic.h>
#include <stdint.h>

enum link_outcome { /* numbers of control.proto's ProbeOutcome */
                    LINK_PROBE_UNKNOWN,
                    LINK_PROBE_REACHED,
                    LINK_PROBE_REFUSED, /* nothing listens there */
                    LINK_PROBE_SILENT,  /* no answer in time */
                    LINK_PROBE_NO_ROUTE,
                    LINK_PROBE_NO_NAME, /* no address of the name is known */
                    LINK_PROBE_FAILED,  /* another reason */
                    LINK_PROBE_N
};

struct link_probe {
    char address[128]; /* host:port */
    enum link_outcome outcome;
    uint32_t rtt_us; /* time until the connection was established */
    uint32_t mtu;    /* path MTU as the kernel knows it; 0: unknown */
};

/* Reads cancel (may be NULL) between two look-ups.  Once it is true, the remaining addresses stay
 * LINK_PROBE_UNKNOWN. */
void link_probe_all(struct link_probe *probes, unsigned n, uint64_t wait_ns, const atomic_bool *cancel);

#endif
