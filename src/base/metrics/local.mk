# SPDX-License-Identifier: Apache-2.0
noinst_LIBRARIES += libbase_metrics.a
libbase_metrics_a_SOURCES = \
	src/base/metrics/exemplar.c src/base/metrics/metrics.c src/base/metrics/metrics.h src/base/metrics/metrics_priv.h \
	src/base/metrics/process.c \
	src/base/metrics/render.c

if HAVE_CMOCKA
check_PROGRAMS += tests/unit/base/metrics/test_metrics
TESTS += tests/unit/base/metrics/test_metrics
endif
tests_unit_base_metrics_test_metrics_LDADD = $(link_base_metrics) $(CMOCKA_LIBS)
