# SPDX-License-Identifier: Apache-2.0
check_PROGRAMS += tests/fuzz/fuzz_discover
tests_fuzz_fuzz_discover_SOURCES = tests/fuzz/fuzz_discover.c
tests_fuzz_fuzz_discover_LDFLAGS = $(AM_LDFLAGS) $(fuzz_ldflags)
tests_fuzz_fuzz_discover_LDADD = $(fuzz_main) $(link_net_discover)
EXTRA_DIST += tests/fuzz/corpus/discover
if !FUZZ
TESTS += tests/fuzz/fuzz_discover
endif
