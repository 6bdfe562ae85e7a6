# SPDX-License-Identifier: Apache-2.0
noinst_LIBRARIES += libmetrics.a
libmetrics_a_SOURCES = \
	src/metrics/metrics.c src/metrics/metrics.h src/metrics/metrics_priv.h \
	src/metrics/process.c \
	src/metrics/render.c

if HAVE_CMOCKA
check_PROGRAMS += tests/unit/metrics/test_metrics
TESTS += tests/unit/metrics/test_metrics
endif
tests_unit_metrics_test_metrics_LDADD = $(link_metrics) $(CMOCKA_LIBS)
