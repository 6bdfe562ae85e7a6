# SPDX-License-Identifier: Apache-2.0
# Weights, matrix products and attention: distributes the work of the kernels (src/compute/kernels) over threads.
noinst_LIBRARIES += libcompute_tensor.a
libcompute_tensor_a_SOURCES = src/compute/tensor/attention.c src/compute/tensor/choice.c src/compute/tensor/choice.h \
	src/compute/tensor/gated.h src/compute/tensor/limits.c src/compute/tensor/grouped.h \
	src/compute/tensor/matmul.c src/compute/tensor/matmul_block.c src/compute/tensor/matmul_gated.c \
	src/compute/tensor/matmul_grouped.c src/compute/tensor/matmul_priv.h src/compute/tensor/matmul_choice.c src/compute/tensor/matmul_nodes.c \
	src/compute/tensor/tensor.h src/compute/tensor/tune.c src/compute/tensor/tune.h \
	src/compute/tensor/tune_file.c src/compute/tensor/tune_priv.h src/compute/tensor/tune_trial.c \
	src/compute/tensor/weight.c src/compute/tensor/weight_dots.c src/compute/tensor/weight_priv.h \
	src/compute/tensor/weight_nodes.c src/compute/tensor/weight_quant.c src/compute/tensor/weight_points.c src/compute/tensor/work.c src/compute/tensor/work_priv.h

noinst_PROGRAMS += tests/bench/bench_attention
tests_bench_bench_attention_SOURCES = tests/bench/bench_attention.c tests/bench/bench_help.c tests/bench/bench_help.h tests/bench/bench_tune.h
tests_bench_bench_attention_LDADD = $(link_compute_tensor)

noinst_PROGRAMS += tests/bench/bench_tensor
tests_bench_bench_tensor_SOURCES = tests/bench/bench_tensor.c tests/bench/bench_help.c tests/bench/bench_help.h \
	tests/bench/bench_weights.c tests/bench/bench_weights.h tests/bench/bench_tune.h
tests_bench_bench_tensor_LDADD = $(link_compute_tensor)

noinst_PROGRAMS += tests/bench/bench_decode
tests_bench_bench_decode_SOURCES = tests/bench/bench_decode.c tests/bench/bench_help.c tests/bench/bench_help.h \
	tests/bench/bench_weights.c tests/bench/bench_weights.h tests/bench/bench_tune.h
tests_bench_bench_decode_LDADD = $(link_compute_tensor)

if HAVE_CMOCKA
tensor_tests = tests/unit/compute/tensor/test_matmul tests/unit/compute/tensor/test_attention tests/unit/compute/tensor/test_ops \
	tests/unit/compute/tensor/test_dots tests/unit/compute/tensor/test_grouped tests/unit/compute/tensor/test_gated \
	tests/unit/compute/tensor/test_nodes tests/unit/compute/tensor/test_tune tests/unit/compute/tensor/test_weight \
	tests/unit/compute/tensor/test_index tests/unit/compute/tensor/test_tiles_order
check_PROGRAMS += $(tensor_tests)
TESTS += $(tensor_tests)
weight_sources = tests/unit/compute/tensor/source.c tests/unit/compute/tensor/source.h tests/unit/compute/tensor/check.h
tests_unit_compute_tensor_test_matmul_SOURCES = tests/unit/compute/tensor/test_matmul.c $(weight_sources)
tests_unit_compute_tensor_test_matmul_LDADD = $(link_compute_tensor) $(CMOCKA_LIBS)
tests_unit_compute_tensor_test_nodes_SOURCES = tests/unit/compute/tensor/test_nodes.c $(weight_sources)
tests_unit_compute_tensor_test_nodes_LDADD = $(link_compute_tensor) $(CMOCKA_LIBS)
tests_unit_compute_tensor_test_weight_SOURCES = tests/unit/compute/tensor/test_weight.c $(weight_sources)
tests_unit_compute_tensor_test_weight_LDADD = $(link_compute_tensor) $(CMOCKA_LIBS)
tests_unit_compute_tensor_test_tiles_order_SOURCES = tests/unit/compute/tensor/test_tiles_order.c $(weight_sources)
tests_unit_compute_tensor_test_tiles_order_LDADD = $(link_compute_tensor) $(CMOCKA_LIBS)
tests_unit_compute_tensor_test_attention_SOURCES = tests/unit/compute/tensor/test_attention.c tests/unit/compute/tensor/check.h
tests_unit_compute_tensor_test_attention_LDADD = $(link_compute_tensor) $(CMOCKA_LIBS)
tests_unit_compute_tensor_test_dots_SOURCES = tests/unit/compute/tensor/test_dots.c tests/unit/compute/tensor/check.h
tests_unit_compute_tensor_test_dots_LDADD = $(link_compute_tensor) $(CMOCKA_LIBS)
tests_unit_compute_tensor_test_grouped_SOURCES = tests/unit/compute/tensor/test_grouped.c tests/unit/compute/tensor/check.h
tests_unit_compute_tensor_test_grouped_LDADD = $(link_compute_tensor) $(CMOCKA_LIBS)
tests_unit_compute_tensor_test_gated_SOURCES = tests/unit/compute/tensor/test_gated.c tests/unit/compute/tensor/check.h
tests_unit_compute_tensor_test_gated_LDADD = $(link_compute_tensor) $(CMOCKA_LIBS)
tests_unit_compute_tensor_test_index_SOURCES = tests/unit/compute/tensor/test_index.c tests/unit/compute/tensor/check.h
tests_unit_compute_tensor_test_index_LDADD = $(link_compute_tensor) $(CMOCKA_LIBS)
tests_unit_compute_tensor_test_tune_SOURCES = tests/unit/compute/tensor/test_tune.c tests/unit/compute/tensor/check.h
tests_unit_compute_tensor_test_tune_LDADD = $(link_compute_tensor) $(CMOCKA_LIBS)
tests_unit_compute_tensor_test_ops_SOURCES = tests/unit/compute/tensor/test_ops.c tests/unit/compute/tensor/check.h
tests_unit_compute_tensor_test_ops_LDADD = $(link_compute_tensor) $(CMOCKA_LIBS)
endif
