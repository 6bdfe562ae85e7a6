# SPDX-License-Identifier: Apache-2.0
noinst_LIBRARIES += libbase_config.a
libbase_config_a_SOURCES = \
	src/base/config/bind.c \
	src/base/config/check.c src/base/config/digest.c \
	src/base/config/config.h src/base/config/config_priv.h \
	src/base/config/load.c \
	src/base/config/parse.c \
	src/base/config/show.c

if HAVE_CMOCKA
check_PROGRAMS += tests/unit/base/config/test_config
TESTS += tests/unit/base/config/test_config
endif
tests_unit_base_config_test_config_LDADD = $(link_base_config) $(CMOCKA_LIBS)
