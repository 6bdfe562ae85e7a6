# SPDX-License-Identifier: Apache-2.0
noinst_LIBRARIES += libtext_jinja.a
libtext_jinja_a_SOURCES = src/text/jinja/ast_priv.h src/text/jinja/call.c src/text/jinja/eval.c \
	src/text/jinja/exec.c src/text/jinja/filters_list.c src/text/jinja/filters_pick.c src/text/jinja/filters_text.c \
	src/text/jinja/format.c src/text/jinja/functions.c src/text/jinja/jinja.c src/text/jinja/jinja_priv.h \
	src/text/jinja/json.c src/text/jinja/lex.c src/text/jinja/loop.c src/text/jinja/methods.c src/text/jinja/op.c \
	src/text/jinja/parse.c src/text/jinja/parse_expr.c src/text/jinja/parse_literal.c src/text/jinja/parse_stmt.c \
	src/text/jinja/print.c src/text/jinja/search.c src/text/jinja/template.h src/text/jinja/tests.c \
	src/text/jinja/text.c src/text/jinja/value.c src/text/jinja/value.h
# Compares templates with the reference implementation of Jinja.
check_PROGRAMS += tests/unit/text/jinja/jinja_lines
tests_unit_text_jinja_jinja_lines_SOURCES = tests/unit/text/jinja/jinja_lines.c
tests_unit_text_jinja_jinja_lines_LDADD = $(link_text_jinja)
dist_check_SCRIPTS += tests/unit/text/jinja/test_jinja.py
EXTRA_DIST += tests/unit/text/jinja/jinja_cases.py
TESTS += tests/unit/text/jinja/test_jinja.py
