# SPDX-License-Identifier: Apache-2.0
noinst_LIBRARIES += libgguf.a
libgguf_a_SOURCES = src/gguf/gguf.h src/gguf/dtype.h src/gguf/write.h src/gguf/gguf_priv.h \
	src/gguf/qblk.h src/gguf/qblk.c src/gguf/qblk_write.h src/gguf/qblk_pack.c src/gguf/qblk_fit.c \
	src/gguf/qblk_priv.h src/gguf/qblk_iq.c src/gguf/qblk_grid.c src/gguf/scales.h src/gguf/scales.c \
	src/gguf/map.c src/gguf/split.c src/gguf/directory.c src/gguf/tensors.c src/gguf/index.c src/gguf/meta.c \
	src/gguf/show.c src/gguf/image.c src/gguf/kind.c src/gguf/fingerprint.c src/gguf/dtype.c src/gguf/write.c

if HAVE_CMOCKA
gguf_test_programs = tests/unit/gguf/test_dtype tests/unit/gguf/test_gguf tests/unit/gguf/test_gguf_bad \
	tests/unit/gguf/test_write tests/unit/gguf/test_qblk tests/unit/gguf/test_qblk_write \
	tests/unit/gguf/test_split tests/unit/gguf/test_scales
gguf_test_help = tests/unit/gguf/image.c tests/unit/gguf/image.h
check_PROGRAMS += $(gguf_test_programs)
TESTS += $(gguf_test_programs)
tests_unit_gguf_test_dtype_SOURCES = tests/unit/gguf/test_dtype.c
tests_unit_gguf_test_dtype_LDADD = $(link_gguf) $(CMOCKA_LIBS)
tests_unit_gguf_test_gguf_SOURCES = tests/unit/gguf/test_gguf.c $(gguf_test_help)
tests_unit_gguf_test_gguf_LDADD = $(link_gguf) $(CMOCKA_LIBS)
tests_unit_gguf_test_gguf_bad_SOURCES = tests/unit/gguf/test_gguf_bad.c $(gguf_test_help)
tests_unit_gguf_test_gguf_bad_LDADD = $(link_gguf) $(CMOCKA_LIBS)
tests_unit_gguf_test_split_SOURCES = tests/unit/gguf/test_split.c $(gguf_test_help)
tests_unit_gguf_test_split_LDADD = $(link_gguf) $(CMOCKA_LIBS)
tests_unit_gguf_test_scales_SOURCES = tests/unit/gguf/test_scales.c $(gguf_test_help)
tests_unit_gguf_test_scales_LDADD = $(link_gguf) $(CMOCKA_LIBS)
tests_unit_gguf_test_write_SOURCES = tests/unit/gguf/test_write.c
tests_unit_gguf_test_write_LDADD = $(link_gguf) $(CMOCKA_LIBS)
tests_unit_gguf_test_qblk_SOURCES = tests/unit/gguf/test_qblk.c tests/unit/gguf/qblk_vectors.h tests/unit/gguf/qblk_digests.h
tests_unit_gguf_test_qblk_LDADD = $(link_gguf) $(CMOCKA_LIBS) -lm
tests_unit_gguf_test_qblk_write_SOURCES = tests/unit/gguf/test_qblk_write.c
tests_unit_gguf_test_qblk_write_LDADD = $(link_gguf) $(CMOCKA_LIBS)
EXTRA_DIST += tests/unit/gguf/make_qblk.py tests/unit/gguf/make_grids.py tests/unit/gguf/make_qblk_digests.py
endif
