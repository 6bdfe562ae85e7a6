/* SPDX-License-Identifier: Apache-2.0 */
/* Experts and latent attention as files store them.  The same weights in another arrangement give the same
 * bits.  The file's pages are given back.  test_moe_bad.c has the files that are refused. */
#include "base/err.h"
#include "base/mem.h"
#include "base/rng.h"
#include "tests/unit/compute/model/tiny.h"

#include <inttypes.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "tests/unit/compute/check_team.h"

/* ---- a file made over ---- */

struct piece { /* a tensor of the new file */
    enum dtype type;
    uint8_t *data;
    size_t len_bytes;
};

struct making_over {
    struct gguf_writer *writer;
    struct piece pieces[256];
    uint32_t n_pieces;
};

static uint8_t *add(struct making_over *m, const char *name, enum dtype type, uint32_t n_dims,
                    const uint64_t *dims)
{
    struct piece *piece = &m->pieces[m->n_pieces++];
    uint64_t n = 1;

    assert_true(m->n_pieces < 256);
    for (uint32_t i = 0; i < n_dims; i++)
        n *= dims[i];
    *piece = (struct piece){.type = type, .len_bytes = n * (type == DTYPE_F32 ? 4 : 2)};
    piece->data = malloc(piece->len_bytes);
    assert_non_null(piece->data);
    assert_int_equal(gguf_declare_tensor(m->writer, name, type, n_dims, dims), 0);
    return piece->data;
}

static void name_of(const struct gguf_tensor *tensor, char out[96])
{
    snprintf(out, 96, "%.*s", (int)tensor->name.len_bytes, (const char *)tensor->name.data);
}

static void keep(struct making_over *m, const struct gguf_tensor *tensor)
{
    char name[96];

    name_of(tensor, name);
    memcpy(add(m, name, tensor->type, tensor->n_dims, tensor->dims), tensor->data, tensor->len_bytes);
}

static int fill(void *arg, uint64_t index, struct gguf_writer *writer)
{
    struct making_over *m = arg;

    return gguf_writer_data(writer, m->pieces[index].data, m->pieces[index].len_bytes);
}

/* Writes a file; `change` edits each tensor and returns false for those to keep. */
static struct gguf *make_over(struct gguf *from,
                              bool (*change)(struct making_over *m, const struct gguf_tensor *tensor))
{
    struct making_over *m = calloc(1, sizeof(*m));
    char path[] = "/tmp/baton-moe-XXXXXX";
    struct fault fault = {0};
    struct gguf *gguf = NULL;
    int fd = mkstemp(path);

    assert_true(fd >= 0 && m != NULL);
    close(fd);
    assert_int_equal(gguf_writer_new(&m->writer), 0);
    assert_int_equal(gguf_put_keys_of(m->writer, from, ""), 0);
    for (uint64_t i = 0; i < gguf_tensor_count(from); i++)
        if (!change(m, gguf_tensor_at(from, i)))
            keep(m, gguf_tensor_at(from, i));
    if (gguf_writer_save(m->writer, path, fill, m, &fault) < 0 || gguf_open(path, &fault, &gguf) < 0)
        fail_msg("%s", fault.text);
    unlink(path);
    gguf_writer_free(m->writer);
    for (uint32_t i = 0; i < m->n_pieces; i++)
        free(m->pieces[i].data);
    free(m);
    return gguf;
}

static float *logits_of(struct gguf *gguf, struct team *team)
{
    struct model *model = NULL;
    struct fault fault = {0};
    float *logits;

    if (model_new(gguf, team, &(struct model_opts){0}, &fault, &model) < 0)
        fail_msg("%s", fault.text);
    logits = malloc(model_config(model)->vocab * sizeof(float));
    assert_non_null(logits);
    tiny_run(model, team, logits);
    model_free(model);
    return logits;
}

static void check_same(struct team *team, const struct tiny_shape *shape,
                       bool (*change)(struct making_over *m, const struct gguf_tensor *tensor))
{
    struct gguf *plain = tiny_gguf(shape, NULL), *changed = make_over(plain, change);
    float *expected = logits_of(plain, team), *logits = logits_of(changed, team);

    assert_true(gguf_tensor_count(plain) != 0);
    assert_memory_equal(logits, expected, shape->vocab * sizeof(float));
    free(expected);
    free(logits);
    gguf_close(plain);
    gguf_close(changed);
}

/* attn_kv_b [4 heads][32 nope + 32 value][64] -> attn_k_b [4][64][32], attn_v_b [4][32][64] */
static bool split_kv_b(struct making_over *m, const struct gguf_tensor *tensor)
{
    enum { HEADS = 4, NOPE = 32, VALUE = 32, LATENT = 64 };
    const uint64_t k_dims[3] = {NOPE, LATENT, HEADS}, v_dims[3] = {LATENT, VALUE, HEADS};
    const uint32_t *from = tensor->data;
    uint32_t *k, *v;
    char name[96];

    name_of(tensor, name);
    if (strstr(name, "attn_kv_b") == NULL)
        return false;
    memcpy(strstr(name, "kv_b"), "k_b.weight", sizeof("k_b.weight"));
    k = (uint32_t *)add(m, name, DTYPE_F32, 3, k_dims);
    memcpy(strstr(name, "k_b"), "v_b", 3);
    v = (uint32_t *)add(m, name, DTYPE_F32, 3, v_dims);
    for (unsigned h = 0; h < HEADS; h++)
        for (unsigned i = 0; i < NOPE + VALUE; i++)
            for (unsigned j = 0; j < LATENT; j++) {
                uint32_t bits = from[(h * (NOPE + VALUE) + i) * LATENT + j];

                if (i < NOPE)
                    k[(h * LATENT + j) * NOPE + i] = bits;
                else
                    v[(h * VALUE + i - NOPE) * LATENT + j] = bits;
            }
    return true;
}

static void split_halves_of_kv_b_are_the_same(void **state)
{
    struct tiny_shape shape = tiny_experts("deepseek2");

    check_same(*state, &shape, split_kv_b);
    shape.q_latent = 32;
    check_same(*state, &shape, split_kv_b);
}

static bool loosen(struct making_over *m, const struct gguf_tensor *tensor)
{
    uint64_t each_bytes = tensor->len_bytes / tensor->dims[2];
    char name[96], loose[128];

    name_of(tensor, name);
    if (strstr(name, "_exps.weight") == NULL)
        return false;
    for (uint64_t e = 0; e < tensor->dims[2]; e++) {
        snprintf(loose, sizeof(loose), "%.*s.%u.weight", (int)(strstr(name, "_exps") - name), name,
                 (unsigned)e);
        memcpy(add(m, loose, tensor->type, 2, tensor->dims), (const uint8_t *)tensor->data + e * each_bytes,
               each_bytes);
    }
    return true;
}

static void a_tensor_for_each_expert_is_the_same(void **state)
{
    struct tiny_shape shape = tiny_experts("llama");

    check_same(*state, &shape, loosen);
}

static void an_expert_too_many_is_refused(void **state)
{
    struct tiny_shape shape = tiny_experts("llama");
    struct gguf *plain, *loose;
    struct fault fault = {0};
    struct model *model = NULL;
    struct tiny_twist more = {.fault = TINY_MORE_TENSOR, .name = "blk.1.ffn_up.8.weight"};

    plain = tiny_gguf(&shape, &more);
    loose = make_over(plain, loosen);
    assert_int_equal(model_new(loose, *state, &(struct model_opts){0}, &fault, &model), E_UNSUPPORTED);
    assert_non_null(strstr(fault.text, "blk.1.ffn_up.8.weight"));
    gguf_close(plain);
    gguf_close(loose);
}

static bool widen_up(struct making_over *m, const struct gguf_tensor *tensor)
{
    uint64_t n = tensor->dims[0] * tensor->dims[1] * tensor->dims[2];
    char name[96];
    float *out;

    name_of(tensor, name);
    if (strstr(name, "ffn_up_exps") == NULL)
        return false;
    out = (float *)add(m, name, DTYPE_F32, 3, tensor->dims);
    for (uint64_t i = 0; i < n; i++)
        out[i] = f16_to_f32(get_u16((const uint8_t *)tensor->data + 2 * i));
    return true;
}

static void gate_and_up_of_two_types_are_the_same(void **state)
{
    struct tiny_shape shape = tiny_experts("qwen3moe");

    for (unsigned i = 0; i < 3; i++)
        shape.types[i] = DTYPE_F16;
    check_same(*state, &shape, widen_up);
}

/* Gate and up of each expert in one tensor, and so their biases. A file has gate just before up. */
static bool fuse_gate_up(struct making_over *m, const struct gguf_tensor *tensor)
{
    static uint8_t *fused;
    const bool is_bias = tensor->n_dims == 2;
    const uint64_t n_experts = tensor->dims[is_bias ? 1 : 2];
    uint64_t dims[3] = {tensor->dims[0], tensor->dims[1], tensor->dims[2]};
    char name[96], whole[96];

    name_of(tensor, name);
    const bool is_up = strstr(name, "ffn_up_exps") != NULL;
    if (!is_up && strstr(name, "ffn_gate_exps") == NULL)
        return false;
    const size_t each_bytes = tensor->len_bytes / n_experts;
    dims[is_bias ? 0 : 1] *= 2;
    snprintf(whole, sizeof(whole), "%.5s.ffn_gate_up_exps.%s", name, is_bias ? "bias" : "weight");
    fused = is_up ? fused : add(m, whole, tensor->type, tensor->n_dims, dims);
    for (uint64_t e = 0; e < n_experts; e++)
        memcpy(fused + (2 * e + is_up) * each_bytes, (const uint8_t *)tensor->data + e * each_bytes,
               each_bytes);
    return true;
}

static bool fuse_biases(struct making_over *m, const struct gguf_tensor *tensor)
{
    return tensor->n_dims == 2 && fuse_gate_up(m, tensor);
}

static void gate_and_up_in_one_tensor_are_the_same(void **state)
{
    struct tiny_shape shape = tiny_experts("gpt-oss");

    check_same(*state, &shape, fuse_gate_up);
    check_same(*state, &shape, fuse_biases);
}

/* ---- memory ---- */

/* Returns how many bytes of the mapping at this address are in this process's memory. */
static uint64_t resident_bytes(const void *address)
{
    const uintptr_t at = (uintptr_t)address;
    FILE *smaps = fopen("/proc/self/smaps", "r");
    uint64_t from = 0, to = 0, kib = UINT64_MAX;
    char line[512];

    assert_non_null(smaps);
    while (kib == UINT64_MAX && fgets(line, sizeof(line), smaps) != NULL) {
        uint64_t low, high;

        if (sscanf(line, "%" SCNx64 "-%" SCNx64 " ", &low, &high) == 2) {
            from = low;
            to = high;
        } else if (at >= from && at < to)
            (void)sscanf(line, "Rss: %" SCNu64, &kib);
    }
    fclose(smaps);
    assert_true(kib != UINT64_MAX);
    return kib * 1024;
}

/* A file's pages are given back as soon as its weights are packed;
 * otherwise a model would take its size twice. */
static void check_given_back(struct gguf *gguf, struct team *team)
{
    const void *first = gguf_tensor_at(gguf, 0)->data;
    struct model *model = NULL;
    struct fault fault = {0};

    for (uint64_t i = 0; i < gguf_tensor_count(gguf); i++) { /* all of them are in memory */
        const struct gguf_tensor *tensor = gguf_tensor_at(gguf, i);
        const volatile uint8_t *data = tensor->data;

        for (uint64_t k = 0; k < tensor->len_bytes; k += 4096)
            (void)data[k];
    }
    assert_true(resident_bytes(first) > gguf_file_bytes(gguf) / 10 * 9);
    if (model_new(gguf, team, &(struct model_opts){0}, &fault, &model) < 0)
        fail_msg("%s", fault.text);
    if (resident_bytes(first) > gguf_file_bytes(gguf) / 5) /* the kernel maps some pages around a new one */
        fail_msg("%" PRIu64 " of %" PRIu64 " bytes are still there", resident_bytes(first),
                 gguf_file_bytes(gguf));
    model_free(model);
    gguf_close(gguf);
}

static void memory_of_packed_weights_is_given_back(void **state)
{
    static const char *const ARCHS[] = {"llama", "qwen3moe", "deepseek2"};

    for (unsigned i = 0; i < 3; i++) {
        struct tiny_shape shape = tiny_experts(ARCHS[i]);

        shape.hidden = 512;
        shape.ffn = 1024;
        shape.expert_ffn = i == 0 ? shape.ffn : 512;
        check_given_back(tiny_gguf(&shape, NULL), *state);
        if (i > 0)
            continue;
        struct gguf *stacked = tiny_gguf(&shape, NULL);
        check_given_back(make_over(stacked, loosen), *state);
        gguf_close(stacked);
        shape.n_experts = 0;
        check_given_back(tiny_gguf(&shape, NULL), *state);
    }
}

/* ---- results of a good file ---- */

static void the_cache_holds_only_latents(void **state)
{
    struct tiny_shape shape = tiny_experts("deepseek2");
    struct model *model = tiny_model(&shape, *state, &(struct model_opts){.kv_type = KV_F16});
    const struct kv_layout *layout = model_kv_layout(model);

    assert_int_equal(layout->n_kv_heads, 1);
    assert_int_equal(layout->k_dim, 64 + 16);
    assert_int_equal(layout->v_dim, 0);
    assert_int_equal(kv_layout_block_bytes(layout), 2 * 32 * (64 + 16) * 2);
    assert_int_equal(model_config(model)->n_experts, 8);
    assert_int_equal(model_config(model)->n_experts_used, 3);
    assert_int_equal(model_config(model)->shared_ffn, 64);
    model_free(model);
}

/* A step of one token reads the experts that it uses, not all. */
static void a_step_reads_only_chosen_experts(void **state)
{
    struct tiny_shape shape = tiny_experts("qwen3moe");
    struct model *one, *all;
    uint64_t expert_bytes = (uint64_t)3 * shape.expert_ffn * shape.hidden * 4 * shape.n_layers;

    shape.n_used = 1;
    one = tiny_model(&shape, *state, &(struct model_opts){0});
    shape.n_used = 8;
    all = tiny_model(&shape, *state, &(struct model_opts){0});
    assert_true(model_config(all)->weight_bytes - model_config(one)->weight_bytes >= 7 * expert_bytes);
    assert_int_equal(model_config(all)->n_parameters, model_config(one)->n_parameters);
    model_free(one);
    model_free(all);
}

/* An MTP head follows the model's last layer.  Its tensors are known, and not needed. */
static void mtp_heads_are_no_layers(void **state)
{
    static const char *const SET[] = {"nextn_predict_layers=1", NULL};
    static const struct {
        struct tiny_twist twist;
        int code;
    } CASES[] = {{{.fault = TINY_MORE_TENSOR, .name = "blk.2.nextn.embed_tokens.weight"}, 0},
                 {{.fault = TINY_MORE_TENSOR, .name = "blk.3.nextn.enorm.weight"}, E_UNSUPPORTED},
                 {{.fault = TINY_MORE_TENSOR, .name = "blk.1.nextn.enorm.weight"}, E_UNSUPPORTED},
                 {{.fault = TINY_KEY_U32, .name = "glm4moe.block_count", .value = 1}, E_FORMAT}};
    struct tiny_shape shape = tiny_experts("glm4moe");

    shape.n_layers = 3;
    shape.set = SET;
    for (size_t i = 0; i < sizeof(CASES) / sizeof(CASES[0]); i++) {
        struct gguf *gguf = tiny_gguf(&shape, &CASES[i].twist);
        struct model *model = NULL;
        struct fault fault = {0};
        int rc = model_new(gguf, *state, &(struct model_opts){0}, &fault, &model);

        gguf_close(gguf);
        if (rc != CASES[i].code || (rc == 0 && model_config(model)->n_layers != 2))
            fail_msg("case %zu: code %s, \"%s\"", i, err_name(rc), fault.text);
        model_free(model);
    }
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test_setup_teardown(split_halves_of_kv_b_are_the_same, check_team_open, check_team_close),
        cmocka_unit_test_setup_teardown(a_tensor_for_each_expert_is_the_same, check_team_open,
                                        check_team_close),
        cmocka_unit_test_setup_teardown(an_expert_too_many_is_refused, check_team_open, check_team_close),
        cmocka_unit_test_setup_teardown(gate_and_up_of_two_types_are_the_same, check_team_open,
                                        check_team_close),
        cmocka_unit_test_setup_teardown(gate_and_up_in_one_tensor_are_the_same, check_team_open,
                                        check_team_close),
        cmocka_unit_test_setup_teardown(memory_of_packed_weights_is_given_back, check_team_open,
                                        check_team_close),
        cmocka_unit_test_setup_teardown(the_cache_holds_only_latents, check_team_open, check_team_close),
        cmocka_unit_test_setup_teardown(mtp_heads_are_no_layers, check_team_open, check_team_close),
        cmocka_unit_test_setup_teardown(a_step_reads_only_chosen_experts, check_team_open, check_team_close),
    };

    return cmocka_run_group_tests(tests, NULL, NULL);
}
