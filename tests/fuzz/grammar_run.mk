# SPDX-License-Identifier: Apache-2.0
check_PROGRAMS += tests/fuzz/fuzz_grammar_run
tests_fuzz_fuzz_grammar_run_SOURCES = tests/fuzz/fuzz_grammar_run.c
tests_fuzz_fuzz_grammar_run_LDFLAGS = $(AM_LDFLAGS) $(fuzz_ldflags)
tests_fuzz_fuzz_grammar_run_LDADD = $(fuzz_main) $(link_text_grammar)
EXTRA_DIST += tests/fuzz/corpus/grammar_run
if !FUZZ
TESTS += tests/fuzz/fuzz_grammar_run
endif
