# SPDX-License-Identifier: Apache-2.0
check_PROGRAMS += tests/fuzz/fuzz_split
tests_fuzz_fuzz_split_SOURCES = tests/fuzz/fuzz_split.c
tests_fuzz_fuzz_split_LDFLAGS = $(AM_LDFLAGS) $(fuzz_ldflags)
tests_fuzz_fuzz_split_LDADD = $(fuzz_main) $(link_gguf)
EXTRA_DIST += tests/fuzz/corpus/split
if !FUZZ
TESTS += tests/fuzz/fuzz_split
endif
