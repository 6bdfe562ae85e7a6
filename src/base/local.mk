# SPDX-License-Identifier: Apache-2.0
noinst_LIBRARIES += libbase.a
libbase_a_SOURCES = \
	src/base/arena.c src/base/arena.h \
	src/base/breaker.c src/base/breaker.h \
	src/base/bytes.c src/base/bytes.h \
	src/base/cgroup.c src/base/cgroup.h \
	src/base/check.c src/base/check.h \
	src/base/clock.c src/base/clock.h \
	src/base/cpu.c src/base/cpu.h \
	src/base/cpu_quota.c src/base/cpu_quota_priv.h \
	src/base/err.c src/base/err.h \
	src/base/fair.c src/base/fair.h \
	src/base/fault.c src/base/fault.h \
	src/base/file.c src/base/file.h \
	src/base/hashmap.c src/base/hashmap.h \
	src/base/kv_types.h src/base/list.h \
	src/base/log.c src/base/log.h \
	src/base/log_format.c src/base/log_priv.h \
	src/base/mailbox.c src/base/mailbox.h src/base/owner.c src/base/owner.h \
	src/base/mem.c src/base/mem_machine.c src/base/mem_machine.h src/base/mem_sealed.c src/base/mem_sealed.h src/base/mem.h \
	src/base/mem_copy.c src/base/mem_copy.h src/base/name.c src/base/name.h src/base/numa.c src/base/numa.h \
	src/base/progress.c src/base/progress.h \
	src/base/rate.c src/base/rate.h src/base/load_rates.h \
	src/base/rng.c src/base/rng.h \
	src/base/socket_owner.c src/base/socket_owner.h src/base/span.c src/base/span.h \
	src/base/str.c src/base/str.h src/base/wide.h \
	src/base/team.c src/base/team.h src/base/thread.c src/base/thread.h \
	src/base/trace_context.c src/base/trace_context.h \
	src/base/utf8.c

if KERNELS_X86
libbase_a_SOURCES += src/base/cpu_x86.c src/base/mem_copy_x86.c
else
if KERNELS_ARM
libbase_a_SOURCES += src/base/cpu_arm.c src/base/mem_copy_other.c
else
libbase_a_SOURCES += src/base/cpu_other.c src/base/mem_copy_other.c
endif
endif

noinst_PROGRAMS += tests/bench/bench_copy
tests_bench_bench_copy_SOURCES = tests/bench/bench_copy.c tests/bench/bench_help.c tests/bench/bench_help.h
tests_bench_bench_copy_LDADD = $(link_base)

if HAVE_CMOCKA
base_tests = \
	tests/unit/base/test_bytes \
	tests/unit/base/test_breaker \
	tests/unit/base/test_cgroup \
	tests/unit/base/test_err \
	tests/unit/base/test_fair \
	tests/unit/base/test_file \
	tests/unit/base/test_hashmap \
	tests/unit/base/test_log \
	tests/unit/base/test_mailbox tests/unit/base/test_owner \
	tests/unit/base/test_mem tests/unit/base/test_mem_sealed \
	tests/unit/base/test_mem_copy tests/unit/base/test_name tests/unit/base/test_numa \
	tests/unit/base/test_rate \
	tests/unit/base/test_rng \
	tests/unit/base/test_str \
	tests/unit/base/test_socket_owner \
	tests/unit/base/test_span \
	tests/unit/base/test_team \
	tests/unit/base/test_trace_context
check_PROGRAMS += $(base_tests)
TESTS += $(base_tests)
endif
tests_unit_base_test_bytes_LDADD = $(link_base) $(CMOCKA_LIBS)
tests_unit_base_test_breaker_LDADD = $(link_base) $(CMOCKA_LIBS)
tests_unit_base_test_cgroup_LDADD = $(link_base) $(CMOCKA_LIBS)
tests_unit_base_test_err_LDADD = $(link_base) $(CMOCKA_LIBS)
tests_unit_base_test_fair_LDADD = $(link_base) $(CMOCKA_LIBS)
tests_unit_base_test_file_LDADD = $(link_base) $(CMOCKA_LIBS)
tests_unit_base_test_hashmap_LDADD = $(link_base) $(CMOCKA_LIBS)
tests_unit_base_test_log_LDADD = $(link_base) $(CMOCKA_LIBS)
tests_unit_base_test_mailbox_LDADD = $(link_base) $(CMOCKA_LIBS)
tests_unit_base_test_owner_SOURCES = tests/unit/base/test_owner.c
tests_unit_base_test_owner_LDADD = $(link_base) $(CMOCKA_LIBS)
tests_unit_base_test_mem_LDADD = $(link_base) $(CMOCKA_LIBS)
tests_unit_base_test_numa_SOURCES = tests/unit/base/test_numa.c
tests_unit_base_test_numa_LDADD = $(link_base) $(CMOCKA_LIBS)
tests_unit_base_test_mem_sealed_LDADD = $(link_base) $(CMOCKA_LIBS)
tests_unit_base_test_mem_copy_LDADD = $(link_base) $(CMOCKA_LIBS)
tests_unit_base_test_name_LDADD = $(link_base) $(CMOCKA_LIBS)
tests_unit_base_test_rate_LDADD = $(link_base) $(CMOCKA_LIBS)
tests_unit_base_test_rng_LDADD = $(link_base) $(CMOCKA_LIBS)
tests_unit_base_test_str_LDADD = $(link_base) $(CMOCKA_LIBS)
tests_unit_base_test_team_LDADD = $(link_base) $(CMOCKA_LIBS)
EXTRA_DIST += tests/unit/check.h tests/unit/compute/check_team.h
tests_unit_base_test_socket_owner_LDADD = $(link_base) $(CMOCKA_LIBS)
tests_unit_base_test_span_SOURCES = tests/unit/base/test_span.c
tests_unit_base_test_span_LDADD = $(link_base) $(CMOCKA_LIBS)
tests_unit_base_test_trace_context_SOURCES = tests/unit/base/test_trace_context.c
tests_unit_base_test_trace_context_LDADD = $(link_base) $(CMOCKA_LIBS)
