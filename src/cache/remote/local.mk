# SPDX-License-Identifier: Apache-2.0
noinst_LIBRARIES += libcache_remote.a
libcache_remote_a_CPPFLAGS = $(AM_CPPFLAGS) $(CURL_CFLAGS)
libcache_remote_a_SOURCES = src/cache/remote/record.c \
	src/cache/remote/record.h src/cache/remote/remote.c src/cache/remote/remote.h src/cache/remote/remote_io.c \
	src/cache/remote/remote_priv.h src/cache/remote/store.c src/cache/remote/store.h src/cache/remote/store_redis.c src/cache/remote/store_s3.c \
	src/cache/remote/store_redis_priv.h src/cache/remote/redis_batch.c src/cache/remote/run.h src/cache/remote/run.c

noinst_PROGRAMS += tests/bench/bench_remote
tests_bench_bench_remote_SOURCES = tests/bench/bench_remote.c
tests_bench_bench_remote_LDADD = $(link_cache_remote)

if HAVE_CMOCKA
remote_desk = tests/unit/cache/remote/remote_desk.c tests/unit/cache/remote/remote_desk.h \
	tests/unit/cache/remote/redis_rig.c tests/unit/cache/remote/redis_rig.h
remote_tests = tests/unit/cache/remote/test_record tests/unit/cache/remote/test_run tests/unit/cache/remote/test_remote \
	tests/unit/cache/remote/test_remote_run
check_PROGRAMS += $(remote_tests)
TESTS += $(remote_tests)
tests_unit_cache_remote_test_record_SOURCES = tests/unit/cache/remote/test_record.c
tests_unit_cache_remote_test_record_LDADD = $(link_cache_remote) $(CMOCKA_LIBS)
tests_unit_cache_remote_test_run_SOURCES = tests/unit/cache/remote/test_run.c
tests_unit_cache_remote_test_run_LDADD = $(link_cache_remote) $(CMOCKA_LIBS)
tests_unit_cache_remote_test_remote_SOURCES = tests/unit/cache/remote/test_remote.c $(remote_desk)
tests_unit_cache_remote_test_remote_LDADD = $(link_cache_remote) $(CMOCKA_LIBS)
tests_unit_cache_remote_test_remote_run_SOURCES = tests/unit/cache/remote/test_remote_run.c $(remote_desk)
tests_unit_cache_remote_test_remote_run_LDADD = $(link_cache_remote) $(CMOCKA_LIBS)
endif
