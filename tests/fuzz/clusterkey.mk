# SPDX-License-Identifier: Apache-2.0
check_PROGRAMS += tests/fuzz/fuzz_clusterkey
tests_fuzz_fuzz_clusterkey_SOURCES = tests/fuzz/fuzz_clusterkey.c
tests_fuzz_fuzz_clusterkey_LDFLAGS = $(AM_LDFLAGS) $(fuzz_ldflags)
tests_fuzz_fuzz_clusterkey_LDADD = $(fuzz_main) $(link_net_link)
EXTRA_DIST += tests/fuzz/corpus/clusterkey
if !FUZZ
TESTS += tests/fuzz/fuzz_clusterkey
endif
