# SPDX-License-Identifier: Apache-2.0
noinst_LIBRARIES += libserve_answer.a
libserve_answer_a_SOURCES = src/serve/answer/answer.c src/serve/answer/answer.h src/serve/answer/drawn_ids.c \
	src/serve/answer/transcript.c src/serve/answer/transcript.h src/serve/answer/transcript_priv.h

if HAVE_CMOCKA
check_PROGRAMS += tests/unit/serve/answer/test_answer tests/unit/serve/answer/test_transcript
TESTS += tests/unit/serve/answer/test_answer tests/unit/serve/answer/test_transcript
tests_unit_serve_answer_test_transcript_SOURCES = tests/unit/serve/answer/test_transcript.c
tests_unit_serve_answer_test_transcript_LDADD = tests/unit/serve/endpoint/libsim.a $(link_serve_answer) $(CMOCKA_LIBS)
tests_unit_serve_answer_test_answer_SOURCES = tests/unit/serve/answer/test_answer.c
tests_unit_serve_answer_test_answer_LDADD = tests/unit/serve/endpoint/libsim.a $(link_serve_answer) $(CMOCKA_LIBS)
endif
