# SPDX-License-Identifier: Apache-2.0
noinst_LIBRARIES += libserve_setup.a
libserve_setup_a_SOURCES = src/serve/setup/admin_access.c src/serve/setup/admin_access.h src/serve/setup/setup.h src/serve/setup/setup.c src/serve/setup/discovery.c src/serve/setup/listens.c src/serve/setup/files.c \
	src/serve/setup/http_conf.c src/serve/setup/http_conf.h src/serve/setup/link_access.c src/serve/setup/link_access.h
