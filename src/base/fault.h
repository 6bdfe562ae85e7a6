/* SPDX-License-Identifier: Apache-2.0 */
/* A failure with its story: the code for the program, one line of text for the person.
 *
 * Functions that read outside input take a struct fault * (NULL: nobody asks) and fill it when they fail, so
 * that the message can name the key, the tensor, the line or the byte. */
#ifndef BASE_FAULT_H
#define BASE_FAULT_H

struct fault {
    int code;
    char text[512];
};

/* Formats the text (control bytes replaced by '?', cut to fit) and returns code, so that a failing function
 * can end in `return fault_set(fault, E_FORMAT, "...")`.  fault may be NULL. */
__attribute__((format(printf, 3, 4))) int fault_set(struct fault *fault, int code, const char *format, ...);

#endif
