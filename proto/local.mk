# SPDX-License-Identifier: Apache-2.0
# Every byte that crosses between daemons.  The schema is compiled into the build tree and never distributed.

noinst_LIBRARIES += libproto.a
libproto_a_SOURCES = proto/frame.h proto/frame.c proto/frame_priv.h proto/frame_check.c \
	proto/token_list.h proto/token_list.c \
	proto/capabilities.h proto/capabilities.c proto/role.h proto/role.c proto/kv_frame.h proto/kv_frame.c proto/kv_frame_rdma.h proto/kv_frame_rdma.c
nodist_libproto_a_SOURCES = $(proto_built)
proto_built = proto/control.pb-c.c proto/control.pb-c.h

# One run of protoc-c writes both files. The rule for the header runs it again when only the header is missing.
proto/control.pb-c.c: proto/control.proto
	$(AM_V_GEN)$(MKDIR_P) proto && $(PROTOC_C) --proto_path=$(top_srcdir) --c_out=. $(top_srcdir)/proto/control.proto
proto/control.pb-c.h: proto/control.pb-c.c
	@test -f $@ || { rm -f proto/control.pb-c.c; $(MAKE) $(AM_MAKEFLAGS) proto/control.pb-c.c; }

BUILT_SOURCES += $(proto_built)
CLEANFILES += $(proto_built)
EXTRA_DIST += proto/control.proto proto/README.md

if HAVE_CMOCKA
check_PROGRAMS += tests/unit/proto/test_frame tests/unit/proto/test_kv_frame
TESTS += tests/unit/proto/test_frame tests/unit/proto/test_kv_frame
check_PROGRAMS += tests/unit/proto/test_kv_frame_rdma tests/unit/proto/test_token_list tests/unit/proto/test_frame_work
TESTS += tests/unit/proto/test_kv_frame_rdma tests/unit/proto/test_token_list tests/unit/proto/test_frame_work
tests_unit_proto_test_token_list_SOURCES = tests/unit/proto/test_token_list.c
tests_unit_proto_test_token_list_LDADD = $(link_proto) $(CMOCKA_LIBS)
tests_unit_proto_test_kv_frame_rdma_SOURCES = tests/unit/proto/test_kv_frame_rdma.c
tests_unit_proto_test_kv_frame_rdma_LDADD = $(link_proto) $(CMOCKA_LIBS)
tests_unit_proto_test_frame_SOURCES = tests/unit/proto/test_frame.c tests/unit/proto/frame_rig.h
tests_unit_proto_test_frame_LDADD = $(link_proto) $(CMOCKA_LIBS)
tests_unit_proto_test_frame_work_SOURCES = tests/unit/proto/test_frame_work.c tests/unit/proto/frame_rig.h
tests_unit_proto_test_frame_work_LDADD = $(link_proto) $(CMOCKA_LIBS)
tests_unit_proto_test_kv_frame_SOURCES = tests/unit/proto/test_kv_frame.c
tests_unit_proto_test_kv_frame_LDADD = $(link_proto) $(CMOCKA_LIBS)
check_PROGRAMS += tests/unit/proto/test_wire
TESTS += tests/unit/proto/test_wire
tests_unit_proto_test_wire_SOURCES = tests/unit/proto/test_wire.c
tests_unit_proto_test_wire_LDADD = $(link_proto) $(CMOCKA_LIBS)
EXTRA_DIST += tests/unit/proto/frames
endif
