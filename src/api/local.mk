# SPDX-License-Identifier: Apache-2.0
noinst_LIBRARIES += libapi.a
libapi_a_SOURCES = src/api/gen.h src/api/error.h src/api/error.c src/api/json_walk.h src/api/json_walk.c \
	src/api/json.h src/api/json.c src/api/json_sorted.c src/api/parse.h src/api/parse_priv.h src/api/parse.c \
	src/api/parse_content.c src/api/parse_blocks.c src/api/parse_chat.c src/api/parse_openai.c \
	src/api/parse_prompts.c src/api/parse_typed.c src/api/parse_tools.c src/api/parse_pairs.c src/api/parse_thread.c src/api/render.h \
	src/api/render.c src/api/render_openai.h src/api/render_openai.c src/api/calls.h src/api/calls_priv.h \
	src/api/calls.c src/api/calls_json.c src/api/calls_types.h src/api/calls_tags.c src/api/calls_harmony.c src/api/calls_entire.c \
	src/api/json_budget.h src/api/json_budget.c src/api/json_long_priv.h src/api/json_long.c

if HAVE_CMOCKA
check_PROGRAMS += tests/unit/api/test_json tests/unit/api/test_parse tests/unit/api/test_render \
	tests/unit/api/test_calls tests/unit/api/test_families tests/unit/api/test_parse_openai tests/unit/api/test_render_openai
TESTS += tests/unit/api/test_json tests/unit/api/test_parse tests/unit/api/test_render tests/unit/api/test_calls tests/unit/api/test_families \
	tests/unit/api/test_parse_openai tests/unit/api/test_render_openai
tests_unit_api_test_parse_openai_SOURCES = tests/unit/api/test_parse_openai.c
tests_unit_api_test_parse_openai_LDADD = $(link_api) $(CMOCKA_LIBS)
tests_unit_api_test_render_openai_SOURCES = tests/unit/api/test_render_openai.c
tests_unit_api_test_render_openai_LDADD = $(link_api) $(CMOCKA_LIBS)
tests_unit_api_test_json_SOURCES = tests/unit/api/test_json.c
tests_unit_api_test_json_LDADD = $(link_api) $(CMOCKA_LIBS)
tests_unit_api_test_parse_SOURCES = tests/unit/api/test_parse.c
tests_unit_api_test_parse_LDADD = $(link_api) $(CMOCKA_LIBS)
tests_unit_api_test_render_SOURCES = tests/unit/api/test_render.c
tests_unit_api_test_render_LDADD = $(link_api) $(CMOCKA_LIBS)
calls_sink = tests/unit/api/calls_sink.c tests/unit/api/calls_sink.h
tests_unit_api_test_calls_SOURCES = tests/unit/api/test_calls.c $(calls_sink)
tests_unit_api_test_calls_LDADD = $(link_api) $(CMOCKA_LIBS)
tests_unit_api_test_families_SOURCES = tests/unit/api/test_families.c $(calls_sink)
tests_unit_api_test_families_LDADD = $(link_api) $(CMOCKA_LIBS)
endif
