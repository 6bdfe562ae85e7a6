# SPDX-License-Identifier: Apache-2.0
check_PROGRAMS += tests/fuzz/fuzz_grammar_schema
tests_fuzz_fuzz_grammar_schema_SOURCES = tests/fuzz/fuzz_grammar_schema.c
tests_fuzz_fuzz_grammar_schema_LDFLAGS = $(AM_LDFLAGS) $(fuzz_ldflags)
tests_fuzz_fuzz_grammar_schema_LDADD = $(fuzz_main) $(link_text_grammar)
EXTRA_DIST += tests/fuzz/corpus/grammar_schema
if !FUZZ
TESTS += tests/fuzz/fuzz_grammar_schema
endif
