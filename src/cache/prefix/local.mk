# SPDX-License-Identifier: Apache-2.0
noinst_LIBRARIES += libcache_prefix.a
libcache_prefix_a_SOURCES = src/cache/prefix/block_hash.h src/cache/prefix/block_hash.c
libcache_prefix_a_SOURCES += src/cache/prefix/block_events.h src/cache/prefix/block_events.c
libcache_prefix_a_SOURCES += src/cache/prefix/block_set.h src/cache/prefix/block_set.c
libcache_prefix_a_SOURCES += src/cache/prefix/block_queue.h src/cache/prefix/block_queue.c
libcache_prefix_a_SOURCES += src/cache/prefix/tenant.h src/cache/prefix/tenant.c
libcache_prefix_a_SOURCES += src/cache/prefix/sha256_priv.h src/cache/prefix/sha256.c
if KERNELS_X86
libcache_prefix_a_SOURCES += src/cache/prefix/sha256_x86.c
else
libcache_prefix_a_SOURCES += src/cache/prefix/sha256_other.c
endif

EXTRA_DIST += tests/unit/cache/prefix/vectors.py
if HAVE_CMOCKA
check_PROGRAMS += tests/unit/cache/prefix/test_block_hash
TESTS += tests/unit/cache/prefix/test_block_hash
tests_unit_cache_prefix_test_block_hash_SOURCES = tests/unit/cache/prefix/test_block_hash.c tests/unit/cache/prefix/vectors.h
tests_unit_cache_prefix_test_block_hash_LDADD = $(link_cache_prefix) $(CMOCKA_LIBS)
check_PROGRAMS += tests/unit/cache/prefix/test_block_events
TESTS += tests/unit/cache/prefix/test_block_events
tests_unit_cache_prefix_test_block_events_SOURCES = tests/unit/cache/prefix/test_block_events.c
tests_unit_cache_prefix_test_block_events_LDADD = $(link_cache_prefix) $(CMOCKA_LIBS)
check_PROGRAMS += tests/unit/cache/prefix/test_block_queue
TESTS += tests/unit/cache/prefix/test_block_queue
tests_unit_cache_prefix_test_block_queue_SOURCES = tests/unit/cache/prefix/test_block_queue.c
tests_unit_cache_prefix_test_block_queue_LDADD = $(link_cache_prefix) $(CMOCKA_LIBS)
check_PROGRAMS += tests/unit/cache/prefix/test_block_set
TESTS += tests/unit/cache/prefix/test_block_set
tests_unit_cache_prefix_test_block_set_SOURCES = tests/unit/cache/prefix/test_block_set.c
tests_unit_cache_prefix_test_block_set_LDADD = $(link_cache_prefix) $(CMOCKA_LIBS)
check_PROGRAMS += tests/unit/cache/prefix/test_tenant
TESTS += tests/unit/cache/prefix/test_tenant
tests_unit_cache_prefix_test_tenant_SOURCES = tests/unit/cache/prefix/test_tenant.c
tests_unit_cache_prefix_test_tenant_LDADD = $(link_cache_prefix) $(CMOCKA_LIBS)
endif
