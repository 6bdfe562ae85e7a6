# SPDX-License-Identifier: Apache-2.0
noinst_LIBRARIES += libkv.a
libkv_a_SOURCES = src/kv/layout.h src/kv/layout.c src/kv/pool.h src/kv/pool_priv.h src/kv/pool.c \
	src/kv/free_map.c src/kv/hash_index.c src/kv/shelf.c
libkv_a_SOURCES += src/kv/shares.c src/kv/unsaved.c
libkv_a_SOURCES += src/kv/tier.h src/kv/tier_priv.h src/kv/tier.c src/kv/tier_scan.c src/kv/tier_io.c \
	src/kv/tier_seal.c src/kv/tier_record.h src/kv/tier_record.c \
	src/kv/tier_room.c src/kv/tier_queue.c src/kv/tier_share.h src/kv/tier_share.c

noinst_PROGRAMS += tests/bench/bench_tier
tests_bench_bench_tier_SOURCES = tests/bench/bench_tier.c
tests_bench_bench_tier_LDADD = $(link_kv)

if HAVE_CMOCKA
kv_tests = tests/unit/kv/test_layout tests/unit/kv/test_pool tests/unit/kv/test_pool_model
check_PROGRAMS += $(kv_tests)
TESTS += $(kv_tests)
tests_unit_kv_test_layout_SOURCES = tests/unit/kv/test_layout.c
tests_unit_kv_test_layout_LDADD = $(link_kv) $(CMOCKA_LIBS)
tests_unit_kv_test_pool_SOURCES = tests/unit/kv/test_pool.c
tests_unit_kv_test_pool_LDADD = $(link_kv) $(CMOCKA_LIBS)
tests_unit_kv_test_pool_model_SOURCES = tests/unit/kv/test_pool_model.c
tests_unit_kv_test_pool_model_LDADD = $(link_kv) $(CMOCKA_LIBS)

check_PROGRAMS += tests/unit/kv/test_pool_share
TESTS += tests/unit/kv/test_pool_share
tests_unit_kv_test_pool_share_SOURCES = tests/unit/kv/test_pool_share.c
tests_unit_kv_test_pool_share_LDADD = $(link_kv) $(CMOCKA_LIBS)
tier_tests = tests/unit/kv/test_tier tests/unit/kv/test_tier_crash tests/unit/kv/test_tier_share \
	tests/unit/kv/test_tier_tenants tests/unit/kv/test_tier_record
tier_test_help = tests/unit/kv/tier_help.c tests/unit/kv/tier_help.h
check_PROGRAMS += $(tier_tests)
TESTS += $(tier_tests)
tests_unit_kv_test_tier_SOURCES = tests/unit/kv/test_tier.c $(tier_test_help)
tests_unit_kv_test_tier_LDADD = $(link_kv) $(CMOCKA_LIBS)
tests_unit_kv_test_tier_crash_SOURCES = tests/unit/kv/test_tier_crash.c $(tier_test_help)
tests_unit_kv_test_tier_crash_LDADD = $(link_kv) $(CMOCKA_LIBS)
tests_unit_kv_test_tier_record_SOURCES = tests/unit/kv/test_tier_record.c
tests_unit_kv_test_tier_record_LDADD = $(link_kv) $(CMOCKA_LIBS)
tests_unit_kv_test_tier_share_SOURCES = tests/unit/kv/test_tier_share.c
tests_unit_kv_test_tier_share_LDADD = $(link_kv) $(CMOCKA_LIBS)
tests_unit_kv_test_tier_tenants_SOURCES = tests/unit/kv/test_tier_tenants.c $(tier_test_help)
tests_unit_kv_test_tier_tenants_LDADD = $(link_kv) $(CMOCKA_LIBS)
endif
