# SPDX-License-Identifier: Apache-2.0
noinst_LIBRARIES += libkvxfer.a
libkvxfer_a_SOURCES = src/kvxfer/kvxfer.h src/kvxfer/send.h src/kvxfer/send.c src/kvxfer/recv.h src/kvxfer/recv.c

if HAVE_CMOCKA
check_PROGRAMS += tests/unit/kvxfer/test_handoff
TESTS += tests/unit/kvxfer/test_handoff
# the transport is the test's own fake
tests_unit_kvxfer_test_handoff_SOURCES = tests/unit/kvxfer/test_handoff.c
tests_unit_kvxfer_test_handoff_LDADD = libkvxfer.a $(link_kv) $(CMOCKA_LIBS)

check_PROGRAMS += tests/unit/kvxfer/test_fault
TESTS += tests/unit/kvxfer/test_fault
tests_unit_kvxfer_test_fault_SOURCES = tests/unit/kvxfer/test_fault.c tests/unit/kvxfer/tr_fault.c tests/unit/kvxfer/tr_fault.h
tests_unit_kvxfer_test_fault_CPPFLAGS = $(AM_CPPFLAGS) -I$(top_srcdir)/tests/unit/kvxfer
tests_unit_kvxfer_test_fault_LDADD = libkvxfer.a $(link_kv) $(CMOCKA_LIBS)
endif
