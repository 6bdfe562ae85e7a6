# SPDX-License-Identifier: Apache-2.0
noinst_LIBRARIES += libcache_kv.a
libcache_kv_a_SOURCES = src/cache/kv/layout.h src/cache/kv/layout.c src/cache/kv/state.h src/cache/kv/state.c \
	src/cache/kv/window.h src/cache/kv/window.c \
	src/cache/kv/pool.h src/cache/kv/pool_cache.h src/cache/kv/pool_quota.h src/cache/kv/pool_writeback.h \
	src/cache/kv/pool_priv.h src/cache/kv/pool_state_priv.h src/cache/kv/pool.c src/cache/kv/save.c \
	src/cache/kv/free_map.c src/cache/kv/hash_index.c src/cache/kv/eviction.c
libcache_kv_a_SOURCES += src/cache/kv/quota.c src/cache/kv/writeback.c src/cache/kv/past_uses.c
libcache_kv_a_SOURCES += src/cache/kv/tier.h src/cache/kv/tier_priv.h src/cache/kv/tier.c src/cache/kv/tier_scan.c src/cache/kv/tier_io.c \
	src/cache/kv/block_cipher.h src/cache/kv/block_cipher.c src/cache/kv/tier_seal.c src/cache/kv/tier_record_priv.h src/cache/kv/tier_record.c \
	src/cache/kv/tier_segment.c src/cache/kv/tier_queue.c src/cache/kv/tier_quota_priv.h src/cache/kv/tier_quota.c

noinst_PROGRAMS += tests/bench/bench_tier
tests_bench_bench_tier_SOURCES = tests/bench/bench_tier.c
tests_bench_bench_tier_LDADD = $(link_cache_kv)

if HAVE_CMOCKA
kv_tests = tests/unit/cache/kv/test_layout tests/unit/cache/kv/test_state tests/unit/cache/kv/test_window tests/unit/cache/kv/test_pool tests/unit/cache/kv/test_pool_model
check_PROGRAMS += $(kv_tests)
TESTS += $(kv_tests)
tests_unit_cache_kv_test_layout_SOURCES = tests/unit/cache/kv/test_layout.c
tests_unit_cache_kv_test_layout_LDADD = $(link_cache_kv) $(CMOCKA_LIBS)
tests_unit_cache_kv_test_state_SOURCES = tests/unit/cache/kv/test_state.c
tests_unit_cache_kv_test_state_LDADD = $(link_cache_kv) $(CMOCKA_LIBS)
tests_unit_cache_kv_test_window_SOURCES = tests/unit/cache/kv/test_window.c
tests_unit_cache_kv_test_window_LDADD = $(link_cache_kv) $(CMOCKA_LIBS)
tests_unit_cache_kv_test_pool_SOURCES = tests/unit/cache/kv/test_pool.c
tests_unit_cache_kv_test_pool_LDADD = $(link_cache_kv) $(CMOCKA_LIBS)
tests_unit_cache_kv_test_pool_model_SOURCES = tests/unit/cache/kv/test_pool_model.c
tests_unit_cache_kv_test_pool_model_LDADD = $(link_cache_kv) $(CMOCKA_LIBS)

check_PROGRAMS += tests/unit/cache/kv/test_save
TESTS += tests/unit/cache/kv/test_save
tests_unit_cache_kv_test_save_SOURCES = tests/unit/cache/kv/test_save.c
tests_unit_cache_kv_test_save_LDADD = $(link_cache_kv) $(CMOCKA_LIBS)
check_PROGRAMS += tests/unit/cache/kv/test_pool_quota
TESTS += tests/unit/cache/kv/test_pool_quota
tests_unit_cache_kv_test_pool_quota_SOURCES = tests/unit/cache/kv/test_pool_quota.c
tests_unit_cache_kv_test_pool_quota_LDADD = $(link_cache_kv) $(CMOCKA_LIBS)
tier_tests = tests/unit/cache/kv/test_tier tests/unit/cache/kv/test_tier_crash tests/unit/cache/kv/test_tier_quota \
	tests/unit/cache/kv/test_tier_tenants tests/unit/cache/kv/test_tier_record tests/unit/cache/kv/test_block_cipher
tier_test_help = tests/unit/cache/kv/tier_help.c tests/unit/cache/kv/tier_help.h
check_PROGRAMS += $(tier_tests)
tests_unit_cache_kv_test_block_cipher_SOURCES = tests/unit/cache/kv/test_block_cipher.c
tests_unit_cache_kv_test_block_cipher_LDADD = $(link_cache_kv) $(CMOCKA_LIBS)
TESTS += $(tier_tests)
tests_unit_cache_kv_test_tier_SOURCES = tests/unit/cache/kv/test_tier.c $(tier_test_help)
tests_unit_cache_kv_test_tier_LDADD = $(link_cache_kv) $(CMOCKA_LIBS)
tests_unit_cache_kv_test_tier_crash_SOURCES = tests/unit/cache/kv/test_tier_crash.c $(tier_test_help)
tests_unit_cache_kv_test_tier_crash_LDADD = $(link_cache_kv) $(CMOCKA_LIBS)
tests_unit_cache_kv_test_tier_record_SOURCES = tests/unit/cache/kv/test_tier_record.c
tests_unit_cache_kv_test_tier_record_LDADD = $(link_cache_kv) $(CMOCKA_LIBS)
tests_unit_cache_kv_test_tier_quota_SOURCES = tests/unit/cache/kv/test_tier_quota.c
tests_unit_cache_kv_test_tier_quota_LDADD = $(link_cache_kv) $(CMOCKA_LIBS)
tests_unit_cache_kv_test_tier_tenants_SOURCES = tests/unit/cache/kv/test_tier_tenants.c $(tier_test_help)
tests_unit_cache_kv_test_tier_tenants_LDADD = $(link_cache_kv) $(CMOCKA_LIBS)
endif
