# SPDX-License-Identifier: Apache-2.0
noinst_LIBRARIES += libserve_conversation.a
libserve_conversation_a_SOURCES = src/serve/conversation/answer_cache.c src/serve/conversation/answer_cache.h \
	src/serve/conversation/replay.c src/serve/conversation/replay.h src/serve/conversation/conversations.c \
	src/serve/conversation/conversations.h src/serve/conversation/answer_image.c src/serve/conversation/answer_image.h

if HAVE_CMOCKA
check_PROGRAMS += tests/unit/serve/conversation/test_replay tests/unit/serve/conversation/test_answer_image \
	tests/unit/serve/conversation/test_conversations
TESTS += tests/unit/serve/conversation/test_replay tests/unit/serve/conversation/test_answer_image \
	tests/unit/serve/conversation/test_conversations
tests_unit_serve_conversation_test_answer_image_SOURCES = tests/unit/serve/conversation/test_answer_image.c
tests_unit_serve_conversation_test_answer_image_LDADD = $(link_serve_conversation) $(CMOCKA_LIBS)
tests_unit_serve_conversation_test_conversations_SOURCES = tests/unit/serve/conversation/test_conversations.c
tests_unit_serve_conversation_test_conversations_LDADD = $(link_serve_conversation) $(CMOCKA_LIBS)
tests_unit_serve_conversation_test_replay_SOURCES = tests/unit/serve/conversation/test_replay.c tests/unit/serve/conversation/replay_rig.c \
	tests/unit/serve/conversation/replay_model.c tests/unit/serve/conversation/replay_rig.h
tests_unit_serve_conversation_test_replay_LDADD = $(link_serve_endpoint) $(CMOCKA_LIBS)
endif
