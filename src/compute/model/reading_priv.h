/* SPDX-License-Identifier: Apache-2.0 */
/* Reading of metadata keys (arch.c), for the hooks of the architectures' rows. */
#ifndef COMPUTE_MODEL_READING_PRIV_H
#define COMPUTE_MODEL_READING_PRIV_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

struct arch;
struct gguf;
struct half;
struct model;
struct model_config;

struct reading {
    const struct gguf *gguf;
    const struct arch *arch;
    int code;          /* code of the first complaint */
    size_t used_bytes; /* bytes of text */
    char text[400];    /* complaints, joined by "; " */
};

/* Key names come without the architecture's prefix. */

enum need { REQUIRED, OPTIONAL };

/* Read a number. *out stays unchanged when the key is absent and optional, or wrong (then a complaint is
 * recorded). */
void read_number(struct reading *r, const char *suffix, enum need need, const double bounds[2], double *out);
void read_count(struct reading *r, const char *suffix, enum need need, uint32_t max,
                uint32_t *out); /* >= 1 */
/* The base of RoPE in layers with a window, if the file has one (rope.freq_base_swa). */
void read_window_base(struct reading *r, double *base);
/* Layers with a window use RoPE with their own unscaled angles and this base. */
void use_local_rope(struct model *model, double freq_base);
/* The base of the layers with a window, of architectures whose hooks set no local RoPE.  Call it last. */
void read_local_base(struct reading *r, struct model *model);
/* For architectures that have no model without windows: complains if the keys are missing. */
void require_windows(struct reading *r, bool needs_pattern);
/* Layers whose entry in attention.head_count_kv is 0 get this half of attention. */
void use_recurrent(struct reading *r, struct model *model, const struct half *half);
/* Like read_count for an optional count that may be 0. */
void read_whole(struct reading *r, const char *suffix, uint32_t max, uint32_t *out);
void read_flag(struct reading *r, const char *suffix, bool *out); /* optional */
void read_gemma4(struct reading *r, struct model *model);         /* arch_gemma4.c */
void read_gemma3n(struct reading *r, struct model *model);        /* arch_gemma3n.c */
void read_llama4(struct reading *r, struct model *model);         /* arch_llama4.c */
/* Sets the layers whose keys and values the last layers read.  Their number is n_shared, or that of the file. */
void share_keys(struct reading *r, struct model *model, uint32_t n_shared);
/* Number i of a list of fractions; false when the key is no list or shorter. */
bool read_fraction(const struct reading *r, const char *suffix, uint32_t i, double *out);
/* The rows of a tensor; 0 when the file lacks it. */
uint32_t tensor_rows(const struct reading *r, const char *name);
void read_granite(struct reading *r, struct model *model); /* archs.c: four scales, and a flag for RoPE */
void read_exaone4(struct reading *r, struct model *model); /* layers with a window alone turn */
void read_cohere2(struct reading *r, struct model *model); /* archs_norm.c: the same, and a scale of logits */
void drop_rope(struct model *model);                       /* in all layers */
void drop_rope_of_global(struct model *model);             /* in layers without a window */
__attribute__((format(printf, 3, 4))) void arch_complain(struct reading *r, int code, const char *format,
                                                         ...);
bool has_complaints(const struct reading *r);
const char *arch_name(const struct reading *r);
bool has_tensor(const struct reading *r, const char *name);

/* The whole key: the architecture's name, a dot and the suffix. Returns out. */
const char *reading_key(const struct reading *r, const char *suffix, char out[128]);
/* True if the architecture's row lists this key. */
bool arch_heeds(const struct arch *arch, const char *suffix);

/* ---- arch_layers.c ---- */

/* Reads a count. If the architecture's layers may differ in shape, also reads the largest of a list of
 * counts. */
void read_largest(struct reading *r, const char *suffix, enum need need, uint32_t max, uint32_t *out);
/* Number i of a list that read_largest() has checked; value if the key is no list. */
uint32_t read_listed(struct reading *r, const char *suffix, uint32_t i, uint32_t value);
/* True if the file's lists have an item for the layer of an MTP head, so that it can be read with the others. */
bool lists_head(const struct reading *r, const struct model_config *config);
/* A number; or one for each layer, where 0 means a recurrent layer. */
void read_kv_heads(struct reading *r, struct model_config *config);
/* Numbers the layers that store keys and values, and places the recurrent ones in the state. */
void layers_place(struct model *model);

#endif
