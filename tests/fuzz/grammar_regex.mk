# SPDX-License-Identifier: Apache-2.0
check_PROGRAMS += tests/fuzz/fuzz_grammar_regex
tests_fuzz_fuzz_grammar_regex_SOURCES = tests/fuzz/fuzz_grammar_regex.c
tests_fuzz_fuzz_grammar_regex_LDFLAGS = $(AM_LDFLAGS) $(fuzz_ldflags)
tests_fuzz_fuzz_grammar_regex_LDADD = $(fuzz_main) $(link_text_grammar)
EXTRA_DIST += tests/fuzz/corpus/grammar_regex
if !FUZZ
TESTS += tests/fuzz/fuzz_grammar_regex
endif
