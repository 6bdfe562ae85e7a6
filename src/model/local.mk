# SPDX-License-Identifier: Apache-2.0
noinst_LIBRARIES += libmodel.a
libmodel_a_SOURCES = src/model/model.h src/model/model_priv.h src/model/arch_priv.h \
	src/model/archs.c src/model/slots.c \
	src/model/arch.c src/model/rope.c src/model/weights.c src/model/model.c \
	src/model/forward_mla.c src/model/mla_weights.c src/model/mla_priv.h \
	src/model/forward_moe.c src/model/moe_weights.c src/model/moe_priv.h \
	src/model/moe_route.c src/model/moe_route.h \
	src/model/state.c src/model/forward.c src/model/forward_attn.c src/model/forward_ffn.c \
	src/model/forward_last.c

if HAVE_CMOCKA
check_PROGRAMS += tests/unit/model/test_model tests/unit/model/test_moe tests/unit/model/test_route
TESTS += tests/unit/model/test_model tests/unit/model/test_moe tests/unit/model/test_route
tests_unit_model_test_moe_SOURCES = tests/unit/model/test_moe.c tests/unit/model/tiny.c tests/unit/model/tiny.h
tests_unit_model_test_moe_LDADD = $(link_model) $(CMOCKA_LIBS)
tests_unit_model_test_route_SOURCES = tests/unit/model/test_route.c
tests_unit_model_test_route_LDADD = libmodel.a libbase.a $(CMOCKA_LIBS) -lm -lpthread
tests_unit_model_test_model_SOURCES = tests/unit/model/test_model.c tests/unit/model/tiny.c tests/unit/model/tiny.h
tests_unit_model_test_model_LDADD = $(link_model) $(CMOCKA_LIBS)
endif
