/* SPDX-License-Identifier: Apache-2.0 */
/* Shared by the parsers of requests, answers and chunks. */
#ifndef NET_HTTP_PARSE_PRIV_H
#define NET_HTTP_PARSE_PRIV_H

#include "net/http/parse.h"

bool http_is_token_char(uint8_t c);
/* Compares text with lower (in lower case), case-insensitively. */
bool http_is_word(struct bytes text, const char *lower);
/* Finds the line that begins at *at. 1: line_out is its text without CR LF, and *at is past the line. 0:
 * no LF yet. E_FORMAT: a bare CR or LF; *at is past it too. */
int http_next_line(struct bytes text, size_t *at, struct http_span *line_out);
/* Parses one non-empty "name: value" line. Returns NULL, or the error as text. */
const char *http_parse_field(struct bytes text, struct http_span line, struct http_field *out);
/* Accepts digits only, and numbers below 10^18. E_FORMAT. */
int http_parse_length(struct bytes text, uint64_t *out);
/* Counts the fields called name (lower case). */
unsigned http_count_fields(const struct http_head *head, struct bytes text, const char *name);
void http_find_keep_alive(struct http_head *head, struct bytes text);

#endif
