/* SPDX-License-Identifier: Apache-2.0 */
/* At the start of a process: use the cache file's choice for this machine, or measure all variants and
 * write the file.
 *
 *     key of this machine --> in the file? --> choose that
 *                                 | no
 *                                 v
 *         copies (mem_copy.c), kernels (tune_trial.c) --> choose the best --> write the file
 */
#include "compute/tensor/tune_priv.h"

#include "base/clock.h"
#include "compute/kernels/kern.h"

#define COPY_LIMIT_NS (20 * NS_PER_MS)
#define LIMIT_NS      (225 * NS_PER_MS) /* plus the trial in progress and the file: less than 300 ms */
#define WAIT_FACTOR   18                /* TUNE_WAIT: multiplies both limits */

/* False: there was no time for all trials. */
static bool tune_measure(struct team *team, const struct kern_table *table, unsigned factor,
                         struct tuned *out)
{
    const uint64_t end_ns = clock_now_ns() + factor * LIMIT_NS;
    const struct mem_copy_method *copy = mem_copy_measure(factor * COPY_LIMIT_NS, out->copy_gbs);

    out->copy = copy != NULL ? copy : out->copy;
    return tune_kernels(team, table, end_ns, out) && copy != NULL;
}

static void tune_save(struct bytes old, const char *key, struct tuned *out)
{
    struct buf fresh = {0};

    if (out->path[0] == '\0')
        return;
    tune_record_put(old, key, out, &fresh);
    out->is_saved = !fresh.is_bad && tune_file_write(out->path, buf_view(&fresh));
    buf_fini(&fresh);
}

void tensor_tune(struct team *team, const struct kern_table *table, enum tune_mode mode, struct tuned *out)
{
    const uint64_t start_ns = clock_now_ns();
    char key[TUNE_KEY_BYTES];
    struct buf old = {0};

    *out = (struct tuned){.copy = mem_copy_method_at(0)};
    if (mode != TUNE_OFF) {
        tune_key(table, team_size(team), key);
        tune_file_path(out->path, sizeof(out->path));
        if (out->path[0] != '\0')
            tune_file_read(out->path, &old);
        out->is_from_cache =
            mode == TUNE_AUTO && tune_record_find(buf_view(&old), key, &out->choice, &out->copy);
        /* only a complete measurement is saved: the next start can try again */
        if (!out->is_from_cache && tune_measure(team, table, mode == TUNE_WAIT ? WAIT_FACTOR : 1, out))
            tune_save(buf_view(&old), key, out);
    }
    kern_choice_set(&out->choice);
    mem_copy_choose(out->copy);
    buf_fini(&old);
    out->took_ns = clock_now_ns() - start_ns;
}

void tuned_line(const struct tuned *tuned, struct buf *out)
{
    buf_printf(out, "copy=%s", tuned->copy->name);
    for (int field = 0; field < KERN_N_FIELDS; field++)
        buf_printf(out, " %s=%s", kern_choice_field_name((enum kern_field)field),
                   kern_choice_variant_name((enum kern_field)field, tuned->choice.at[field]));
}

static void tensor_tune_table_row(struct buf *out, const char *field, const char *variant, bool is_chosen)
{
    buf_printf(out, "%-8s %-12s %-8s", field, variant, is_chosen ? "chosen" : "");
}

static void table_ratio(struct buf *out, double ratio)
{
    if (ratio > 0)
        buf_printf(out, "%8.3f\n", ratio);
    else
        buf_append_str(out, "       -\n");
}

void tuned_table(const struct tuned *tuned, struct buf *out)
{
    const struct mem_copy_method *method;

    buf_append_str(out, "what     method                GB/s\n");
    for (uint32_t i = 0; (method = mem_copy_method_at(i)) != NULL; i++) {
        tensor_tune_table_row(out, "copy", method->name, method == tuned->copy);
        buf_printf(out, "%8.1f\n", tuned->copy_gbs[i]);
    }
    buf_append_str(out, "\nwhat     variant               time (1: as the variant it was compared with)\n");
    tensor_tune_table_row(out, "all", "second", false);
    table_ratio(out, tuned->start_ratio);
    for (int i = 0; i < KERN_N_FIELDS; i++)
        for (uint32_t j = 0; j < kern_choice_n_variants((enum kern_field)i); j++) {
            tensor_tune_table_row(out, kern_choice_field_name((enum kern_field)i),
                                  kern_choice_variant_name((enum kern_field)i, j), j == tuned->choice.at[i]);
            table_ratio(out, tuned->ratios[i][j]);
        }
    buf_printf(out, "\n%.0f ms; ", (double)tuned->took_ns / (double)NS_PER_MS);
    if (tuned->is_saved)
        buf_printf(out, "kept in %s\n", tuned->path);
    else
        buf_append_str(out, "not kept: no place for it can be written, or no time was left for all of it\n");
}
