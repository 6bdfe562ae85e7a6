# SPDX-License-Identifier: Apache-2.0
# libtensor.a picks a kernel table and shares out the work; the tables are libraries of their own, each compiled from the
# same kern_*.c for another instruction set (KERN_V16, KERN_Q8) with flags of its own.
noinst_LIBRARIES += libtensor.a libkern_scalar.a
kern_libs = libkern_scalar.a
# Unrolled tiles take a compiler minutes to instrument, so sanitizers leave the tables out (see configure.ac).
libtensor_a_SOURCES = \
	src/tensor/tensor.h src/tensor/kern_priv.h src/tensor/attn_priv.h \
	src/tensor/weight.c src/tensor/weight_dots.c src/tensor/weight_priv.h src/tensor/weight_quant.c src/tensor/quant_priv.h \
	src/tensor/work.c src/tensor/work_priv.h \
	src/tensor/many.h src/tensor/matmul_many.c src/tensor/gated.h src/tensor/matmul_gated.c src/tensor/matmul_ways.c \
	src/tensor/choice.h src/tensor/choice.c \
	src/tensor/tune.h src/tensor/tune_priv.h src/tensor/tune.c src/tensor/tune_trial.c src/tensor/tune_file.c \
	src/tensor/matmul_priv.h src/tensor/tile_block_priv.h src/tensor/matmul.c src/tensor/matmul_block.c src/tensor/attention.c src/tensor/limits.c src/tensor/tables.c

kern_vec_sources = src/tensor/kern_set_priv.h src/tensor/kern_set.c src/tensor/kern_tile.c \
	src/tensor/kern_attn.c src/tensor/kern_attn_tile.c src/tensor/kern_attn_direct.c src/tensor/kern_kv_priv.h src/tensor/kern_kv.c \
	src/tensor/kern_ops.c src/tensor/kern_mix.c src/tensor/kern_peak.c
kern_q8_sources = src/tensor/kern_quant_priv.h src/tensor/kern_chunk_priv.h src/tensor/kern_narrow_priv.h src/tensor/kern_fetch_priv.h src/tensor/kern_act_priv.h src/tensor/kern_q8.c src/tensor/kern_expand.c
libkern_scalar_a_SOURCES = $(kern_vec_sources) $(kern_q8_sources) \
	src/tensor/v16_scalar_priv.h src/tensor/b64_scalar_priv.h src/tensor/q8_scalar_priv.h
libkern_scalar_a_CFLAGS = $(AM_CFLAGS) $(KERN_SANITIZE) $(KERN_DEBUG)
libkern_scalar_a_CPPFLAGS = $(AM_CPPFLAGS) -DKERN_V16='"tensor/v16_scalar_priv.h"' -DKERN_Q8='"tensor/q8_scalar_priv.h"'

if KERNELS_X86
libtensor_a_SOURCES += src/tensor/tables_x86.c

noinst_LIBRARIES += libkern_avx2.a libkern_avx2vnni.a libkern_avx512.a libkern_avx512vnni.a libkern_avx512bf16.a
kern_libs += libkern_avx2.a libkern_avx2vnni.a libkern_avx512.a libkern_avx512vnni.a libkern_avx512bf16.a

kern_cflags = $(AM_CFLAGS) $(KERN_SANITIZE) $(KERN_DEBUG) -O3
kern_cflags_avx2 = $(kern_cflags) -mavx2 -mfma -mf16c
kern_cppflags_avx2 = $(AM_CPPFLAGS) -DKERN_V16='"tensor/v16_avx2_priv.h"'
libkern_avx2_a_SOURCES = src/tensor/kern_direct.c $(kern_vec_sources) $(kern_q8_sources) \
	src/tensor/v16_avx2_priv.h src/tensor/b64_avx2_priv.h src/tensor/q8_madd256_priv.h
libkern_avx2_a_CPPFLAGS = $(kern_cppflags_avx2) -DKERN_Q8='"tensor/q8_madd256_priv.h"'
libkern_avx2_a_CFLAGS = $(kern_cflags_avx2)
libkern_avx2vnni_a_SOURCES = src/tensor/kern_direct.c $(kern_q8_sources) src/tensor/q8_vnni256_priv.h
libkern_avx2vnni_a_CPPFLAGS = $(kern_cppflags_avx2) -DKERN_Q8='"tensor/q8_vnni256_priv.h"'
libkern_avx2vnni_a_CFLAGS = $(kern_cflags_avx2) -mavxvnni

kern_cflags_avx512 = $(kern_cflags) -mavx512f -mavx512bw -mavx512vl -mavx512dq -mfma -mf16c
kern_cppflags_avx512 = $(AM_CPPFLAGS) -DKERN_V16='"tensor/v16_avx512_priv.h"'
libkern_avx512_a_SOURCES = src/tensor/kern_direct.c $(kern_vec_sources) $(kern_q8_sources) \
	src/tensor/v16_avx512_priv.h src/tensor/b64_avx512_priv.h src/tensor/q8_madd512_priv.h
libkern_avx512_a_CPPFLAGS = $(kern_cppflags_avx512) -DKERN_Q8='"tensor/q8_madd512_priv.h"'
libkern_avx512_a_CFLAGS = $(kern_cflags_avx512)
libkern_avx512vnni_a_SOURCES = src/tensor/kern_direct.c $(kern_q8_sources) src/tensor/q8_vnni512_priv.h
libkern_avx512vnni_a_CPPFLAGS = $(kern_cppflags_avx512) -DKERN_Q8='"tensor/q8_vnni512_priv.h"'
libkern_avx512vnni_a_CFLAGS = $(kern_cflags_avx512) -mavx512vnni
libkern_avx512bf16_a_SOURCES = src/tensor/kern_bf16.c
libkern_avx512bf16_a_CPPFLAGS = $(kern_cppflags_avx512)
libkern_avx512bf16_a_CFLAGS = $(kern_cflags_avx512) -mavx512bf16
if KERNELS_AMX
libtensor_a_SOURCES += src/tensor/amx.c
noinst_LIBRARIES += libkern_amx.a
kern_libs += libkern_amx.a
libkern_amx_a_SOURCES = src/tensor/amx_priv.h src/tensor/tile_block_priv.h src/tensor/kern_amx_bf16.c \
	src/tensor/kern_amx_quant.c src/tensor/kern_amx_expand.c
libkern_amx_a_CPPFLAGS = $(kern_cppflags_avx512) -DKERN_Q8='"tensor/q8_madd512_priv.h"'
libkern_amx_a_CFLAGS = $(kern_cflags_avx512) -mamx-tile -mamx-bf16 -mavx512bf16
else
libtensor_a_SOURCES += src/tensor/no_amx.c
endif
else
if KERNELS_ARM
libtensor_a_SOURCES += src/tensor/tables_arm.c src/tensor/no_dots.c
noinst_LIBRARIES += libkern_neon.a libkern_sdot.a libkern_usdot.a
kern_libs += libkern_neon.a libkern_sdot.a libkern_usdot.a
libkern_neon_a_SOURCES = $(kern_vec_sources) src/tensor/v16_neon_priv.h
libkern_neon_a_CPPFLAGS = $(AM_CPPFLAGS) -DKERN_V16='"tensor/v16_neon_priv.h"'
libkern_neon_a_CFLAGS = $(AM_CFLAGS) $(KERN_SANITIZE) $(KERN_DEBUG) -O3
libkern_sdot_a_SOURCES = $(kern_q8_sources) src/tensor/b64_neon_priv.h src/tensor/q8_sdot_priv.h
libkern_sdot_a_CPPFLAGS = $(AM_CPPFLAGS) -DKERN_V16='"tensor/v16_neon_priv.h"' -DKERN_Q8='"tensor/q8_sdot_priv.h"'
libkern_sdot_a_CFLAGS = $(AM_CFLAGS) $(KERN_SANITIZE) $(KERN_DEBUG) -O3 -march=armv8.2-a+dotprod
libkern_usdot_a_SOURCES = $(kern_q8_sources) src/tensor/q8_usdot_priv.h
libkern_usdot_a_CPPFLAGS = $(AM_CPPFLAGS) -DKERN_V16='"tensor/v16_neon_priv.h"' -DKERN_Q8='"tensor/q8_usdot_priv.h"'
libkern_usdot_a_CFLAGS = $(AM_CFLAGS) $(KERN_SANITIZE) $(KERN_DEBUG) -O3 -march=armv8.2-a+i8mm
else
libtensor_a_SOURCES += src/tensor/tables_other.c src/tensor/no_dots.c
endif
endif
EXTRA_DIST += src/tensor/amx.c src/tensor/no_amx.c src/tensor/tables_x86.c src/tensor/tables_arm.c src/tensor/tables_other.c src/tensor/no_dots.c src/tensor/v16_neon_priv.h \
	src/tensor/b64_neon_priv.h src/tensor/q8_sdot_priv.h src/tensor/q8_usdot_priv.h

noinst_PROGRAMS += tests/bench/bench_attention
tests_bench_bench_attention_SOURCES = tests/bench/bench_attention.c tests/bench/bench_help.c tests/bench/bench_help.h tests/bench/bench_tune.h
tests_bench_bench_attention_LDADD = $(link_tensor)

noinst_PROGRAMS += tests/bench/bench_tensor
tests_bench_bench_tensor_SOURCES = tests/bench/bench_tensor.c tests/bench/bench_help.c tests/bench/bench_help.h \
	tests/bench/bench_weights.c tests/bench/bench_weights.h tests/bench/bench_tune.h
tests_bench_bench_tensor_LDADD = $(link_tensor)

noinst_PROGRAMS += tests/bench/bench_decode
tests_bench_bench_decode_SOURCES = tests/bench/bench_decode.c tests/bench/bench_help.c tests/bench/bench_help.h \
	tests/bench/bench_weights.c tests/bench/bench_weights.h tests/bench/bench_tune.h
tests_bench_bench_decode_LDADD = $(link_tensor)

if HAVE_CMOCKA
tensor_tests = tests/unit/tensor/test_matmul tests/unit/tensor/test_attention tests/unit/tensor/test_ops \
	tests/unit/tensor/test_dots tests/unit/tensor/test_many tests/unit/tensor/test_gated \
	tests/unit/tensor/test_tune
check_PROGRAMS += $(tensor_tests)
TESTS += $(tensor_tests)
tests_unit_tensor_test_matmul_SOURCES = tests/unit/tensor/test_matmul.c tests/unit/tensor/check.h
tests_unit_tensor_test_matmul_LDADD = $(link_tensor) $(CMOCKA_LIBS)
tests_unit_tensor_test_attention_SOURCES = tests/unit/tensor/test_attention.c tests/unit/tensor/check.h
tests_unit_tensor_test_attention_LDADD = $(link_tensor) $(CMOCKA_LIBS)
tests_unit_tensor_test_dots_SOURCES = tests/unit/tensor/test_dots.c tests/unit/tensor/check.h
tests_unit_tensor_test_dots_LDADD = $(link_tensor) $(CMOCKA_LIBS)
tests_unit_tensor_test_many_SOURCES = tests/unit/tensor/test_many.c tests/unit/tensor/check.h
tests_unit_tensor_test_many_LDADD = $(link_tensor) $(CMOCKA_LIBS)
tests_unit_tensor_test_gated_SOURCES = tests/unit/tensor/test_gated.c tests/unit/tensor/check.h
tests_unit_tensor_test_gated_LDADD = $(link_tensor) $(CMOCKA_LIBS)
tests_unit_tensor_test_tune_SOURCES = tests/unit/tensor/test_tune.c tests/unit/tensor/check.h
tests_unit_tensor_test_tune_LDADD = $(link_tensor) $(CMOCKA_LIBS)
tests_unit_tensor_test_ops_SOURCES = tests/unit/tensor/test_ops.c tests/unit/tensor/check.h
tests_unit_tensor_test_ops_LDADD = $(link_tensor) $(CMOCKA_LIBS)
endif
