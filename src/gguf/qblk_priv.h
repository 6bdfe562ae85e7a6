/* SPDX-License-Identifier: Apache-2.0 */
/* Shared by the readers of quantised blocks. */
#ifndef GGUF_QBLK_PRIV_H
#define GGUF_QBLK_PRIV_H

#include "gguf/qblk.h"

/* Lattice points (qblk_grid.c). */
extern const uint16_t qblk_grid_iq1[2048], qblk_grid_iq2_xxs[256], qblk_grid_iq2_xs[512],
    qblk_grid_iq2_s[1024];
extern const uint16_t qblk_grid_iq3_xxs[256], qblk_grid_iq3_s[512];

/* Tables of the IQ types (qblk_iq.c): levels, then the same with the other sign. */
extern const int8_t qblk_levels_iq1[16], qblk_levels_iq2[16], qblk_levels_iq3_xxs[16], qblk_levels_iq3_s[16];

void qblk_points_iq2_xxs(const void *qblk, struct qblk_points *out);
void qblk_points_iq2_xs(const void *qblk, struct qblk_points *out);
void qblk_points_iq2_s(const void *qblk, struct qblk_points *out);
void qblk_points_iq3_xxs(const void *qblk, struct qblk_points *out);
void qblk_points_iq3_s(const void *qblk, struct qblk_points *out);

void qblk_read_iq1_s(const void *qblk, struct qblk_fields *out);
void qblk_read_iq1_m(const void *qblk, struct qblk_fields *out);
void qblk_read_iq2_xxs(const void *qblk, struct qblk_fields *out);
void qblk_read_iq2_xs(const void *qblk, struct qblk_fields *out);
void qblk_read_iq2_s(const void *qblk, struct qblk_fields *out);
void qblk_read_iq3_xxs(const void *qblk, struct qblk_fields *out);
void qblk_read_iq3_s(const void *qblk, struct qblk_fields *out);
void qblk_read_tq1_0(const void *qblk, struct qblk_fields *out);
void qblk_read_tq2_0(const void *qblk, struct qblk_fields *out);
void qblk_read_nvfp4(const void *qblk, struct qblk_fields *out);
void qblk_read_q1_0(const void *qblk, struct qblk_fields *out);
void qblk_read_q2_0(const void *qblk, struct qblk_fields *out);

#endif
