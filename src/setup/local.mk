# SPDX-License-Identifier: Apache-2.0
noinst_LIBRARIES += libsetup.a
libsetup_a_SOURCES = src/setup/setup.h src/setup/setup.c src/setup/listens.c src/setup/files.c
