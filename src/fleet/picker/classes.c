/* SPDX-License-Identifier: Apache-2.0 */
/* See fleet/picker/classes.h. */
#include "fleet/picker/classes.h"

#include <string.h>

#include "base/err.h"
#include "base/name.h"
#include "base/str.h"

#define MAX_WORD 64

void picker_classes_init(struct picker_classes *classes, uint64_t ttft_slo_ns, uint64_t itl_slo_ns)
{
    *classes = (struct picker_classes){.all[0] = {.name = "default",
                                                  .ttft_slo_ns = ttft_slo_ns,
                                                  .itl_slo_ns = itl_slo_ns,
                                                  .weight = 1,
                                                  .share = 1},
                                       .n = 1};
}

static uint32_t class_find(const struct picker_classes *classes, const char *name)
{
    for (uint32_t i = 0; i < classes->n; i++)
        if (strcmp(classes->all[i].name, name) == 0)
            return i;
    return UINT32_MAX;
}

static bool class_is_name(const char *text)
{
    return name_is_valid(bytes_str(text), PICKER_CLASS_BYTES - 1);
}

static int class_number(const char *text, uint64_t least, uint64_t most, uint32_t *out)
{
    uint64_t value;

    if (str_to_u64(bytes_of(text, strlen(text)), &value) < 0 || value < least || value > most)
        return E_FORMAT;
    *out = (uint32_t)value;
    return 0;
}

static int class_duration(const char *text, uint64_t *out)
{
    uint64_t value;

    if (str_to_duration(bytes_of(text, strlen(text)), &value) < 0 || value == 0)
        return E_FORMAT;
    *out = value;
    return 0;
}

/* Parses may-be-paused. 0: streams of the class are never paused, even if those of the class default may be. */
static int class_pause(const char *text, uint64_t *out)
{
    return str_to_duration(bytes_of(text, strlen(text)), out) < 0 ? E_FORMAT : 0;
}

static int class_share(const char *text, double *out)
{
    size_t n = strlen(text);
    uint64_t percent;

    if (n < 2 || text[n - 1] != '%' || str_to_u64(bytes_of(text, n - 1), &percent) < 0 || percent > 100)
        return E_FORMAT;
    *out = (double)percent / 100;
    return 0;
}

enum class_key {
    CLASS_TTFT,
    CLASS_ITL,
    CLASS_PRIORITY,
    CLASS_WEIGHT,
    CLASS_SHARE,
    CLASS_PAUSE,
    CLASS_N_KEYS
};

static const char *const class_keys[CLASS_N_KEYS] = {
    "ttft=", "itl=", "priority=", "weight=", "share=", "may-be-paused="};

static enum class_key class_key(const char *word)
{
    unsigned key = 0;

    while (key < CLASS_N_KEYS && strncmp(word, class_keys[key], strlen(class_keys[key])) != 0)
        key++;
    return (enum class_key)key;
}

static int class_value(struct picker_class *it, enum class_key key, const char *value)
{
    switch (key) {
    case CLASS_TTFT:
        return class_duration(value, &it->ttft_slo_ns);
    case CLASS_ITL:
        return class_duration(value, &it->itl_slo_ns);
    case CLASS_PRIORITY:
        return class_number(value, 0, 100, &it->priority);
    case CLASS_WEIGHT:
        return class_number(value, 1, 100, &it->weight);
    case CLASS_SHARE:
        return class_share(value, &it->share);
    case CLASS_PAUSE:
        return class_pause(value, &it->pause_ns);
    case CLASS_N_KEYS:
        break;
    }
    return E_FORMAT;
}

/* Takes one word of a class.  seen: a bit for each key that came before. */
static int class_word(struct picker_class *it, const char *word, unsigned *seen, struct fault *fault)
{
    const enum class_key key = class_key(word);

    if (key < CLASS_N_KEYS && (*seen & 1u << key) != 0)
        return fault_set(fault, E_FORMAT, "%s: %s is there twice", it->name, class_keys[key]);
    if (key == CLASS_N_KEYS || class_value(it, key, word + strlen(class_keys[key])) < 0)
        return fault_set(fault, E_FORMAT,
                         "%s: wanted is ttft=TIME, itl=TIME, priority=0..100, weight=1..100, share=N%% or "
                         "may-be-paused=TIME",
                         word);
    *seen |= 1u << key;
    return 0;
}

/* Copies the next word and moves on; false: none is left, or it is too long. */
static bool class_next(struct bytes *text, char word[MAX_WORD])
{
    size_t n = 0;

    while (text->len_bytes > 0 && (text->data[0] == ' ' || text->data[0] == '\t'))
        *text = bytes_of(text->data + 1, text->len_bytes - 1);
    while (n < text->len_bytes && text->data[n] != ' ' && text->data[n] != '\t' && text->data[n] != 0)
        n++;
    if (n == 0 || n >= MAX_WORD)
        return false;
    memcpy(word, text->data, n);
    word[n] = '\0';
    *text = bytes_of(text->data + n, text->len_bytes - n);
    return true;
}

int picker_classes_add(struct picker_classes *classes, struct bytes text, struct fault *fault)
{
    struct picker_class it = classes->all[0];
    char word[MAX_WORD];
    unsigned seen = 0;
    uint32_t at;

    if (!class_next(&text, word) || !class_is_name(word))
        return fault_set(fault, E_FORMAT,
                         "a class begins with its name, of up to %d letters, digits, '.', '_', '-'",
                         PICKER_CLASS_BYTES - 1);
    at = class_find(classes, word);
    if (at == UINT32_MAX && classes->n == PICKER_MAX_CLASSES)
        return fault_set(fault, E_FORMAT, "more than %d classes, \"default\" included", PICKER_MAX_CLASSES);
    if (at != UINT32_MAX && (at > 0 || classes->is_default_given))
        return fault_set(fault, E_FORMAT, "%s: this class is defined twice", word);
    str_copy(it.name, sizeof(it.name), word);
    while (class_next(&text, word)) {
        int rc = class_word(&it, word, &seen, fault);
        if (rc < 0)
            return rc;
    }
    if (text.len_bytes > 0)
        return fault_set(fault, E_FORMAT, "a word of the class is too long, or not text");
    classes->all[at == 0 ? 0 : classes->n] = it;
    classes->n += at != 0;
    classes->is_default_given = classes->is_default_given || at == 0;
    return 0;
}

bool picker_classes_has(const struct picker_classes *classes, const char *name)
{
    return class_find(classes, name) != UINT32_MAX;
}

uint32_t picker_classes_choose(const struct picker_classes *classes, const char *allowed, const char *wanted)
{
    uint32_t most = class_find(classes, allowed), at = class_find(classes, wanted);

    most = most != UINT32_MAX ? most : 0;
    if (at == UINT32_MAX || classes->all[at].priority > classes->all[most].priority ||
        classes->all[at].weight > classes->all[most].weight ||
        classes->all[at].share > classes->all[most].share ||
        classes->all[at].pause_ns < classes->all[most].pause_ns)
        return most;
    return at;
}

void picker_classes_order(const struct picker_classes *classes, uint32_t order_out[PICKER_MAX_CLASSES])
{
    for (uint32_t i = 0; i < classes->n; i++) {
        uint32_t at = i;

        while (at > 0 && classes->all[order_out[at - 1]].priority < classes->all[i].priority) {
            order_out[at] = order_out[at - 1];
            at--;
        }
        order_out[at] = i;
    }
}
