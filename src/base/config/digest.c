/* SPDX-License-Identifier: Apache-2.0 */
/* The effective configuration as one number, and single values as text. */
#include "base/str.h"
#include "base/config/config_priv.h"

#define DIGEST_MASK ((UINT64_C(1) << 48) - 1)

void config_put_value(const struct config_key *key, const void *config, struct buf *out)
{
    size_t n = key->type == CONFIG_LIST ? SIZE_MAX : 1;

    for (size_t item = 0; item < n; item++) {
        struct buf value = {0};
        bool is_there = config_text(key, config, item, &value) == 0;

        if (is_there && item > 0)
            buf_append_str(out, ", ");
        if (is_there)
            buf_append(out, value.data, value.len_bytes);
        buf_fini(&value);
        if (!is_there)
            return;
    }
}

uint64_t config_digest(const struct config_table *table, const void *config)
{
    struct buf text = {0};
    uint64_t digest;

    for (size_t i = 0; i < table->n_keys; i++) {
        buf_printf(&text, "%s.%s=", table->keys[i].section, table->keys[i].name);
        config_put_value(&table->keys[i], config, &text);
        buf_append_byte(&text, '\n');
    }
    digest = text.is_bad || text.data == NULL ? 0 : str_digest((const char *)text.data) & DIGEST_MASK;
    buf_fini(&text);
    return digest;
}
