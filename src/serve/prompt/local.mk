# SPDX-License-Identifier: Apache-2.0
noinst_LIBRARIES += libserve_prompt.a
libserve_prompt_a_SOURCES = src/serve/prompt/prompt.c src/serve/prompt/prompt.h src/serve/prompt/prompt_raw.c \
	src/serve/prompt/public_prefix.c src/serve/prompt/public_prefix.h src/serve/prompt/scores.c \
	src/serve/prompt/served_model.h src/serve/prompt/scores.h src/serve/prompt/constraint.c src/serve/prompt/constraint.h src/serve/prompt/constraint_calls.c \
	src/serve/prompt/constraint_check.c src/serve/prompt/constraint_nested.c src/serve/prompt/constraint_priv.h src/serve/prompt/constraint_root.c src/serve/prompt/constraint_tags_priv.h src/serve/prompt/constraint_tags.c src/serve/prompt/constraint_write.c \
	src/serve/prompt/verdicts.c src/serve/prompt/verdicts.h

if HAVE_CMOCKA
check_PROGRAMS += tests/unit/serve/prompt/test_constraint tests/unit/serve/prompt/test_constraint_begun tests/unit/serve/prompt/test_constraint_braces \
	tests/unit/serve/prompt/test_constraint_nested tests/unit/serve/prompt/test_constraint_plain tests/unit/serve/prompt/test_constraint_schemas \
	tests/unit/serve/prompt/test_constraint_thinking tests/unit/serve/prompt/test_prompt tests/unit/serve/prompt/test_public_prefix
TESTS += tests/unit/serve/prompt/test_constraint tests/unit/serve/prompt/test_constraint_begun tests/unit/serve/prompt/test_constraint_braces \
	tests/unit/serve/prompt/test_constraint_nested tests/unit/serve/prompt/test_constraint_plain tests/unit/serve/prompt/test_constraint_schemas \
	tests/unit/serve/prompt/test_constraint_thinking tests/unit/serve/prompt/test_prompt tests/unit/serve/prompt/test_public_prefix
tests_unit_serve_prompt_test_constraint_SOURCES = tests/unit/serve/prompt/test_constraint.c tests/unit/serve/prompt/constraint_rig.c \
	tests/unit/serve/prompt/constraint_rig.h
tests_unit_serve_prompt_test_constraint_LDADD = tests/unit/serve/endpoint/libsim.a $(link_serve_endpoint) $(CMOCKA_LIBS)
tests_unit_serve_prompt_test_constraint_begun_SOURCES = tests/unit/serve/prompt/test_constraint_begun.c \
	tests/unit/serve/prompt/constraint_rig.c tests/unit/serve/prompt/constraint_rig.h
tests_unit_serve_prompt_test_constraint_begun_LDADD = tests/unit/serve/endpoint/libsim.a $(link_serve_endpoint) $(CMOCKA_LIBS)
tests_unit_serve_prompt_test_constraint_braces_SOURCES = tests/unit/serve/prompt/test_constraint_braces.c \
	tests/unit/serve/prompt/constraint_rig.c tests/unit/serve/prompt/constraint_rig.h
tests_unit_serve_prompt_test_constraint_braces_LDADD = tests/unit/serve/endpoint/libsim.a $(link_serve_endpoint) $(CMOCKA_LIBS)
tests_unit_serve_prompt_test_constraint_nested_SOURCES = tests/unit/serve/prompt/test_constraint_nested.c \
	tests/unit/serve/prompt/constraint_rig.c tests/unit/serve/prompt/constraint_rig.h
tests_unit_serve_prompt_test_constraint_nested_LDADD = tests/unit/serve/endpoint/libsim.a $(link_serve_endpoint) $(CMOCKA_LIBS)
tests_unit_serve_prompt_test_constraint_plain_SOURCES = tests/unit/serve/prompt/test_constraint_plain.c \
	tests/unit/serve/prompt/constraint_rig.c tests/unit/serve/prompt/constraint_rig.h
tests_unit_serve_prompt_test_constraint_plain_LDADD = tests/unit/serve/endpoint/libsim.a $(link_serve_endpoint) $(CMOCKA_LIBS)
tests_unit_serve_prompt_test_constraint_schemas_SOURCES = tests/unit/serve/prompt/test_constraint_schemas.c \
	tests/unit/serve/prompt/constraint_rig.c tests/unit/serve/prompt/constraint_rig.h
tests_unit_serve_prompt_test_constraint_schemas_LDADD = tests/unit/serve/endpoint/libsim.a $(link_serve_endpoint) $(CMOCKA_LIBS)
tests_unit_serve_prompt_test_constraint_thinking_SOURCES = tests/unit/serve/prompt/test_constraint_thinking.c \
	tests/unit/serve/prompt/constraint_rig.c tests/unit/serve/prompt/constraint_rig.h
tests_unit_serve_prompt_test_constraint_thinking_LDADD = tests/unit/serve/endpoint/libsim.a $(link_serve_endpoint) $(CMOCKA_LIBS)
tests_unit_serve_prompt_test_prompt_SOURCES = tests/unit/serve/prompt/test_prompt.c
tests_unit_serve_prompt_test_prompt_LDADD = tests/unit/serve/endpoint/libsim.a $(link_serve_prompt) $(CMOCKA_LIBS)
tests_unit_serve_prompt_test_public_prefix_SOURCES = tests/unit/serve/prompt/test_public_prefix.c
tests_unit_serve_prompt_test_public_prefix_LDADD = tests/unit/serve/endpoint/libsim.a $(link_serve_prompt) $(CMOCKA_LIBS)
endif
