/* SPDX-License-Identifier: Apache-2.0 */
/* Names and texts of the result codes.
 *
 * err.h has the only table.  It expands three times: into the enum there, and into the two switches here.  A
 * switch, unlike an array, allows gaps between codes.  An unknown code, such as a positive count or a code
 * from a newer peer, still gets a harmless text.  So a caller may print any value. */
#include "base/err.h"

const char *err_name(int code)
{
    switch (code) {
#define X(name, value, text)                                                                                 \
    case name:                                                                                               \
        return #name;
        ERR_TABLE(X)
#undef X
    }
    return "E_?";
}

const char *err_text(int code)
{
    switch (code) {
#define X(name, value, text)                                                                                 \
    case name:                                                                                               \
        return text;
        ERR_TABLE(X)
#undef X
    }
    return "unknown error";
}
