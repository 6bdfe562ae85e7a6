/* SPDX-License-Identifier: Apache-2.0 */
/* A model ready to run in a command: file, threads, weights, KV memory and engine.  Each sequence owns a run
 * of blocks: there is no pool and no scheduler.  Sequence i has blocks i * per .. (i + 1) * per - 1. */
#ifndef MODEL_RIG_H
#define MODEL_RIG_H

#include "base/bytes.h"
#include "base/fault.h"
#include "base/mem.h"
#include "compute/engine/engine_cpu.h"
#include "compute/engine/engine_load.h"

struct rig_opts {
    const char *path;
    const char *kernels; /* NULL: the best */
    unsigned n_threads;  /* 0: all CPUs */
    enum kv_type kv_type;
    enum bf16_math bf16; /* see model_opts */
    bool converts_f16;   /* see model_opts */
    bool is_quiet;       /* no progress on stderr */
    struct team *team;   /* borrowed, in place of threads of its own; NULL: none */
};

struct rig_seats { /* what rig_start makes room for */
    uint32_t n_sequences;
    uint32_t n_tokens;     /* of each */
    uint32_t batch_tokens; /* most per step */
    uint32_t n_draws;      /* tokens drawn per step, drafts included; 0: one for each sequence */
};

struct rig { /* a zeroed one is empty */
    struct gguf *gguf;
    struct team *team;
    bool borrows_team;
    struct model *model;
    struct mem_region arena;
    kv_block_id *blocks; /* [n_sequences * per_sequence] */
    enum bf16_math bf16; /* as asked for */
    bool converts_f16;   /* as asked for */
    uint32_t per_sequence;
    kv_block_id *states; /* [n_sequences * n_state], behind the other blocks */
    uint32_t n_state;    /* blocks of a recurrent state */
    uint32_t batch_tokens;
    struct engine engine;
};

/* Opens the file, chooses this machine's fastest kernels (tensor_tune()) and packs the weights.  Shows
 * progress on stderr when that is a terminal. */
int rig_load(const struct rig_opts *opts, struct fault *fault, struct rig *out);
/* Measures the kernel choices again, with these threads and kernels; appends the table. */
int rig_tune(const struct rig_opts *opts, struct fault *fault, struct buf *table_out);
/* Allocates KV and engine; may be called again with other seats.  E_RANGE beyond the model's context. */
int rig_start(struct rig *rig, const struct rig_seats *seats, struct fault *fault);
void rig_close(struct rig *rig);

/* Feeds a sequence's next tokens in chunks of batch_tokens; samples after the last if sample is not NULL.
 * E_CANCELLED between chunks after Ctrl-C. */
struct rig_feed {
    uint32_t sequence;
    const token_id *tokens;
    uint32_t n_tokens;
    uint32_t position;
    const struct sample_opts *sample;
};
/* The sequence's recurrent state, if the model has one: the item reads it and writes it in place.  cut stays valid
 * for the step. */
void rig_put_state(const struct rig *rig, uint32_t sequence, struct engine_item *item,
                   struct kv_state_cut *cut);
int rig_feed(struct rig *rig, const struct rig_feed *feed, struct sample_result *result_out);

/* From now on Ctrl-C, SIGTERM and SIGHUP only set a flag; a second signal of the same kind kills as usual. */
void rig_catch_interrupt(void);
bool rig_is_interrupted(void);
int rig_interrupt_status(void); /* as a shell reports the signal */

/* For help texts: of --kv, and of --kernels. */
#define RIG_KV_TYPES     "one of" KV_TYPE_LIST " (default: f16)"
#define RIG_KERNEL(word) " " word
#define RIG_KERNELS      "one of" ENGINE_KERNELS(RIG_KERNEL)

/* An option's argument as a value, or a complaint on stderr and false. */
bool rig_parse_u32(const char *command, const char *option, const char *text, uint32_t max, uint32_t *out);
bool rig_parse_kv(const char *command, const char *option, const char *text, enum kv_type *out);
bool rig_parse_f32(const char *command, const char *option, const char *text, float *out);

/* The common options of commands with a rig: rows for getopt_long, and the function that takes their arguments
 * (optarg).  False: an error was printed, or the option is another one. */
enum rig_option {
    RIG_OPT_MODEL = 'm',
    RIG_OPT_THREADS = 't',
    RIG_OPT_KV = 1024,
    RIG_OPT_KERNELS,
    RIG_OPT_BF16,
    RIG_OPT_CONVERT,
    RIG_OPT_TEXT,
    RIG_OPT_SPECIAL,
    RIG_OPT_CONTEXT,
    RIG_OPT_WINDOWS
};
#define RIG_SHORT_OPTIONS "hm:t:"
#define RIG_OPTIONS                                                                                          \
    {"kv", required_argument, NULL, RIG_OPT_KV}, {"model", required_argument, NULL, RIG_OPT_MODEL},          \
        {"threads", required_argument, NULL, RIG_OPT_THREADS},                                               \
    {                                                                                                        \
        "kernels", required_argument, NULL, RIG_OPT_KERNELS                                                  \
    }
#define RIG_WEIGHT_OPTIONS                                                                                   \
    {"bf16", required_argument, NULL, RIG_OPT_BF16},                                                         \
    {                                                                                                        \
        "convert-f16", required_argument, NULL, RIG_OPT_CONVERT                                              \
    }
#define RIG_TEXT_OPTIONS                                                                                     \
    {"text", required_argument, NULL, RIG_OPT_TEXT}, {"special", no_argument, NULL, RIG_OPT_SPECIAL},        \
        {"context", required_argument, NULL, RIG_OPT_CONTEXT},                                               \
    {                                                                                                        \
        "windows", required_argument, NULL, RIG_OPT_WINDOWS                                                  \
    }
bool rig_take_option(const char *command, int option, struct rig_opts *opts);
struct rig_text { /* a text that a command reads in windows; zeroed: none */
    const char *path;
    uint32_t context;     /* tokens of a window; 0: the command's default */
    uint32_t max_windows; /* 0: all */
    bool is_special;      /* control tokens spelled out in it count as such */
};
/* The same for RIG_TEXT_OPTIONS and RIG_OPTIONS. */
bool rig_take_text_option(const char *command, int option, struct rig_text *text, struct rig_opts *opts);
/* Reads the argument after the options: one model file.  False: an error was printed. */
bool rig_take_path(const char *command, int argc, char **argv, struct rig_opts *opts);

#endif
