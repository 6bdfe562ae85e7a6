# SPDX-License-Identifier: Apache-2.0
noinst_LIBRARIES += libbase_event.a
libbase_event_a_SOURCES = \
	src/base/event/jobs.c src/base/event/jobs.h \
	src/base/event/loop.c src/base/event/loop.h \
	src/base/event/signals.c src/base/event/service.h src/base/event/service.c src/base/event/signals.h \
	src/base/event/stranger_hello.c src/base/event/stranger_hello_priv.h \
	src/base/event/stranger_table.c src/base/event/stranger_table_priv.h \
	src/base/event/strangers.c src/base/event/strangers.h \
	src/base/event/work.c src/base/event/work.h src/base/event/work_priv.h

if HAVE_CMOCKA
ev_tests = tests/unit/base/event/test_loop tests/unit/base/event/test_jobs tests/unit/base/event/test_strangers \
	tests/unit/base/event/test_stranger_sockets
check_PROGRAMS += $(ev_tests)
TESTS += $(ev_tests)
endif
tests_unit_base_event_test_loop_LDADD = $(link_base_event) $(CMOCKA_LIBS)
tests_unit_base_event_test_jobs_LDADD = $(link_base_event) $(CMOCKA_LIBS)
tests_unit_base_event_test_strangers_LDADD = $(link_base_event) $(CMOCKA_LIBS)
tests_unit_base_event_test_stranger_sockets_LDADD = $(link_base_event) $(CMOCKA_LIBS)
