/* SPDX-License-Identifier: Apache-2.0 */
/* String formats, as patterns.
 *
 * Each pattern accepts only text that its RFC allows, and not always all of it: years from 1000 to 2999,
 * bounded numbers of digits and labels, URIs with the common parts.  A date must exist, leap years included.
 */
#include "text/grammar/grammar_auto_priv.h"

#include <string.h>

#define DAYS                                                                                                 \
    "([12]\\d{3}-((0[13578]|1[02])-(0[1-9]|[12]\\d|3[01])|(0[469]|11)-(0[1-9]|[12]\\d|30)|02-(0[1-9]|1\\d|"  \
    "2[0-8]))"                                                                                               \
    "|([12]\\d(0[48]|[2468][048]|[13579][26])|(1[26]|2[048])00)-02-29)"
#define TIME  "([01]\\d|2[0-3]):[0-5]\\d:[0-5]\\d(\\.\\d{1,9})?(Z|[+-]([01]\\d|2[0-3]):[0-5]\\d)"
#define LABEL "[A-Za-z0-9]{1,20}(-[A-Za-z0-9]{1,20}){0,2}"
#define LOCAL "[A-Za-z0-9!#$%&'*+/=?^_`{|}~-]{1,20}"
#define OCTET "(25[0-5]|2[0-4]\\d|1\\d\\d|[1-9]?\\d)"
#define N     "\\d{1,9}"
#define CHAR  "([A-Za-z0-9._~!$&'()*+,;=:@-]|%[0-9A-Fa-f]{2})"
#define H     "[0-9A-Fa-f]{1,4}"

static const struct {
    const char *name, *pattern;
} formats[] = {
    {"date", "^" DAYS "$"},
    {"time", "^" TIME "$"},
    {"date-time", "^" DAYS "T" TIME "$"},
    {"duration", "^P(" N "W|(" N "Y(" N "M(" N "D)?)?|" N "M(" N "D)?|" N "D)(T(" N "H(" N "M(" N "S)?)?|" N
                 "M(" N "S)?|" N "S))?|T(" N "H(" N "M(" N "S)?)?|" N "M(" N "S)?|" N "S))$"},
    {"email", "^" LOCAL "(\\." LOCAL "){0,2}@" LABEL "(\\." LABEL "){1,3}$"},
    {"hostname", "^" LABEL "(\\." LABEL "){0,4}$"},
    {"uri", "^[A-Za-z][A-Za-z0-9+.-]{0,15}:(//" LABEL "(\\." LABEL "){0,4}(:\\d{1,5})?(/" CHAR "*)*|" CHAR
            "+(/" CHAR "*)*)(\\?(" CHAR "|[/?])*)?(#(" CHAR "|[/?])*)?$"},
    {"ipv4", "^" OCTET "(\\." OCTET "){3}$"},
    {"ipv6",
     "^((" H ":){7}" H "|(" H ":){1,7}:|(" H ":){1,6}:" H "|(" H ":){1,5}(:" H "){1,2}|(" H ":){1,4}(:" H
     "){1,3}|(" H ":){1,3}(:" H "){1,4}|(" H ":){1,2}(:" H "){1,5}|" H ":(:" H "){1,6}|:((:" H "){1,7}|:))$"},
    {"uuid", "^[0-9a-fA-F]{8}(-[0-9a-fA-F]{4}){3}-[0-9a-fA-F]{12}$"},
};

const char *format_pattern(const char *name)
{
    for (size_t i = 0; i < sizeof(formats) / sizeof(formats[0]); i++)
        if (strcmp(formats[i].name, name) == 0)
            return formats[i].pattern;
    return NULL;
}
