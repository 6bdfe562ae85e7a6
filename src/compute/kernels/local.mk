# SPDX-License-Identifier: Apache-2.0
# libcompute_kernels.a chooses a kernel table. Each table is a separate library, compiled from the same kern_*.c
# for another instruction set (KERN_V16, KERN_Q8) with its own flags.
noinst_LIBRARIES += libcompute_kernels.a libkern_scalar.a
kern_libs = libkern_scalar.a
# Instrumenting unrolled tiles takes a compiler minutes, so sanitizer builds do not instrument the tables (see configure.ac).
libcompute_kernels_a_SOURCES = src/compute/kernels/tables.c src/compute/kernels/kern_table.h src/compute/kernels/attn_args.h src/compute/kernels/recurrent.h src/compute/kernels/index.h src/compute/kernels/kern.h \
	src/compute/kernels/attn.h src/compute/kernels/quant.h src/compute/kernels/quant_chunk.h \
	src/compute/kernels/tile_block.h

kern_vec_sources = src/compute/kernels/kern_set_priv.h src/compute/kernels/kern_set.c src/compute/kernels/kern_tile.c \
	src/compute/kernels/kern_attn.c src/compute/kernels/kern_attn_tile.c src/compute/kernels/kern_attn_direct.c src/compute/kernels/kern_kv_priv.h src/compute/kernels/kern_kv.c \
	src/compute/kernels/kern_ops.c src/compute/kernels/kern_mix.c src/compute/kernels/kern_recurrent.c src/compute/kernels/kern_index.c src/compute/kernels/kern_peak.c
kern_q8_sources = src/compute/kernels/kern_quant_priv.h src/compute/kernels/kern_chunk_priv.h src/compute/kernels/kern_points_priv.h src/compute/kernels/kern_narrow_priv.h src/compute/kernels/kern_fetch_priv.h src/compute/kernels/kern_act_priv.h src/compute/kernels/kern_q8.c src/compute/kernels/kern_expand.c
libkern_scalar_a_SOURCES = $(kern_vec_sources) $(kern_q8_sources) src/compute/kernels/kern_points.c \
	src/compute/kernels/v16_scalar_priv.h src/compute/kernels/b64_scalar_priv.h src/compute/kernels/q8_scalar_priv.h
libkern_scalar_a_CFLAGS = $(AM_CFLAGS) $(KERN_SANITIZE) $(KERN_DEBUG)
libkern_scalar_a_CPPFLAGS = $(AM_CPPFLAGS) -DKERN_V16='"compute/kernels/v16_scalar_priv.h"' -DKERN_Q8='"compute/kernels/q8_scalar_priv.h"'

.PHONY: other-kernels
if KERNELS_X86
libcompute_kernels_a_SOURCES += src/compute/kernels/tables_x86.c src/compute/kernels/tables_x86_priv.h src/compute/kernels/tables_all.c \
	src/compute/kernels/bf16_x86.c

noinst_LIBRARIES += libkern_avx2.a libkern_avx2madd.a libkern_avx2vnni.a libkern_avx512.a libkern_avx512madd.a \
	libkern_avx512vnni.a libkern_avx512vbmi.a libkern_avx512bf16.a
kern_libs += libkern_avx2.a libkern_avx2madd.a libkern_avx2vnni.a libkern_avx512.a libkern_avx512madd.a \
	libkern_avx512vnni.a libkern_avx512vbmi.a libkern_avx512bf16.a

kern_cflags = $(AM_CFLAGS) $(KERN_SANITIZE) $(KERN_DEBUG) -O3
kern_cflags_avx2 = $(kern_cflags) -mavx2 -mfma -mf16c
kern_cppflags_avx2 = $(AM_CPPFLAGS) -DKERN_V16='"compute/kernels/v16_avx2_priv.h"'
libkern_avx2_a_SOURCES = $(kern_vec_sources) src/compute/kernels/v16_avx2_priv.h
libkern_avx2_a_CPPFLAGS = $(kern_cppflags_avx2)
libkern_avx2_a_CFLAGS = $(kern_cflags_avx2)
libkern_avx2madd_a_SOURCES = src/compute/kernels/kern_direct.c $(kern_q8_sources) src/compute/kernels/b64_avx2_priv.h \
	src/compute/kernels/q8_madd256_priv.h
libkern_avx2madd_a_CPPFLAGS = $(kern_cppflags_avx2) -DKERN_Q8='"compute/kernels/q8_madd256_priv.h"'
libkern_avx2madd_a_CFLAGS = $(kern_cflags_avx2)
libkern_avx2vnni_a_SOURCES = src/compute/kernels/kern_direct.c $(kern_q8_sources) src/compute/kernels/q8_vnni256_priv.h
libkern_avx2vnni_a_CPPFLAGS = $(kern_cppflags_avx2) -DKERN_Q8='"compute/kernels/q8_vnni256_priv.h"'
libkern_avx2vnni_a_CFLAGS = $(kern_cflags_avx2) -mavxvnni

kern_cflags_avx512 = $(kern_cflags) -mavx512f -mavx512bw -mavx512vl -mavx512dq -mfma -mf16c
kern_cppflags_avx512 = $(AM_CPPFLAGS) -DKERN_V16='"compute/kernels/v16_avx512_priv.h"'
libkern_avx512_a_SOURCES = $(kern_vec_sources) src/compute/kernels/v16_avx512_priv.h
libkern_avx512_a_CPPFLAGS = $(kern_cppflags_avx512)
libkern_avx512_a_CFLAGS = $(kern_cflags_avx512)
libkern_avx512madd_a_SOURCES = src/compute/kernels/kern_direct.c $(kern_q8_sources) src/compute/kernels/b64_avx512_priv.h \
	src/compute/kernels/q8_madd512_priv.h
libkern_avx512madd_a_CPPFLAGS = $(kern_cppflags_avx512) -DKERN_Q8='"compute/kernels/q8_madd512_priv.h"'
libkern_avx512madd_a_CFLAGS = $(kern_cflags_avx512)
libkern_avx512vnni_a_SOURCES = src/compute/kernels/kern_direct.c $(kern_q8_sources) src/compute/kernels/q8_vnni512_priv.h
libkern_avx512vnni_a_CPPFLAGS = $(kern_cppflags_avx512) -DKERN_Q8='"compute/kernels/q8_vnni512_priv.h"'
libkern_avx512vnni_a_CFLAGS = $(kern_cflags_avx512) -mavx512vnni
# The part of libkern_avx512vnni.a that reads lattice points and digits.
libkern_avx512vbmi_a_SOURCES = src/compute/kernels/kern_points.c src/compute/kernels/kern_direct.c src/compute/kernels/kern_expand.c \
	src/compute/kernels/q8_vbmi512_priv.h src/compute/kernels/b64_vbmi_priv.h
libkern_avx512vbmi_a_CPPFLAGS = $(kern_cppflags_avx512) -DKERN_Q8='"compute/kernels/q8_vbmi512_priv.h"'
libkern_avx512vbmi_a_CFLAGS = $(kern_cflags_avx512) -mavx512vnni -mavx512vbmi
libkern_avx512bf16_a_SOURCES = src/compute/kernels/kern_bf16.c
libkern_avx512bf16_a_CPPFLAGS = $(kern_cppflags_avx512)
libkern_avx512bf16_a_CFLAGS = $(kern_cflags_avx512) -mavx512bf16
# The tables that this machine does not choose (configure.ac): see ./check.
other-kernels: @KERN_OTHER_LIBS@
# The tables of the machine that builds (configure.ac): a program that links libkern_here.a before libcompute_kernels.a
# needs no other instruction set.
EXTRA_LIBRARIES += libkern_here.a
libkern_here_a_SOURCES = src/compute/kernels/tables_here.c
libkern_here_a_CPPFLAGS = $(AM_CPPFLAGS) -DKERN_HERE=KERN_ROW_@KERN_HERE@
kern_here_libs = libkern_scalar.a @KERN_HERE_LIBS@
if !KERN_HERE_BF16
libkern_here_a_SOURCES += src/compute/kernels/no_bf16_x86.c
endif
if !KERN_HERE_AMX
libkern_here_a_SOURCES += src/compute/kernels/no_amx.c
endif
if KERNELS_AMX
libcompute_kernels_a_SOURCES += src/compute/kernels/amx.c
noinst_LIBRARIES += libkern_amx.a
kern_libs += libkern_amx.a
libkern_amx_a_SOURCES = src/compute/kernels/amx_priv.h src/compute/kernels/tile_block.h src/compute/kernels/kern_amx_bf16.c \
	src/compute/kernels/kern_amx_quant.c src/compute/kernels/kern_amx_expand.c
libkern_amx_a_CPPFLAGS = $(kern_cppflags_avx512) -DKERN_Q8='"compute/kernels/q8_madd512_priv.h"'
libkern_amx_a_CFLAGS = $(kern_cflags_avx512) -mamx-tile -mamx-bf16 -mavx512bf16 -mavx512vbmi
else
libcompute_kernels_a_SOURCES += src/compute/kernels/no_amx.c
endif
else
if KERNELS_ARM
libcompute_kernels_a_SOURCES += src/compute/kernels/tables_arm.c src/compute/kernels/no_dots.c
noinst_LIBRARIES += libkern_neon.a libkern_sdot.a libkern_usdot.a
kern_libs += libkern_neon.a libkern_sdot.a libkern_usdot.a
libkern_neon_a_SOURCES = $(kern_vec_sources) src/compute/kernels/v16_neon_priv.h
libkern_neon_a_CPPFLAGS = $(AM_CPPFLAGS) -DKERN_V16='"compute/kernels/v16_neon_priv.h"'
libkern_neon_a_CFLAGS = $(AM_CFLAGS) $(KERN_SANITIZE) $(KERN_DEBUG) -O3
libkern_sdot_a_SOURCES = $(kern_q8_sources) src/compute/kernels/b64_neon_priv.h src/compute/kernels/q8_sdot_priv.h
libkern_sdot_a_CPPFLAGS = $(AM_CPPFLAGS) -DKERN_V16='"compute/kernels/v16_neon_priv.h"' -DKERN_Q8='"compute/kernels/q8_sdot_priv.h"'
libkern_sdot_a_CFLAGS = $(AM_CFLAGS) $(KERN_SANITIZE) $(KERN_DEBUG) -O3 -march=armv8.2-a+dotprod
libkern_usdot_a_SOURCES = $(kern_q8_sources) src/compute/kernels/q8_usdot_priv.h
libkern_usdot_a_CPPFLAGS = $(AM_CPPFLAGS) -DKERN_V16='"compute/kernels/v16_neon_priv.h"' -DKERN_Q8='"compute/kernels/q8_usdot_priv.h"'
libkern_usdot_a_CFLAGS = $(AM_CFLAGS) $(KERN_SANITIZE) $(KERN_DEBUG) -O3 -march=armv8.2-a+i8mm
else
libcompute_kernels_a_SOURCES += src/compute/kernels/tables_other.c src/compute/kernels/no_dots.c
endif
endif
EXTRA_DIST += src/compute/kernels/bf16_x86.c src/compute/kernels/no_bf16_x86.c src/compute/kernels/amx.c src/compute/kernels/no_amx.c src/compute/kernels/tables_x86.c src/compute/kernels/tables_x86_priv.h src/compute/kernels/tables_all.c src/compute/kernels/tables_here.c src/compute/kernels/tables_arm.c src/compute/kernels/tables_other.c src/compute/kernels/no_dots.c src/compute/kernels/v16_neon_priv.h \
	src/compute/kernels/b64_neon_priv.h src/compute/kernels/q8_sdot_priv.h src/compute/kernels/q8_usdot_priv.h
