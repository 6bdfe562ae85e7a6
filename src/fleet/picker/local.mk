# SPDX-License-Identifier: Apache-2.0
noinst_LIBRARIES += libfleet_picker.a
libfleet_picker_a_SOURCES = src/fleet/picker/picker.h src/fleet/picker/defaults.h src/fleet/picker/pick.c src/fleet/picker/estimate.c \
	src/fleet/picker/index.h src/fleet/picker/index.c src/fleet/picker/index_events.c src/fleet/picker/index_sweep.c
libfleet_picker_a_SOURCES += src/fleet/picker/index_priv.h src/fleet/picker/owners.c src/fleet/picker/prefix_match.c src/fleet/picker/fleet.h src/fleet/picker/fleet_priv.h \
	src/fleet/picker/fleet.c src/fleet/picker/place.h src/fleet/picker/place.c
libfleet_picker_a_SOURCES += src/fleet/picker/owner.h src/fleet/picker/owner.c src/fleet/picker/turn.h src/fleet/picker/turn.c src/fleet/picker/pick_priv.h src/fleet/picker/pick_row_priv.h src/fleet/picker/pick_bounds_priv.h \
	src/fleet/picker/pick_groups_priv.h src/fleet/picker/groups.c
libfleet_picker_a_SOURCES += src/fleet/picker/admit.h src/fleet/picker/admit.c src/fleet/picker/refusal.h src/fleet/picker/answers.h src/fleet/picker/answers.c src/fleet/picker/slots.c src/fleet/picker/classes.h src/fleet/picker/classes.c
libfleet_picker_a_SOURCES += src/fleet/picker/demand.h src/fleet/picker/demand.c src/fleet/picker/roles.h src/fleet/picker/roles.c src/fleet/picker/roles_priv.h src/fleet/picker/roles_trial.c src/fleet/picker/room.c
libfleet_picker_a_SOURCES += src/fleet/picker/pause.h src/fleet/picker/pause.c src/fleet/picker/ahead.h src/fleet/picker/ahead.c src/fleet/picker/served.h src/fleet/picker/served.c src/fleet/picker/service.h src/fleet/picker/service.c

if HAVE_CMOCKA
picker_tests = tests/unit/fleet/picker/test_pick tests/unit/fleet/picker/test_index
picker_tests += tests/unit/fleet/picker/test_pairs tests/unit/fleet/picker/test_place tests/unit/fleet/picker/test_pick_disk \
	tests/unit/fleet/picker/test_pick_quick
check_PROGRAMS += $(picker_tests)
TESTS += $(picker_tests)
tests_unit_fleet_picker_test_pick_SOURCES = tests/unit/fleet/picker/test_pick.c tests/unit/fleet/picker/pick_help.h
tests_unit_fleet_picker_test_pick_LDADD = $(link_fleet_picker) $(CMOCKA_LIBS)
tests_unit_fleet_picker_test_pick_disk_SOURCES = tests/unit/fleet/picker/test_pick_disk.c tests/unit/fleet/picker/pick_help.h
tests_unit_fleet_picker_test_pick_disk_LDADD = $(link_fleet_picker) $(CMOCKA_LIBS)
tests_unit_fleet_picker_test_pick_quick_SOURCES = tests/unit/fleet/picker/test_pick_quick.c tests/unit/fleet/picker/pick_help.h
tests_unit_fleet_picker_test_pick_quick_LDADD = $(link_fleet_picker) $(CMOCKA_LIBS)
tests_unit_fleet_picker_test_index_SOURCES = tests/unit/fleet/picker/test_index.c
tests_unit_fleet_picker_test_index_LDADD = $(link_fleet_picker) $(CMOCKA_LIBS)
tests_unit_fleet_picker_test_pairs_SOURCES = tests/unit/fleet/picker/test_pairs.c
tests_unit_fleet_picker_test_pairs_LDADD = $(link_fleet_picker) $(CMOCKA_LIBS)
tests_unit_fleet_picker_test_place_SOURCES = tests/unit/fleet/picker/test_place.c
tests_unit_fleet_picker_test_place_LDADD = $(link_fleet_picker) $(CMOCKA_LIBS)
check_PROGRAMS += tests/unit/fleet/picker/test_admit
TESTS += tests/unit/fleet/picker/test_admit
tests_unit_fleet_picker_test_admit_SOURCES = tests/unit/fleet/picker/test_admit.c
tests_unit_fleet_picker_test_admit_LDADD = $(link_fleet_picker) $(CMOCKA_LIBS)
check_PROGRAMS += tests/unit/fleet/picker/test_classes
TESTS += tests/unit/fleet/picker/test_classes
tests_unit_fleet_picker_test_classes_SOURCES = tests/unit/fleet/picker/test_classes.c
tests_unit_fleet_picker_test_classes_LDADD = $(link_fleet_picker) $(CMOCKA_LIBS)
check_PROGRAMS += tests/unit/fleet/picker/test_pause
TESTS += tests/unit/fleet/picker/test_pause
tests_unit_fleet_picker_test_pause_SOURCES = tests/unit/fleet/picker/test_pause.c
tests_unit_fleet_picker_test_pause_LDADD = $(link_fleet_picker) $(CMOCKA_LIBS)
check_PROGRAMS += tests/unit/fleet/picker/test_owner
TESTS += tests/unit/fleet/picker/test_owner
tests_unit_fleet_picker_test_owner_SOURCES = tests/unit/fleet/picker/test_owner.c
tests_unit_fleet_picker_test_owner_LDADD = $(link_fleet_picker) $(CMOCKA_LIBS)
check_PROGRAMS += tests/unit/fleet/picker/test_ahead
TESTS += tests/unit/fleet/picker/test_ahead
tests_unit_fleet_picker_test_ahead_SOURCES = tests/unit/fleet/picker/test_ahead.c
tests_unit_fleet_picker_test_ahead_LDADD = $(link_fleet_picker) $(CMOCKA_LIBS)
check_PROGRAMS += tests/unit/fleet/picker/test_roles
TESTS += tests/unit/fleet/picker/test_roles
tests_unit_fleet_picker_test_roles_SOURCES = tests/unit/fleet/picker/test_roles.c
tests_unit_fleet_picker_test_roles_LDADD = $(link_fleet_picker) $(CMOCKA_LIBS)
endif
