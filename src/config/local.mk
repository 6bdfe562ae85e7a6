# SPDX-License-Identifier: Apache-2.0
noinst_LIBRARIES += libconfig.a
libconfig_a_SOURCES = \
	src/config/bind.c \
	src/config/check.c \
	src/config/config.h src/config/config_priv.h \
	src/config/load.c \
	src/config/parse.c \
	src/config/show.c

if HAVE_CMOCKA
check_PROGRAMS += tests/unit/config/test_config
TESTS += tests/unit/config/test_config
endif
tests_unit_config_test_config_LDADD = $(link_config) $(CMOCKA_LIBS)
