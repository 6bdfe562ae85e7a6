# SPDX-License-Identifier: Apache-2.0
check_PROGRAMS += tests/fuzz/fuzz_tokenlist
tests_fuzz_fuzz_tokenlist_SOURCES = tests/fuzz/fuzz_tokenlist.c
tests_fuzz_fuzz_tokenlist_LDFLAGS = $(AM_LDFLAGS) $(fuzz_ldflags)
tests_fuzz_fuzz_tokenlist_LDADD = $(fuzz_main) $(link_proto)
EXTRA_DIST += tests/fuzz/corpus/tokenlist
if !FUZZ
TESTS += tests/fuzz/fuzz_tokenlist
endif
