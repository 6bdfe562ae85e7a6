# SPDX-License-Identifier: Apache-2.0
noinst_LIBRARIES += libpicker.a
libpicker_a_SOURCES = src/picker/picker.h src/picker/pick.c src/picker/estimate.c \
	src/picker/index.h src/picker/index.c src/picker/index_events.c src/picker/index_sweep.c
libpicker_a_SOURCES += src/picker/index_priv.h src/picker/holders.c src/picker/walk.c src/picker/fleet.h src/picker/fleet_priv.h \
	src/picker/fleet.c src/picker/place.h src/picker/place.c
libpicker_a_SOURCES += src/picker/holder.h src/picker/holder.c

if HAVE_CMOCKA
picker_tests = tests/unit/picker/test_pick tests/unit/picker/test_index
picker_tests += tests/unit/picker/test_pairs tests/unit/picker/test_place
check_PROGRAMS += $(picker_tests)
TESTS += $(picker_tests)
tests_unit_picker_test_pick_SOURCES = tests/unit/picker/test_pick.c
tests_unit_picker_test_pick_LDADD = $(link_picker) $(CMOCKA_LIBS)
tests_unit_picker_test_index_SOURCES = tests/unit/picker/test_index.c
tests_unit_picker_test_index_LDADD = $(link_picker) $(CMOCKA_LIBS)
tests_unit_picker_test_pairs_SOURCES = tests/unit/picker/test_pairs.c
tests_unit_picker_test_pairs_LDADD = $(link_picker) $(CMOCKA_LIBS)
tests_unit_picker_test_place_SOURCES = tests/unit/picker/test_place.c
tests_unit_picker_test_place_LDADD = $(link_picker) $(CMOCKA_LIBS)
check_PROGRAMS += tests/unit/picker/test_holder
TESTS += tests/unit/picker/test_holder
tests_unit_picker_test_holder_SOURCES = tests/unit/picker/test_holder.c
tests_unit_picker_test_holder_LDADD = $(link_picker) $(CMOCKA_LIBS)
endif
