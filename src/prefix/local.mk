# SPDX-License-Identifier: Apache-2.0
noinst_LIBRARIES += libprefix.a
libprefix_a_SOURCES = src/prefix/block_hash.h src/prefix/block_hash.c
libprefix_a_SOURCES += src/prefix/block_events.h src/prefix/block_events.c
libprefix_a_SOURCES += src/prefix/tenant.h src/prefix/tenant.c
libprefix_a_SOURCES += src/prefix/sha256_priv.h src/prefix/sha256.c
if KERNELS_X86
libprefix_a_SOURCES += src/prefix/sha256_x86.c
else
libprefix_a_SOURCES += src/prefix/sha256_other.c
endif

EXTRA_DIST += tests/unit/prefix/vectors.py
if HAVE_CMOCKA
check_PROGRAMS += tests/unit/prefix/test_block_hash
TESTS += tests/unit/prefix/test_block_hash
tests_unit_prefix_test_block_hash_SOURCES = tests/unit/prefix/test_block_hash.c tests/unit/prefix/vectors.h
tests_unit_prefix_test_block_hash_LDADD = $(link_prefix) $(CMOCKA_LIBS)
check_PROGRAMS += tests/unit/prefix/test_block_events
TESTS += tests/unit/prefix/test_block_events
tests_unit_prefix_test_block_events_SOURCES = tests/unit/prefix/test_block_events.c
tests_unit_prefix_test_block_events_LDADD = $(link_prefix) $(CMOCKA_LIBS)
check_PROGRAMS += tests/unit/prefix/test_tenant
TESTS += tests/unit/prefix/test_tenant
tests_unit_prefix_test_tenant_SOURCES = tests/unit/prefix/test_tenant.c
tests_unit_prefix_test_tenant_LDADD = $(link_prefix) $(CMOCKA_LIBS)
endif
