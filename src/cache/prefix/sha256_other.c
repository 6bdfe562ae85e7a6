/* SPDX-License-Identifier: Apache-2.0 */
/* Processors whose instructions for SHA-256, if they have any, are not used. */
#include "cache/prefix/sha256_priv.h"

sha256_compress sha256_compress_cpu(void)
{
    return NULL;
}
