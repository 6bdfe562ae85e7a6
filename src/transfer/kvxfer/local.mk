# SPDX-License-Identifier: Apache-2.0
noinst_LIBRARIES += libtransfer_kvxfer.a
libtransfer_kvxfer_a_SOURCES = src/transfer/kvxfer/kvxfer.h src/transfer/kvxfer/send.h src/transfer/kvxfer/send.c src/transfer/kvxfer/recv.h src/transfer/kvxfer/recv.c

if HAVE_CMOCKA
check_PROGRAMS += tests/unit/transfer/kvxfer/test_handoff
TESTS += tests/unit/transfer/kvxfer/test_handoff
# the transport is the test's own fake
tests_unit_transfer_kvxfer_test_handoff_SOURCES = tests/unit/transfer/kvxfer/test_handoff.c tests/unit/transfer/kvxfer/pair_rig.c tests/unit/transfer/kvxfer/pair_rig.h
tests_unit_transfer_kvxfer_test_handoff_LDADD = libtransfer_kvxfer.a $(link_cache_kv) $(CMOCKA_LIBS)

check_PROGRAMS += tests/unit/transfer/kvxfer/test_fault
TESTS += tests/unit/transfer/kvxfer/test_fault
tests_unit_transfer_kvxfer_test_fault_SOURCES = tests/unit/transfer/kvxfer/test_fault.c tests/unit/transfer/kvxfer/tr_fault.c tests/unit/transfer/kvxfer/tr_fault.h
tests_unit_transfer_kvxfer_test_fault_CPPFLAGS = $(AM_CPPFLAGS) -I$(top_srcdir)/tests/unit/kvxfer
tests_unit_transfer_kvxfer_test_fault_LDADD = libtransfer_kvxfer.a $(link_cache_kv) $(CMOCKA_LIBS)
endif
