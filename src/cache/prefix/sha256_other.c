/* SPDX-License-Identifier: Apache-2.0 */
/* Processors without code for their SHA-256 instructions. */
#include "cache/prefix/sha256_priv.h"

sha256_compress sha256_compress_cpu(void)
{
    return NULL;
}
