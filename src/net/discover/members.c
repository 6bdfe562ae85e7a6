/* SPDX-License-Identifier: Apache-2.0 */
/* The daemons that registered in etcd, for an operator's program. Every user with write access to etcd can write
 * entries. So their texts are bounded and have visible characters only, and no entry proves who wrote it. */
#include <curl/curl.h>
#include <jansson.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "base/clock.h"
#include "base/err.h"
#include "net/discover/discover_priv.h"

#define MEMBERS_CALL_NS (10 * NS_PER_S)

void discover_host(char out[65])
{
    if (gethostname(out, 64) != 0)
        out[0] = '\0';
    out[64] = '\0';
}

static int member_compare(const void *a, const void *b)
{
    return strcmp(((const struct discover_member *)a)->node, ((const struct discover_member *)b)->node);
}

static int members_call(struct etcd *etcd, const struct discover_url *url, struct fault *fault,
                        struct discover_members *out)
{
    char prefix[DISCOVER_PATH_BYTES + 4];
    struct bytes answer = {0};
    struct buf body = {0};
    int rc;

    snprintf(prefix, sizeof(prefix), "%s/", url->path);
    etcd_put_range(&body, prefix, 0);
    rc = body.is_bad ? fault_set(fault, E_NOMEM, "out of memory")
                     : etcd_call(etcd, &(struct etcd_post){"/v3/kv/range", buf_view(&body), MEMBERS_CALL_NS},
                                 &answer, fault);
    if (rc == 0 && (rc = etcd_read_members(answer, out)) < 0)
        fault_set(fault, rc, "the answer is not that of etcd's v3 JSON gateway");
    buf_fini(&body);
    return rc;
}

int discover_members_read(const char *url, const struct discover_tls *tls, struct fault *fault,
                          struct discover_members *out)
{
    struct discover_thread thread = {.stop_fd = -1}; /* this thread, which is not stopped */
    struct discover_names names = {0};
    struct discover_url parsed;
    struct etcd *etcd = NULL;
    int rc = discover_url_parse(url, fault, &parsed);

    if (rc == 0 && parsed.kind != DISCOVER_ETCD)
        rc = fault_set(fault, E_FORMAT, "daemons register in etcd:// or etcds:// only");
    if (rc < 0)
        return rc;
    pthread_mutex_init(&thread.lock, NULL);
    if (curl_global_init(CURL_GLOBAL_DEFAULT) != 0 || discover_names_open(&names, tls) < 0 ||
        etcd_open(&parsed, &names, &thread, &etcd) < 0)
        rc = fault_set(fault, E_NOMEM, "out of memory");
    if (rc == 0)
        rc = members_call(etcd, &parsed, fault, out);
    if (rc == 0)
        qsort(out->all, out->n, sizeof(out->all[0]), member_compare);
    etcd_close(etcd);
    discover_names_fini(&names);
    pthread_mutex_destroy(&thread.lock);
    explicit_bzero(&parsed, sizeof(parsed));
    curl_global_cleanup();
    return rc;
}
