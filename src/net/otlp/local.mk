# SPDX-License-Identifier: Apache-2.0
noinst_LIBRARIES += libnet_otlp.a
libnet_otlp_a_SOURCES = src/net/otlp/otlp_encode.c src/net/otlp/otlp_encode.h \
	src/net/otlp/otlp_export.c src/net/otlp/otlp_export.h
nodist_libnet_otlp_a_SOURCES = $(otlp_built)
otlp_built = src/net/otlp/otlp.pb-c.c src/net/otlp/otlp.pb-c.h

# One run of protoc-c writes both files. The rule for the header runs it again when only the header is missing.
src/net/otlp/otlp.pb-c.c: src/net/otlp/otlp.proto
	$(AM_V_GEN)$(MKDIR_P) src/net/otlp && $(PROTOC_C) --proto_path=$(top_srcdir)/src --c_out=src $(top_srcdir)/src/net/otlp/otlp.proto
src/net/otlp/otlp.pb-c.h: src/net/otlp/otlp.pb-c.c
	@test -f $@ || { rm -f src/net/otlp/otlp.pb-c.c; $(MAKE) $(AM_MAKEFLAGS) src/net/otlp/otlp.pb-c.c; }

BUILT_SOURCES += $(otlp_built)
CLEANFILES += $(otlp_built)
EXTRA_DIST += src/net/otlp/otlp.proto

if HAVE_CMOCKA
otlp_tests = tests/unit/net/otlp/test_otlp_encode tests/unit/net/otlp/test_otlp_export
check_PROGRAMS += $(otlp_tests)
TESTS += $(otlp_tests)
tests_unit_net_otlp_test_otlp_encode_SOURCES = tests/unit/net/otlp/test_otlp_encode.c
tests_unit_net_otlp_test_otlp_encode_LDADD = $(link_net_otlp) $(CMOCKA_LIBS)
tests_unit_net_otlp_test_otlp_export_SOURCES = tests/unit/net/otlp/test_otlp_export.c \
	tests/unit/net/http/script.c tests/unit/net/http/script.h
tests_unit_net_otlp_test_otlp_export_LDADD = $(link_net_otlp) $(CMOCKA_LIBS)
endif
