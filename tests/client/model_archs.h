// SPDX-License-Identifier: MIT
// model_archs.h: the architectures of the model maker (make_model.c): tensors, keys and tokenizer of each. Names and shapes are
// those of GGUF files that libllama loads. A shape is a list of sums of dimensions in ggml's order, fastest first:
//
//     E embedding   F feed forward   V vocabulary   L context   N layers   H head    A heads     B heads of K and V
//     Q all heads   K all KV heads   X experts      U experts used   Y feed forward of an expert
//     Z compressed row of keys and values (MLA)   M elements of a head with RoPE (MLA)   O all heads, including these elements
//     I inner size  S state  R time step rank  G groups  C convolution     D rank of RWKV's small matrices   W window
//
// The letter before a shape selects its values (row_fill in make_model.c). Names of `layer` are repeated for each layer. A name
// with ^ belongs to the first layer only, a name with > to all other layers.
#pragma once

#include <stddef.h>

enum tokens { TOKENS_SPM, TOKENS_BPE, TOKENS_WPM, TOKENS_UGM, TOKENS_RWKV };

struct arch {
    const char *name;
    enum tokens tokens;
    const char *model; // "NAME FILL SHAPE; ...", tensors outside of layers
    const char *layer; // tensors of each layer; the prefix "blk.0." and so on is added
    // Tensors of each layer of the decoder, with the prefix "dec.blk.0."; then `layer` is the encoder ("enc.blk.0."). NULL: none
    const char *layer_2;
};

#define HEAD_NORM "token_embd.weight e E,V; output_norm.weight n E; output.weight m E,V"
#define HEAD_NORM_BIAS HEAD_NORM "; output_norm.bias b E"
#define QKV "attn_norm.weight n E; attn_q.weight m E,Q; attn_k.weight m E,K; attn_v.weight m E,K; attn_output.weight m Q,E"
#define QK_NORM "; attn_q_norm.weight n H; attn_k_norm.weight n H"
#define FFN_GATED "; ffn_norm.weight n E; ffn_gate.weight m E,F; ffn_up.weight m E,F; ffn_down.weight m F,E"
#define FFN_BIAS "; ffn_up.weight m E,F; ffn_up.bias b F; ffn_down.weight m F,E; ffn_down.bias b E"
#define EXPERTS(ff) \
    "; ffn_norm.weight n E; ffn_gate_inp.weight f E,X; ffn_gate_exps.weight m E," ff ",X; ffn_down_exps.weight m " ff ",E,X;" \
    " ffn_up_exps.weight m E," ff ",X"
#define MLA \
    "attn_norm.weight n E; attn_kv_a_mqa.weight m E,Z+M; attn_kv_a_norm.weight n Z; attn_k_b.weight m H,Z,A;" \
    " attn_v_b.weight m Z,H,A; attn_output.weight m Q,E; ^ffn_gate.weight m E,F; ^ffn_up.weight m E,F; ^ffn_down.weight m F,E"
#define SOME_DENSE \
    "; >ffn_gate_inp.weight f E,X; >ffn_gate_exps.weight m E,Y,X; >ffn_down_exps.weight m Y,E,X; >ffn_up_exps.weight m E,Y,X;" \
    " >exp_probs_b.bias b X; >ffn_gate_shexp.weight m E,2Y; >ffn_up_shexp.weight m E,2Y; >ffn_down_shexp.weight m 2Y,E"
#define FUSED_BIAS \
    "attn_norm.weight n E; attn_norm.bias b E; attn_qkv.weight m E,Q+2K; attn_qkv.bias b Q+2K; attn_output.weight m Q,E;" \
    " attn_output.bias b E; ffn_norm.weight n E; ffn_norm.bias b E" FFN_BIAS
#define T5_SELF "attn_norm.weight n E; attn_q.weight q E,Q; attn_k.weight m E,K; attn_v.weight m E,K; attn_o.weight m Q,E"
#define T5_FFN "; ffn_norm.weight n E; ffn_up.weight m E,F; ffn_down.weight m F,E; attn_rel_b.weight b A,32"

static const struct arch archs[] = {
    {"llama", TOKENS_SPM, HEAD_NORM, QKV FFN_GATED, NULL},
    {"qwen3", TOKENS_BPE, HEAD_NORM, QKV QK_NORM FFN_GATED, NULL},
    {"gemma2", TOKENS_SPM, "token_embd.weight e E,V; output_norm.weight n E",
        QKV FFN_GATED "; post_attention_norm.weight n E; post_ffw_norm.weight n E", NULL},
    {"gemma3", TOKENS_SPM, HEAD_NORM, QKV QK_NORM FFN_GATED "; post_attention_norm.weight n E; post_ffw_norm.weight n E", NULL},
    {"gpt2", TOKENS_BPE, HEAD_NORM_BIAS "; position_embd.weight b E,L", FUSED_BIAS, NULL},
    {"gptneox", TOKENS_BPE, HEAD_NORM_BIAS, FUSED_BIAS, NULL},
    {"phi2", TOKENS_BPE, HEAD_NORM_BIAS "; output.bias b V",
        QKV FFN_BIAS "; attn_norm.bias b E; attn_q.bias b Q; attn_k.bias b K; attn_v.bias b K; attn_output.bias b E", NULL},
    {"phi3", TOKENS_SPM, HEAD_NORM,
        "attn_norm.weight n E; attn_qkv.weight m E,Q+2K; attn_output.weight m Q,E; ffn_norm.weight n E; ffn_up.weight m E,2F;"
        " ffn_down.weight m F,E",
        NULL},
    {"smollm3", TOKENS_BPE, HEAD_NORM, QKV FFN_GATED, NULL},
    {"granite", TOKENS_BPE, HEAD_NORM, QKV FFN_GATED, NULL},
    {"command-r", TOKENS_BPE, "token_embd.weight e E,V; output_norm.weight n E",
        QKV "; ffn_gate.weight m E,F; ffn_up.weight m E,F; ffn_down.weight m F,E", NULL},
    {"glm4", TOKENS_BPE, HEAD_NORM,
        QKV "; attn_q.bias b Q; attn_k.bias b K; attn_v.bias b K; post_attention_norm.weight n E; ffn_norm.weight n E;"
            " ffn_up.weight m E,2F; ffn_down.weight m F,E; post_ffw_norm.weight n E",
        NULL},
    {"qwen3moe", TOKENS_BPE, HEAD_NORM, QKV QK_NORM EXPERTS("Y"), NULL},
    {"deepseek2", TOKENS_BPE, HEAD_NORM,
        MLA "; ffn_norm.weight n E; attn_q_a.weight m E,D; attn_q_a_norm.weight n D; attn_q_b.weight m D,O" SOME_DENSE, NULL},
    {"glm4moe", TOKENS_BPE, HEAD_NORM,
        QKV QK_NORM "; attn_q.bias b Q; attn_k.bias b K; attn_v.bias b K; post_attention_norm.weight n E; ^ffn_gate.weight m E,F;"
                    " ^ffn_up.weight m E,F; ^ffn_down.weight m F,E" SOME_DENSE,
        NULL},
    {"gpt-oss", TOKENS_BPE, HEAD_NORM,
        QKV "; attn_q.bias b Q; attn_k.bias b K; attn_v.bias b K; attn_output.bias b E; attn_sinks.weight b A;"
            " post_attention_norm.weight n E; ffn_gate_inp.weight f E,X; ffn_gate_inp.bias b X; ffn_gate_exps.weight m E,Y,X;"
            " ffn_gate_exps.bias b Y,X; ffn_up_exps.weight m E,Y,X; ffn_up_exps.bias b Y,X; ffn_down_exps.weight m Y,E,X;"
            " ffn_down_exps.bias b E,X",
        NULL},
    {"olmoe", TOKENS_BPE, HEAD_NORM, QKV "; attn_q_norm.weight n Q; attn_k_norm.weight n K" EXPERTS("F"), NULL},
    {"mamba", TOKENS_BPE, HEAD_NORM,
        "attn_norm.weight n E; ssm_in.weight m E,2I; ssm_conv1d.weight f C,I; ssm_conv1d.bias b I; ssm_x.weight m I,R+2S;"
        " ssm_dt.weight m R,I; ssm_dt.bias t I; ssm_a a S,I; ssm_d n I; ssm_out.weight m I,E",
        NULL},
    {"mamba2", TOKENS_BPE, HEAD_NORM,
        "attn_norm.weight n E; ssm_in.weight m E,2I+2S+R; ssm_conv1d.weight f C,I+2S; ssm_conv1d.bias b I+2S; ssm_dt.bias t R;"
        " ssm_a a 1,R; ssm_d n 1,R; ssm_norm.weight n I; ssm_out.weight m I,E",
        NULL},
    {"rwkv7", TOKENS_RWKV, HEAD_NORM_BIAS "; token_embd_norm.weight n E; token_embd_norm.bias b E",
        "attn_norm.weight n E; attn_norm.bias b E; attn_norm_2.weight n E; attn_norm_2.bias b E; time_mix_w0.weight t E;"
        " time_mix_w1.weight m E,D; time_mix_w2.weight m D,E; time_mix_a0.weight b E; time_mix_a1.weight m E,D;"
        " time_mix_a2.weight m D,E; time_mix_v0.weight b E; time_mix_v1.weight m E,D; time_mix_v2.weight m D,E;"
        " time_mix_g1.weight m E,D; time_mix_g2.weight m D,E; time_mix_lerp_fused.weight l E,1,1,6; time_mix_k_k.weight n E;"
        " time_mix_k_a.weight n E; time_mix_r_k.weight b E; time_mix_key.weight m E,E; time_mix_value.weight m E,E;"
        " time_mix_receptance.weight m E,E; time_mix_ln.weight n E; time_mix_ln.bias b E; time_mix_output.weight m E,E;"
        " channel_mix_lerp_k.weight l E; channel_mix_key.weight m E,F; channel_mix_value.weight m F,E",
        NULL},
    {"bert", TOKENS_WPM,
        "token_embd.weight e E,V; token_types.weight b E,2; position_embd.weight b E,L; token_embd_norm.weight n E;"
        " token_embd_norm.bias b E",
        "attn_q.weight m E,Q; attn_k.weight m E,K; attn_v.weight m E,K; attn_q.bias b Q; attn_k.bias b K; attn_v.bias b K;"
        " attn_output.weight m Q,E; attn_output.bias b E; attn_output_norm.weight n E; attn_output_norm.bias b E;"
        " layer_output_norm.weight n E; layer_output_norm.bias b E" FFN_BIAS,
        NULL},
    {"t5", TOKENS_UGM, "token_embd.weight e E,V; enc.output_norm.weight n E; dec.output_norm.weight n E; output.weight m E,V",
        T5_SELF T5_FFN,
        T5_SELF T5_FFN
        "; cross_attn_norm.weight n E; cross_attn_q.weight q E,Q; cross_attn_k.weight m E,K; cross_attn_v.weight m E,K;"
        " cross_attn_o.weight m Q,E"},
};

// The value of a key is a sum of dimensions, a number or a boolean. archs lists the architectures that have the key. After a "-" it
// lists those that do not have it. NULL: all have it.
struct key {
    const char *name; // part after "ARCH."
    char type;        // u, f or b
    const char *value;
    const char *archs;
};

static const struct key keys[] = {
    {"context_length", 'u', "L", NULL},
    {"embedding_length", 'u', "E", NULL},
    {"block_count", 'u', "N", NULL},
    {"feed_forward_length", 'u', "F", NULL},
    {"vocab_size", 'u', "V", NULL},
    {"attention.head_count", 'u', "A", "-mamba mamba2 rwkv7"},
    {"attention.head_count", 'u', "0", "mamba mamba2 rwkv7"},
    {"attention.head_count_kv", 'u', "B", "-mamba mamba2 rwkv7 deepseek2"},
    {"attention.head_count_kv", 'u', "1", "deepseek2"},
    {"attention.key_length", 'u', "Z+M", "deepseek2"},
    {"attention.value_length", 'u', "Z", "deepseek2"},
    {"attention.key_length_mla", 'u', "H+M", "deepseek2"},
    {"attention.value_length_mla", 'u', "H", "deepseek2"},
    {"attention.kv_lora_rank", 'u', "Z", "deepseek2"},
    {"attention.q_lora_rank", 'u', "D", "deepseek2"},
    {"rope.dimension_count", 'u', "M", "deepseek2 glm4moe"},
    {"leading_dense_block_count", 'u', "1", "deepseek2 glm4moe"},
    {"expert_shared_count", 'u', "2", "deepseek2 glm4moe"},
    {"expert_gating_func", 'u', "2", "deepseek2 glm4moe"},
    {"expert_weights_scale", 'f', "1.5", "deepseek2 glm4moe"},
    {"expert_weights_norm", 'b', "1", "deepseek2 glm4moe"},
    {"attention.key_length", 'u', "H", "llama qwen3 gemma2 gemma3 qwen3moe gpt-oss glm4moe t5"},
    {"attention.value_length", 'u', "H", "llama qwen3 gemma2 gemma3 qwen3moe gpt-oss glm4moe t5"},
    {"attention.layer_norm_rms_epsilon", 'f', "1e-5", NULL},
    {"attention.layer_norm_epsilon", 'f', "1e-5", NULL},
    {"rope.dimension_count", 'u', "H", "llama gptneox phi2 phi3 smollm3 granite"},
    {"use_parallel_residual", 'b', "1", "gptneox"},
    {"attention.sliding_window", 'u', "W", "gemma2 gemma3 gpt-oss"},
    {"rope.dimension_count", 'u', "32", "glm4"},
    {"logit_scale", 'f', "0.25", "command-r"},
    {"logit_scale", 'f', "4", "granite"},
    {"embedding_scale", 'f', "6", "granite"},
    {"residual_scale", 'f', "0.3", "granite"},
    {"attention.scale", 'f', "0.1", "granite"},
    {"attn_logit_softcapping", 'f', "50", "gemma2"},
    {"final_logit_softcapping", 'f', "30", "gemma2"},
    {"attention.relative_buckets_count", 'u', "32", "t5"},
    {"attention.causal", 'b', "0", "bert"},
    {"pooling_type", 'u', "1", "bert"},
    {"expert_count", 'u', "X", "qwen3moe olmoe gpt-oss deepseek2 glm4moe"},
    {"expert_used_count", 'u', "U", "qwen3moe olmoe gpt-oss deepseek2 glm4moe"},
    {"expert_feed_forward_length", 'u', "Y", "qwen3moe gpt-oss deepseek2 glm4moe"},
    {"ssm.conv_kernel", 'u', "C", "mamba mamba2"},
    {"ssm.inner_size", 'u', "I", "mamba mamba2"},
    {"ssm.state_size", 'u', "S", "mamba mamba2"},
    {"ssm.time_step_rank", 'u', "R", "mamba mamba2"},
    {"ssm.group_count", 'u', "1", "mamba2"},
    {"wkv.head_size", 'u', "H", "rwkv7"},
    {"token_shift_count", 'u', "2", "rwkv7"},
    {"attention.decay_lora_rank", 'u', "D", "rwkv7"},
    {"attention.iclr_lora_rank", 'u', "D", "rwkv7"},
    {"attention.value_residual_mix_lora_rank", 'u', "D", "rwkv7"},
    {"attention.gate_lora_rank", 'u', "D", "rwkv7"},
};
