/* SPDX-License-Identifier: Apache-2.0 */
/* The text of a configuration file: sections, and above each setting its reason. */
#include "clients/setup/setup.h"

#include <string.h>

#include "base/err.h"

void setup_wrap(const char *text, const char *prefix, size_t width, struct buf *out)
{
    while (*text != '\0') {
        size_t room = width - strlen(prefix), len = strlen(text);

        if (len > room) {
            for (len = room; len > 0 && text[len] != ' '; len--)
                ;
            if (len == 0)
                len = strcspn(text, " ");
        }
        (void)buf_append_str(out, prefix);
        (void)buf_append(out, text, len);
        (void)buf_append_byte(out, '\n');
        text += len;
        text += strspn(text, " ");
    }
}

/* Appends the settings of one section, wherever they stand in the file's list. */
static void render_section(const struct setup_file *file, const char *section, struct buf *out)
{
    (void)buf_printf(out, "\n[%s]\n", section);
    for (unsigned i = 0; i < file->n_lines; i++) {
        const struct setup_line *line = &file->lines[i];

        if (strcmp(line->section, section) != 0)
            continue;
        setup_wrap(line->why, "# ", 100, out);
        (void)buf_printf(out, "%s = %s\n", line->key, line->value);
    }
}

static bool render_is_first(const struct setup_file *file, unsigned i)
{
    for (unsigned j = 0; j < i; j++)
        if (strcmp(file->lines[j].section, file->lines[i].section) == 0)
            return false;
    return true;
}

int setup_render(const struct setup_file *file, struct buf *out)
{
    (void)buf_printf(out,
                     "# %s Written by baton-setup; yours to change.\n# All keys and their defaults: %s "
                     "--sample-config. Check a change: %s --config FILE --check-config.\n",
                     file->title, file->daemon, file->daemon);
    for (unsigned i = 0; i < file->n_lines; i++)
        if (render_is_first(file, i))
            render_section(file, file->lines[i].section, out);
    return out->is_bad ? E_NOMEM : 0;
}
