/* SPDX-License-Identifier: Apache-2.0 */
/* Removes tenants' names from a daemon's metrics, for a report to outsiders.  Pure functions. */
#ifndef CLIENTS_CTL_REPORT_TEXT_H
#define CLIENTS_CTL_REPORT_TEXT_H

#include "base/bytes.h"

enum { REPORT_MAX_TENANTS = 512 };

struct report_tenants { /* zeroed: none yet; names that were seen, in the order in which they came */
    char *names[REPORT_MAX_TENANTS];
    unsigned n;
};

void report_tenants_fini(struct report_tenants *tenants);

/* Appends Prometheus text and replaces each value of a label `tenant` by "tenant-N", with the same number for the
 * same tenant in the whole report.  When the table is full, further tenants become "tenant-x".  E_NOMEM. */
int report_put_metrics(struct bytes metrics, struct report_tenants *tenants, struct buf *out);

#endif
