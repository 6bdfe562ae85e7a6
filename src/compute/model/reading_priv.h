/* SPDX-License-Identifier: Apache-2.0 */
/* Reading of metadata keys (arch.c), for the hooks of the architectures' rows. */
#ifndef COMPUTE_MODEL_READING_PRIV_H
#define COMPUTE_MODEL_READING_PRIV_H

#include <stdbool.h>
#include <stdint.h>

struct model;
struct reading;

/* Key names come without the architecture's prefix. */

enum need { REQUIRED, OPTIONAL };

/* Read a number. *out stays unchanged when the key is absent and optional, or wrong (then a complaint is
 * recorded). */
void read_number(struct reading *r, const char *suffix, enum need need, const double bounds[2], double *out);
void read_count(struct reading *r, const char *suffix, enum need need, uint32_t max,
                uint32_t *out); /* >= 1 */
/* Layers with a window use RoPE with their own unscaled angles and this base. */
void use_local_rope(struct model *model, double freq_base);
/* Like read_count for an optional count that may be 0. */
void read_whole(struct reading *r, const char *suffix, uint32_t max, uint32_t *out);
void read_flag(struct reading *r, const char *suffix, bool *out); /* optional */
void read_gemma4(struct reading *r, struct model *model);         /* arch_gemma4.c */
__attribute__((format(printf, 3, 4))) void complain(struct reading *r, int code, const char *format, ...);
bool has_complaints(const struct reading *r);
const char *arch_name(const struct reading *r);
bool has_tensor(const struct reading *r, const char *name);

#endif
