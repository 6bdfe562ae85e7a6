/* SPDX-License-Identifier: Apache-2.0 */
/* What this router shares with others (state.c), through the store of state.url, or through workers.  Loop thread.
 * Functions that name the store do nothing without one. */
#ifndef FLEET_ROUTER_STATE_PRIV_H
#define FLEET_ROUTER_STATE_PRIV_H

#include "fleet/router/router_priv.h"
#include "net/state/state.h"

struct router_message; /* fleet/router/router_message_priv.h */
struct front;          /* serve/endpoint/front.h */

/* cluster_key: 32 bytes.  E_FORMAT, E_IO, E_NOMEM, E_INTERNAL, with the fault. */
int router_state_open(struct router *router, const uint8_t cluster_key[32], struct fault *fault);
void router_state_close(struct router *router);                /* says goodbye to the other routers */
struct state *router_state_store(const struct router *router); /* NULL: none */
/* 16 bytes with which routers hash wrong API keys; NULL: routers do not share these. */
const uint8_t *router_state_login_salt(const struct router *router);
void router_state_serve(struct router *router,
                        struct front *front); /* the endpoint is there; NULL: it ends */
void router_state_tick(struct router *router);
/* Watches another router from now on, whose last message in the store was at this time. */
void router_state_note(struct router *router, uint64_t epoch, const char *node, uint64_t received_ns);
void router_state_send_spending(struct router *router, const Baton__Spending *spending);
/* Reports to the other routers that a kept response was deleted here (struct front_opts). */
void router_state_send_forget(void *router, const char *tenant, struct bytes id);
/* Tells one section at once.  False: there is no way to another router now, or the section is too long. */
bool router_state_send(struct router *router, unsigned kind, struct bytes section);
/* Another router's message, through workers. */
void router_state_receive(struct router *router, const struct router_message *received);
struct front *router_state_front(const struct router *router);          /* NULL: none now */
void router_state_served(struct job *job, uint64_t n_tokens);           /* its tenant was charged for these */
struct picker_service_view router_state_service(const struct job *job); /* of its tenant and others */
void router_state_put(const struct router *router, struct buf *out);    /* for the status */
/* Checks the keys of [state]. */
void router_state_check(struct config_check *check, const struct router_conf *conf);

#endif
