# SPDX-License-Identifier: Apache-2.0
# Kernels for machines that are not this one: see test-neon.
EXTRA_DIST += tests/cross/cmocka.h
dist_check_SCRIPTS += tests/cross/test-neon
if PLAIN_BUILD
long_tests += tests/cross/test-neon
endif
if !PLAIN_BUILD
AM_TESTS_ENVIRONMENT += BATON_SANITIZED=1 BATON_SLOW=1; export BATON_SANITIZED BATON_SLOW;
endif
AM_TESTS_ENVIRONMENT += \
	CROSS_KERNELS='$(filter %.c,$(kern_vec_sources))'; export CROSS_KERNELS; \
	CROSS_DOTS='$(filter %.c,$(kern_q8_sources))'; export CROSS_DOTS; \
	CROSS_SOURCES='$(filter-out %/cpu_x86.c %/cpu_arm.c %/cpu_other.c %/mem_copy_x86.c %/mem_copy_other.c %/amx.c %/no_amx.c %/bf16_x86.c %/tables_x86.c %/tables_all.c %/tables_arm.c %/tables_other.c,$(filter %.c,$(libbase_a_SOURCES) $(libgguf_a_SOURCES) $(libcompute_kernels_a_SOURCES) $(libcompute_tensor_a_SOURCES)))'; export CROSS_SOURCES; \
	CROSS_TESTS='$(tensor_tests)'; export CROSS_TESTS;

clean-local: clean-cross
clean-cross:
	-rm -rf tests/cross/neon
