# SPDX-License-Identifier: Apache-2.0
noinst_LIBRARIES += libcompute_order.a
libcompute_order_a_SOURCES = src/compute/order/work.c src/compute/order/work.h src/compute/order/submit.c \
	src/compute/order/submit.h src/compute/order/pins.c src/compute/order/pins.h

if HAVE_CMOCKA
check_PROGRAMS += tests/unit/compute/order/test_submit
TESTS += tests/unit/compute/order/test_submit
tests_unit_compute_order_test_submit_SOURCES = tests/unit/compute/order/test_submit.c
tests_unit_compute_order_test_submit_LDADD = $(link_compute_order) $(CMOCKA_LIBS)
endif
