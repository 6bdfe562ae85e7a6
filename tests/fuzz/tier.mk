# SPDX-License-Identifier: Apache-2.0
check_PROGRAMS += tests/fuzz/fuzz_tier
tests_fuzz_fuzz_tier_SOURCES = tests/fuzz/fuzz_tier.c
tests_fuzz_fuzz_tier_LDFLAGS = $(AM_LDFLAGS) $(fuzz_ldflags)
tests_fuzz_fuzz_tier_LDADD = $(fuzz_main) $(link_cache_kv)
EXTRA_DIST += tests/fuzz/corpus/tier
if !FUZZ
TESTS += tests/fuzz/fuzz_tier
endif
