# SPDX-License-Identifier: Apache-2.0
noinst_LIBRARIES += libtext_json.a
libtext_json_a_SOURCES = src/text/json/json.c src/text/json/json.h src/text/json/json_budget.c \
	src/text/json/json_budget_priv.h src/text/json/json_long.c src/text/json/json_long_priv.h src/text/json/json_rewrite.c src/text/json/json_rewrite.h \
	src/text/json/json_sorted.c src/text/json/json_text.h src/text/json/json_text.c src/text/json/json_walk.c src/text/json/json_walk.h

if HAVE_CMOCKA
tests_unit_text_json_test_json_text_SOURCES = tests/unit/text/json/test_json_text.c
tests_unit_text_json_test_json_text_LDADD = $(link_text_json) $(CMOCKA_LIBS)
check_PROGRAMS += tests/unit/text/json/test_json tests/unit/text/json/test_json_rewrite
TESTS += tests/unit/text/json/test_json tests/unit/text/json/test_json_rewrite
tests_unit_text_json_test_json_SOURCES = tests/unit/text/json/test_json.c
tests_unit_text_json_test_json_LDADD = $(link_text_json) $(CMOCKA_LIBS)
tests_unit_text_json_test_json_rewrite_SOURCES = tests/unit/text/json/test_json_rewrite.c
tests_unit_text_json_test_json_rewrite_LDADD = $(link_text_json) $(CMOCKA_LIBS)
endif
