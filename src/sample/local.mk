# SPDX-License-Identifier: Apache-2.0
noinst_LIBRARIES += libsample.a
libsample_a_SOURCES = src/sample/sampler.h src/sample/sampler.c src/sample/weight_priv.h src/sample/state.h src/sample/state.c \
	src/sample/stop.h src/sample/stop.c \
	src/sample/grammar.h src/sample/grammar_priv.h src/sample/grammar_run_priv.h src/sample/grammar_schema_priv.h \
	src/sample/grammar_string.c src/sample/grammar_graph.c src/sample/grammar_shape.c \
	src/sample/grammar_schema.c src/sample/grammar_schema_keywords.c src/sample/grammar_schema_merge.c \
	src/sample/grammar_schema_object.c src/sample/grammar_schema_value.c src/sample/grammar_schema_enum.c \
	src/sample/grammar_auto_priv.h src/sample/grammar_auto.c src/sample/grammar_text.c src/sample/grammar_tagged.c src/sample/grammar_shape_tagged.c src/sample/grammar_regex.c \
	src/sample/grammar_format.c src/sample/grammar_digits.c \
	src/sample/grammar_vocab.c src/sample/grammar_state.c src/sample/grammar_step.c src/sample/grammar_mask.c src/sample/grammar_short.c \
	src/sample/grammar_run.c src/sample/grammar_check.c src/sample/grammar_known.c

if HAVE_CMOCKA
sample_tests = tests/unit/sample/test_sampler tests/unit/sample/test_state tests/unit/sample/test_stop \
	tests/unit/sample/test_grammar tests/unit/sample/test_grammar_schema
check_PROGRAMS += $(sample_tests)
TESTS += $(sample_tests)
tests_unit_sample_test_sampler_SOURCES = tests/unit/sample/test_sampler.c
tests_unit_sample_test_sampler_LDADD = $(link_sample) $(CMOCKA_LIBS)
tests_unit_sample_test_stop_SOURCES = tests/unit/sample/test_stop.c
tests_unit_sample_test_stop_LDADD = $(link_sample) $(CMOCKA_LIBS)
grammar_test_help = tests/unit/sample/grammar_help.c tests/unit/sample/grammar_help.h \
	tests/unit/token/vocabularies.c tests/unit/token/vocabularies.h
tests_unit_sample_test_state_SOURCES = tests/unit/sample/test_state.c $(grammar_test_help)
tests_unit_sample_test_state_LDADD = $(link_sample) $(CMOCKA_LIBS)
tests_unit_sample_test_grammar_SOURCES = tests/unit/sample/test_grammar.c $(grammar_test_help)
tests_unit_sample_test_grammar_LDADD = $(link_sample) $(CMOCKA_LIBS)

tests_unit_sample_test_grammar_schema_SOURCES = tests/unit/sample/test_grammar_schema.c $(grammar_test_help)
tests_unit_sample_test_grammar_schema_LDADD = $(link_sample) $(CMOCKA_LIBS)

# Answers drawn at random under random schemas, judged in Python.
check_PROGRAMS += tests/unit/sample/draw_answers
tests_unit_sample_draw_answers_SOURCES = tests/unit/sample/draw_answers.c $(grammar_test_help)
tests_unit_sample_draw_answers_LDADD = $(link_sample) $(CMOCKA_LIBS)
grammar_scripts = tests/unit/sample/test_grammar_answers.py tests/unit/sample/test_grammar_docs.py
dist_check_SCRIPTS += $(grammar_scripts)
TESTS += $(grammar_scripts)
tests/unit/sample/test_grammar_answers.log tests/unit/sample/test_grammar_docs.log: tests/unit/sample/draw_answers
endif

noinst_PROGRAMS += tests/bench/bench_grammar
tests_bench_bench_grammar_SOURCES = tests/bench/bench_grammar.c tests/bench/bench_help.c tests/bench/bench_help.h
tests_bench_bench_grammar_LDADD = $(link_sample)
noinst_PROGRAMS += tests/bench/bench_grammar_cost
tests_bench_bench_grammar_cost_SOURCES = tests/bench/bench_grammar_cost.c
tests_bench_bench_grammar_cost_LDADD = $(link_sample)
