/* SPDX-License-Identifier: Apache-2.0 */
/* The answers of a check as a table and as findings.
 *
 *                    clock    MTU   router 1    2    3
 *    1 prefill0    +0.2 ms   1500   ok     self ok   kv
 *
 * A cell is "ok" or names the ports that could not be reached: link, kv, or both. "self" is the worker itself; "-"
 * was not tried.  Each finding below the table says what is wrong and how to fix it.  The answers come from a
 * daemon of the cluster, but the parser accepts any JSON. */
#include <inttypes.h>
#include <jansson.h>
#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "base/err.h"
#include "base/str.h"
#include "clients/ctl/join.h"
#include "net/link/probe.h"

enum { VIEW_MAX_TARGETS = 160, VIEW_MAX_ROWS = 64 };

#define VIEW_MAX_SKEW_MS 1000
#define VIEW_LEAST_MTU   1280u

struct view_target {
    char node[64], address[128];
    bool is_kv, is_loopback;
};

struct view_found {
    unsigned outcome; /* enum link_outcome */
    unsigned mtu;
};

struct view_row {
    char node[64];
    bool is_asked, is_answered;
    double skew_ms;
    unsigned mtu; /* the least; 0: unknown */
    struct view_found found[VIEW_MAX_TARGETS];
};

struct check_view {
    bool is_running;
    unsigned n_rows_wanted, n_left_out, n_targets, n_rows, n_conflicts;
    struct view_target targets[VIEW_MAX_TARGETS];
    struct view_row rows[VIEW_MAX_ROWS];
    char conflicts[JOIN_MAX_MODELS][400];
};

/* Copies a text without control bytes, which a terminal would execute. */
static void view_text(const json_t *value, char *out, size_t cap)
{
    const char *text = json_string_value(value);
    size_t n = 0;

    for (; text != NULL && *text != '\0' && n + 1 < cap; text++)
        out[n++] = (unsigned char)*text < 0x20 || (unsigned char)*text >= 0x7f ? '?' : *text;
    out[n] = '\0';
}

static unsigned view_number(const json_t *value, unsigned max)
{
    json_int_t number = json_integer_value(value);

    return number < 0 ? 0 : number > max ? max : (unsigned)number;
}

int check_view_new(struct bytes head, struct check_view **out)
{
    json_t *root = json_loadb((const char *)head.data, head.len_bytes, 0, NULL);
    const json_t *targets = json_object_get(root, "targets"), *one;
    struct check_view *view;
    size_t i;

    if (!json_is_array(targets)) {
        json_decref(root);
        return E_FORMAT;
    }
    view = calloc(1, sizeof(*view));
    if (view == NULL) {
        json_decref(root);
        return E_NOMEM;
    }
    view->is_running = json_is_true(json_object_get(root, "running"));
    view->n_rows_wanted = view_number(json_object_get(root, "rows"), VIEW_MAX_ROWS);
    view->n_left_out = view_number(json_object_get(root, "left_out"), 100000);
    json_array_foreach(targets, i, one)
    {
        struct view_target *target = &view->targets[view->n_targets];

        if (view->n_targets == VIEW_MAX_TARGETS)
            break;
        view_text(json_object_get(one, "node"), target->node, sizeof(target->node));
        view_text(json_object_get(one, "address"), target->address, sizeof(target->address));
        target->is_kv = json_is_true(json_object_get(one, "kv"));
        target->is_loopback = json_is_true(json_object_get(one, "loopback"));
        view->n_targets++;
    }
    json_decref(root);
    *out = view;
    return 0;
}

void check_view_free(struct check_view *view)
{
    free(view);
}

unsigned check_view_rows(const struct check_view *view)
{
    return view->n_rows_wanted;
}

bool check_view_is_running(const struct check_view *view)
{
    return view->is_running;
}

int check_view_add(struct check_view *view, struct bytes text)
{
    json_t *root = json_loadb((const char *)text.data, text.len_bytes, 0, NULL);
    const json_t *found = json_object_get(root, "found"), *one;
    struct view_row *row = &view->rows[view->n_rows];
    size_t i;

    if (!json_is_array(found) || view->n_rows == VIEW_MAX_ROWS) {
        json_decref(root);
        return E_FORMAT;
    }
    memset(row, 0, sizeof(*row));
    view_text(json_object_get(root, "node"), row->node, sizeof(row->node));
    row->is_asked = json_is_true(json_object_get(root, "asked"));
    row->is_answered = json_is_true(json_object_get(root, "answered"));
    row->skew_ms = json_number_value(json_object_get(root, "skew_ms"));
    json_array_foreach(found, i, one)
    {
        if (i == view->n_targets)
            break;
        row->found[i].outcome = view_number(json_array_get(one, 0), LINK_PROBE_N - 1);
        row->found[i].mtu = view_number(json_array_get(one, 2), 1 << 20);
        if (row->found[i].mtu > 0 && (row->mtu == 0 || row->found[i].mtu < row->mtu))
            row->mtu = row->found[i].mtu;
    }
    view->n_rows++;
    json_decref(root);
    return 0;
}

void check_view_models(struct check_view *view, const struct join_message *members)
{
    for (unsigned i = 0; i < members->n_models; i++)
        for (unsigned j = 0; j < i; j++) {
            const struct join_model *a = &members->models[j], *b = &members->models[i];

            if (strcmp(a->name, b->name) != 0 || view->n_conflicts == JOIN_MAX_MODELS)
                continue;
            snprintf(view->conflicts[view->n_conflicts++], sizeof(view->conflicts[0]),
                     "two files are called %.100s (fingerprints %.32s and %.32s): their workers do not hand "
                     "over to each "
                     "other. Fix: one file on all hosts, or another model.name",
                     a->name, a->fingerprint, b->fingerprint);
        }
}

/* ---- table ---- */

/* True if the target belongs to column i: 0 is the router, then come the workers. */
static bool view_is_of(const struct check_view *view, const struct view_target *target, unsigned column)
{
    if (column == 0)
        return target->node[0] == '\0';
    return strcmp(target->node, view->rows[column - 1].node) == 0;
}

static const char *view_cell(const struct check_view *view, const struct view_row *row, unsigned column)
{
    bool is_tried = false, link_fails = false, kv_fails = false;

    if (column > 0 && &view->rows[column - 1] == row)
        return "self";
    for (unsigned i = 0; i < view->n_targets; i++) {
        if (!view_is_of(view, &view->targets[i], column))
            continue;
        if (row->found[i].outcome == LINK_PROBE_UNKNOWN) {
            /* a loopback address of another host: it cannot be tried, and gets its own finding */
            link_fails =
                link_fails || (row->is_answered && !view->targets[i].is_kv && view->targets[i].is_loopback);
            kv_fails =
                kv_fails || (row->is_answered && view->targets[i].is_kv && view->targets[i].is_loopback);
        } else if (row->found[i].outcome != LINK_PROBE_REACHED) {
            *(view->targets[i].is_kv ? &kv_fails : &link_fails) = true;
        }
        is_tried = is_tried || row->is_answered;
    }
    if (!is_tried)
        return "-";
    return link_fails && kv_fails ? "both" : link_fails ? "link" : kv_fails ? "kv" : "ok";
}

static void view_put_table(const struct check_view *view, struct buf *out)
{
    (void)buf_printf(out, "%-24s %10s %6s  %-6s", "", "clock", "MTU", "router");
    for (unsigned i = 0; i < view->n_rows; i++)
        (void)buf_printf(out, " %-4u", i + 1);
    (void)buf_append_byte(out, '\n');
    for (unsigned i = 0; i < view->n_rows; i++) {
        const struct view_row *row = &view->rows[i];
        char skew[32] = "-", mtu[16] = "-";

        if (row->is_answered && fabs(row->skew_ms) < 1000)
            snprintf(skew, sizeof(skew), "%+.1f ms", row->skew_ms);
        else if (row->is_answered)
            snprintf(skew, sizeof(skew), "%+.1f s", row->skew_ms / 1e3);
        if (row->mtu > 0)
            snprintf(mtu, sizeof(mtu), "%u", row->mtu);
        (void)buf_printf(out, "%3u %-20.20s %10s %6s  %-6s", i + 1, row->node, skew, mtu,
                         view_cell(view, row, 0));
        for (unsigned j = 1; j <= view->n_rows; j++)
            (void)buf_printf(out, " %-4s", view_cell(view, row, j));
        (void)buf_append_byte(out, '\n');
    }
}

/* ---- findings ---- */

static const char *view_why(unsigned outcome)
{
    static const char *const texts[LINK_PROBE_N] = {
        [LINK_PROBE_UNKNOWN] = "not tried",
        [LINK_PROBE_REACHED] = "reached",
        [LINK_PROBE_REFUSED] = "refused. Fix: a firewall that rejects, or an address of another host",
        [LINK_PROBE_SILENT] = "no answer. Fix: a firewall between the hosts drops it; open this port",
        [LINK_PROBE_NO_ROUTE] =
            "no route. Fix: the address in the configuration, or the network between the hosts",
        [LINK_PROBE_NO_NAME] =
            "the name has no address there. Fix: the hosts' name service, or a numeric link.advertise",
        [LINK_PROBE_FAILED] =
            "the connection fails. Fix: look at the worker's host (descriptors, address family)"};

    return texts[outcome];
}

static unsigned view_put_row_findings(const struct check_view *view, const struct view_row *row,
                                      struct buf *out)
{
    unsigned n = 0;

    if (!row->is_asked) {
        (void)buf_printf(out, "note   %s is of an older version and cannot be asked\n", row->node);
        return 0;
    }
    if (!row->is_answered) {
        (void)buf_printf(
            out, "WRONG  %s gave no answer within five seconds. Fix: look at its log, and at its load\n",
            row->node);
        return 1;
    }
    if (fabs(row->skew_ms) > VIEW_MAX_SKEW_MS) {
        (void)buf_printf(
            out,
            "WRONG  %s: its clock is %.1f s %s the router's. Fix: run a time service on both (apt install "
            "systemd-timesyncd)\n",
            row->node, fabs(row->skew_ms) / 1e3, row->skew_ms > 0 ? "ahead of" : "behind");
        n++;
    }
    if (row->mtu > 0 && row->mtu < VIEW_LEAST_MTU) {
        (void)buf_printf(
            out, "WRONG  %s: a path takes packets of %u bytes only. Fix: the MTU of interfaces and tunnels\n",
            row->node, row->mtu);
        n++;
    }
    for (unsigned i = 0; i < view->n_targets; i++) {
        const struct view_target *target = &view->targets[i];

        if (row->found[i].outcome == LINK_PROBE_UNKNOWN || row->found[i].outcome == LINK_PROBE_REACHED)
            continue;
        (void)buf_printf(out, "WRONG  %s -> %s%s %s: %s\n", row->node,
                         target->node[0] != '\0' ? target->node : "router", target->is_kv ? ", KV" : "",
                         target->address, view_why(row->found[i].outcome));
        n++;
    }
    return n;
}

/* Appends a finding for each target on loopback, which workers of other hosts were not asked to dial.  Returns
 * their number. */
static unsigned view_put_loopback(const struct check_view *view, struct buf *out)
{
    unsigned n = 0;

    for (unsigned i = 0; i < view->n_targets; i++) {
        bool is_hidden = false;

        for (unsigned j = 0; j < view->n_rows; j++)
            is_hidden = is_hidden || (view->targets[i].is_loopback && view->rows[j].is_answered &&
                                      view->rows[j].found[i].outcome == LINK_PROBE_UNKNOWN);
        if (!is_hidden)
            continue;
        (void)buf_printf(
            out, "WRONG  %s%s listens on %s, which workers of other hosts cannot reach. Fix: %s\n",
            view->targets[i].node, view->targets[i].is_kv ? ", KV," : "", view->targets[i].address,
            view->targets[i].is_kv ? "kv.tcp_listen" : "link.listen or link.advertise");
        n++;
    }
    return n;
}

unsigned check_view_render(const struct check_view *view, struct buf *out)
{
    unsigned n = 0;

    if (view->n_rows == 0) {
        (void)buf_append_str(
            out, "WRONG  no worker is registered. Fix: look at link_failed in the workers' logs\n");
        return 1;
    }
    view_put_table(view, out);
    (void)buf_append_byte(out, '\n');
    for (unsigned i = 0; i < view->n_rows; i++)
        n += view_put_row_findings(view, &view->rows[i], out);
    n += view_put_loopback(view, out);
    for (unsigned i = 0; i < view->n_conflicts; i++, n++)
        (void)buf_printf(out, "WRONG  model: %s\n", view->conflicts[i]);
    if (view->n_left_out > 0)
        (void)buf_printf(out, "note   %u more workers were left out\n", view->n_left_out);
    if (n == 0)
        (void)buf_append_str(out, "all daemons reach each other\n");
    return n;
}
