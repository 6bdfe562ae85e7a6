# SPDX-License-Identifier: Apache-2.0
noinst_LIBRARIES += libnet_state.a
libnet_state_a_SOURCES = src/net/state/state.c src/net/state/state.h src/net/state/state_io.c src/net/state/state_jobs.c \
	src/net/state/state_priv.h src/net/state/state_record.c src/net/state/state_record.h \
	src/net/state/state_values.c src/net/state/state_values.h

if HAVE_CMOCKA
state_tests = tests/unit/net/state/test_state_record tests/unit/net/state/test_state
check_PROGRAMS += $(state_tests)
TESTS += $(state_tests)
tests_unit_net_state_test_state_record_SOURCES = tests/unit/net/state/test_state_record.c
tests_unit_net_state_test_state_record_LDADD = $(link_net_state) $(CMOCKA_LIBS)
tests_unit_net_state_test_state_SOURCES = tests/unit/net/state/test_state.c
tests_unit_net_state_test_state_LDADD = $(link_net_state) $(CMOCKA_LIBS)
endif
