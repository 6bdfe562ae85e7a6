/* SPDX-License-Identifier: Apache-2.0 */
/* Tenants become numbers, not digests, because names can be guessed and hashed. */
#include "clients/ctl/report_text.h"

#include <stdlib.h>
#include <string.h>

#include "base/err.h"

static const char label[] = "tenant=\"";

void report_tenants_fini(struct report_tenants *tenants)
{
    for (unsigned i = 0; i < tenants->n; i++)
        free(tenants->names[i]);
    tenants->n = 0;
}

/* The number of a tenant, from 1; 0: there is no room for it. */
static unsigned report_number_of(struct report_tenants *tenants, struct bytes name)
{
    for (unsigned i = 0; i < tenants->n; i++)
        if (bytes_is(name, tenants->names[i]))
            return i + 1;
    if (tenants->n == REPORT_MAX_TENANTS)
        return 0;
    tenants->names[tenants->n] = strndup((const char *)name.data, name.len_bytes);
    if (tenants->names[tenants->n] == NULL)
        return 0;
    return ++tenants->n;
}

/* The end of a label's value: the quote that no backslash precedes. */
static size_t report_value_end(struct bytes text, size_t at)
{
    while (at < text.len_bytes && text.data[at] != '"' && text.data[at] != '\n')
        at += text.data[at] == '\\' ? 2 : 1;
    return at < text.len_bytes ? at : text.len_bytes;
}

int report_put_metrics(struct bytes metrics, struct report_tenants *tenants, struct buf *out)
{
    size_t at = 0, found;

    while ((found = bytes_find(metrics, bytes_str(label), at)) != SIZE_MAX) {
        size_t from = found + sizeof(label) - 1, to = report_value_end(metrics, from);
        unsigned number = to > from ? report_number_of(tenants, bytes_of(metrics.data + from, to - from)) : 0;

        buf_append(out, metrics.data + at, from - at);
        if (number > 0)
            buf_printf(out, "tenant-%u", number);
        else if (to > from)
            buf_append_str(out, "tenant-x");
        at = to;
    }
    buf_append(out, metrics.data + at, metrics.len_bytes - at);
    return out->is_bad ? E_NOMEM : 0;
}
