# SPDX-License-Identifier: Apache-2.0
check_PROGRAMS += tests/fuzz/fuzz_grammar_cost
tests_fuzz_fuzz_grammar_cost_SOURCES = tests/fuzz/fuzz_grammar_cost.c
tests_fuzz_fuzz_grammar_cost_LDFLAGS = $(AM_LDFLAGS) $(fuzz_ldflags)
tests_fuzz_fuzz_grammar_cost_LDADD = $(fuzz_main) $(link_compute_sample)
EXTRA_DIST += tests/fuzz/corpus/grammar_cost
if !FUZZ
TESTS += tests/fuzz/fuzz_grammar_cost
endif
