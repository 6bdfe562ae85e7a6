# SPDX-License-Identifier: Apache-2.0
check_PROGRAMS += tests/fuzz/fuzz_cut
tests_fuzz_fuzz_cut_SOURCES = tests/fuzz/fuzz_cut.c
tests_fuzz_fuzz_cut_LDFLAGS = $(AM_LDFLAGS) $(fuzz_ldflags)
tests_fuzz_fuzz_cut_LDADD = $(fuzz_main) $(link_text_token)
EXTRA_DIST += tests/fuzz/corpus/cut
if !FUZZ
TESTS += tests/fuzz/fuzz_cut
endif
