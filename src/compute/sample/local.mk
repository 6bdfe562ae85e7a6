# SPDX-License-Identifier: Apache-2.0
noinst_LIBRARIES += libcompute_sample.a
libcompute_sample_a_SOURCES = src/compute/sample/sampler.c src/compute/sample/sampler.h \
	src/compute/sample/state.c src/compute/sample/state.h src/compute/sample/stop.c src/compute/sample/stop.h

if HAVE_CMOCKA
sample_tests = tests/unit/compute/sample/test_sampler tests/unit/compute/sample/test_state tests/unit/compute/sample/test_stop \
	tests/unit/text/grammar/test_grammar tests/unit/text/grammar/test_grammar_schema \
	tests/unit/text/grammar/test_grammar_work
check_PROGRAMS += $(sample_tests)
TESTS += $(sample_tests)
tests_unit_compute_sample_test_sampler_SOURCES = tests/unit/compute/sample/test_sampler.c
tests_unit_compute_sample_test_sampler_LDADD = $(link_compute_sample) $(CMOCKA_LIBS)
tests_unit_compute_sample_test_stop_SOURCES = tests/unit/compute/sample/test_stop.c
tests_unit_compute_sample_test_stop_LDADD = $(link_compute_sample) $(CMOCKA_LIBS)
tests_unit_compute_sample_test_state_SOURCES = tests/unit/compute/sample/test_state.c $(grammar_test_help)
tests_unit_compute_sample_test_state_LDADD = $(link_compute_sample) $(CMOCKA_LIBS)
dist_check_SCRIPTS += $(grammar_scripts)
TESTS += $(grammar_scripts)
endif
noinst_PROGRAMS += tests/bench/bench_grammar
tests_bench_bench_grammar_SOURCES = tests/bench/bench_grammar.c tests/bench/bench_help.c tests/bench/bench_help.h
tests_bench_bench_grammar_LDADD = $(link_compute_sample)
noinst_PROGRAMS += tests/bench/bench_grammar_cost
tests_bench_bench_grammar_cost_SOURCES = tests/bench/bench_grammar_cost.c
tests_bench_bench_grammar_cost_LDADD = $(link_compute_sample)
