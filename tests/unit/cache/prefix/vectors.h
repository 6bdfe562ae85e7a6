/* SPDX-License-Identifier: Apache-2.0 */
/* Made by vectors.py with Python's hashlib.  Cluster key: bytes 0..31; token i: i * 2654435761 + 12345. */
/* clang-format off */
#include <stddef.h>
#include <stdint.h>

static const struct vector {
    const char *fingerprint, *tenant;
    uint32_t block_tokens;
    size_t n_tokens;
    const char *root;
    const char *hashes[4];
} vectors[] = {
    {"0123456789abcdef0123456789abcdef", "", 4, 11,
     "2c7340a54b605530487f1a4da57e37bb29998fc827037c027de951138e2f963b",
     {"266a92e427c710ab7c51c9f0d8c7c408",
      "c7d409d4aed3dc31dc4942290055bab8"}},
    {"0123456789abcdef0123456789abcdef", "acme", 32, 96,
     "9f654a5113cbf6c583882d4004e928b8a72b47c526af1410f04cc85b89e6ea55",
     {"25f349f7e631499c3735d9bda7878fa5",
      "05060b9c7e46659863dacaa4940c0666",
      "8b3e24bb0e1d21850f25f77f556ae3c7"}},
    {"ffffffffffffffffffffffffffffffff", "gr\xc3""\xb6""\xc3""\x9f""e \xe2""\x9c""\x93""", 100, 250,
     "5afd3196f0d52b266c398d3350a7572f85747e20efc2dbff38b9603646bfa2b5",
     {"5475c5099461af9be270bebeefd52c0f",
      "88407f621ae09443604c660cb9a5ecd1"}},
    {"ab", "c", 1, 3,
     "7e7dcd393cf2087155035bee7c0eaf386c499880e43b134a575033050e6fbdf9",
     {"7a1c3b18a9acb43874022bbef2a06764",
      "b6a1ade73ab1dfa37ac44bf6d444f7da",
      "1871eaa799167a512d094abb11ba352e"}},
    {"a", "bc", 1, 3,
     "47103e850cc99fe5d5ba067d6b02597a7d4f1237101f6b50dc28dda577cedd9f",
     {"59ec7480ae5182bff0b9b48d6a23444b",
      "30181446b57e971745f0978f149de2a2",
      "96018f8d53d2ae0382aa75f68bff7302"}},
};
