/* SPDX-License-Identifier: Apache-2.0 */
/* A main() for fuzz targets in builds without libFuzzer.
 *
 * Every target is one function, LLVMFuzzerTestOneInput().  A build with --enable-fuzz links libFuzzer's main,
 * which searches for new inputs.  Every other build links this one, which runs the known inputs: the seed
 * corpus and earlier crashes.  So `make check` keeps them passing under any compiler and sanitizer.  It also
 * tries variants of each file: cut short, bytes changed, a piece doubled.  A fixed seed makes them the same
 * in every run.
 *
 *     fuzz_x [-n MUTATIONS] [FILE|FOLDER]...      without files: $srcdir/tests/fuzz/corpus/x
 *
 * Each input is in heap memory of exactly its size, so that AddressSanitizer detects a read of one byte too
 * many. -v names each file before it runs, so the last printed name belongs to the crash. */
#include "base/bytes.h"
#include "base/rng.h"

#include <dirent.h>
#include <errno.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size);

static unsigned n_mutations = 64;
static bool is_verbose;
static unsigned n_files;
static unsigned n_inputs;

static void run_one(const uint8_t *data, size_t len_bytes)
{
    uint8_t *exact = malloc(len_bytes == 0 ? 1 : len_bytes);

    if (exact == NULL)
        abort();
    if (len_bytes > 0)
        memcpy(exact, data, len_bytes);
    LLVMFuzzerTestOneInput(exact, len_bytes);
    free(exact);
    n_inputs++;
}

/* Changes a copy of the input in one to four places. */
static void run_mutated(const struct buf *input, struct rng *rng)
{
    struct buf copy = {0};

    buf_append(&copy, input->data, input->len_bytes);
    for (uint64_t left = 1 + rng_below(rng, 4); left > 0 && copy.len_bytes > 0; left--) {
        size_t at = (size_t)rng_below(rng, copy.len_bytes);
        size_t len_bytes = 1 + (size_t)rng_below(rng, copy.len_bytes - at);

        switch (rng_below(rng, 4)) {
        case 0:
            copy.len_bytes = at;
            break;
        case 1:
            copy.data[at] ^= (uint8_t)(1u << rng_below(rng, 8));
            break;
        case 2:
            copy.data[at] = (uint8_t)rng_u64(rng);
            break;
        case 3:
            if (copy.len_bytes < 1 << 20 && buf_reserve(&copy, len_bytes) == 0)
                buf_append(&copy, copy.data + at, len_bytes);
            break;
        }
    }
    if (!copy.is_bad)
        run_one(copy.data, copy.len_bytes);
    buf_fini(&copy);
}

static int replay_file(const char *path)
{
    FILE *file = fopen(path, "rbe");
    struct buf input = {0};
    uint8_t piece[4096];
    size_t n;

    if (file == NULL) {
        fprintf(stderr, "%s: %s\n", path, strerror(errno));
        return 1;
    }
    while ((n = fread(piece, 1, sizeof(piece), file)) > 0)
        buf_append(&input, piece, n);
    fclose(file);

    if (is_verbose)
        fprintf(stderr, "%s\n", path);
    struct rng rng;
    rng_init(&rng, input.len_bytes);
    run_one(input.data, input.len_bytes);
    for (unsigned i = 0; i < n_mutations; i++)
        run_mutated(&input, &rng);
    buf_fini(&input);
    n_files++;
    return 0;
}

static int replay(const char *path)
{
    struct stat status;
    struct dirent **entries;

    if (stat(path, &status) != 0 || !S_ISDIR(status.st_mode))
        return replay_file(path);

    int n = scandir(path, &entries, NULL, alphasort);
    int failed = n < 0;
    for (int i = 0; i < n; i++) {
        struct buf child = {0};

        if (entries[i]->d_name[0] != '.' && buf_printf(&child, "%s/%s", path, entries[i]->d_name) == 0)
            failed |= replay((const char *)child.data);
        buf_fini(&child);
        free(entries[i]);
    }
    if (n >= 0)
        free(entries);
    return failed;
}

/* tests/fuzz/fuzz_config -> $srcdir/tests/fuzz/corpus/config */
static int replay_own_corpus(const char *program)
{
    const char *slash = strrchr(program, '/');
    const char *name = slash == NULL ? program : slash + 1;
    const char *source = getenv("srcdir");
    struct buf path = {0};

    if (strncmp(name, "fuzz_", 5) == 0)
        name += 5;
    buf_printf(&path, "%s/tests/fuzz/corpus/%s", source == NULL ? "." : source, name);
    if (path.is_bad)
        return 1;
    int failed = replay((const char *)path.data);
    if (!failed && n_files == 0) {
        fprintf(stderr, "%s: no files\n", (const char *)path.data);
        failed = 1;
    }
    buf_fini(&path);
    return failed;
}

int main(int argc, char **argv)
{
    int option, failed = 0;

    while ((option = getopt(argc, argv, "n:v")) != -1) {
        if (option == 'n')
            n_mutations = (unsigned)strtoul(optarg, NULL, 10);
        else if (option == 'v')
            is_verbose = true;
        else
            return 2;
    }
    for (int i = optind; i < argc; i++)
        failed |= replay(argv[i]);
    if (optind == argc)
        failed = replay_own_corpus(argv[0]);
    printf("%s: %u inputs from %u files\n", argv[0], n_inputs, n_files);
    return failed;
}
