# SPDX-License-Identifier: Apache-2.0
check_PROGRAMS += tests/fuzz/fuzz_remote
tests_fuzz_fuzz_remote_SOURCES = tests/fuzz/fuzz_remote.c
tests_fuzz_fuzz_remote_LDFLAGS = $(AM_LDFLAGS) $(fuzz_ldflags)
tests_fuzz_fuzz_remote_LDADD = $(fuzz_main) $(link_cache_remote)
EXTRA_DIST += tests/fuzz/corpus/remote
if !FUZZ
TESTS += tests/fuzz/fuzz_remote
endif
