# SPDX-License-Identifier: Apache-2.0
noinst_LIBRARIES += libtext_toolcall.a
libtext_toolcall_a_SOURCES = src/text/toolcall/calls.c src/text/toolcall/calls.h \
	src/text/toolcall/calls_braces.c src/text/toolcall/calls_elements.c src/text/toolcall/calls_entire.c src/text/toolcall/calls_harmony.c src/text/toolcall/calls_json.c \
	src/text/toolcall/calls_keywords.c src/text/toolcall/calls_late.c src/text/toolcall/calls_priv.h src/text/toolcall/calls_recipient.c src/text/toolcall/calls_tags.c src/text/toolcall/calls_text.c src/text/toolcall/calls_types.c \
	src/text/toolcall/calls_types.h src/text/toolcall/calls_value.c src/text/toolcall/formats.c src/text/toolcall/formats.h \
	src/text/toolcall/formats_priv.h src/text/toolcall/formats_tags.c \
	src/text/toolcall/spell.c src/text/toolcall/spell.h

if HAVE_CMOCKA
toolcall_tests = tests/unit/text/toolcall/test_calls tests/unit/text/toolcall/test_families \
	tests/unit/text/toolcall/test_long_calls tests/unit/text/toolcall/test_random_text tests/unit/text/toolcall/test_schemas \
	tests/unit/text/toolcall/test_families_more \
	tests/unit/text/toolcall/test_spell tests/unit/text/toolcall/test_thinking
check_PROGRAMS += $(toolcall_tests)
TESTS += $(toolcall_tests)
calls_sink = tests/unit/text/toolcall/calls_sink.c tests/unit/text/toolcall/calls_sink.h
tests_unit_text_toolcall_test_calls_SOURCES = tests/unit/text/toolcall/test_calls.c $(calls_sink)
tests_unit_text_toolcall_test_calls_LDADD = $(link_text_toolcall) $(CMOCKA_LIBS)
tests_unit_text_toolcall_test_families_SOURCES = tests/unit/text/toolcall/test_families.c tests/unit/text/toolcall/pieces.h $(calls_sink)
tests_unit_text_toolcall_test_families_LDADD = $(link_text_toolcall) $(CMOCKA_LIBS)
tests_unit_text_toolcall_test_long_calls_SOURCES = tests/unit/text/toolcall/test_long_calls.c $(calls_sink)
tests_unit_text_toolcall_test_long_calls_LDADD = $(link_text_toolcall) $(CMOCKA_LIBS)
tests_unit_text_toolcall_test_random_text_SOURCES = tests/unit/text/toolcall/test_random_text.c tests/unit/text/toolcall/pieces.h $(calls_sink)
tests_unit_text_toolcall_test_random_text_LDADD = $(link_text_toolcall) $(CMOCKA_LIBS)
tests_unit_text_toolcall_test_schemas_SOURCES = tests/unit/text/toolcall/test_schemas.c $(calls_sink)
tests_unit_text_toolcall_test_schemas_LDADD = $(link_text_toolcall) $(CMOCKA_LIBS)
tests_unit_text_toolcall_test_spell_SOURCES = tests/unit/text/toolcall/test_spell.c $(calls_sink)
tests_unit_text_toolcall_test_spell_LDADD = $(link_text_toolcall) $(CMOCKA_LIBS)
tests_unit_text_toolcall_test_families_more_SOURCES = tests/unit/text/toolcall/test_families_more.c $(calls_sink)
tests_unit_text_toolcall_test_families_more_LDADD = $(link_text_toolcall) $(CMOCKA_LIBS)
tests_unit_text_toolcall_test_thinking_SOURCES = tests/unit/text/toolcall/test_thinking.c $(calls_sink)
tests_unit_text_toolcall_test_thinking_LDADD = $(link_text_toolcall) $(CMOCKA_LIBS)
endif
