# SPDX-License-Identifier: Apache-2.0
noinst_LIBRARIES += libserve_api.a
libserve_api_a_SOURCES = src/serve/api/error.c src/serve/api/error.h src/serve/api/gen.h src/serve/api/event_id.c src/serve/api/event_id.h src/serve/api/ids.c \
	src/serve/api/ids.h src/serve/api/parse.c src/serve/api/parse.h src/serve/api/parse_blocks.c \
	src/serve/api/parse_chat.c src/serve/api/parse_content.c src/serve/api/parse_openai.c \
	src/serve/api/parse_members.c src/serve/api/parse_pairs.c src/serve/api/parse_priv.h src/serve/api/parse_prompts.c \
	src/serve/api/parse_response_echo.c src/serve/api/parse_response_items.c \
	src/serve/api/parse_response_tools.c src/serve/api/parse_responses.c src/serve/api/parse_thread.c src/serve/api/parse_tools.c src/serve/api/parse_typed.c src/serve/api/render.c \
	src/serve/api/render.h src/serve/api/render_input_items.c src/serve/api/render_responses.c \
	src/serve/api/render_responses.h src/serve/api/render_openai.c src/serve/api/render_openai.h \
	src/serve/api/render_embeddings.c src/serve/api/render_embeddings.h

if HAVE_CMOCKA
check_PROGRAMS += tests/unit/serve/api/test_parse tests/unit/serve/api/test_render \
	tests/unit/serve/api/test_parse_openai tests/unit/serve/api/test_render_openai \
	tests/unit/serve/api/test_parse_responses
TESTS += tests/unit/serve/api/test_parse tests/unit/serve/api/test_render tests/unit/serve/api/test_parse_openai \
	tests/unit/serve/api/test_render_openai tests/unit/serve/api/test_parse_responses
tests_unit_serve_api_test_parse_responses_SOURCES = tests/unit/serve/api/test_parse_responses.c
tests_unit_serve_api_test_parse_responses_LDADD = $(link_serve_api) $(CMOCKA_LIBS)
tests_unit_serve_api_test_parse_openai_SOURCES = tests/unit/serve/api/test_parse_openai.c
tests_unit_serve_api_test_parse_openai_LDADD = $(link_serve_api) $(CMOCKA_LIBS)
tests_unit_serve_api_test_render_openai_SOURCES = tests/unit/serve/api/test_render_openai.c
tests_unit_serve_api_test_render_openai_LDADD = $(link_serve_api) $(CMOCKA_LIBS)
tests_unit_serve_api_test_parse_SOURCES = tests/unit/serve/api/test_parse.c
tests_unit_serve_api_test_parse_LDADD = $(link_serve_api) $(CMOCKA_LIBS)
tests_unit_serve_api_test_render_SOURCES = tests/unit/serve/api/test_render.c
tests_unit_serve_api_test_render_LDADD = $(link_serve_api) $(CMOCKA_LIBS)
check_PROGRAMS += tests/unit/serve/api/test_event_id
TESTS += tests/unit/serve/api/test_event_id
tests_unit_serve_api_test_event_id_SOURCES = tests/unit/serve/api/test_event_id.c
tests_unit_serve_api_test_event_id_LDADD = $(link_serve_api) $(CMOCKA_LIBS)
endif
