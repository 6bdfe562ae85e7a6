/* SPDX-License-Identifier: Apache-2.0 */
/* What the parsers of requests, answers and chunks share. */
#ifndef NET_HTTP_PARSE_PRIV_H
#define NET_HTTP_PARSE_PRIV_H

#include "net/http/parse.h"

bool http_is_token_char(uint8_t c);
/* text without regard to case; lower is in lower case. */
bool http_is_word(struct bytes text, const char *lower);
/* The line that begins at *at.  1: line_out is its text without CR LF and *at is past it; 0: no LF yet;
 * E_FORMAT: a bare CR or LF, *at is past it too. */
int http_next_line(struct bytes text, size_t *at, struct http_span *line_out);
/* One non-empty "name: value" line.  NULL, or what is wrong with it. */
const char *http_parse_field(struct bytes text, struct http_span line, struct http_field *out);
/* Digits only, below 10^18.  E_FORMAT. */
int http_parse_length(struct bytes text, uint64_t *out);
/* How many fields are called name (lower case). */
unsigned http_count_fields(const struct http_head *head, struct bytes text, const char *name);
void http_find_keep_alive(struct http_head *head, struct bytes text);

#endif
