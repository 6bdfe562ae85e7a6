/* SPDX-License-Identifier: Apache-2.0 */
/* The calls of a link that every scripted peer of these tests answers alike: it is up, and its address is "test".  The test
 * has the struct and the other calls. */
#include <stdlib.h>

#include "net/link/link.h"

void link_close(struct link *link)
{
    free(link);
}

bool link_is_up(const struct link *link)
{
    return true;
}

const struct fault *link_why_down(const struct link *link)
{
    static const struct fault none;

    return &none;
}

const char *link_peer_address(const struct link *link)
{
    return "test";
}
