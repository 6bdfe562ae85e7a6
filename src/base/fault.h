/* SPDX-License-Identifier: Apache-2.0 */
/* A failure with its explanation: a code for the program and one line of text for people.
 *
 * Functions that read outside input take a struct fault * and fill it when they fail.  The text names the
 * key, tensor, line or byte that is wrong.  Pass NULL when the text is not needed. */
#ifndef BASE_FAULT_H
#define BASE_FAULT_H

struct fault {
    int code;
    char text[512];
};

/* Formats the text, replaces control bytes by '?', cuts it to fit, and returns code.  So a failing function
 * can end in `return fault_set(fault, E_FORMAT, "...")`. fault may be NULL. */
__attribute__((format(printf, 3, 4))) int fault_set(struct fault *fault, int code, const char *format, ...);

#endif
