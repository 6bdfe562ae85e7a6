# SPDX-License-Identifier: Apache-2.0
noinst_LIBRARIES += libserve_access.a
libserve_access_a_SOURCES = src/serve/access/access_keys.c src/serve/access/access_keys.h src/serve/access/auth.c src/serve/access/auth.h src/serve/access/auth_rule.c \
	src/serve/access/failed_logins.c src/serve/access/failed_logins.h src/serve/access/limits.c src/serve/access/limits.h src/serve/access/limits_fields.c src/serve/access/limits_priv.h \
	src/serve/access/fair_queue.c src/serve/access/fair_queue.h src/serve/access/sign.c src/serve/access/sign.h \
	src/serve/access/unzip.c src/serve/access/unzip.h \
	src/serve/access/common_limits.c src/serve/access/common_limits.h src/serve/access/common_limits_priv.h src/serve/access/common_reports.c src/serve/access/common_routers.c

if HAVE_CMOCKA
check_PROGRAMS += tests/unit/serve/access/test_auth tests/unit/serve/access/test_limits \
	tests/unit/serve/access/test_fair_queue tests/unit/serve/access/test_common_limits
TESTS += tests/unit/serve/access/test_auth tests/unit/serve/access/test_limits tests/unit/serve/access/test_fair_queue \
	tests/unit/serve/access/test_common_limits
check_PROGRAMS += tests/unit/serve/access/test_failed_logins
TESTS += tests/unit/serve/access/test_failed_logins
tests_unit_serve_access_test_failed_logins_SOURCES = tests/unit/serve/access/test_failed_logins.c
tests_unit_serve_access_test_failed_logins_LDADD = $(link_serve_access) $(CMOCKA_LIBS)
check_PROGRAMS += tests/unit/serve/access/test_common_reports
TESTS += tests/unit/serve/access/test_common_reports
tests_unit_serve_access_test_common_reports_SOURCES = tests/unit/serve/access/test_common_reports.c
tests_unit_serve_access_test_common_reports_LDADD = $(link_serve_access) $(CMOCKA_LIBS)
tests_unit_serve_access_test_common_limits_SOURCES = tests/unit/serve/access/test_common_limits.c tests/unit/serve/access/common_fleet.c \
	tests/unit/serve/access/common_fleet.h
tests_unit_serve_access_test_common_limits_LDADD = $(link_serve_access) $(CMOCKA_LIBS)
tests_unit_serve_access_test_auth_SOURCES = tests/unit/serve/access/test_auth.c
tests_unit_serve_access_test_auth_LDADD = $(link_serve_endpoint) $(CMOCKA_LIBS)
tests_unit_serve_access_test_limits_SOURCES = tests/unit/serve/access/test_limits.c
tests_unit_serve_access_test_limits_LDADD = $(link_serve_access) $(CMOCKA_LIBS)
tests_unit_serve_access_test_fair_queue_SOURCES = tests/unit/serve/access/test_fair_queue.c
tests_unit_serve_access_test_fair_queue_LDADD = $(link_serve_access) $(CMOCKA_LIBS)
endif
