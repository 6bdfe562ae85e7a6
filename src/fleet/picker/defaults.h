/* SPDX-License-Identifier: Apache-2.0 */
/* Defaults of router.conf that the simulator has too, so that baton-sim simulates the router as it comes.
 *
 *    DEFAULT_ROUTER_... --DEFAULT_TEXT()--> fleet/router/router_conf.c   "500ms", in the sample and the manual
 *                       --as a number-----> clients/sim/options.c        preset_router()
 *
 * A unit stands in the name; router_conf.c writes the same unit behind the number.  Other keys have their default in their
 * row of router_conf.c alone.
 * How to change it: docs/changes-fleet.md, "A default of a key". */
#ifndef FLEET_PICKER_DEFAULTS_H
#define FLEET_PICKER_DEFAULTS_H

#define DEFAULT_TEXT_OF(number) #number
#define DEFAULT_TEXT(name)      DEFAULT_TEXT_OF(name)

#define DEFAULT_ROUTER_TTFT_MS              500         /* slo.ttft */
#define DEFAULT_ROUTER_ITL_MS               50          /* slo.itl */
#define DEFAULT_ROUTER_REFUSE               "predicted" /* queue.refuse */
#define DEFAULT_ROUTER_QUEUE_MAX            256         /* queue.max */
#define DEFAULT_ROUTER_QUEUE_TIMEOUT_S      10          /* queue.timeout */
#define DEFAULT_ROUTER_LOCAL_PREFILL_TOKENS 128         /* placement.local_prefill_tokens */
#define DEFAULT_ROUTER_LOCAL_PREFILL_MS     500         /* placement.local_prefill_time */
#define DEFAULT_ROUTER_PREFIX_FETCH         "auto"      /* placement.prefix_fetch */
#define DEFAULT_ROUTER_ROLES                "fixed"     /* placement.roles */
#define DEFAULT_ROUTER_ROLES_MIN            1           /* placement.roles_min */
#define DEFAULT_ROUTER_ROLES_PERIOD_MIN     1           /* placement.roles_period */
#define DEFAULT_ROUTER_INDEX_ENTRIES        1000000     /* placement.index_entries */

#endif
