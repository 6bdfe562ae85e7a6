# SPDX-License-Identifier: Apache-2.0
noinst_LIBRARIES += libprefill.a
libprefill_a_SOURCES = src/prefill/depart.h src/prefill/depart.c
