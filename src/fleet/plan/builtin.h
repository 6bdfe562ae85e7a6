/* SPDX-License-Identifier: Apache-2.0 */
/* The tables of share/plan, compiled in. */
#ifndef FLEET_PLAN_BUILTIN_H
#define FLEET_PLAN_BUILTIN_H

#include "fleet/plan/measure.h"

struct bytes plan_builtin_devices(void);
struct bytes plan_builtin_links(void);
struct bytes plan_builtin_models(void);
struct bytes plan_builtin_constants(void);
/* All three tables of names.  On failure out is empty. */
int plan_books_open(struct fault *fault, struct plan_books *out);
void plan_books_fini(struct plan_books *books);

#endif
