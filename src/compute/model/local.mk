# SPDX-License-Identifier: Apache-2.0
noinst_LIBRARIES += libcompute_model.a
libcompute_model_a_SOURCES = src/compute/model/model.h src/compute/model/watch.h src/compute/model/model_priv.h src/compute/model/arch_priv.h src/compute/model/slots_priv.h \
	src/compute/model/reading_priv.h src/compute/model/rope_priv.h src/compute/model/input_priv.h src/compute/model/layer_priv.h src/compute/model/arch_layers.c \
	src/compute/model/archs.c src/compute/model/archs_experts.c src/compute/model/archs_hybrid.c src/compute/model/archs_latent.c src/compute/model/archs_norm.c src/compute/model/arch_llama4.c src/compute/model/arch_gemma4.c src/compute/model/arch_gemma3n.c src/compute/model/forward_altup.c src/compute/model/altup_priv.h src/compute/model/forward_tail.c src/compute/model/mtp.c src/compute/model/mtp_priv.h src/compute/model/watch.c src/compute/model/slots.c \
	src/compute/model/arch.c src/compute/model/rope.c src/compute/model/weights.c src/compute/model/weight_scales.c src/compute/model/weight_scales_priv.h src/compute/model/model.c \
	src/compute/model/forward_mla.c src/compute/model/forward_index.c src/compute/model/index_priv.h src/compute/model/mla_weights.c src/compute/model/mla_priv.h \
	src/compute/model/forward_moe.c src/compute/model/moe_weights.c src/compute/model/moe_priv.h \
	src/compute/model/moe_route.c src/compute/model/moe_route_priv.h \
	src/compute/model/state.c src/compute/model/forward.c src/compute/model/forward_attn.c src/compute/model/forward_ffn.c src/compute/model/forward_plain.c \
	src/compute/model/forward_last.c src/compute/model/recurrent.c src/compute/model/recurrent_priv.h src/compute/model/forward_conv.c src/compute/model/forward_delta.c src/compute/model/forward_kda.c src/compute/model/forward_gated.c \
	src/compute/model/recurrent_heads.c src/compute/model/forward_mamba.c src/compute/model/forward_beside.c

if HAVE_CMOCKA
check_PROGRAMS += tests/unit/compute/model/test_model tests/unit/compute/model/test_moe tests/unit/compute/model/test_moe_bad tests/unit/compute/model/test_route tests/unit/compute/model/test_hybrid tests/unit/compute/model/test_mtp_check tests/unit/compute/model/test_weight_scales tests/unit/compute/model/test_variants tests/unit/compute/model/test_watch
TESTS += tests/unit/compute/model/test_model tests/unit/compute/model/test_moe tests/unit/compute/model/test_moe_bad tests/unit/compute/model/test_route tests/unit/compute/model/test_hybrid tests/unit/compute/model/test_mtp_check tests/unit/compute/model/test_weight_scales tests/unit/compute/model/test_variants tests/unit/compute/model/test_watch
tests_unit_compute_model_test_hybrid_SOURCES = tests/unit/compute/model/test_hybrid.c tests/unit/compute/model/tiny.c tests/unit/compute/model/tiny.h
tests_unit_compute_model_test_hybrid_LDADD = $(link_compute_model) $(CMOCKA_LIBS)
tests_unit_compute_model_test_mtp_check_SOURCES = tests/unit/compute/model/test_mtp_check.c tests/unit/compute/model/tiny.c tests/unit/compute/model/tiny.h
tests_unit_compute_model_test_mtp_check_LDADD = $(link_compute_model) $(CMOCKA_LIBS)
tests_unit_compute_model_test_moe_SOURCES = tests/unit/compute/model/test_moe.c tests/unit/compute/model/tiny.c tests/unit/compute/model/tiny.h
tests_unit_compute_model_test_moe_LDADD = $(link_compute_model) $(CMOCKA_LIBS)
tests_unit_compute_model_test_moe_bad_SOURCES = tests/unit/compute/model/test_moe_bad.c tests/unit/compute/model/tiny.c tests/unit/compute/model/tiny.h
tests_unit_compute_model_test_moe_bad_LDADD = $(link_compute_model) $(CMOCKA_LIBS)
tests_unit_compute_model_test_route_SOURCES = tests/unit/compute/model/test_route.c
tests_unit_compute_model_test_route_LDADD = libcompute_model.a libbase.a $(CMOCKA_LIBS) -lm -lpthread
tests_unit_compute_model_test_model_SOURCES = tests/unit/compute/model/test_model.c tests/unit/compute/model/tiny.c tests/unit/compute/model/tiny.h
tests_unit_compute_model_test_model_LDADD = $(link_compute_model) $(CMOCKA_LIBS)
tests_unit_compute_model_test_weight_scales_SOURCES = tests/unit/compute/model/test_weight_scales.c tests/unit/compute/model/tiny.c tests/unit/compute/model/tiny.h
tests_unit_compute_model_test_weight_scales_LDADD = $(link_compute_model) $(CMOCKA_LIBS)
tests_unit_compute_model_test_variants_SOURCES = tests/unit/compute/model/test_variants.c tests/unit/compute/model/tiny.c tests/unit/compute/model/tiny.h
tests_unit_compute_model_test_variants_LDADD = $(link_compute_model) $(CMOCKA_LIBS)
tests_unit_compute_model_test_watch_SOURCES = tests/unit/compute/model/test_watch.c tests/unit/compute/model/tiny.c tests/unit/compute/model/tiny.h
tests_unit_compute_model_test_watch_LDADD = $(link_compute_model) $(CMOCKA_LIBS)
endif
