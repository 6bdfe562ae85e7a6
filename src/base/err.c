/* SPDX-License-Identifier: Apache-2.0 */
/* Names and texts of the result codes.
 *
 * The table lives once, in err.h, and is expanded three times: into the enum there, and into the two switches
 * here.  A switch (not an array) keeps the codes free to have gaps, and an unknown code - a positive count, a
 * value from a newer peer - still gets a harmless text, so that a caller may print whatever it holds.
 */
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
