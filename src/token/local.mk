# SPDX-License-Identifier: Apache-2.0
noinst_LIBRARIES += libtoken.a
libtoken_a_SOURCES = src/token/tokenizer.h src/token/chat.h src/token/tokenizer_priv.h src/token/chat_priv.h \
	src/token/tokenizer.c src/token/ids.c src/token/vocab.c src/token/alphabet.c \
	src/token/pairs.c src/token/merges.c src/token/pieces.c src/token/merge.c \
	src/token/merge_priv.h src/token/merge_large.c \
	src/token/pretok_priv.h src/token/pretok.c src/token/pretok_match.c src/token/pretok_cased.c src/token/encode.c src/token/detok.c \
	src/token/chat.c src/token/chat_context.c src/token/chat_probe.c src/token/chat_reshape.c \
	src/token/chat_family.c src/token/chat_splice.c src/token/word_cache.h src/token/word_cache.c \
	src/token/json_text.c \
	src/token/template/template.h src/token/template/value.h src/token/template/jinja_priv.h \
	src/token/template/ast_priv.h src/token/template/lex.c src/token/template/parse.c \
	src/token/template/parse_literal.c src/token/template/parse_expr.c src/token/template/parse_stmt.c \
	src/token/template/jinja.c src/token/template/value.c src/token/template/text.c \
	src/token/template/print.c src/token/template/op.c src/token/template/json.c \
	src/token/template/eval.c src/token/template/call.c src/token/template/exec.c src/token/template/loop.c \
	src/token/template/methods.c src/token/template/search.c src/token/template/format.c \
	src/token/template/filters_text.c src/token/template/filters_list.c src/token/template/filters_pick.c \
	src/token/template/tests.c src/token/template/functions.c

noinst_PROGRAMS += tests/bench/bench_tokens
tests_bench_bench_tokens_SOURCES = tests/bench/bench_tokens.c tests/bench/bench_help.c tests/bench/bench_help.h
tests_bench_bench_tokens_LDADD = $(link_token)

# Pre-tokenisers against the models' own regular expressions, in Python.
check_PROGRAMS += tests/unit/token/cut_words
tests_unit_token_cut_words_SOURCES = tests/unit/token/cut_words.c
tests_unit_token_cut_words_LDADD = $(link_token)
dist_check_SCRIPTS += tests/unit/token/test_pretok_regex.py
TESTS += tests/unit/token/test_pretok_regex.py
tests/unit/token/test_pretok_regex.log: tests/unit/token/cut_words

if HAVE_CMOCKA
token_test_programs = \
	tests/unit/token/test_vectors \
	tests/unit/token/test_pretok \
	tests/unit/token/test_bpe \
	tests/unit/token/test_merge \
	tests/unit/token/test_spm \
	tests/unit/token/test_detok \
	tests/unit/token/test_json_text \
	tests/unit/token/test_chat \
	tests/unit/token/test_reshape \
	tests/unit/token/test_taint \
	tests/unit/token/test_templates
token_test_help = tests/unit/token/vocabularies.c tests/unit/token/vocabularies.h \
	tests/unit/token/chat_templates.h
check_PROGRAMS += $(token_test_programs)
TESTS += $(token_test_programs)
# it measures time, of which sanitizers say nothing
check_PROGRAMS += tests/unit/token/test_linear
if PLAIN_BUILD
TESTS += tests/unit/token/test_linear
endif
tests_unit_token_test_vectors_SOURCES = tests/unit/token/test_vectors.c $(token_test_help)
tests_unit_token_test_vectors_LDADD = $(link_token) $(CMOCKA_LIBS)
tests_unit_token_test_pretok_SOURCES = tests/unit/token/test_pretok.c
tests_unit_token_test_pretok_LDADD = $(link_token) $(CMOCKA_LIBS)
tests_unit_token_test_bpe_SOURCES = tests/unit/token/test_bpe.c $(token_test_help)
tests_unit_token_test_bpe_LDADD = $(link_token) $(CMOCKA_LIBS)
tests_unit_token_test_linear_SOURCES = tests/unit/token/test_linear.c $(token_test_help)
tests_unit_token_test_linear_LDADD = $(link_token) $(CMOCKA_LIBS)
tests_unit_token_test_merge_SOURCES = tests/unit/token/test_merge.c
tests_unit_token_test_merge_LDADD = $(link_token) $(CMOCKA_LIBS)
tests_unit_token_test_spm_SOURCES = tests/unit/token/test_spm.c $(token_test_help)
tests_unit_token_test_spm_LDADD = $(link_token) $(CMOCKA_LIBS)
tests_unit_token_test_detok_SOURCES = tests/unit/token/test_detok.c $(token_test_help)
tests_unit_token_test_detok_LDADD = $(link_token) $(CMOCKA_LIBS)
tests_unit_token_test_json_text_SOURCES = tests/unit/token/test_json_text.c
tests_unit_token_test_json_text_LDADD = $(link_token) $(CMOCKA_LIBS)
tests_unit_token_test_chat_SOURCES = tests/unit/token/test_chat.c $(token_test_help)
tests_unit_token_test_chat_LDADD = $(link_token) $(CMOCKA_LIBS)
tests_unit_token_test_reshape_SOURCES = tests/unit/token/test_reshape.c $(token_test_help)
tests_unit_token_test_reshape_LDADD = $(link_token) $(CMOCKA_LIBS)
tests_unit_token_test_taint_SOURCES = tests/unit/token/test_taint.c $(token_test_help)
tests_unit_token_test_taint_LDADD = $(link_token) $(CMOCKA_LIBS)
tests_unit_token_test_templates_SOURCES = tests/unit/token/test_templates.c $(token_test_help)
tests_unit_token_test_templates_LDADD = $(link_token) $(CMOCKA_LIBS)
endif

# Templates against the reference implementation of their language.
check_PROGRAMS += tests/unit/token/jinja_lines
tests_unit_token_jinja_lines_SOURCES = tests/unit/token/jinja_lines.c
tests_unit_token_jinja_lines_LDADD = $(link_token)
dist_check_SCRIPTS += tests/unit/token/test_jinja.py
EXTRA_DIST += tests/unit/token/jinja_cases.py
TESTS += tests/unit/token/test_jinja.py
