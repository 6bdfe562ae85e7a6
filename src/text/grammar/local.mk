# SPDX-License-Identifier: Apache-2.0
noinst_LIBRARIES += libtext_grammar.a
libtext_grammar_a_SOURCES = src/text/grammar/grammar.h src/text/grammar/grammar_auto.c \
	src/text/grammar/grammar_auto_priv.h src/text/grammar/grammar_check.c src/text/grammar/grammar_digits.c \
	src/text/grammar/grammar_format.c src/text/grammar/grammar_graph.c src/text/grammar/grammar_known.c \
	src/text/grammar/grammar_mask.c src/text/grammar/grammar_plain.h src/text/grammar/grammar_priv.h src/text/grammar/grammar_regex.c \
	src/text/grammar/grammar_run.c src/text/grammar/grammar_run_priv.h src/text/grammar/grammar_schema.c \
	src/text/grammar/grammar_schema_enum.c src/text/grammar/grammar_schema_keywords.c \
	src/text/grammar/grammar_schema_merge.c src/text/grammar/grammar_schema_object.c \
	src/text/grammar/grammar_schema_plain.c src/text/grammar/grammar_schema_priv.h src/text/grammar/grammar_schema_value.c src/text/grammar/grammar_compile.c \
	src/text/grammar/grammar_compile_tagged.c src/text/grammar/grammar_short.c src/text/grammar/grammar_state.c \
	src/text/grammar/grammar_step.c src/text/grammar/grammar_string.c src/text/grammar/grammar_tagged.c \
	src/text/grammar/grammar_text.c src/text/grammar/grammar_vocab.c src/text/grammar/weight.h

if HAVE_CMOCKA
grammar_test_help = tests/unit/text/grammar/grammar_help.c tests/unit/text/grammar/grammar_help.h \
	tests/unit/text/token/vocabularies.c tests/unit/text/token/vocabularies.h
tests_unit_text_grammar_test_grammar_SOURCES = tests/unit/text/grammar/test_grammar.c $(grammar_test_help)
tests_unit_text_grammar_test_grammar_LDADD = $(link_text_grammar) $(CMOCKA_LIBS)
tests_unit_text_grammar_test_grammar_schema_SOURCES = tests/unit/text/grammar/test_grammar_schema.c \
	$(grammar_test_help)
tests_unit_text_grammar_test_grammar_schema_LDADD = $(link_text_grammar) $(CMOCKA_LIBS)
tests_unit_text_grammar_test_grammar_work_SOURCES = tests/unit/text/grammar/test_grammar_work.c $(grammar_test_help)
tests_unit_text_grammar_test_grammar_work_LDADD = $(link_text_grammar) $(CMOCKA_LIBS)
# Answers drawn at random under random schemas, judged in Python.
check_PROGRAMS += tests/unit/text/grammar/draw_answers
tests_unit_text_grammar_draw_answers_SOURCES = tests/unit/text/grammar/draw_answers.c $(grammar_test_help)
tests_unit_text_grammar_draw_answers_LDADD = $(link_text_grammar) $(CMOCKA_LIBS)
grammar_scripts = tests/unit/text/grammar/test_grammar_answers.py tests/unit/text/grammar/test_grammar_docs.py
endif
