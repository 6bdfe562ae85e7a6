# SPDX-License-Identifier: Apache-2.0
noinst_LIBRARIES += libengine.a
libengine_a_SOURCES = src/engine/engine.h
libengine_a_SOURCES += src/engine/engine_sim.h src/engine/engine_sim.c

if HAVE_CMOCKA
check_PROGRAMS += tests/unit/engine/test_engine_sim
TESTS += tests/unit/engine/test_engine_sim
tests_unit_engine_test_engine_sim_SOURCES = tests/unit/engine/test_engine_sim.c
tests_unit_engine_test_engine_sim_LDADD = $(link_engine) $(CMOCKA_LIBS)
endif

# engine_cpu
libengine_a_SOURCES += src/engine/engine_cpu.h src/engine/engine_cpu.c src/engine/engine_load.h src/engine/engine_load.c

if HAVE_CMOCKA
engine_tests = tests/unit/engine/test_engine_cpu tests/unit/engine/test_exact tests/unit/engine/test_golden \
	tests/unit/engine/test_stories tests/unit/engine/test_demo
check_PROGRAMS += $(engine_tests)
TESTS += $(engine_tests)
tests_unit_engine_test_engine_cpu_SOURCES = tests/unit/engine/test_engine_cpu.c tests/unit/model/tiny.c \
	tests/unit/model/tiny.h
tests_unit_engine_test_engine_cpu_LDADD = $(link_engine) $(CMOCKA_LIBS)
tests_unit_engine_test_exact_SOURCES = tests/unit/engine/test_exact.c tests/unit/model/tiny.c tests/unit/model/tiny.h
tests_unit_engine_test_exact_LDADD = $(link_engine) $(CMOCKA_LIBS)
tests_unit_engine_test_golden_SOURCES = tests/unit/engine/test_golden.c tests/unit/engine/player.c \
	tests/unit/engine/player.h
tests_unit_engine_test_golden_LDADD = $(link_engine) $(CMOCKA_LIBS)
tests_unit_engine_test_stories_SOURCES = tests/unit/engine/test_stories.c tests/unit/engine/player.c \
	tests/unit/engine/player.h
tests_unit_engine_test_stories_LDADD = $(link_engine) $(CMOCKA_LIBS)
tests_unit_engine_test_demo_SOURCES = tests/unit/engine/test_demo.c tests/unit/engine/player.c \
	tests/unit/engine/player.h
tests_unit_engine_test_demo_LDADD = $(link_engine) $(CMOCKA_LIBS)
endif

EXTRA_DIST += tests/golden/make_golden.py tests/golden/llama-f32.gguf tests/golden/llama-f16-linear.gguf \
	tests/golden/llama-bf16-llama3.gguf tests/golden/llama-q8_0-partial.gguf tests/golden/qwen2-f32-yarn.gguf \
	tests/golden/qwen2-f16.gguf tests/golden/qwen2-mixed.gguf \
	tests/reference/moe_common.py tests/reference/ref_mixtral.py tests/reference/ref_qwen3moe.py \
	tests/reference/ref_deepseek2.py tests/golden/mixtral-f32.gguf tests/golden/mixtral-q8_0.gguf \
	tests/golden/qwen3moe-f32.gguf tests/golden/qwen3moe-mixed.gguf tests/golden/deepseek2-lite.gguf \
	tests/golden/deepseek2-v2.gguf tests/golden/deepseek2-v3.gguf
