/* SPDX-License-Identifier: Apache-2.0 */
/* Cuts texts with a rule, for test_pretok_regex.py.  `cut_words NAME` reads texts from stdin, each after its
 * length as four little-endian bytes.  For each text it writes a line with the ends of words. */
#include "text/token/tokenizer_priv.h"

#include "base/str.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

static int cut_all(enum pretok rule)
{
    uint8_t head[4];

    while (fread(head, 1, sizeof(head), stdin) == sizeof(head)) {
        size_t len_bytes = get_u32(head);
        uint8_t *text = malloc(len_bytes + 1);
        struct pretok_cursor words;

        if (text == NULL || fread(text, 1, len_bytes, stdin) != len_bytes)
            return 1;
        pretok_begin(&words, rule, bytes_of(text, len_bytes));
        for (size_t at = 0; at < len_bytes;) {
            at = pretok_next(&words);
            printf("%zu ", at);
        }
        putchar('\n');
        free(text);
    }
    return fflush(stdout) == 0 ? 0 : 1;
}

int main(int argc, char **argv)
{
    enum pretok rule;
    const char *name;

    for (uint32_t i = 0; argc == 2 && (name = pretok_rule_name(i, &rule)) != NULL; i++)
        if (strcmp(name, argv[1]) == 0)
            return cut_all(rule);
    for (uint32_t i = 0; argc == 1 && (name = pretok_rule_name(i, &rule)) != NULL; i++)
        puts(name);
    return argc == 1 ? 0 : 2;
}
