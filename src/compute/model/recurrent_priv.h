/* SPDX-License-Identifier: Apache-2.0 */
/* Shared by the recurrent halves: their own weights and scratch, and the walk over a sequence's rows. */
#ifndef COMPUTE_MODEL_RECURRENT_PRIV_H
#define COMPUTE_MODEL_RECURRENT_PRIV_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

struct forward;
struct model;

struct recurrent_weights { /* of a layer; owned */
    float *taps;           /* [conv_taps][channels] of a convolution, the oldest input's first */
    float *key_gain;       /* [delta_key] makes an RMSNorm divide by the length; then the same for queries */
};

struct recurrent_state {  /* scratch of a pass */
    float *in;            /* [max_tokens][...] the products that the recurrence reads */
    float *out;           /* [max_tokens][...] its output */
    float *decay, *beta;  /* [max_tokens][delta_heads] */
    float *states;        /* [n_ranks][delta_key][delta_value] */
    float *fades, *gates; /* [max_tokens][delta_heads][delta_key], or NULL: forward_kda.c */
    float *beside;        /* [max_tokens][hidden] output of a recurrence beside attention, or NULL */
    float *history;       /* [conv_taps - 1][channels] inputs before the row, the oldest first */
};

/* A run of rows of one item, between two places where the state is written. */
struct recurrent_run {
    uint32_t first, n; /* rows */
    void *part;        /* the caller's: which part of the layer */
};

/* For one item and one part of the layer's state: reads the part, computes run by run, and writes the part at
 * each cut.  The functions work on the scratch of the calling rank alone. */
struct recurrent_walk {
    void (*read)(const struct forward *f, uint32_t item, void *part);
    void (*write)(const struct forward *f, uint32_t item, uint32_t cut, void *part);
    void (*run)(const struct forward *f, const struct recurrent_run *run);
};
void recurrent_walk(const struct forward *f, const struct recurrent_walk *walk, uint32_t item, void *part);

/* Turns the taps of a convolution in the slot, so that neighbours in memory are channels.  The layer owns them. */
struct loading;
int recurrent_pack_taps(struct loading *load, uint32_t layer, unsigned slot, size_t n_channels);
/* The same of n tensors in slots one after another, n_channels each. */
int recurrent_pack_all_taps(struct loading *load, uint32_t layer, unsigned slot, uint32_t n,
                            size_t n_channels);
/* Gains for recurrent_norm_keys(). The layer owns them. */
int recurrent_pack_gains(struct loading *load, uint32_t layer);
struct layer;
void recurrent_layer_fini(struct layer *layer);
/* Divides each head of q, then of k, by its length; q also by the root of the width. */
void recurrent_norm_keys(const struct forward *f, float *qk);
/* Reads or writes channels [from, to) of the history of a convolution, at the beginning of the layer's state. */
struct recurrent_channels {
    uint32_t from, to, n;
};
void recurrent_read_history(const struct forward *f, uint32_t item,
                            const struct recurrent_channels *channels);
void recurrent_write_history(const struct forward *f, uint32_t item, uint32_t cut,
                             const struct recurrent_channels *channels);
double recurrent_softplus(float x);
/* A digest of the fading rates that this machine's math library computes. */
uint64_t recurrent_digest(void);

/* ---- recurrent_heads.c ---- */

struct carving;
struct model_config;
struct model_state;

/* A layer with heads of keys and values: where a row of `in` has their parts. */
struct recurrent_heads {
    const struct forward *f;
    size_t in;              /* floats of a row */
    size_t conv_at, n_conv; /* the channels of the convolution */
    const float *conv_bias; /* [n_conv], or NULL */
    size_t q, k, v;
    bool is_delta, is_grouped; /* grouped: neighbouring heads of values read one head of keys */
    bool fades_keys;           /* each key's row of the state fades by a number of its own, in state->fades */
};
void recurrent_conv(const struct recurrent_heads *heads);
/* Reads decay and beta of the state; writes out. */
void recurrent_rule(const struct recurrent_heads *heads);
size_t recurrent_heads_state_bytes(const struct model_config *config);
/* in: floats of a row. */
void recurrent_heads_lay_out(const struct model_config *config, size_t in, struct model_state *state,
                             struct carving *carving);

#endif
