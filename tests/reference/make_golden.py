#!/usr/bin/python3
# SPDX-License-Identifier: Apache-2.0
"""Golden logits of each architecture, from the references beside this file.

    tests/reference/make_golden.py PATH/TO/baton-model [CASE...]      (needs torch, numpy, and transformers
                                                                      for the cases of ref_hf)

Each case is a tiny random model that `baton-model make` writes, with the same bytes for the same command. So
tests/golden/arch/CASE.txt holds only the command and the expectation. tests/unit/compute/engine/test_arch.c reads it.

    make ARGUMENTS          of baton-model make, but for the file's name
    tokens ID...            fed from position 0
    greedy ID...            the largest logit after each of them
    logits POSITION VALUE...

For each model, the program takes the first seed with a clear largest logit after every token. So the greedy tokens
cannot depend on rounding."""
import importlib
import pathlib
import subprocess
import sys
import tempfile

import numpy as np
import torch

import common

TINY = "--type F32 --hidden 48 --heads 4 --kv-heads 2 --ffn 80 --vocab 259 --context 256"
LATENT = ("--set attention.kv_lora_rank=32 --set attention.key_length=24 --set attention.value_length=16 "
          "--set rope.dimension_count=8 --set expert_count=8 --set expert_used_count=3 --set expert_shared_count=2 "
          "--set expert_feed_forward_length=16")
SPARSE = (f"{LATENT} --set attention.q_lora_rank=40 --set attention.key_length_mla=24 "
          "--set attention.value_length_mla=16 --set expert_gating_func=2 --set expert_weights_norm=true "
          "--set expert_weights_scale=2.5 --set attention.indexer.head_count=16 --set attention.indexer.key_length=20 "
          "--set attention.indexer.top_k=11")
DELTA = ("--head-dim 16 --set rope.dimension_count=8 --set ssm.conv_kernel=4 --set ssm.state_size=12 "
         "--set ssm.group_count=2 --set ssm.time_step_rank=4 --set ssm.inner_size=40 --set full_attention_interval=3")
KIMI = ("--set attention.kv_lora_rank=32 --set attention.key_length_mla=24 --set attention.value_length_mla=16 "
        "--set rope.dimension_count=8 --set kda.head_dim=12 --set expert_shared_count=1 --set expert_weights_scale=2.5 "
        "--set leading_dense_block_count=1")
MAMBA = ("--set ssm.conv_kernel=4 --set ssm.state_size=12 --set ssm.group_count=2 --set ssm.time_step_rank=4 "
         "--with ssm_conv1d.bias")
GEMMA4 = "--head-dim 24 --set attention.key_length_swa=12 --set attention.value_length_swa=12 --set rope.dimension_count_swa=12 --set attention.sliding_window=7"
LLAMA4 = ("--set attention.sliding_window=32 --set attention.temperature_scale=0.7 --set attention.temperature_length=7 "
          "--set expert_count=8 --set expert_feed_forward_length=32")
PAIR = "--set expert_count=8 --set expert_used_count=2 --set expert_feed_forward_length=32"
NARROW = "--set expert_count=8 --set expert_used_count=3 --set expert_feed_forward_length=32"
CASES = {
    "llama": ("llama", f"--arch llama --layers 2 {TINY}"),
    "llama3": ("llama", f"--arch llama --layers 2 --with rope_freqs --set rope.freq_base=500000.0 {TINY}"),
    "llama-biases": ("llama", f"--arch llama --layers 2 --tied --with attn_q.bias --with attn_k.bias --with attn_v.bias "
                     f"--with attn_output.bias --head-dim 20 {TINY}"),
    "llama-linear": ("llama", "--arch llama --layers 2 --set rope.scaling.type=linear "
                     f"--set rope.scaling.factor=4.0 {TINY}"),
    "llama-yarn": ("llama", "--arch llama --layers 2 --head-dim 32 --set rope.scaling.type=yarn "
                   f"--set rope.scaling.factor=4.0 --set rope.scaling.original_context_length=64 {TINY}"),
    "mistral": ("llama", f"--arch llama --layers 3 --set attention.sliding_window=9 {TINY}"),
    "qwen2": ("qwen", f"--arch qwen2 --layers 2 --tied {TINY}"),
    "qwen3": ("qwen", f"--arch qwen3 --layers 2 --head-dim 24 {TINY}"),
    "qwen3-yarn": ("qwen", "--arch qwen3 --layers 2 --head-dim 32 --set rope.scaling.type=yarn "
                   f"--set rope.scaling.factor=4.0 --set rope.scaling.original_context_length=64 {TINY}"),
    "gemma": ("gemma", f"--arch gemma --layers 2 --tied --head-dim 20 {TINY}"),
    "gemma3": ("gemma", "--arch gemma3 --layers 7 --tied --head-dim 20 --set rope.scaling.type=linear "
               f"--set rope.scaling.factor=8.0 --set attention.sliding_window=7 {TINY}"),
    "gemma3-62": ("gemma", f"--arch gemma3 --layers 62 --tied --head-dim 10 --set attention.sliding_window=20 {TINY}"),
    "phi3": ("phi3", f"--arch phi3 --layers 2 --set attention.sliding_window=11 {TINY}"),
    "phi3-short": ("phi3", "--arch phi3 --layers 2 --with rope_factors --set rope.scaling.original_context_length=256 "
                   f"--set rope.scaling.attn_factor=1.19 --set rope.dimension_count=8 {TINY}"),
    "phi3-long": ("phi3", "--arch phi3 --layers 2 --with rope_factors --set rope.scaling.original_context_length=32 "
                  f"--set rope.scaling.attn_factor=1.19 {TINY}"),
    "granite": ("granite", "--arch granite --layers 2 --tied --set embedding_scale=2.5 --set residual_scale=0.7 "
                f"--set attention.scale=0.2 --set logit_scale=1.5 {TINY}"),
    "olmo2": ("olmo2", f"--arch olmo2 --layers 2 --set rope.freq_base=500000.0 {TINY}"),
    "olmo3": ("olmo2", "--arch olmo2 --layers 5 --head-dim 32 --set attention.sliding_window=8 "
              "--set rope.freq_base=500000.0 --set rope.scaling.type=yarn --set rope.scaling.factor=4.0 "
              "--set rope.scaling.attn_factor=1.3 "
              f"--set rope.scaling.original_context_length=64 {TINY}"),
    "smollm3": ("smollm3", f"--arch smollm3 --layers 5 --tied {TINY}"),
    "glm4": ("glm4", f"--arch glm4 --layers 2 --with bias --set rope.dimension_count=6 {TINY}"),
    "internlm2": ("llama", f"--arch internlm2 --layers 2 --set rope.freq_base=1000000.0 {TINY}"),
    "ernie4_5": ("llama", f"--arch ernie4_5 --layers 2 --tied --head-dim 20 {TINY}"),
    "mixtral": ("mixtral", f"--arch llama --layers 2 --set expert_count=4 --set expert_used_count=2 {TINY}"),
    "qwen3moe": ("qwen3moe", "--arch qwen3moe --layers 2 --head-dim 16 --set expert_count=8 --set expert_used_count=3 "
                 f"--set expert_feed_forward_length=32 {TINY}"),
    "deepseek2-lite": ("deepseek2", f"--arch deepseek2 --layers 2 {LATENT} --set rope.scaling.type=yarn "
                       "--set rope.scaling.factor=40.0 --set rope.scaling.original_context_length=16 "
                       f"--set rope.scaling.yarn_log_multiplier=0.0707 {TINY}"),
    "deepseek2-v2": ("deepseek2", f"--arch deepseek2 --layers 2 --set leading_dense_block_count=0 {LATENT} "
                     "--set attention.q_lora_rank=40 --set expert_group_count=4 --set expert_group_used_count=2 "
                     f"--set expert_weights_scale=4.0 {TINY}"),
    "deepseek2-v3": ("deepseek2", f"--arch deepseek2 --layers 2 --with exp_probs_b {LATENT} "
                     "--set attention.q_lora_rank=40 --set attention.key_length_mla=24 "
                     "--set attention.value_length_mla=16 --set expert_gating_func=2 --set expert_weights_norm=true "
                     "--set expert_weights_scale=2.5 --set expert_group_count=4 --set expert_group_used_count=2 "
                     "--set rope.scaling.type=yarn --set rope.scaling.factor=8.0 "
                     "--set rope.scaling.original_context_length=32 "
                     f"--set rope.scaling.yarn_log_multiplier=0.1 {TINY}"),
    "gpt-oss": ("gptoss", "--arch gpt-oss --layers 3 --head-dim 32 --set attention.sliding_window=9 --set expert_count=8 "
                "--set expert_used_count=3 --set expert_feed_forward_length=32 --set rope.scaling.type=yarn "
                f"--set rope.scaling.factor=32.0 --set rope.scaling.original_context_length=64 {TINY}"),
    "qwen2moe": ("hf", f"--arch qwen2moe --layers 2 {NARROW} --set expert_shared_feed_forward_length=48 {TINY}"),
    "olmoe": ("hf", f"--arch olmoe --layers 2 {NARROW} {TINY}"),
    "granitemoe": ("hf", f"--arch granitemoe --layers 2 {NARROW} --set embedding_scale=2.5 --set residual_scale=0.7 "
                   f"--set attention.scale=0.2 --set logit_scale=1.5 {TINY}"),
    "minimax-m2": ("hf", f"--arch minimax-m2 --layers 2 --head-dim 16 --with exp_probs_b {NARROW} "
                   f"--set rope.dimension_count=8 {TINY}"),
    "hunyuan-dense": ("hf", f"--arch hunyuan-dense --layers 2 --head-dim 20 {TINY}"),
    "hunyuan-moe": ("hf", f"--arch hunyuan-moe --layers 2 --head-dim 16 {NARROW} "
                    f"--set expert_shared_feed_forward_length=32 {TINY}"),
    "seed_oss": ("hf", f"--arch seed_oss --layers 2 --head-dim 20 --with bias {TINY}"),
    "exaone4": ("hf", f"--arch exaone4 --layers 5 --set attention.sliding_window=9 {TINY}"),
    "glm4moe": ("hf", f"--arch glm4moe --layers 4 --head-dim 16 --with bias --with attn_q_norm "
                f"--with attn_k_norm {NARROW} --set rope.dimension_count=8 --set leading_dense_block_count=1 --set expert_shared_count=2 "
                f"--set nextn_predict_layers=1 --set expert_weights_scale=1.5 {TINY}"),
    "ernie4_5-moe": ("hf", f"--arch ernie4_5-moe --layers 5 --head-dim 20 --with exp_probs_b {NARROW} "
                     "--set expert_shared_count=2 --set leading_dense_block_count=1 "
                     f"--set interleave_moe_layer_step=2 {TINY}"),
    "mistral3": ("hf", "--arch mistral3 --layers 2 --head-dim 32 --set rope.scaling.type=yarn "
                 "--set rope.scaling.factor=16.0 --set rope.scaling.original_context_length=12 "
                 f"--set rope.scaling.yarn_log_multiplier=1.0 --set attention.temperature_scale=0.3 {TINY}"),
    "gemma2": ("hf", "--arch gemma2 --layers 4 --tied --head-dim 12 --set attention.sliding_window=7 "
               f"--set attn_logit_softcapping=1.5 --set final_logit_softcapping=5.0 {TINY}"),
    "bailingmoe2": ("hf", f"--arch bailingmoe2 --layers 4 --head-dim 16 --with exp_probs_b {NARROW} "
                    "--set rope.dimension_count=8 --set leading_dense_block_count=1 --set nextn_predict_layers=1 "
                    "--set expert_group_count=4 --set expert_group_used_count=2 --set expert_weights_scale=2.5 "
                    f"{TINY}"),
    "gemma4": ("gemma4", f"--arch gemma4 --layers 6 --tied {GEMMA4} --set attention.sliding_window_pattern=3 "
               "--set attention.head_count_kv=4,4,2,4,4,2 --with layer_output_scale --with rope_freqs "
               f"--set final_logit_softcapping=5.0 {TINY}"),
    "gemma4-inputs": ("gemma4", f"--arch gemma4 --layers 6 --tied {GEMMA4} --set attention.sliding_window_pattern=3 "
                      "--set attention.shared_kv_layers=3 --set embedding_length_per_layer_input=16 "
                      "--set feed_forward_length=80,80,80,160,160,160 --with attn_v --with layer_output_scale "
                      f"--with rope_freqs {TINY}"),
    "starcoder2": ("hf_norm", f"--arch starcoder2 --layers 3 --tied --set attention.sliding_window=9 {TINY}"),
    "phi2": ("hf_norm", f"--arch phi2 --layers 2 --set rope.dimension_count=6 {TINY}"),
    "gpt2": ("hf_norm", f"--arch gpt2 --layers 3 --tied {TINY} --kv-heads 4"),
    "falcon": ("hf_norm", f"--arch falcon --layers 3 --with attn_norm_2 {TINY}"),
    "falcon-7b": ("hf_norm", f"--arch falcon --layers 2 {TINY} --kv-heads 1"),
    "command-r": ("hf_norm", f"--arch command-r --layers 2 --tied {TINY}"),
    "command-r-plus": ("hf_norm", "--arch command-r --layers 2 --tied --with attn_q_norm --with attn_k_norm "
                       f"--set logit_scale=0.5 {TINY}"),
    "lfm2": ("hf_hybrid", f"--arch lfm2 --layers 4 --tied --set attention.head_count_kv=0,2,0,0 {TINY}"),
    "lfm2moe": ("hf_hybrid", "--arch lfm2moe --layers 3 --tied --with exp_probs_b --set attention.head_count_kv=0,2,0 "
                f"--set shortconv.l_cache=4 {NARROW} --set leading_dense_block_count=1 {TINY}"),
    "qwen3next": ("hf_hybrid", f"--arch qwen3next --layers 4 {DELTA} {NARROW} --set expert_shared_feed_forward_length=48 {TINY}"),
    "qwen35": ("hf_hybrid", f"--arch qwen35 --layers 4 {DELTA} {TINY}"),
    "qwen35moe": ("hf_hybrid", f"--arch qwen35moe --layers 3 {DELTA} {NARROW} --set expert_shared_feed_forward_length=48 {TINY}"),
    "cohere2": ("hf_norm", f"--arch cohere2 --layers 5 --tied --set attention.sliding_window=7 {TINY}"),
    "granitehybrid": ("hf_mamba", f"--arch granitehybrid --layers 4 --set attention.head_count_kv=0,0,2,0 {MAMBA} "
                      f"--set ssm.inner_size=96 {TINY}"),
    "granitehybrid-moe": ("hf_mamba", f"--arch granitehybrid --layers 3 --set attention.head_count_kv=0,2,0 {MAMBA} {NARROW} "
                          f"--set ssm.inner_size=96 --set expert_shared_feed_forward_length=48 {TINY}"),
    "nemotron_h": ("hf_mamba", f"--arch nemotron_h --layers 6 --set attention.head_count_kv=0,0,2,0,0,0 "
                   f"--set feed_forward_length=0,80,0,80,0,80 {MAMBA} --set ssm.inner_size=40 {TINY}"),
    "falcon-h1": ("hf_mamba", f"--arch falcon-h1 --layers 3 {MAMBA} --set ssm.inner_size=40 {TINY}"),
    "falcon-h1-normed": ("hf_mamba", f"--arch falcon-h1 --layers 2 --with ssm_norm {MAMBA} --set ssm.inner_size=40 {TINY}"),
    "mamba2": ("hf_mamba", f"--arch mamba2 --layers 3 --tied --set ssm.inner_size=96 {MAMBA} {TINY}"),
    "gemma3n": ("gemma3n", "--arch gemma3n --layers 12 --tied --set attention.sliding_window_pattern=3 "
                "--set attention.sliding_window=7 --set attention.shared_kv_layers=4 --set laurel_rank=6 "
                f"--set embedding_length_per_layer_input=8 {TINY}"),
    "gemma4-experts": ("gemma4", f"--arch gemma4 --layers 3 --tied {GEMMA4} {NARROW} --set attention.sliding_window_pattern=3 "
                       "--set attention.head_count_kv=4,4,2 --with ffn_down_exps.scale --with ffn_gate_exps --with ffn_up_exps "
                       f"{TINY}"),
    "gemma4-fused": ("gemma4", f"--arch gemma4 --layers 3 --tied {GEMMA4} {NARROW} --set attention.sliding_window_pattern=3 "
                     "--set attention.head_count_kv=4,4,2 --with ffn_down_exps.scale --with ffn_gate_up_exps "
                     f"{TINY}"),
    "nemotron_h_moe": ("hf_mamba", f"--arch nemotron_h_moe --layers 6 --set attention.head_count_kv=0,0,2,0,0,0 "
                       f"--set feed_forward_length=0,32,0,32,0,32 --with exp_probs_b {MAMBA} --set ssm.inner_size=40 "
                       f"{NARROW} --set expert_shared_feed_forward_length=48 {TINY}"),
    "nemotron_h_moe-latent": ("hf_mamba", "--arch nemotron_h_moe --layers 4 --set attention.head_count_kv=0,2,0,0 "
                              f"--set feed_forward_length=32,0,0,32 --with exp_probs_b {MAMBA} --set ssm.inner_size=40 "
                              f"{NARROW} --set moe_latent_size=16 --set expert_group_count=4 "
                              "--set expert_group_used_count=2 --set expert_shared_feed_forward_length=48 "
                              f"{TINY}"),
    "llama4": ("llama4", f"--arch llama4 --layers 5 {LLAMA4} --set expert_used_count=1 {TINY}"),
    "llama4-interleaved": ("llama4", f"--arch llama4 --layers 6 --head-dim 20 {LLAMA4} --set interleave_moe_layer_step=2 "
                           f"--set expert_used_count=3 {TINY}"),
    "llama4-full": ("llama4", "--arch llama4 --layers 2 --set attention.sliding_window=0 --set expert_count=8 "
                    f"--set expert_feed_forward_length=32 {TINY}"),
    "deepseek32": ("sparse", f"--arch deepseek32 --layers 3 --with exp_probs_b {SPARSE} --set leading_dense_block_count=1 "
                   "--set expert_group_count=4 --set expert_group_used_count=2 --set rope.scaling.type=yarn "
                   "--set rope.scaling.factor=8.0 --set rope.scaling.original_context_length=32 "
                   f"--set rope.scaling.yarn_log_multiplier=0.1 {TINY}"),
    "deepseek32-whole": ("sparse", f"--arch deepseek32 --layers 2 --with exp_probs_b {SPARSE.replace('top_k=11', 'top_k=64')} "
                         f"{TINY}"),
    "glm-dsa": ("sparse", f"--arch glm-dsa --layers 5 --with exp_probs_b {SPARSE} --set leading_dense_block_count=1 "
                f"--set attention.indexer.types=1,0,1,0,0 {TINY}"),
    "glm4moe-mtp": ("mtp", f"--arch glm4moe --layers 4 --head-dim 16 --with bias --with exp_probs_b --with attn_q_norm "
                    f"--with attn_k_norm {NARROW} --set rope.dimension_count=8 --set leading_dense_block_count=1 "
                    "--set expert_shared_count=2 --set nextn_predict_layers=1 --set expert_weights_scale=1.5 "
                    f"--with shared_head_norm {TINY}"),
    "qwen35-mtp": ("mtp", f"--arch qwen35 --layers 5 --set nextn_predict_layers=1 --with shared_head_norm {DELTA} {TINY}"),
    "qwen35moe-mtp": ("mtp", f"--arch qwen35moe --layers 4 --set nextn_predict_layers=1 {DELTA} {NARROW} "
                      f"--set expert_shared_feed_forward_length=48 {TINY}"),
    "qwen3next-mtp": ("mtp", f"--arch qwen3next --layers 5 --set nextn_predict_layers=1 --with shared_head_norm {DELTA} "
                      f"{NARROW} --set expert_shared_feed_forward_length=48 {TINY}"),
    "deepseek2-mtp": ("mtp", "--arch deepseek2 --layers 3 --set nextn_predict_layers=1 --with exp_probs_b "
                      f"--with shared_head_norm {LATENT} --set attention.q_lora_rank=40 "
                      "--set attention.key_length_mla=24 --set attention.value_length_mla=16 --set expert_gating_func=2 "
                      "--set expert_weights_norm=true --set expert_weights_scale=2.5 --set expert_group_count=4 "
                      "--set expert_group_used_count=2 --set leading_dense_block_count=1 --set rope.scaling.type=yarn "
                      "--set rope.scaling.factor=8.0 --set rope.scaling.original_context_length=32 "
                      f"--set rope.scaling.yarn_log_multiplier=0.1 {TINY}"),
    "deepseek32-mtp": ("mtp", f"--arch deepseek32 --layers 4 --with exp_probs_b {SPARSE} --set leading_dense_block_count=1 "
                       "--set nextn_predict_layers=1 --with shared_head_norm --set expert_group_count=4 "
                       "--set expert_group_used_count=2 --set rope.scaling.type=yarn --set rope.scaling.factor=8.0 "
                       "--set rope.scaling.original_context_length=32 "
                       f"--set rope.scaling.yarn_log_multiplier=0.1 {TINY}"),
    "glm-dsa-mtp": ("mtp", f"--arch glm-dsa --layers 5 --with exp_probs_b {SPARSE} --set leading_dense_block_count=1 "
                    "--set nextn_predict_layers=1 --with shared_head_norm --set attention.indexer.types=1,0,1,0 "
                    f"{TINY}"),
    "llama-mtp": ("mtp", "--arch llama --layers 3 --head-dim 32 --set rope.scaling.type=yarn --set rope.scaling.factor=4.0 "
                  "--set rope.scaling.original_context_length=64 --set nextn_predict_layers=1 --tied "
                  f"--with shared_head_norm {TINY}"),
    "qwen3-mtp": ("mtp", f"--arch qwen3 --layers 3 --head-dim 24 --set nextn_predict_layers=1 {TINY}"),
    "arcee": ("hf", "--arch arcee --layers 3 --head-dim 32 --set rope.scaling.type=yarn --set rope.scaling.factor=20.0 "
              f"--set rope.scaling.original_context_length=12 {TINY}"),
    "glm4-sections": ("glm4", "--arch glm4 --layers 2 --with bias --set rope.dimension_count=6 "
                      f"--set rope.dimension_sections=1,1,1,0 {TINY}"),
    "llama-all-biases": ("llama", f"--arch llama --layers 2 --with bias --set attention.scale=0.2 {TINY}"),
    "llama-yarn-plain": ("llama", "--arch llama --layers 2 --head-dim 32 --set rope.scaling.type=yarn "
                         "--set rope.scaling.factor=16.0 --set rope.scaling.original_context_length=16 "
                         f"--set rope.scaling.yarn_log_multiplier=1.0 {TINY}"),
    "granite-nope": ("granite", "--arch granite --layers 2 --with bias --set embedding_scale=2.5 --set residual_scale=0.7 "
                     f"--set attention.scale=0.2 --set logit_scale=1.5 --set rope.scaling.finetuned=false {TINY}"),
    "gemma3-capped": ("gemma", "--arch gemma3 --layers 7 --tied --head-dim 20 --set attention.sliding_window=7 "
                      f"--set final_logit_softcapping=5.0 {TINY}"),
    "qwen3-fused": ("qwen", f"--arch qwen3 --layers 2 --with attn_qkv --head-dim 24 {TINY}"),
    "qwen3moe-fused": ("qwen3moe", f"--arch qwen3moe --layers 2 --head-dim 16 --with ffn_gate_up_exps {NARROW} {TINY}"),
    "glm4moe-fused": ("hf", "--arch glm4moe --layers 3 --head-dim 16 --with bias "
                      f"--with attn_q_norm --with attn_k_norm --with ffn_gate_up_exps {NARROW} "
                      f"--set rope.dimension_count=8 --set leading_dense_block_count=1 --set expert_shared_count=2 {TINY}"),
    "gpt-oss-fused": ("gptoss", "--arch gpt-oss --layers 2 --head-dim 32 --set attention.sliding_window=9 "
                      "--set rope.scaling.type=yarn --set rope.scaling.factor=32.0 "
                      "--set rope.scaling.original_context_length=64 "
                      f"--with ffn_gate_up_exps.weight {NARROW} {TINY}"),
    "deepseek2-dense": ("deepseek2", f"--arch deepseek2 --layers 2 {LATENT.replace('expert_count=8', 'expert_count=0')} "
                        f"--set attention.q_lora_rank=40 {TINY}"),
    "deepseek2-temperature": ("deepseek2", f"--arch deepseek2 --layers 2 {LATENT} --set attention.q_lora_rank=40 "
                              f"--set attention.temperature_scale=0.3 --set attention.temperature_length=12 {TINY}"),
    "arcee-biases": ("hf", f"--arch arcee --layers 2 --with bias {TINY}"),
    "qwen2vl": ("hf", f"--arch qwen2vl --layers 2 --tied --set rope.dimension_sections=2,2,2,0 {TINY}"),
    "qwen3vl": ("hf", "--arch qwen3vl --layers 2 --head-dim 24 --set rope.dimension_sections=4,4,4,0 "
                f"--set n_deepstack_layers=1 {TINY}"),
    "qwen3vlmoe": ("hf", "--arch qwen3vlmoe --layers 2 --head-dim 24 --set rope.dimension_sections=4,4,4,0 "
                   f"{NARROW} {TINY}"),
    "exaone": ("qwen", f"--arch exaone --layers 2 {TINY}"),
    "dots1": ("hf", f"--arch dots1 --layers 3 --head-dim 16 --with exp_probs_b {NARROW} --set leading_dense_block_count=1 "
              f"--set expert_shared_count=2 --set expert_weights_scale=2.5 {TINY}"),
    "exaone-moe": ("hf", f"--arch exaone-moe --layers 5 --head-dim 16 --with exp_probs_b {NARROW} "
                   "--set attention.sliding_window=9 --set leading_dense_block_count=1 --set expert_shared_count=1 "
                   f"--set expert_weights_scale=2.5 {TINY}"),
    "nemotron": ("hf_norm", f"--arch nemotron --layers 2 --set rope.dimension_count=6 {TINY}"),
    "stablelm": ("hf_norm", f"--arch stablelm --layers 2 --with attn_q.bias --with attn_k.bias --with attn_v.bias "
                 f"--set rope.dimension_count=6 {TINY}"),
    "gpt-oss-fused-biases": ("gptoss", "--arch gpt-oss --layers 2 --head-dim 32 --set attention.sliding_window=9 "
                             "--set rope.scaling.type=yarn --set rope.scaling.factor=32.0 "
                             "--set rope.scaling.original_context_length=64 --with ffn_gate_up_exps.weight "
                             f"--with ffn_gate_up_exps.bias {NARROW} {TINY}"),
    "phimoe": ("hf_norm", "--arch phimoe --layers 3 --with rope_factors --set rope.scaling.original_context_length=256 "
               f"--set rope.scaling.attn_factor=1.1902381 --set attention.sliding_window=17 {PAIR} {TINY}"),
    "phimoe-plain": ("hf_norm", f"--arch phimoe --layers 2 {PAIR} {TINY}"),
    "olmo": ("hf_norm", f"--arch olmo --layers 3 --tied {TINY}"),
    "olmo-clamped": ("hf_norm", f"--arch olmo --layers 2 --set attention.clamp_kqv=0.6 {TINY} --kv-heads 4"),
    "gptneox": ("hf_norm", f"--arch gptneox --layers 3 --set rope.dimension_count=6 {TINY} --kv-heads 4"),
    "gptneox-serial": ("hf_norm", "--arch gptneox --layers 3 --set rope.dimension_count=6 "
                       f"--set use_parallel_residual=false {TINY} --kv-heads 4"),
    "apertus": ("hf", "--arch apertus --layers 3 --set xielu.alpha_p=0.2,0.9,-0.4 --set xielu.alpha_n=-1.05,0.3,-0.2 "
                f"--set xielu.beta=0.5,0.5,0.25 {TINY}"),
    "afmoe": ("hf", f"--arch afmoe --layers 5 --head-dim 16 --with exp_probs_b {NARROW} --set attention.sliding_window=9 "
              f"--set leading_dense_block_count=1 --set expert_shared_count=1 --set expert_weights_scale=2.5 {TINY}"),
    "bailingmoe": ("hf", f"--arch bailingmoe --layers 3 --head-dim 16 {NARROW} --set leading_dense_block_count=0 {TINY}"),
    "hunyuan_vl": ("hf", "--arch hunyuan_vl --layers 2 --head-dim 24 --tied --set rope.scaling.alpha=1000.0 "
                   f"--set rope.dimension_sections=3,3,3,3 {TINY}"),
    "cohere2moe": ("hf_norm", f"--arch cohere2moe --layers 5 --tied --head-dim 16 {NARROW} --set attention.sliding_window=7 "
                   "--set attention.sliding_window_pattern=0,1,1,1,0 --set leading_dense_block_count=1 "
                   f"--set expert_shared_count=2 {TINY}"),
    "mimo2": ("hf", f"--arch mimo2 --layers 5 --head-dim 24 --with exp_probs_b {NARROW} --set attention.value_length=16 "
              "--set attention.head_count_kv=2,4,4,2,4 --set attention.sliding_window_pattern=0,1,1,0,1 "
              "--set attention.sliding_window=8 --set rope.dimension_count=8 --set leading_dense_block_count=1 "
              f"--with blk.1.attn_sinks --with blk.2.attn_sinks --with blk.4.attn_sinks {TINY}"),
    "step35": ("hf", f"--arch step35 --layers 5 --head-dim 16 --with exp_probs_b {NARROW} --set attention.head_count=4,6,6,4,6 "
               "--set attention.sliding_window_pattern=0,1,1,0,1 --set attention.sliding_window=9 "
               "--set leading_dense_block_count=2 --set expert_shared_feed_forward_length=48 "
               "--set swiglu_clamp_exp=0.0,0.0,0.5,0.0,0.25 --set swiglu_clamp_shexp=0.0,0.0,0.0,0.4,0.3 "
               f"{TINY}"),
    "kimi-linear": ("hf_hybrid", f"--arch kimi-linear --layers 4 --with exp_probs_b {KIMI} {NARROW} "
                    f"--set attention.head_count_kv=0,1,0,1 {TINY}"),
    "kimi-linear-last": ("hf_hybrid", f"--arch kimi-linear --layers 3 --with exp_probs_b {KIMI} {NARROW} "
                         f"--set attention.head_count_kv=0,1,0 {TINY}"),
    "exaone4-mtp": ("mtp", "--arch exaone4 --layers 5 --head-dim 20 --set attention.sliding_window=9 "
                    f"--set nextn_predict_layers=1 --with shared_head_norm {TINY}"),
    "exaone-moe-mtp": ("mtp", f"--arch exaone-moe --layers 5 --head-dim 16 --with exp_probs_b {NARROW} "
                       "--set attention.sliding_window=9 --set leading_dense_block_count=1 --set expert_shared_count=1 "
                       "--set expert_weights_scale=2.5 --set nextn_predict_layers=1 --with shared_head_norm "
                       f"{TINY}"),
    "stablelm-12b": ("hf_norm", "--arch stablelm --layers 3 --set use_parallel_residual=true --with attn_q_norm "
                     f"--with attn_k_norm --set rope.dimension_count=6 {TINY}"),
    "bailingmoe2-mtp": ("mtp", f"--arch bailingmoe2 --layers 4 --head-dim 16 --with exp_probs_b {NARROW} "
                        "--set rope.dimension_count=8 --set leading_dense_block_count=1 --set nextn_predict_layers=1 "
                        "--set expert_group_count=4 --set expert_group_used_count=2 --set expert_weights_scale=2.5 "
                        f"--with layer_output_norm {TINY}"),
    "hy_v3": ("hf", f"--arch hy_v3 --layers 3 --head-dim 16 --with exp_probs_b {NARROW} --set expert_weights_scale=2.826 "
              f"--set leading_dense_block_count=1 --set expert_shared_count=2 {TINY}"),
    "hy_v3-mtp": ("mtp", f"--arch hy_v3 --layers 4 --head-dim 16 --with exp_probs_b {NARROW} --set expert_weights_scale=2.826 "
                  "--set leading_dense_block_count=1 --set expert_shared_count=1 --set nextn_predict_layers=1 "
                  f"--with shared_head_norm {TINY}"),
    # append new cases: the place of a case seeds its tokens
    "cohere2moe-mtp": ("mtp", f"--arch cohere2moe --layers 5 --tied --head-dim 16 {NARROW} --set attention.sliding_window=7 "
                       "--set attention.sliding_window_pattern=0,1,1,1 --set leading_dense_block_count=1 "
                       f"--set expert_shared_count=2 --set nextn_predict_layers=1 --with shared_head_norm {TINY}"),
    "step35-mtp": ("mtp", f"--arch step35 --layers 5 --head-dim 16 --with exp_probs_b {NARROW} --set attention.head_count=4,6,6,4,6 "
                   "--set attention.sliding_window_pattern=0,1,1,0,1 --set attention.sliding_window=9 "
                   "--set leading_dense_block_count=2 --set expert_shared_feed_forward_length=48 "
                   "--set swiglu_clamp_exp=0.0,0.0,0.5,0.0,0.0 --set swiglu_clamp_shexp=0.0,0.0,0.0,0.4,0.0 "
                   f"--set nextn_predict_layers=1 --with shared_head_norm {TINY}"),
}
N_TOKENS, SHOWN = 40, (0, 13, 39)


def margin_of(logits):
    """How far the two largest logits lie apart where they are closest, as a share of the largest."""
    best = logits.topk(2, -1).values
    return ((best[:, 0] - best[:, 1]) / logits.abs().amax(-1)).min()


def try_seeds(program, reference, arguments, tokens):
    """The first seed for which no two logits compete."""
    with tempfile.TemporaryDirectory() as scratch:
        for seed in range(100):
            command, path = f"{arguments} --seed {seed}", f"{scratch}/model.gguf"
            subprocess.run([program, "make", *command.split(), path], check=True, stderr=subprocess.DEVNULL)
            logits = reference.forward(common.Model(path), torch.tensor(tokens))
            if margin_of(logits) > 1e-3:
                return command, logits
    sys.exit(f"no seed is good for {arguments}")


def main():
    program, chosen = sys.argv[1], sys.argv[2:] or CASES
    folder = pathlib.Path(__file__).parent.parent / "golden" / "arch"
    folder.mkdir(exist_ok=True)
    for number, name in enumerate(CASES):
        if name not in chosen:
            continue
        reference, arguments = CASES[name]
        tokens = [int(t) for t in np.random.default_rng(number).integers(0, 259, N_TOKENS)]
        reference = importlib.import_module(f"ref_{reference}")
        arguments, logits = try_seeds(program, reference, arguments, tokens)
        lines = [f"make {arguments}", "tokens " + " ".join(map(str, tokens)),
                 "greedy " + " ".join(str(int(t)) for t in logits.argmax(-1))]
        lines += [f"logits {at} " + " ".join(f"{float(v):.7g}" for v in logits[at]) for at in SHOWN]
        (folder / f"{name}.txt").write_text("\n".join(lines) + "\n")
        print(f"{name}: logits of deviation {logits.std():.2f}")


if __name__ == "__main__":
    main()
