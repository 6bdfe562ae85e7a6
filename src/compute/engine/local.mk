# SPDX-License-Identifier: Apache-2.0
noinst_LIBRARIES += libcompute_engine.a
libcompute_engine_a_SOURCES = src/compute/engine/engine.h
libcompute_engine_a_SOURCES += src/compute/engine/engine_sim.h src/compute/engine/engine_sim_priv.h src/compute/engine/engine_sim.c \
	src/compute/engine/engine_sim_draw.c

if HAVE_CMOCKA
check_PROGRAMS += tests/unit/compute/engine/test_engine_sim
TESTS += tests/unit/compute/engine/test_engine_sim
tests_unit_compute_engine_test_engine_sim_SOURCES = tests/unit/compute/engine/test_engine_sim.c
tests_unit_compute_engine_test_engine_sim_LDADD = $(link_compute_engine) $(CMOCKA_LIBS)
endif

# engine_cpu
libcompute_engine_a_SOURCES += src/compute/engine/engine_cpu.h src/compute/engine/engine_cpu.c src/compute/engine/engine_load.h src/compute/engine/engine_load.c

if HAVE_CMOCKA
engine_tests = tests/unit/compute/engine/test_engine_cpu tests/unit/compute/engine/test_exact tests/unit/compute/engine/test_golden \
	tests/unit/compute/engine/test_arch tests/unit/compute/engine/test_long tests/unit/compute/engine/test_stories \
	tests/unit/compute/engine/test_demo tests/unit/compute/engine/test_kv_types
check_PROGRAMS += $(engine_tests) tests/unit/compute/engine/test_property
TESTS += $(engine_tests)
long_tests += tests/unit/compute/engine/test_property
tests_unit_compute_engine_test_engine_cpu_SOURCES = tests/unit/compute/engine/test_engine_cpu.c tests/unit/compute/model/tiny.c \
	tests/unit/compute/model/tiny.h
tests_unit_compute_engine_test_engine_cpu_LDADD = $(link_compute_engine) $(CMOCKA_LIBS)
tests_unit_compute_engine_test_long_SOURCES = tests/unit/compute/engine/test_long.c tests/unit/compute/model/tiny.c tests/unit/compute/model/tiny.h
tests_unit_compute_engine_test_long_LDADD = $(link_compute_engine) $(CMOCKA_LIBS)
trial_sources = tests/unit/compute/engine/trial.c tests/unit/compute/engine/trial.h tests/unit/compute/model/tiny.c tests/unit/compute/model/tiny.h
tests_unit_compute_engine_test_exact_SOURCES = tests/unit/compute/engine/test_exact.c $(trial_sources)
tests_unit_compute_engine_test_exact_LDADD = $(link_compute_engine) $(CMOCKA_LIBS)
tests_unit_compute_engine_test_property_SOURCES = tests/unit/compute/engine/test_property.c $(trial_sources)
tests_unit_compute_engine_test_property_LDADD = $(link_compute_engine) $(CMOCKA_LIBS)
tests_unit_compute_engine_test_golden_SOURCES = tests/unit/compute/engine/test_golden.c tests/unit/compute/engine/player.c \
	tests/unit/compute/engine/player.h
tests_unit_compute_engine_test_golden_LDADD = $(link_compute_engine) $(CMOCKA_LIBS)
# test_arch runs baton-model make in the tests' working directory.
tests_unit_compute_engine_test_arch_SOURCES = tests/unit/compute/engine/test_arch.c tests/unit/compute/engine/player.c \
	tests/unit/compute/engine/player.h
tests_unit_compute_engine_test_arch_LDADD = $(link_compute_engine) $(CMOCKA_LIBS)
EXTRA_tests_unit_compute_engine_test_arch_DEPENDENCIES = baton-model$(EXEEXT)
tests_unit_compute_engine_test_stories_SOURCES = tests/unit/compute/engine/test_stories.c tests/unit/compute/engine/player.c \
	tests/unit/compute/engine/player.h
tests_unit_compute_engine_test_stories_LDADD = $(link_compute_engine) $(CMOCKA_LIBS)
tests_unit_compute_engine_test_demo_SOURCES = tests/unit/compute/engine/test_demo.c tests/unit/compute/engine/player.c \
	tests/unit/compute/engine/player.h
tests_unit_compute_engine_test_demo_LDADD = $(link_compute_engine) $(CMOCKA_LIBS)
tests_unit_compute_engine_test_kv_types_SOURCES = tests/unit/compute/engine/test_kv_types.c tests/unit/compute/engine/player.c \
	tests/unit/compute/engine/player.h
tests_unit_compute_engine_test_kv_types_LDADD = $(link_compute_engine) $(CMOCKA_LIBS)
endif

EXTRA_DIST += tests/golden/make_golden.py tests/golden/llama-f32.gguf tests/golden/llama-f16-linear.gguf \
	tests/golden/llama-bf16-llama3.gguf tests/golden/llama-q8_0-partial.gguf tests/golden/qwen2-f32-yarn.gguf \
	tests/golden/qwen2-f16.gguf tests/golden/qwen2-mixed.gguf

# The reference implementations and their recorded output; see tests/reference/make_golden.py.
arch_golden = llama llama3 llama-biases llama-linear llama-yarn mistral qwen2 qwen3 qwen3-yarn gemma gemma3 \
	gemma3-62 phi3 phi3-short phi3-long granite olmo2 olmo3 smollm3 \
	glm4 internlm2 ernie4_5 mixtral qwen3moe deepseek2-lite deepseek2-v2 deepseek2-v3 gpt-oss \
	qwen2moe olmoe granitemoe minimax-m2 hunyuan-dense hunyuan-moe seed_oss arcee exaone4 \
	llama-mtp qwen3-mtp glm4moe glm4moe-mtp ernie4_5-moe mistral3 gemma2 \
	starcoder2 phi2 gpt2 falcon falcon-7b command-r command-r-plus cohere2 lfm2 lfm2moe qwen35 qwen35moe qwen3next \
	glm4-sections llama-all-biases llama-yarn-plain granite-nope gemma3-capped qwen3-fused qwen3moe-fused glm4moe-fused \
	gpt-oss-fused deepseek2-dense deepseek2-temperature arcee-biases \
	qwen2vl qwen3vl qwen3vlmoe exaone dots1 exaone-moe nemotron stablelm stablelm-12b gpt-oss-fused-biases phimoe phimoe-plain olmo olmo-clamped gptneox gptneox-serial apertus afmoe bailingmoe hunyuan_vl cohere2moe \
	mimo2 step35 kimi-linear kimi-linear-last \
	exaone4-mtp exaone-moe-mtp bailingmoe2-mtp hy_v3 hy_v3-mtp cohere2moe-mtp step35-mtp
EXTRA_DIST += $(arch_golden:%=tests/golden/arch/%.txt) tests/reference/make_golden.py tests/reference/common.py \
	tests/reference/ref_llama.py tests/reference/ref_qwen.py tests/reference/ref_gemma.py \
	tests/reference/ref_phi3.py tests/reference/ref_granite.py tests/reference/ref_olmo2.py \
	tests/reference/ref_smollm3.py tests/reference/ref_glm4.py tests/reference/experts.py \
	tests/reference/ref_hf.py tests/reference/ref_hf_norm.py tests/reference/ref_hf_hybrid.py tests/reference/ref_mixtral.py tests/reference/ref_qwen3moe.py tests/reference/ref_deepseek2.py \
	tests/reference/ref_gptoss.py tests/reference/ref_mtp.py
