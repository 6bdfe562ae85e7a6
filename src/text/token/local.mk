# SPDX-License-Identifier: Apache-2.0
noinst_LIBRARIES += libtext_token.a
libtext_token_a_SOURCES = src/text/token/alphabet.c src/text/token/chat.c src/text/token/chat.h \
	src/text/token/chat_context.c src/text/token/chat_family.c src/text/token/chat_priv.h \
	src/text/token/chat_probe.c src/text/token/chat_reshape.c src/text/token/chat_splice.c src/text/token/detok.c \
	src/text/token/encode.c src/text/token/ids.c src/text/token/merge.c src/text/token/merge_large.c \
	src/text/token/merge_priv.h src/text/token/merges.c src/text/token/pairs.c src/text/token/pieces.c \
	src/text/token/pretok.c src/text/token/pretok_cased.c src/text/token/pretok_match.c src/text/token/pretok_passes.c \
	src/text/token/pretok_priv.h src/text/token/roles.c src/text/token/tokenizer.c src/text/token/tokenizer.h \
	src/text/token/tokenizer_priv.h src/text/token/vocab.c src/text/token/word_cache.c \
	src/text/token/word_cache_priv.h
noinst_PROGRAMS += tests/bench/bench_tokens
tests_bench_bench_tokens_SOURCES = tests/bench/bench_tokens.c tests/bench/bench_help.c tests/bench/bench_help.h
tests_bench_bench_tokens_LDADD = $(link_text_token)
# Compares the pre-tokenisers with the models' own regular expressions, in Python.
check_PROGRAMS += tests/unit/text/token/cut_words
tests_unit_text_token_cut_words_SOURCES = tests/unit/text/token/cut_words.c
tests_unit_text_token_cut_words_LDADD = $(link_text_token)
dist_check_SCRIPTS += tests/unit/text/token/test_pretok_regex.py
TESTS += tests/unit/text/token/test_pretok_regex.py

if HAVE_CMOCKA
token_test_programs = \
	tests/unit/text/token/test_vectors \
	tests/unit/text/token/test_pretok \
	tests/unit/text/token/test_bpe \
	tests/unit/text/token/test_merge \
	tests/unit/text/token/test_roles \
	tests/unit/text/token/test_spm \
	tests/unit/text/token/test_detok \
	tests/unit/text/json/test_json_text \
	tests/unit/text/token/test_chat tests/unit/text/token/test_chat_marks tests/unit/text/token/test_efforts \
	tests/unit/text/token/test_reshape \
	tests/unit/text/token/test_taint \
	tests/unit/text/token/test_templates \
	tests/unit/text/token/test_tool_template
token_test_help = tests/unit/text/token/vocabularies.c tests/unit/text/token/vocabularies.h \
	tests/unit/text/token/chat_templates.h
check_PROGRAMS += $(token_test_programs)
TESTS += $(token_test_programs)
# It measures time, which is meaningless under sanitizers.
check_PROGRAMS += tests/unit/text/token/test_linear
endif

if HAVE_CMOCKA
if PLAIN_BUILD
TESTS += tests/unit/text/token/test_linear
endif
endif

if HAVE_CMOCKA
tests_unit_text_token_test_vectors_SOURCES = tests/unit/text/token/test_vectors.c $(token_test_help)
tests_unit_text_token_test_vectors_LDADD = $(link_text_token) $(CMOCKA_LIBS)
tests_unit_text_token_test_pretok_SOURCES = tests/unit/text/token/test_pretok.c
tests_unit_text_token_test_pretok_LDADD = $(link_text_token) $(CMOCKA_LIBS)
tests_unit_text_token_test_bpe_SOURCES = tests/unit/text/token/test_bpe.c $(token_test_help)
tests_unit_text_token_test_bpe_LDADD = $(link_text_token) $(CMOCKA_LIBS)
tests_unit_text_token_test_linear_SOURCES = tests/unit/text/token/test_linear.c $(token_test_help)
tests_unit_text_token_test_linear_LDADD = $(link_text_token) $(CMOCKA_LIBS)
tests_unit_text_token_test_merge_SOURCES = tests/unit/text/token/test_merge.c
tests_unit_text_token_test_merge_LDADD = $(link_text_token) $(CMOCKA_LIBS)
tests_unit_text_token_test_roles_SOURCES = tests/unit/text/token/test_roles.c $(token_test_help)
tests_unit_text_token_test_roles_LDADD = $(link_text_token) $(CMOCKA_LIBS)
tests_unit_text_token_test_spm_SOURCES = tests/unit/text/token/test_spm.c $(token_test_help)
tests_unit_text_token_test_spm_LDADD = $(link_text_token) $(CMOCKA_LIBS)
tests_unit_text_token_test_detok_SOURCES = tests/unit/text/token/test_detok.c $(token_test_help)
tests_unit_text_token_test_detok_LDADD = $(link_text_token) $(CMOCKA_LIBS)
tests_unit_text_token_test_chat_SOURCES = tests/unit/text/token/test_chat.c $(token_test_help)
tests_unit_text_token_test_chat_LDADD = $(link_text_token) $(CMOCKA_LIBS)
tests_unit_text_token_test_chat_marks_SOURCES = tests/unit/text/token/test_chat_marks.c $(token_test_help)
tests_unit_text_token_test_chat_marks_LDADD = $(link_text_token) $(CMOCKA_LIBS)
tests_unit_text_token_test_efforts_SOURCES = tests/unit/text/token/test_efforts.c $(token_test_help)
tests_unit_text_token_test_efforts_LDADD = $(link_text_token) $(CMOCKA_LIBS)
tests_unit_text_token_test_reshape_SOURCES = tests/unit/text/token/test_reshape.c $(token_test_help)
tests_unit_text_token_test_reshape_LDADD = $(link_text_token) $(CMOCKA_LIBS)
tests_unit_text_token_test_taint_SOURCES = tests/unit/text/token/test_taint.c $(token_test_help)
tests_unit_text_token_test_taint_LDADD = $(link_text_token) $(CMOCKA_LIBS)
tests_unit_text_token_test_templates_SOURCES = tests/unit/text/token/test_templates.c $(token_test_help)
tests_unit_text_token_test_templates_LDADD = $(link_text_token) $(CMOCKA_LIBS)
tests_unit_text_token_test_tool_template_SOURCES = tests/unit/text/token/test_tool_template.c $(token_test_help)
tests_unit_text_token_test_tool_template_LDADD = $(link_text_token) $(CMOCKA_LIBS)
endif
