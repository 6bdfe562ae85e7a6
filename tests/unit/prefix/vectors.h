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
     "adbd81f79907d1e61772a03baa3c54412b8c0ef0c1d1a1b565c84338cd17c3b4",
     {"743159c3d46fe69db529cfa70dbe440c",
      "c226d9300402f640eb8057e41a47ff13"}},
    {"0123456789abcdef0123456789abcdef", "acme", 32, 96,
     "724db7f7665d95718d6b32ceef4448c520e220e89e13e232341dd96f0dffc70b",
     {"21056f7416f912695cdacfd0b338f1de",
      "d99891b43f2d557b8460e045dbedf9c8",
      "9e5437f8a2283cc3bf286b046831496e"}},
    {"ffffffffffffffffffffffffffffffff", "gr\xc3""\xb6""\xc3""\x9f""e \xe2""\x9c""\x93""", 100, 250,
     "6c10adfc97f03488f917864f1b2b43bb2a8b4c7f7953df50f727ba38eb0dde07",
     {"16f23af65e6448409eb6b2445e7b2568",
      "db95a71f033a190b0660676690ae60a0"}},
    {"ab", "c", 1, 3,
     "cc78cf88f04ac64c2b749fe10c45ce8cc3cf054cc173dd7ebcd3b2ef656bb5f6",
     {"e5148282335e5bb8c3c6311f9b213cc8",
      "82619aae90262edce8be2b4e273256f0",
      "22d9cbe91974e5d75741019ece56365c"}},
    {"a", "bc", 1, 3,
     "29f31b56901f9c1fb7514cb8552ee9dd40c27bc5529651791189c20e035dd083",
     {"961df6c33e2cad73f514a94c16026f03",
      "5b72e9428c5db346f55fbcf352deec85",
      "ecf2755a94260a2ab296e4b682332f00"}},
};
