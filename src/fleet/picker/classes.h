/* SPDX-License-Identifier: Apache-2.0 */
/* Classes of requests: objectives, priority, weight and share of the queue, by name.
 *
 *     interactive ttft=300ms itl=40ms priority=10 weight=4
 *     batch ttft=1min itl=200ms priority=0 share=25% may-be-paused=10min
 *
 * A request names a class; its API key bounds it.  Class 0 is "default": the router's own objectives.  Pure. */
#ifndef FLEET_PICKER_CLASSES_H
#define FLEET_PICKER_CLASSES_H

#include "base/bytes.h"
#include "base/fault.h"

#define PICKER_MAX_CLASSES 8
#define PICKER_CLASS_BYTES 32

struct picker_class {
    char name[PICKER_CLASS_BYTES]; /* [A-Za-z0-9._-]{1,31} */
    uint64_t ttft_slo_ns, itl_slo_ns;
    uint32_t priority; /* 0 to 100: a higher one is placed first */
    uint32_t weight;   /* 1 to 100: multiplies the weight of its tenants */
    double share;      /* largest share of the queue, 0 to 1 */
    uint64_t pause_ns; /* its streams may be paused for a higher priority, for this long in total; 0: never */
};

struct picker_classes {
    struct picker_class all[PICKER_MAX_CLASSES]; /* [n]; the first is "default" */
    uint32_t n;
    bool is_default_given; /* a text defined it */
};

/* Begins the table with "default". */
void picker_classes_init(struct picker_classes *classes, uint64_t ttft_slo_ns, uint64_t itl_slo_ns);
/* Adds the class that the text defines.  Missing settings are those of "default".  The name "default" changes that
 * class.  E_FORMAT with the fault; the table does not change. */
int picker_classes_add(struct picker_classes *classes, struct bytes text, struct fault *fault);
bool picker_classes_has(const struct picker_classes *classes, const char *name);
/* Returns the class of a request. `allowed` is the class of its API key (empty or unknown: "default").  The request
 * gets the wanted class if that has no higher priority, weight or share than `allowed`, and no shorter pause.
 * Otherwise, and if `wanted` is unknown or empty, it gets `allowed`. */
uint32_t picker_classes_choose(const struct picker_classes *classes, const char *allowed, const char *wanted);
/* The classes by priority, the highest first; of equal ones by number. */
void picker_classes_order(const struct picker_classes *classes, uint32_t order_out[PICKER_MAX_CLASSES]);

#endif
