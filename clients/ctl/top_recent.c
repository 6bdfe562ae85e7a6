/* SPDX-License-Identifier: Apache-2.0 */
/* A prefix appears as the keyed hash of the prompt's first block, because the router has no text of it.  Each
 * refresh counts the placements of the router's ring (64 at most) anew. */
#include "clients/ctl/top_recent.h"

#include <inttypes.h>
#include <jansson.h>
#include <stdlib.h>
#include <string.h>

#include "base/err.h"
#include "clients/ctl/request_view_priv.h"

enum { MOST_GROUPS = 64, SHOWN = 5 };

struct recent_group { /* placements of one class, or with one prefix */
    const char *name;
    unsigned n, n_first, n_met; /* placements; of which had a first token; in time */
    uint64_t prompt_tokens, cached_tokens;
};

struct recent_groups {
    struct recent_group all[MOST_GROUPS];
    unsigned n;
};

static struct recent_group *recent_find(struct recent_groups *groups, const char *name)
{
    for (unsigned i = 0; i < groups->n; i++)
        if (strcmp(groups->all[i].name, name) == 0)
            return &groups->all[i];
    if (groups->n == MOST_GROUPS)
        return NULL;
    groups->all[groups->n] = (struct recent_group){.name = name};
    return &groups->all[groups->n++];
}

static void top_recent_add(struct recent_groups *groups, const char *key, const json_t *placement)
{
    uint64_t prompt = request_count(placement, "prompt_tokens"),
             uncached = request_count(placement, "uncached_tokens");
    double first_ms = request_real(placement, "first_ms");
    bool is_refused = request_text(placement, "refused")[0] != '\0';
    bool is_over = json_is_true(json_object_get(placement, "over"));
    const char *name = request_text(placement, key);
    struct recent_group *group = name[0] != '\0' ? recent_find(groups, name) : NULL;

    if (group == NULL)
        return;
    group->n++;
    group->n_first += is_over;
    group->n_met += is_over && !is_refused && !json_is_true(json_object_get(placement, "failed")) &&
                    first_ms > 0 && first_ms <= request_real(placement, "ttft_slo_ms");
    if (is_refused)
        return;
    group->prompt_tokens += prompt;
    group->cached_tokens += uncached < prompt ? prompt - uncached : 0;
}

static int recent_compare(const void *a, const void *b)
{
    const struct recent_group *left = a, *right = b;

    if (left->n != right->n)
        return left->n < right->n ? 1 : -1;
    return strcmp(left->name, right->name);
}

static double recent_percent(uint64_t part, uint64_t whole)
{
    return whole > 0 ? 100.0 * (double)part / (double)whole : 0;
}

static void recent_put_class(const struct recent_groups *classes, unsigned i, struct buf *out)
{
    const struct recent_group *group = &classes->all[i];

    if (i >= classes->n) {
        buf_printf(out, "%-40s", "");
        return;
    }
    request_put_name(group->name, 16, out);
    if (group->n_first > 0)
        buf_printf(out, " %7u %6.0f%%  ", group->n, recent_percent(group->n_met, group->n_first));
    else
        buf_printf(out, " %7u %7s  ", group->n, "-");
    buf_printf(out, "     ");
}

static void recent_put_prefix(const struct recent_groups *prefixes, unsigned i, struct buf *out)
{
    const struct recent_group *group = &prefixes->all[i];

    if (i < prefixes->n) {
        request_put_name(group->name, 8, out);
        buf_printf(out, " %8u %9" PRIu64 " %7.0f%%", group->n, group->prompt_tokens / group->n,
                   recent_percent(group->cached_tokens, group->prompt_tokens));
    }
    buf_append_byte(out, '\n');
}

int top_recent_render(struct bytes json, struct buf *out)
{
    struct recent_groups *groups = calloc(2, sizeof(*groups)); /* classes, prefixes */
    json_t *root = json_loadb((const char *)json.data, json.len_bytes, 0, NULL);
    const json_t *placements = json_object_get(root, "placements");
    size_t i;
    json_t *placement;

    if (groups == NULL) {
        json_decref(root);
        return E_NOMEM;
    }
    json_array_foreach(placements, i, placement)
    {
        top_recent_add(&groups[0], "class", placement);
        top_recent_add(&groups[1], "prefix", placement);
    }
    for (unsigned k = 0; k < 2; k++)
        qsort(groups[k].all, groups[k].n, sizeof(groups[k].all[0]), recent_compare);
    if (groups[0].n > 0)
        buf_printf(out, "%-16s %7s %7s       %-8s %8s %9s %8s\n", "class", "placed", "in time", "prefix",
                   "asked", "tokens", "cached");
    for (unsigned row = 0; row < SHOWN && (row < groups[0].n || row < groups[1].n); row++) {
        recent_put_class(&groups[0], row, out);
        recent_put_prefix(&groups[1], row, out);
    }
    json_decref(root);
    free(groups);
    return out->is_bad ? E_NOMEM : 0;
}
