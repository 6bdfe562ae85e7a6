# SPDX-License-Identifier: Apache-2.0
noinst_LIBRARIES += libsample.a
libsample_a_SOURCES = src/sample/grammar.h src/sample/sampler.h src/sample/sampler.c src/sample/stop.h src/sample/stop.c

if HAVE_CMOCKA
sample_tests = tests/unit/sample/test_sampler tests/unit/sample/test_stop
check_PROGRAMS += $(sample_tests)
TESTS += $(sample_tests)
tests_unit_sample_test_sampler_SOURCES = tests/unit/sample/test_sampler.c
tests_unit_sample_test_sampler_LDADD = $(link_sample) $(CMOCKA_LIBS)
tests_unit_sample_test_stop_SOURCES = tests/unit/sample/test_stop.c
tests_unit_sample_test_stop_LDADD = $(link_sample) $(CMOCKA_LIBS)
endif
