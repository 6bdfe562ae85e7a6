# SPDX-License-Identifier: Apache-2.0
noinst_LIBRARIES += libfleet_plan.a
libfleet_plan_a_SOURCES = src/fleet/plan/table.h src/fleet/plan/table.c \
	src/fleet/plan/device.h src/fleet/plan/device.c src/fleet/plan/link.c \
	src/fleet/plan/model.h src/fleet/plan/model.c src/fleet/plan/model_config.c \
	src/fleet/plan/constants.h src/fleet/plan/constants.c \
	src/fleet/plan/step.h src/fleet/plan/step.c \
	src/fleet/plan/measure.h src/fleet/plan/measure.c src/fleet/plan/fit.c \
	src/fleet/plan/search.h src/fleet/plan/search.c src/fleet/plan/pools.h src/fleet/plan/pools.c \
	src/fleet/plan/host.h src/fleet/plan/host.c \
	src/fleet/plan/builtin.h src/fleet/plan/builtin.c

# The tables as C strings, so that the program needs no file to run.
plan_tables = $(top_srcdir)/share/plan/devices.tsv $(top_srcdir)/share/plan/links.tsv \
	$(top_srcdir)/share/plan/models.tsv $(top_srcdir)/share/plan/constants
src/fleet/plan/tables.inc: $(plan_tables) $(top_srcdir)/tools/tables-to-c
	$(AM_V_GEN)$(MKDIR_P) src/fleet/plan && $(top_srcdir)/tools/tables-to-c $(plan_tables) >$@.new && mv $@.new $@
src/fleet/plan/builtin.$(OBJEXT): src/fleet/plan/tables.inc
BUILT_SOURCES += src/fleet/plan/tables.inc
CLEANFILES += src/fleet/plan/tables.inc

if HAVE_CMOCKA
plan_tests = \
	tests/unit/fleet/plan/test_anchors \
	tests/unit/fleet/plan/test_measure \
	tests/unit/fleet/plan/test_search \
	tests/unit/fleet/plan/test_shape \
	tests/unit/fleet/plan/test_tables
check_PROGRAMS += $(plan_tests)
TESTS += $(plan_tests)
tests_unit_fleet_plan_test_anchors_SOURCES = tests/unit/fleet/plan/test_anchors.c
tests_unit_fleet_plan_test_anchors_LDADD = $(link_fleet_plan) $(CMOCKA_LIBS)
tests_unit_fleet_plan_test_measure_SOURCES = tests/unit/fleet/plan/test_measure.c
tests_unit_fleet_plan_test_measure_LDADD = $(link_fleet_plan) $(CMOCKA_LIBS)
tests_unit_fleet_plan_test_search_SOURCES = tests/unit/fleet/plan/test_search.c
tests_unit_fleet_plan_test_search_LDADD = $(link_fleet_plan) $(CMOCKA_LIBS)
tests_unit_fleet_plan_test_shape_SOURCES = tests/unit/fleet/plan/test_shape.c
tests_unit_fleet_plan_test_shape_LDADD = $(link_fleet_plan) $(CMOCKA_LIBS)
tests_unit_fleet_plan_test_tables_SOURCES = tests/unit/fleet/plan/test_tables.c
tests_unit_fleet_plan_test_tables_LDADD = $(link_fleet_plan) $(CMOCKA_LIBS)
endif
