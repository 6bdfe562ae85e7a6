# SPDX-License-Identifier: Apache-2.0
noinst_LIBRARIES += libev.a
libev_a_SOURCES = \
	src/ev/jobs.c src/ev/jobs.h \
	src/ev/loop.c src/ev/loop.h \
	src/ev/signals.c src/ev/service.h src/ev/service.c src/ev/signals.h \
	src/ev/stranger_table.c src/ev/stranger_table.h \
	src/ev/strangers.c src/ev/strangers.h \
	src/ev/work.c src/ev/work.h src/ev/work_priv.h

if HAVE_CMOCKA
ev_tests = tests/unit/ev/test_loop tests/unit/ev/test_jobs tests/unit/ev/test_strangers
check_PROGRAMS += $(ev_tests)
TESTS += $(ev_tests)
endif
tests_unit_ev_test_loop_LDADD = $(link_ev) $(CMOCKA_LIBS)
tests_unit_ev_test_jobs_LDADD = $(link_ev) $(CMOCKA_LIBS)
tests_unit_ev_test_strangers_LDADD = $(link_ev) $(CMOCKA_LIBS)
