# SPDX-License-Identifier: Apache-2.0
noinst_LIBRARIES += libnet_redis.a
libnet_redis_a_SOURCES = src/net/redis/redis_conn.c src/net/redis/redis_conn.h src/net/redis/redis_error.c \
	src/net/redis/redis_error.h src/net/redis/redis_slots.c \
	src/net/redis/redis_slots.h src/net/redis/redis_url.c src/net/redis/redis_url.h src/net/redis/resp.c \
	src/net/redis/resp.h

if HAVE_CMOCKA
redis_tests = tests/unit/net/redis/test_resp tests/unit/net/redis/test_redis_url tests/unit/net/redis/test_redis_slots \
	tests/unit/net/redis/test_redis_conn
check_PROGRAMS += $(redis_tests)
TESTS += $(redis_tests)
tests_unit_net_redis_test_resp_SOURCES = tests/unit/net/redis/test_resp.c
tests_unit_net_redis_test_resp_LDADD = $(link_net_redis) $(CMOCKA_LIBS)
tests_unit_net_redis_test_redis_url_SOURCES = tests/unit/net/redis/test_redis_url.c
tests_unit_net_redis_test_redis_url_LDADD = $(link_net_redis) $(CMOCKA_LIBS)
tests_unit_net_redis_test_redis_slots_SOURCES = tests/unit/net/redis/test_redis_slots.c
tests_unit_net_redis_test_redis_slots_LDADD = $(link_net_redis) $(CMOCKA_LIBS)
tests_unit_net_redis_test_redis_conn_SOURCES = tests/unit/net/redis/test_redis_conn.c
tests_unit_net_redis_test_redis_conn_LDADD = $(link_net_redis) $(CMOCKA_LIBS)
endif
