# SPDX-License-Identifier: Apache-2.0
check_PROGRAMS += tests/fuzz/fuzz_pull
tests_fuzz_fuzz_pull_SOURCES = tests/fuzz/fuzz_pull.c
tests_fuzz_fuzz_pull_LDFLAGS = $(AM_LDFLAGS) $(fuzz_ldflags)
tests_fuzz_fuzz_pull_LDADD = $(fuzz_main) $(link_pull)
EXTRA_DIST += tests/fuzz/corpus/pull
if !FUZZ
TESTS += tests/fuzz/fuzz_pull
endif
