/* SPDX-License-Identifier: Apache-2.0 */
/* Loads files into a snapshot.
 *
 *     defaults  ->  main.conf  ->  main.conf.d/10-a.conf, 20-b.conf, ...  ->  command line
 *
 * The loader fills a draft in this order.  The draft becomes the snapshot only when there is no error.  So a
 * reload either gets a whole new configuration or keeps the old one.  Beside the caller's struct the
 * snapshot keeps the origin of each value.  Both lie in one allocation, the struct last:
 *
 *     [ origins | struct of the daemon ]      the caller sees the address of the struct
 */
#include "base/config/config.h"

#include <dirent.h>
#include <errno.h>
#include <stdlib.h>
#include <string.h>

#include "base/check.h"
#include "base/err.h"
#include "base/fault.h"
#include "base/file.h"
#include "base/config/config_priv.h"

enum { MAX_FILE_BYTES = 1 << 20, MAX_ERRORS = 100, MAX_SUGGESTED = 256 };

struct snapshot {
    char **origins;             /* [n_keys]; NULL: default */
    struct config_list *places; /* [n_keys] origins of a list's items, one by one; empty for the default */
    char *file;                 /* NULL: no file */
    _Alignas(16) unsigned char config[];
};

struct draft {
    const struct config_table *table;
    struct buf *errors;
    unsigned n_errors;
    bool is_out_of_memory;
    struct snapshot *snapshot;
    unsigned *set_in_file; /* [n_keys] number of the file that set the key last; 0: default */
    unsigned *set_on_line; /* [n_keys] */
    unsigned file;         /* number of the current file, from 1 */
    const char *file_name;
    const char *section; /* current section of the table; NULL: none yet, or unknown */
    bool has_section;    /* this file has had a [section] line */
};

static struct snapshot *snapshot_of(const void *config)
{
    return container_of(config, struct snapshot, config);
}

static void places_clear(struct config_list *places)
{
    for (size_t i = 0; i < places->n; i++)
        free(places->items[i]);
    free(places->items);
    *places = (struct config_list){0};
}

static int places_add(struct config_list *places, const char *place)
{
    char **items = realloc(places->items, (places->n + 1) * sizeof(*items));

    if (items == NULL)
        return E_NOMEM;
    places->items = items;
    items[places->n] = strdup(place);
    return items[places->n++] == NULL ? E_NOMEM : 0;
}

static void snapshot_free(struct snapshot *snapshot)
{
    if (snapshot == NULL)
        return;
    free(snapshot->origins);
    free(snapshot->places);
    free(snapshot->file);
    free(snapshot);
}

void config_free(const struct config_table *table, void *config)
{
    if (config == NULL)
        return;
    struct snapshot *snapshot = snapshot_of(config);
    for (size_t i = 0; i < table->n_keys; i++) {
        config_unbind(&table->keys[i], config);
        free(snapshot->origins[i]);
        places_clear(&snapshot->places[i]);
    }
    snapshot_free(snapshot);
}

const char *config_origin(const struct config_table *table, const void *config, size_t key_index)
{
    ASSERT(key_index < table->n_keys);
    const char *origin = snapshot_of(config)->origins[key_index];
    return origin == NULL ? "default" : origin;
}

const char *config_place(const void *config, size_t key_index, size_t item)
{
    const struct snapshot *snapshot = snapshot_of(config);
    const struct config_list *places = &snapshot->places[key_index];

    return item < places->n ? places->items[item] : snapshot->origins[key_index];
}

const char *config_file(const void *config)
{
    return snapshot_of(config)->file;
}

void config_diff(const struct config_table *table, const void *from, const void *to,
                 void (*changed)(void *arg, const struct config_key *key), void *arg)
{
    for (size_t i = 0; i < table->n_keys; i++)
        if (!config_same(&table->keys[i], from, to))
            changed(arg, &table->keys[i]);
}

void config_keep_fixed(const struct config_table *table, void *running, void *fresh)
{
    for (size_t i = 0; i < table->n_keys; i++) {
        const struct config_key *key = &table->keys[i];
        uint8_t *a = (uint8_t *)running + key->offset, *b = (uint8_t *)fresh + key->offset;
        uint8_t spare[sizeof(struct config_list)];
        size_t n = config_member_bytes(key->type);

        if (key->is_reloadable)
            continue;
        memcpy(spare, a, n);
        memcpy(a, b, n);
        memcpy(b, spare, n);
    }
}

/* Appends one error line, "place: message".  After a hundred lines it only says that there are more. */
static void config_load_report(struct draft *draft, const char *place, const char *message)
{
    draft->n_errors++;
    if (draft->n_errors <= MAX_ERRORS)
        buf_printf(draft->errors, "%s: %s\n", place, message);
    else if (draft->n_errors == MAX_ERRORS + 1)
        buf_append_str(draft->errors, "more than a hundred errors; the rest is not shown\n");
}

/* Appends "router.conf:12", or "command line" for line 0. */
static char *config_load_place_of(const struct draft *draft, unsigned line)
{
    struct buf place = {0};

    buf_append_str(&place, draft->file_name);
    if (line > 0)
        buf_printf(&place, ":%u", line);
    return buf_take_str(&place);
}

static void report_line(struct draft *draft, unsigned line, const char *message)
{
    char *place = config_load_place_of(draft, line);

    config_load_report(draft, place == NULL ? draft->file_name : place, message);
    free(place);
}

static void on_error(void *arg, unsigned line, const char *message)
{
    report_line(arg, line, message);
}

/* Returns the key's index, or SIZE_MAX. */
static size_t find_key(const struct config_table *table, const char *section, struct bytes name)
{
    for (size_t i = 0; i < table->n_keys; i++)
        if (strcmp(table->keys[i].section, section) == 0 && bytes_is(name, table->keys[i].name))
            return i;
    return SIZE_MAX;
}

/* Returns the table's own copy of a section's name, or NULL. */
static const char *find_section(const struct config_table *table, struct bytes name)
{
    for (size_t i = 0; i < table->n_keys; i++)
        if (bytes_is(name, table->keys[i].section))
            return table->keys[i].section;
    return NULL;
}

static void refuse_section(struct draft *draft, unsigned line, struct bytes name)
{
    const char *words[MAX_SUGGESTED];
    char shown[64];
    struct buf text = {0};
    size_t n = 0;

    for (size_t i = 0; i < draft->table->n_keys && n < MAX_SUGGESTED; i++)
        words[n++] = draft->table->keys[i].section;
    buf_printf(&text, "unknown section [%s]", config_shown(name, shown));
    const char *nearest = config_nearest(shown, words, n);
    if (nearest != NULL)
        buf_printf(&text, "; did you mean [%s]?", nearest);
    report_line(draft, line, text.is_bad ? "unknown section" : (char *)text.data);
    buf_fini(&text);
}

static void refuse_key(struct draft *draft, unsigned line, const char *section, struct bytes name)
{
    const char *words[MAX_SUGGESTED], *home = NULL;
    char shown[64];
    struct buf text = {0};
    size_t n = 0;

    for (size_t i = 0; i < draft->table->n_keys; i++) {
        const struct config_key *key = &draft->table->keys[i];

        if (strcmp(key->section, section) == 0 && n < MAX_SUGGESTED)
            words[n++] = key->name;
        else if (bytes_is(name, key->name))
            home = key->section;
    }
    config_shown(name, shown);
    buf_printf(&text, "%s.%s: unknown key", section, shown);
    const char *nearest = config_nearest(shown, words, n);
    if (home != NULL)
        buf_printf(&text, "; it belongs to [%s]", home);
    else if (nearest != NULL)
        buf_printf(&text, "; did you mean '%s'?", nearest);
    report_line(draft, line, text.is_bad ? "unknown key" : (char *)text.data);
    buf_fini(&text);
}

/* Sets one key; line 0: from the command line. */
static void set_key(struct draft *draft, size_t index, unsigned line, struct bytes value)
{
    const struct config_key *key = &draft->table->keys[index];
    bool is_again = draft->set_in_file[index] == draft->file;
    bool is_list = key->type == CONFIG_LIST;
    void *config = draft->snapshot->config;
    struct buf why = {0};
    int rc = 0;

    buf_printf(&why, "%s.%s: ", key->section, key->name);
    if (is_again && !is_list && line > 0) {
        buf_printf(&why, "given twice in this file (first on line %u)", draft->set_on_line[index]);
        rc = E_FORMAT;
    } else {
        /* An empty value empties a list.  The first item from files replaces the default; the first item of
         * the command line replaces the items of the files. */
        if (is_list && (value.len_bytes == 0 || draft->set_in_file[index] == 0 || (line == 0 && !is_again))) {
            config_unbind(key, config);
            places_clear(&draft->snapshot->places[index]);
        }
        rc = config_bind(key, value, config, &why);
    }
    if (rc == E_NOMEM || why.is_bad) {
        draft->is_out_of_memory = true;
    } else if (rc != 0) {
        report_line(draft, line, (char *)why.data);
    } else {
        free(draft->snapshot->origins[index]);
        draft->snapshot->origins[index] = config_load_place_of(draft, line);
        draft->is_out_of_memory |= draft->snapshot->origins[index] == NULL;
        if (is_list && value.len_bytes > 0 && draft->snapshot->origins[index] != NULL)
            draft->is_out_of_memory |=
                places_add(&draft->snapshot->places[index], draft->snapshot->origins[index]) < 0;
    }
    draft->set_in_file[index] = draft->file;
    draft->set_on_line[index] = line;
    buf_fini(&why);
}

static void on_section(void *arg, unsigned line, struct bytes name)
{
    struct draft *draft = arg;

    draft->has_section = true;
    draft->section = find_section(draft->table, name);
    if (draft->section == NULL)
        refuse_section(draft, line, name);
}

static void on_value(void *arg, unsigned line, struct bytes name, struct bytes value)
{
    struct draft *draft = arg;

    if (draft->section == NULL) {
        if (!draft->has_section)
            report_line(draft, line, "the key stands before the first [section]");
        return; /* key of an unknown section: one error is enough */
    }
    size_t index = find_key(draft->table, draft->section, name);
    if (index == SIZE_MAX)
        refuse_key(draft, line, draft->section, name);
    else
        set_key(draft, index, line, value);
}

static void config_load_read_text(struct draft *draft, const char *file_name, struct bytes text)
{
    const struct config_reader reader = {
        .arg = draft, .section = on_section, .value = on_value, .error = on_error};

    draft->file++;
    draft->file_name = file_name;
    draft->section = NULL;
    draft->has_section = false;
    config_parse(text, &reader);
}

static void config_load_read_file(struct draft *draft, const char *path)
{
    struct buf text = {0};
    const char *fault = NULL;
    FILE *file = file_open(path, &fault);

    if (file != NULL && buf_reserve(&text, MAX_FILE_BYTES + 1) != 0) {
        draft->is_out_of_memory = true;
    } else if (file != NULL) {
        text.len_bytes = fread(text.data, 1, MAX_FILE_BYTES + 1, file);
        if (ferror(file))
            fault = "cannot be read";
        else if (text.len_bytes > MAX_FILE_BYTES)
            fault = "larger than 1 MiB";
    }
    if (file != NULL)
        fclose(file);
    if (fault != NULL)
        config_load_report(draft, path, fault);
    else if (!draft->is_out_of_memory)
        config_load_read_text(draft, path, buf_view(&text));
    buf_fini(&text);
}

static int is_drop_in(const struct dirent *entry)
{
    return entry->d_name[0] != '.' && bytes_ends_with(bytes_str(entry->d_name), ".conf");
}

static int by_bytes(const struct dirent **a, const struct dirent **b)
{
    return strcmp((*a)->d_name, (*b)->d_name);
}

/* Reads main.conf.d/<anything>.conf; a missing folder is no error. */
static void read_drop_ins(struct draft *draft, const char *path)
{
    struct buf folder = {0};
    struct dirent **entries;

    if (buf_printf(&folder, "%s.d", path) != 0) {
        draft->is_out_of_memory = true;
        return;
    }
    int n = scandir((char *)folder.data, &entries, is_drop_in, by_bytes);
    if (n < 0 && errno != ENOENT && errno != ENOTDIR)
        config_load_report(draft, (char *)folder.data, strerror(errno));
    for (int i = 0; i < n; i++) {
        struct buf file = {0};

        if (buf_printf(&file, "%s/%s", (char *)folder.data, entries[i]->d_name) == 0)
            config_load_read_file(draft, (char *)file.data);
        else
            draft->is_out_of_memory = true;
        buf_fini(&file);
        free(entries[i]);
    }
    if (n >= 0)
        free(entries);
    buf_fini(&folder);
}

/* Parses "section.key=value". */
static void read_override(struct draft *draft, const char *text)
{
    const char *equals = strchr(text, '='), *dot = strchr(text, '.');
    const char *section = NULL;
    struct fault fault;
    char shown[64];

    if (equals == NULL || dot == NULL || dot > equals) {
        fault_set(&fault, E_FORMAT, "'%s' is not section.key=value", config_shown(bytes_str(text), shown));
        config_load_report(draft, draft->file_name, fault.text);
        return;
    }
    struct bytes name = bytes_of(dot + 1, (size_t)(equals - dot - 1));
    struct bytes section_name = bytes_of(text, (size_t)(dot - text));
    section = find_section(draft->table, section_name);
    if (section == NULL) {
        refuse_section(draft, 0, section_name);
        return;
    }
    size_t index = find_key(draft->table, section, name);
    if (index == SIZE_MAX)
        refuse_key(draft, 0, section, name);
    else
        set_key(draft, index, 0, bytes_str(equals + 1));
}

static void set_default(struct draft *draft, const struct config_key *key)
{
    struct bytes value = bytes_str(key->default_text);
    void *config = draft->snapshot->config;
    struct buf why = {0};
    int rc = 0;

    if (key->type != CONFIG_LIST) {
        rc = config_bind(key, value, config, &why);
    } else {
        for (const char *at = key->default_text; rc == 0 && *at != '\0'; at += strspn(at, " ")) {
            size_t len_bytes = strcspn(at, " ");

            rc = config_bind(key, bytes_of(at, len_bytes), config, &why);
            at += len_bytes;
        }
    }
    buf_fini(&why);
    ASSERT(rc == 0 || rc == E_NOMEM); /* else the table contradicts itself */
    draft->is_out_of_memory |= rc != 0;
}

static int draft_open(const struct config_table *table, struct buf *errors, struct draft *out)
{
    struct draft draft = {.table = table, .errors = errors};

    draft.set_in_file = calloc(table->n_keys + 1, sizeof(*draft.set_in_file));
    draft.set_on_line = calloc(table->n_keys + 1, sizeof(*draft.set_on_line));
    draft.snapshot = calloc(1, sizeof(*draft.snapshot) + table->struct_bytes);
    if (draft.snapshot != NULL) {
        draft.snapshot->origins = calloc(table->n_keys + 1, sizeof(*draft.snapshot->origins));
        draft.snapshot->places = calloc(table->n_keys + 1, sizeof(*draft.snapshot->places));
    }
    if (draft.set_in_file == NULL || draft.set_on_line == NULL || draft.snapshot == NULL ||
        draft.snapshot->origins == NULL || draft.snapshot->places == NULL) {
        free(draft.set_in_file);
        free(draft.set_on_line);
        snapshot_free(draft.snapshot);
        return E_NOMEM;
    }
    for (size_t i = 0; i < table->n_keys; i++)
        set_default(&draft, &table->keys[i]);
    *out = draft;
    return 0;
}

/* Returns the snapshot if there was no error. */
static int draft_close(struct draft *draft, void **out)
{
    int rc = 0;

    if (draft->is_out_of_memory || draft->errors->is_bad) {
        buf_append_str(draft->errors, "out of memory\n");
        rc = E_NOMEM;
    } else if (draft->n_errors > 0) {
        rc = E_FORMAT;
    }
    if (rc == 0)
        *out = draft->snapshot->config;
    else
        config_free(draft->table, draft->snapshot->config);
    free(draft->set_in_file);
    free(draft->set_on_line);
    return rc;
}

int config_load(const struct config_table *table, const struct config_source *source, struct buf *errors,
                void **out)
{
    struct draft draft;
    int rc = draft_open(table, errors, &draft);

    if (rc != 0)
        return rc;
    if (source->path != NULL) {
        draft.snapshot->file = strdup(source->path);
        draft.is_out_of_memory |= draft.snapshot->file == NULL;
        config_load_read_file(&draft, source->path);
        read_drop_ins(&draft, source->path);
    }
    draft.file++;
    draft.file_name = "command line";
    for (size_t i = 0; source->overrides != NULL && i < source->n_overrides; i++)
        read_override(&draft, source->overrides[i]);
    return draft_close(&draft, out);
}

int config_load_text(const struct config_table *table, const char *name, struct bytes text,
                     struct buf *errors, void **out)
{
    struct draft draft;
    int rc = draft_open(table, errors, &draft);

    if (rc != 0)
        return rc;
    config_load_read_text(&draft, name, text);
    return draft_close(&draft, out);
}
