/* SPDX-License-Identifier: Apache-2.0 */
/* The logits of ik_llama.cpp after each token of a list, for ik_oracle.py, which compiles this program.
 *
 *     ik_logits MODEL.gguf OUT.f32 ID...
 *
 * OUT.f32 gets rows of raw float32. KV is F16 (plain attention refuses F32), attention is the plain one, and one thread computes. With
 * IK_STEP=1 in the environment the tokens are fed one at a time, else at once. */
#include <stdio.h>
#include <stdlib.h>

#include "llama.h"

enum { MOST_TOKENS = 256 };

static void ik_fail(const char *text)
{
    fprintf(stderr, "ik_logits: %s\n", text);
    exit(1);
}

static struct llama_context *open_context(const char *path)
{
    struct llama_model_params load = llama_model_default_params();
    struct llama_context_params params = llama_context_default_params();
    struct llama_model *model;
    struct llama_context *context;

    load.n_gpu_layers = 0;
    load.flash_attn = false;
    load.mla = 1;
    load.type_k = load.type_v = GGML_TYPE_F16;
    model = llama_model_load_from_file(path, load);
    if (model == NULL)
        ik_fail("the model was refused");
    params.n_ctx = params.n_batch = params.n_ubatch = MOST_TOKENS;
    params.n_threads = params.n_threads_batch = params.mla_attn = 1;
    params.type_k = params.type_v = GGML_TYPE_F16;
    params.flash_attn = params.fused_moe_up_gate = params.fused_up_gate = params.fused_mmad = false;
    context = llama_init_from_model(model, params);
    if (context == NULL)
        ik_fail("no context");
    return context;
}

/* Feeds tokens [from, to) and writes their rows. */
static void feed(struct llama_context *context, char **ids, int from, int to, FILE *out)
{
    struct llama_batch batch = llama_batch_init(to - from, 0, 1);
    size_t vocab = (size_t)llama_n_vocab(llama_get_model(context));

    for (int i = from; i < to; i++) {
        int at = i - from;

        batch.token[at] = atoi(ids[i]);
        batch.pos[at] = i;
        batch.n_seq_id[at] = 1;
        batch.seq_id[at][0] = 0;
        batch.logits[at] = 1;
    }
    batch.n_tokens = to - from;
    if (llama_decode(context, batch) != 0)
        ik_fail("decoding failed");
    for (int i = 0; i < to - from; i++) {
        const float *row = llama_get_logits_ith(context, i);

        if (row == NULL || fwrite(row, sizeof(*row), vocab, out) != vocab)
            ik_fail("no logits, or they could not be written");
    }
    llama_batch_free(batch);
}

int main(int argc, char **argv)
{
    int n = argc - 3, step = getenv("IK_STEP") != NULL ? 1 : n;
    struct llama_context *context;
    FILE *out;

    if (n < 1 || n > MOST_TOKENS)
        ik_fail("usage: ik_logits MODEL.gguf OUT.f32 ID...");
    context = open_context(argv[1]);
    out = fopen(argv[2], "wb");
    if (out == NULL)
        ik_fail("the output cannot be written");
    for (int at = 0; at < n; at += step)
        feed(context, argv + 3, at, at + step, out);
    return fclose(out) == 0 ? 0 : 1;
}
