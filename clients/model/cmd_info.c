/* SPDX-License-Identifier: Apache-2.0 */
/* baton-model info: the content of a model file.
 *
 * The command first collects everything, then prints it, for people or as one JSON object.  It also shows a
 * file that Baton cannot serve: an unknown tokeniser, chat template or architecture is named in its place, and
 * the rest is shown. */
#include "clients/model/model_cli.h"

#include "base/check.h"
#include "base/err.h"
#include "base/str.h"
#include "gguf/gguf.h"
#include "text/token/chat.h"

#include <getopt.h>
#include <inttypes.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

static const char NAME[] = "info";

static const char HELP[] = "Usage: baton-model info [OPTIONS] MODEL.gguf\n"
                           "Show what is in a model file.\n"
                           "\n"
                           "  --keys       list all metadata keys\n"
                           "  --tensors    list all tensors\n"
                           "  --json       print one JSON object\n"
                           "  --help       this text\n";

/* Numbers of the architecture, each under its key "ARCH.key". */
static const struct shape_key {
    const char *key;
    const char *name; /* in JSON */
    const char *label;
} SHAPE[] = {
    {"block_count", "layers", "layers"},
    {"embedding_length", "hidden", "hidden size"},
    {"feed_forward_length", "feed_forward", "feed-forward size"},
    {"attention.head_count", "heads", "attention heads"},
    {"attention.head_count_kv", "kv_heads", "key/value heads"},
    {"attention.key_length", "head_size", "head size"},
    {"expert_count", "experts", "experts"},
    {"expert_used_count", "experts_used", "experts used"},
    {"rope.dimension_count", "rope_dimensions", "RoPE dimensions"},
    {"attention.sliding_window", "sliding_window", "sliding window"},
    {"context_length", "context_length", "context length"},
};

struct info {
    const char *path;
    bool shows_keys, shows_tensors, is_json;
    struct gguf *gguf;
    struct bytes name, arch;
    char fingerprint[33];
    bool has_shape[ARRAY_LEN(SHAPE)];
    uint64_t shape[ARRAY_LEN(SHAPE)];
    uint64_t n_parameters, tensor_bytes;
    struct {
        uint64_t n_tensors, len_bytes;
    } types[DTYPE_COUNT];
    struct bytes token_model, token_rule;
    struct tokenizer *tokenizer; /* NULL: token_fault says why */
    struct chat_format *chat;    /* NULL: chat_fault says why */
    struct fault token_fault, chat_fault;
};

/* ---- collecting ---- */

static void collect_shape(struct info *info)
{
    char key[256];

    for (size_t i = 0; i < ARRAY_LEN(SHAPE); i++) {
        int n = snprintf(key, sizeof(key), "%.*s.%s", (int)info->arch.len_bytes,
                         (const char *)info->arch.data, SHAPE[i].key);
        info->has_shape[i] =
            n > 0 && (size_t)n < sizeof(key) && gguf_get_u64(info->gguf, key, NULL, &info->shape[i]) == 0;
    }
}

static void collect_tensors(struct info *info)
{
    for (uint64_t i = 0; i < gguf_tensor_count(info->gguf); i++) {
        const struct gguf_tensor *tensor = gguf_tensor_at(info->gguf, i);

        info->n_parameters += tensor->dims[0] * tensor->dims[1] * tensor->dims[2] * tensor->dims[3];
        info->tensor_bytes += tensor->len_bytes;
        ASSERT(tensor->type < DTYPE_COUNT);
        info->types[tensor->type].n_tensors++;
        info->types[tensor->type].len_bytes += tensor->len_bytes;
    }
}

static void cmd_info_collect(struct info *info)
{
    gguf_get_str(info->gguf, "general.name", NULL, &info->name);
    gguf_get_str(info->gguf, "general.architecture", NULL, &info->arch);
    gguf_get_str(info->gguf, "tokenizer.ggml.model", NULL, &info->token_model);
    gguf_get_str(info->gguf, "tokenizer.ggml.pre", NULL, &info->token_rule);
    gguf_fingerprint(info->gguf, info->fingerprint);
    collect_shape(info);
    collect_tensors(info);
    if (tokenizer_new(info->gguf, &info->token_fault, &info->tokenizer) != 0)
        fault_set(&info->chat_fault, E_UNSUPPORTED, "no tokenizer");
    else
        chat_format_new(info->tokenizer, &info->chat_fault, &info->chat);
}

/* ---- for people ---- */

/* Text of the file is quoted as JSON, so that it cannot control the terminal; then the quotes are removed. */
static void cmd_info_print_text(struct bytes text)
{
    struct buf quoted = {0};

    if (json_put_str(&quoted, text) == 0)
        printf("%.*s", (int)quoted.len_bytes - 2, (char *)quoted.data + 1);
    buf_fini(&quoted);
}

static void print_label(const char *label)
{
    printf("  %-18s ", label);
}

/* 5649120 -> "5.4 MiB": for reading, not exact. */
static void print_size(uint64_t size_bytes)
{
    static const char *const units[] = {"bytes", "KiB", "MiB", "GiB", "TiB"};
    double value = (double)size_bytes;
    size_t unit = 0;

    while (value >= 1024 && unit + 1 < ARRAY_LEN(units)) {
        value /= 1024;
        unit++;
    }
    printf(unit == 0 ? "%.0f %s" : "%.1f %s", value, units[unit]);
}

static void print_count(uint64_t count)
{
    if (count >= 1000000000)
        printf("%.2f billion", (double)count * 1e-9);
    else if (count >= 1000000)
        printf("%.1f million", (double)count * 1e-6);
    else
        printf("%" PRIu64, count);
}

static void print_types(const struct info *info)
{
    const char *before = "";

    for (uint32_t type = 0; type < DTYPE_COUNT; type++) {
        if (info->types[type].n_tensors == 0)
            continue;
        printf("%s%s in %" PRIu64 " (", before, dtype_info(type)->name, info->types[type].n_tensors);
        print_size(info->types[type].len_bytes);
        printf(")");
        before = ", ";
    }
}

static void print_token_id(const struct info *info, const char *role, token_id id)
{
    if (id == TOKEN_NONE)
        return;
    printf(", %s %u ", role, id);
    cmd_info_print_text(tokenizer_piece(info->tokenizer, id));
}

static void print_tokenizer(const struct info *info)
{
    size_t n_stops;

    print_label("tokenizer");
    if (info->tokenizer == NULL) {
        printf("not usable: %s\n", info->token_fault.text);
        return;
    }
    cmd_info_print_text(info->token_model);
    if (info->token_rule.len_bytes > 0) {
        printf(" (");
        cmd_info_print_text(info->token_rule);
        printf(")");
    }
    printf(", %u tokens", tokenizer_vocab_size(info->tokenizer));
    print_token_id(info, "BOS", tokenizer_bos(info->tokenizer));
    print_token_id(info, "EOS", tokenizer_eos(info->tokenizer));
    printf("\n");
    const token_id *stops = tokenizer_stop_ids(info->tokenizer, &n_stops);
    print_label("an answer ends at");
    for (size_t i = 0; i < n_stops; i++) {
        printf("%s%u ", i == 0 ? "" : ", ", stops[i]);
        cmd_info_print_text(tokenizer_piece(info->tokenizer, stops[i]));
    }
    printf("%s\n", n_stops == 0 ? "no token known" : "");
}

static void print_summary(const struct info *info)
{
    print_label("name");
    cmd_info_print_text(info->name.len_bytes > 0 ? info->name : bytes_str("(none)"));
    printf("\n");
    print_label("architecture");
    cmd_info_print_text(info->arch.len_bytes > 0 ? info->arch : bytes_str("(none)"));
    printf("\n");
    print_label("fingerprint");
    printf("%s\n", info->fingerprint);
    print_label("file size");
    print_size(gguf_file_bytes(info->gguf));
    printf("\n");
    print_label("parameters");
    print_count(info->n_parameters);
    printf("\n");
    print_label("tensors");
    printf("%" PRIu64 "%s", gguf_tensor_count(info->gguf), gguf_tensor_count(info->gguf) > 0 ? ": " : "");
    print_types(info);
    printf("\n");
    for (size_t i = 0; i < ARRAY_LEN(SHAPE); i++) {
        if (!info->has_shape[i])
            continue;
        print_label(SHAPE[i].label);
        printf("%" PRIu64 "\n", info->shape[i]);
    }
    print_tokenizer(info);
    print_label("chat format");
    if (info->chat == NULL)
        printf("not usable: %s\n", info->chat_fault.text);
    else
        printf("%s, %s tools\n", chat_format_name(info->chat),
               chat_format_has_tools(info->chat) ? "with" : "without");
    if (info->chat != NULL && chat_format_warning(info->chat) != NULL) {
        print_label("");
        cmd_info_print_text(bytes_str(chat_format_warning(info->chat)));
        printf("\n");
    }
}

static void print_keys(const struct info *info)
{
    struct buf text = {0};

    printf("\nkeys\n");
    for (uint64_t i = 0; i < gguf_key_count(info->gguf); i++) {
        struct bytes name;
        enum gguf_kind kind;

        buf_clear(&text);
        if (gguf_key_at(info->gguf, i, &name, &kind) != 0 || gguf_key_text(info->gguf, i, &text) != 0)
            continue;
        printf("  ");
        cmd_info_print_text(name);
        printf(" = %.*s\n", (int)text.len_bytes, (char *)text.data);
    }
    buf_fini(&text);
}

static void print_tensors(const struct info *info)
{
    printf("\ntensors\n");
    for (uint64_t i = 0; i < gguf_tensor_count(info->gguf); i++) {
        const struct gguf_tensor *tensor = gguf_tensor_at(info->gguf, i);

        printf("  %-7s ", dtype_info(tensor->type)->name);
        for (uint32_t k = 0; k < tensor->n_dims; k++)
            printf("%s%" PRIu64, k == 0 ? "" : " x ", tensor->dims[k]);
        printf("  ");
        cmd_info_print_text(tensor->name);
        printf("\n");
    }
}

/* ---- as JSON ---- */

static void cmd_info_put_name(struct buf *out, const char *name)
{
    if (out->len_bytes > 0 && strchr("{[", out->data[out->len_bytes - 1]) == NULL)
        buf_append_byte(out, ',');
    buf_printf(out, "\"%s\":", name);
}

static void cmd_info_put_text(struct buf *out, const char *name, struct bytes text)
{
    cmd_info_put_name(out, name);
    json_put_str(out, text);
}

static void cmd_info_put_number(struct buf *out, const char *name, uint64_t number)
{
    cmd_info_put_name(out, name);
    buf_printf(out, "%" PRIu64, number);
}

static void cmd_info_put_id(struct buf *out, const char *name, token_id id)
{
    if (id != TOKEN_NONE)
        cmd_info_put_number(out, name, id);
}

static void put_tokenizer(struct buf *out, const struct info *info)
{
    size_t n_stops;

    cmd_info_put_name(out, "tokenizer");
    buf_append_byte(out, '{');
    if (info->tokenizer == NULL) {
        cmd_info_put_text(out, "error", bytes_str(info->token_fault.text));
        buf_append_byte(out, '}');
        return;
    }
    cmd_info_put_text(out, "model", info->token_model);
    cmd_info_put_text(out, "pre", info->token_rule);
    cmd_info_put_number(out, "tokens", tokenizer_vocab_size(info->tokenizer));
    cmd_info_put_id(out, "bos", tokenizer_bos(info->tokenizer));
    cmd_info_put_id(out, "eos", tokenizer_eos(info->tokenizer));
    cmd_info_put_name(out, "adds_bos");
    buf_append_str(out, tokenizer_adds_bos(info->tokenizer) ? "true" : "false");
    cmd_info_put_name(out, "stops");
    const token_id *stops = tokenizer_stop_ids(info->tokenizer, &n_stops);
    buf_append_byte(out, '[');
    for (size_t i = 0; i < n_stops; i++)
        buf_printf(out, "%s%u", i == 0 ? "" : ",", stops[i]);
    buf_append_str(out, "]}");
}

static void put_chat(struct buf *out, const struct info *info)
{
    cmd_info_put_name(out, "chat_format");
    buf_append_byte(out, '{');
    if (info->chat == NULL) {
        cmd_info_put_text(out, "error", bytes_str(info->chat_fault.text));
    } else {
        cmd_info_put_text(out, "name", bytes_str(chat_format_name(info->chat)));
        cmd_info_put_name(out, "tools");
        buf_append_str(out, chat_format_has_tools(info->chat) ? "true" : "false");
        if (chat_format_warning(info->chat) != NULL)
            cmd_info_put_text(out, "warning", bytes_str(chat_format_warning(info->chat)));
    }
    buf_append_byte(out, '}');
}

static void cmd_info_put_types(struct buf *out, const struct info *info)
{
    cmd_info_put_name(out, "types");
    buf_append_byte(out, '{');
    for (uint32_t type = 0; type < DTYPE_COUNT; type++) {
        if (info->types[type].n_tensors == 0)
            continue;
        cmd_info_put_name(out, dtype_info(type)->name);
        buf_append_byte(out, '{');
        cmd_info_put_number(out, "tensors", info->types[type].n_tensors);
        cmd_info_put_number(out, "bytes", info->types[type].len_bytes);
        buf_append_byte(out, '}');
    }
    buf_append_byte(out, '}');
}

static void put_keys(struct buf *out, const struct info *info)
{
    struct buf text = {0};

    cmd_info_put_name(out, "keys");
    buf_append_byte(out, '[');
    for (uint64_t i = 0; i < gguf_key_count(info->gguf); i++) {
        struct bytes name;
        enum gguf_kind kind;

        buf_clear(&text);
        if (gguf_key_at(info->gguf, i, &name, &kind) != 0 || gguf_key_text(info->gguf, i, &text) != 0)
            continue;
        buf_append_str(out, i == 0 ? "{" : ",{");
        cmd_info_put_text(out, "name", name);
        cmd_info_put_text(out, "value", buf_view(&text)); /* any kind, as a text for reading */
        buf_append_byte(out, '}');
    }
    buf_append_byte(out, ']');
    buf_fini(&text);
}

static void put_tensors(struct buf *out, const struct info *info)
{
    cmd_info_put_name(out, "tensors");
    buf_append_byte(out, '[');
    for (uint64_t i = 0; i < gguf_tensor_count(info->gguf); i++) {
        const struct gguf_tensor *tensor = gguf_tensor_at(info->gguf, i);

        buf_append_str(out, i == 0 ? "{" : ",{");
        cmd_info_put_text(out, "name", tensor->name);
        cmd_info_put_text(out, "type", bytes_str(dtype_info(tensor->type)->name));
        cmd_info_put_name(out, "dims");
        for (uint32_t k = 0; k < tensor->n_dims; k++)
            buf_printf(out, "%s%" PRIu64, k == 0 ? "[" : ",", tensor->dims[k]);
        buf_append_str(out, tensor->n_dims == 0 ? "[]" : "]");
        cmd_info_put_number(out, "bytes", tensor->len_bytes);
        buf_append_byte(out, '}');
    }
    buf_append_byte(out, ']');
}

static void cmd_info_print_json(const struct info *info)
{
    struct buf out = {0};

    buf_append_byte(&out, '{');
    cmd_info_put_text(&out, "file", bytes_str(info->path));
    cmd_info_put_number(&out, "file_bytes", gguf_file_bytes(info->gguf));
    cmd_info_put_text(&out, "fingerprint", bytes_str(info->fingerprint));
    cmd_info_put_text(&out, "name", info->name);
    cmd_info_put_text(&out, "architecture", info->arch);
    cmd_info_put_number(&out, "parameters", info->n_parameters);
    cmd_info_put_number(&out, "tensor_count", gguf_tensor_count(info->gguf));
    cmd_info_put_number(&out, "tensor_bytes", info->tensor_bytes);
    cmd_info_put_types(&out, info);
    cmd_info_put_name(&out, "shape");
    buf_append_byte(&out, '{');
    for (size_t i = 0; i < ARRAY_LEN(SHAPE); i++) {
        if (info->has_shape[i])
            cmd_info_put_number(&out, SHAPE[i].name, info->shape[i]);
    }
    buf_append_byte(&out, '}');
    put_tokenizer(&out, info);
    put_chat(&out, info);
    if (info->shows_keys)
        put_keys(&out, info);
    if (info->shows_tensors)
        put_tensors(&out, info);
    buf_append_str(&out, "}\n");
    if (!out.is_bad)
        fwrite(out.data, 1, out.len_bytes, stdout);
    buf_fini(&out);
}

/* ---- the command ---- */

static int cmd_info_show(struct info *info)
{
    struct fault fault = {0};

    if (gguf_open(info->path, &fault, &info->gguf) != 0)
        return cli_failed(NAME, info->path, &fault);
    cmd_info_collect(info);
    if (info->is_json) {
        cmd_info_print_json(info);
    } else {
        print_summary(info);
        if (info->shows_keys)
            print_keys(info);
        if (info->shows_tensors)
            print_tensors(info);
    }
    chat_format_free(info->chat);
    tokenizer_unref(info->tokenizer);
    gguf_close(info->gguf);
    return cli_done(NAME);
}

int cmd_info(int argc, char **argv)
{
    static const struct option options[] = {{"keys", no_argument, NULL, 'k'},
                                            {"tensors", no_argument, NULL, 't'},
                                            {"json", no_argument, NULL, 'j'},
                                            {"help", no_argument, NULL, 'h'},
                                            {NULL, 0, NULL, 0}};
    struct info info = {0};
    int option;

    while ((option = getopt_long(argc, argv, "h", options, NULL)) != -1) {
        if (option == 'h') {
            fputs(HELP, stdout);
            return cli_done(NAME);
        }
        if (option == '?')
            return cli_usage(NAME, NULL);
        info.shows_keys |= option == 'k';
        info.shows_tensors |= option == 't';
        info.is_json |= option == 'j';
    }
    if (optind + 1 != argc)
        return cli_usage(NAME, "name one model file");
    info.path = argv[optind];
    return cmd_info_show(&info);
}
