/* SPDX-License-Identifier: Apache-2.0 */
/* baton-model split and merge: the same tensors in several files, or in one.
 *
 *     split   tensor by tensor into the part where its middle byte falls; the first part has all keys
 *     merge   all tensors of a split model into one file
 *
 * Both copy bytes only.  Each file gets its name when it is complete. */
#include "clients/model/model_cli.h"

#include "base/bytes.h"
#include "base/err.h"
#include "base/str.h"
#include "clients/model/rig.h"
#include "gguf/write.h"

#include <getopt.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

static const char SPLIT_HELP[] =
    "Usage: baton-model split --parts N [--force] IN.gguf PREFIX\n"
    "Write a model as PREFIX-00001-of-0000N.gguf and so on. Every command and daemon takes any part's name.\n"
    "\n"
    "  --parts N  number of files, 2 to 4096, at most the number of tensors\n"
    "  --force    overwrite files\n"
    "  --help     this text\n";

static const char MERGE_HELP[] = "Usage: baton-model merge [--force] IN-00001-of-0000N.gguf OUT.gguf\n"
                                 "Write a split model as one file. IN is any of its parts.\n"
                                 "\n"
                                 "  --force    overwrite OUT.gguf\n"
                                 "  --help     this text\n";

enum { MOST_PARTS = 4096 };

struct split_args {
    const char *command, *from, *to;
    uint64_t n_parts; /* 0: merge */
    bool is_forced, is_help;
};

struct copy { /* tensors that go to one file */
    const struct gguf *gguf;
    uint64_t first, n;
};

static int cmd_split_fill(void *arg, uint64_t index, struct gguf_writer *writer)
{
    const struct copy *copy = arg;
    const struct gguf_tensor *tensor = gguf_tensor_at(copy->gguf, copy->first + index);
    int rc = rig_is_interrupted() ? E_CANCELLED : gguf_writer_data(writer, tensor->data, tensor->len_bytes);

    gguf_forget(copy->gguf, tensor);
    return rc;
}

static int cmd_split_declare(struct gguf_writer *writer, const struct copy *copy)
{
    for (uint64_t i = 0; i < copy->n; i++) {
        const struct gguf_tensor *tensor = gguf_tensor_at(copy->gguf, copy->first + i);
        static const uint64_t one = 1;
        struct buf name = {0};
        int rc;

        buf_append(&name, tensor->name.data, tensor->name.len_bytes);
        buf_append_byte(&name, '\0');
        rc = name.is_bad ? E_NOMEM
                         : gguf_declare_tensor(writer, (const char *)name.data, tensor->type,
                                               tensor->n_dims > 0 ? tensor->n_dims : 1,
                                               tensor->n_dims > 0 ? tensor->dims : &one);
        buf_fini(&name);
        if (rc != 0)
            return rc;
    }
    return 0;
}

/* Writes one file; part: its number from 0. */
static int cmd_split_write_file(const struct copy *copy, const struct split_args *args, uint64_t part,
                                const char *path, struct fault *fault)
{
    struct gguf_writer *writer = NULL;
    int rc = gguf_writer_new(&writer);

    if (rc == 0 && part == 0)
        rc = gguf_put_keys_of(writer, copy->gguf, "");
    if (rc == 0 && args->n_parts > 0) {
        rc = gguf_put_u16(writer, "split.no", (uint16_t)part);
        if (rc == 0)
            rc = gguf_put_u16(writer, "split.count", (uint16_t)args->n_parts);
        if (rc == 0) {
            int32_t n_tensors = (int32_t)gguf_tensor_count(copy->gguf);
            rc = gguf_put_i32(writer, "split.tensors.count", n_tensors);
        }
    }
    if (rc == 0)
        rc = cmd_split_declare(writer, copy);
    if (rc != 0)
        fault_set(fault, rc, "%s", err_text(rc));
    else
        rc = gguf_writer_save(writer, path, cmd_split_fill, (void *)copy, fault);
    gguf_writer_free(writer);
    return rc;
}

/* The end of part `number` (from 1): the first tensor whose middle byte lies behind this share of all bytes. Every
 * part gets at least one tensor. */
static uint64_t cmd_split_end_of(const struct gguf *gguf, const struct split_args *args, uint64_t number,
                                 uint64_t first)
{
    uint64_t n = gguf_tensor_count(gguf), left = args->n_parts - number, all = 0, at = 0, i = 0;

    for (uint64_t k = 0; k < n; k++)
        all += gguf_tensor_at(gguf, k)->len_bytes;
    for (; left > 0 && i < n; i++) {
        uint64_t len_bytes = gguf_tensor_at(gguf, i)->len_bytes;

        if ((double)at + (double)len_bytes / 2 > (double)all * (double)number / (double)args->n_parts)
            break;
        at += len_bytes;
    }
    if (left == 0 || i > n - left)
        return n - left;
    return i > first ? i : first + 1;
}

/* Removes the first n parts: without the others they are of no use. */
static void cmd_split_remove(const struct gguf_part *part, uint64_t n)
{
    for (uint64_t i = 0; i < n; i++) {
        struct buf path = {0};

        gguf_part_path(part, (uint32_t)i + 1, &path);
        buf_append_byte(&path, '\0');
        if (!path.is_bad)
            unlink((const char *)path.data);
        buf_fini(&path);
    }
}

static int cmd_split_path(const struct gguf_part *part, const struct split_args *args, uint64_t i,
                          struct buf *path, struct fault *fault)
{
    path->len_bytes = 0;
    if (args->n_parts > 0)
        gguf_part_path(part, (uint32_t)i + 1, path);
    else
        buf_append_str(path, args->to);
    buf_append_byte(path, '\0');
    return path->is_bad ? fault_set(fault, E_NOMEM, "out of memory") : 0;
}

/* Checks all names before a file is written: the first parts must not be lost because of a later name. */
static int cmd_split_check_paths(const struct gguf_part *part, const struct split_args *args,
                                 uint64_t n_files, struct buf *path, struct fault *fault)
{
    int rc = 0;

    for (uint64_t i = 0; i < n_files && rc == 0; i++) {
        rc = cmd_split_path(part, args, i, path, fault);
        if (rc == 0)
            rc = cli_may_write((const char *)path->data, args->is_forced, fault);
        if (rc == 0)
            rc = cli_is_other((const char *)path->data, args->from, fault);
    }
    return rc;
}

static int cmd_split_save(const struct gguf *gguf, const struct split_args *args, struct buf *path,
                          struct fault *fault)
{
    struct gguf_part part = {.prefix = bytes_str(args->to), .count = (uint32_t)args->n_parts};
    uint64_t n_files = args->n_parts > 0 ? args->n_parts : 1;
    struct copy copy = {.gguf = gguf};
    int rc;

    if (n_files > gguf_tensor_count(gguf))
        return fault_set(fault, E_RANGE, "%llu parts, but the model has %llu tensors",
                         (unsigned long long)n_files, (unsigned long long)gguf_tensor_count(gguf));
    rc = cmd_split_check_paths(&part, args, n_files, path, fault);
    for (uint64_t i = 0; i < n_files && rc == 0; i++) {
        copy.n = args->n_parts > 0 ? cmd_split_end_of(gguf, args, i + 1, copy.first) - copy.first
                                   : gguf_tensor_count(gguf);
        rc = cmd_split_path(&part, args, i, path, fault);
        if (rc == 0)
            rc = cmd_split_write_file(&copy, args, i, (const char *)path->data, fault);
        if (rc < 0 && args->n_parts > 0)
            cmd_split_remove(&part, i);
        copy.first += copy.n;
    }
    return rc;
}

static bool cmd_split_parse(int argc, char **argv, struct split_args *args)
{
    static const struct option options[] = {{"parts", required_argument, NULL, 'p'},
                                            {"force", no_argument, NULL, 'f'},
                                            {"help", no_argument, NULL, 'h'},
                                            {NULL, 0, NULL, 0}};
    bool is_split = strcmp(args->command, "split") == 0;
    int option;

    while ((option = getopt_long(argc, argv, "h", options, NULL)) != -1) {
        if (option == 'h')
            args->is_help = true;
        else if (option == 'f')
            args->is_forced = true;
        else if (option != 'p' || !is_split || str_to_u64(bytes_str(optarg), &args->n_parts) != 0)
            return false;
    }
    if (args->is_help)
        return true;
    if (argc - optind != 2 || (is_split && (args->n_parts < 2 || args->n_parts > MOST_PARTS)))
        return false;
    args->from = argv[optind];
    args->to = argv[optind + 1];
    return true;
}

static int cmd_split_run(int argc, char **argv, const char *help)
{
    struct split_args args = {.command = argv[0]};
    struct gguf *gguf = NULL;
    struct fault fault = {0};
    struct buf path = {0};

    if (!cmd_split_parse(argc, argv, &args))
        return cli_usage(args.command, NULL);
    if (args.is_help) {
        fputs(help, stdout);
        return cli_done(args.command);
    }
    rig_catch_interrupt();
    int rc = gguf_open(args.from, &fault, &gguf);
    if (rc == 0)
        rc = cmd_split_save(gguf, &args, &path, &fault);
    int status =
        rc == E_CANCELLED ? rig_interrupt_status()
        : rc < 0 ? cli_failed(args.command, path.len_bytes > 0 ? (const char *)path.data : args.from, &fault)
                 : cli_done(args.command);
    gguf_close(gguf);
    buf_fini(&path);
    return status;
}

int cmd_split(int argc, char **argv)
{
    return cmd_split_run(argc, argv, SPLIT_HELP);
}

int cmd_merge(int argc, char **argv)
{
    return cmd_split_run(argc, argv, MERGE_HELP);
}
