// SPDX-License-Identifier: MIT
// ggml.h: tensors, op constructors and graphs. Names, signatures, layouts and values are those of ggml 0.25.1, so that programs
// and libraries built for ggml work with Berth. Functions that Berth adds to ggml's API are in berth.h.
//
// General rules. The comment of a function states its own details and its exceptions from these rules.
//
// Shapes. A tensor has four extents, ne[0] to ne[3]. Comments write shapes in this order: `a [n, m]` has ne[0] = n, ne[1] = m,
// and 1 for the other extents. A row consists of the ne[0] elements along dimension 0.
//
// Ops. A constructor computes nothing. It returns a new tensor that records the op, its operands and its parameters. A backend
// computes the tensor later, when it computes a graph that contains the tensor.
//
// Memory of results. A result has its own memory and is contiguous, unless the comment says that it shares an operand's memory.
// The result of an _inplace form is a view of the first operand, with the same type, shape and strides. Computing it overwrites
// that operand. The backward pass refuses such an op, because gradients may need the overwritten values. A graph allocator may
// also reuse an operand's memory for a result, but only if nothing reads the operand later.
//
// Types and layouts. A constructor checks the rules in its comment. A backend may support fewer types and layouts:
// ggml_backend_supports_op() in ggml-backend.h reports whether a backend can compute a tensor.
//
// Ownership. Tensors and graphs belong to the context that they were created in. ggml_reset() and ggml_free() remove all of them
// together. A single tensor cannot be freed.
//
// Failure. No function here ends the process, except ggml_abort(). Every function accepts NULL for a context, a tensor or a
// graph. A constructor returns its context's poison tensor if an argument breaks a rule, if a required operand is NULL, if an
// operand is poison, or if the context is full. With a NULL context it returns NULL. Other functions report a failure by NULL, 0
// or false. "With an error" means that the function also logs a message, which berth_last_error() returns on the same thread.
// berth.h has the functions that recognise poison and return messages.
//
// Threads. A context and everything in it is used by one thread at a time. Threads may use different contexts concurrently.
// Several threads may build graphs over the same tensors concurrently, if each uses its own context for new tensors and graphs.
// Queries on a tensor may run concurrently while no thread changes it. Functions that take no context, tensor or graph are
// thread-safe.
#pragma once

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>
#include <stdio.h>

// Marks functions of the base libraries. GGML_SHARED selects the declarations for shared libraries. GGML_BUILD is defined only
// while these libraries are built.
#ifdef GGML_SHARED
#    if defined(_WIN32) && defined(GGML_BUILD)
#        define GGML_API __declspec(dllexport) extern
#    elif defined(_WIN32) && defined(__MINGW32__) // the linker finds the functions of a DLL without dllimport
#        define GGML_API extern
#    elif defined(_WIN32)
#        define GGML_API __declspec(dllimport) extern
#    else
#        define GGML_API __attribute__((visibility("default"))) extern
#    endif
#else
#    define GGML_API extern
#endif

// Marks functions of backend libraries, such as libggml-cpu.
#ifdef GGML_BACKEND_SHARED
#    if defined(_WIN32) && defined(GGML_BACKEND_BUILD)
#        define GGML_BACKEND_API __declspec(dllexport) extern
#    elif defined(_WIN32) && defined(__MINGW32__) // the linker finds the functions of a DLL without dllimport
#        define GGML_BACKEND_API extern
#    elif defined(_WIN32)
#        define GGML_BACKEND_API __declspec(dllimport) extern
#    else
#        define GGML_BACKEND_API __attribute__((visibility("default"))) extern
#    endif
#else
#    define GGML_BACKEND_API extern
#endif

// Has no effect. ggml's backend headers of early 2024 contain it.
#ifndef GGML_CALL
#    define GGML_CALL
#endif

// Declares func as deprecated. Compilers show hint where func is used.
#ifdef __GNUC__
#    define GGML_DEPRECATED(func, hint) func __attribute__((deprecated(hint)))
#elif defined(_MSC_VER)
#    define GGML_DEPRECATED(func, hint) __declspec(deprecated(hint)) func
#else
#    define GGML_DEPRECATED(func, hint) func
#endif

// GGML_ATTRIBUTE_FORMAT(n, m): argument n is a printf format, and its values start at argument m. Compilers check them.
#if defined(__GNUC__) && defined(__MINGW32__)
#    define GGML_ATTRIBUTE_FORMAT(...) __attribute__((format(gnu_printf, __VA_ARGS__)))
#elif defined(__GNUC__)
#    define GGML_ATTRIBUTE_FORMAT(...) __attribute__((format(printf, __VA_ARGS__)))
#else
#    define GGML_ATTRIBUTE_FORMAT(...)
#endif

// Marks a function that does not return.
#if defined(_MSC_VER)
#    define GGML_NORETURN __declspec(noreturn)
#elif defined(__cplusplus)
#    define GGML_NORETURN [[noreturn]]
#else
#    define GGML_NORETURN _Noreturn
#endif

// C's restrict, in the spelling of the compiler.
#if defined(__cplusplus) || defined(_MSC_VER)
#    define GGML_RESTRICT __restrict
#else
#    define GGML_RESTRICT restrict
#endif

// Prevents the compiler's warning about an unused x.
#define GGML_UNUSED(x) (void) (x)

// Rounds x up to a multiple of n. n must be a power of two.
// clang-format off
#define GGML_PAD(x, n) (((x) + (n) - 1) & ~((n) - 1))
// clang-format on

// These three macros are for programs. GGML_ABORT ends the process with a printf-style message. GGML_ASSERT does the same if x is
// false, in release builds too. GGML_UNREACHABLE marks code that never runs. Berth's libraries do not use them, because they
// never end the process.
#define GGML_ABORT(...) ggml_abort(__FILE__, __LINE__, __VA_ARGS__)
#define GGML_ASSERT(x) \
    do { \
        if (!(x)) { \
            GGML_ABORT("GGML_ASSERT(%s) failed", #x); \
        } \
    } while (0)
#if defined(NDEBUG) && defined(__GNUC__)
#    define GGML_UNREACHABLE() __builtin_unreachable()
#else
#    define GGML_UNREACHABLE() GGML_ABORT("statement should be unreachable")
#endif

// Magic number and version of ggml's file format before GGUF. Berth does not use them.
#define GGML_FILE_MAGIC 0x67676d6c
#define GGML_FILE_VERSION 2
// Version of the quantised block formats, and a factor for file formats that store the version. Berth uses neither.
#define GGML_QNT_VERSION 2
#define GGML_QNT_VERSION_FACTOR 1000

#define GGML_MAX_DIMS 4
#define GGML_MAX_PARAMS 2048 // Berth does not use it
#define GGML_MAX_SRC 10      // operands of an op
#define GGML_MAX_N_THREADS 512
#define GGML_MAX_OP_PARAMS 64 // bytes of op_params
#define GGML_DEFAULT_N_THREADS 4
#define GGML_DEFAULT_GRAPH_SIZE 2048 // nodes of ggml_new_graph(), and as many leafs
// Modes of RoPE. They differ in the dimensions that form a pair and in the number of positions per token.
#define GGML_ROPE_TYPE_NORMAL 0  // pairs (2 * i, 2 * i + 1)
#define GGML_ROPE_TYPE_NEOX 2    // pairs (i, i + n_dims / 2)
#define GGML_ROPE_TYPE_MROPE 8   // pairs as NEOX; four positions per token, one per section of the pairs
#define GGML_ROPE_TYPE_VISION 24 // as MROPE, with n_dims = ne[0] / 2 and pairs (i, i + n_dims)
#define GGML_ROPE_TYPE_IMROPE 40 // as MROPE, with interleaved sections
#define GGML_MROPE_SECTIONS 4
#define GGML_N_TASKS_MAX (-1) // n_tasks of a custom op: one task per thread
// Exit codes for programs. Berth does not use them.
#define GGML_EXIT_SUCCESS 0
#define GGML_EXIT_ABORTED 1

// Bytes of a tensor's name, the final 0 included. A program may define another value. It then requires libraries that were built
// with the same value (cmake -D GGML_MAX_NAME=128), because the size of struct ggml_tensor depends on it. ggml_init has another
// symbol for each value, so that a program and a library with different values do not link.
#ifndef GGML_MAX_NAME
#    define GGML_MAX_NAME 64
#endif
#if GGML_MAX_NAME < 64 || GGML_MAX_NAME % 16 != 0
#    error "GGML_MAX_NAME must be 64 or more, and a multiple of 16; the libraries must be built with the same value"
#endif
#if GGML_MAX_NAME == 64
#    define GGML_OF_MAX_NAME(symbol)
#else
#    define GGML_OF_MAX_NAME_TEXT(value) #    value
#    define GGML_OF_MAX_NAME_SYMBOL(symbol, value) __asm__(symbol "_max_name_" GGML_OF_MAX_NAME_TEXT(value))
#    define GGML_OF_MAX_NAME(symbol) GGML_OF_MAX_NAME_SYMBOL(symbol, GGML_MAX_NAME)
#endif

// Alignment in bytes of objects in a context.
#if UINTPTR_MAX == 0xFFFFFFFF
#    define GGML_MEM_ALIGN 4
#else
#    define GGML_MEM_ALIGN 16
#endif

// These macros define local constants from a tensor's extents or strides. GGML_TENSOR_LOCALS(int64_t, ne0, src0, ne) defines
// ne00, ne01, ne02 and ne03 from src0->ne. All are 0 if src0 is NULL. The macros for ops define them for src0, src1, src2 and
// dst.
#define GGML_TENSOR_LOCALS_1(type, prefix, pointer, array) \
    const type prefix##0 = (pointer) ? (pointer)->array[0] : 0; \
    GGML_UNUSED(prefix##0);
#define GGML_TENSOR_LOCALS_2(type, prefix, pointer, array) \
    GGML_TENSOR_LOCALS_1(type, prefix, pointer, array) \
    const type prefix##1 = (pointer) ? (pointer)->array[1] : 0; \
    GGML_UNUSED(prefix##1);
#define GGML_TENSOR_LOCALS_3(type, prefix, pointer, array) \
    GGML_TENSOR_LOCALS_2(type, prefix, pointer, array) \
    const type prefix##2 = (pointer) ? (pointer)->array[2] : 0; \
    GGML_UNUSED(prefix##2);
#define GGML_TENSOR_LOCALS(type, prefix, pointer, array) \
    GGML_TENSOR_LOCALS_3(type, prefix, pointer, array) \
    const type prefix##3 = (pointer) ? (pointer)->array[3] : 0; \
    GGML_UNUSED(prefix##3);
#define GGML_TENSOR_UNARY_OP_LOCALS \
    GGML_TENSOR_LOCALS(int64_t, ne0, src0, ne) \
    GGML_TENSOR_LOCALS(size_t, nb0, src0, nb) \
    GGML_TENSOR_LOCALS(int64_t, ne, dst, ne) \
    GGML_TENSOR_LOCALS(size_t, nb, dst, nb)
#define GGML_TENSOR_BINARY_OP_LOCALS01 \
    GGML_TENSOR_LOCALS(int64_t, ne0, src0, ne) \
    GGML_TENSOR_LOCALS(size_t, nb0, src0, nb) \
    GGML_TENSOR_LOCALS(int64_t, ne1, src1, ne) \
    GGML_TENSOR_LOCALS(size_t, nb1, src1, nb)
#define GGML_TENSOR_BINARY_OP_LOCALS \
    GGML_TENSOR_BINARY_OP_LOCALS01 \
    GGML_TENSOR_LOCALS(int64_t, ne, dst, ne) \
    GGML_TENSOR_LOCALS(size_t, nb, dst, nb)
#define GGML_TENSOR_TERNARY_OP_LOCALS \
    GGML_TENSOR_BINARY_OP_LOCALS01 \
    GGML_TENSOR_LOCALS(int64_t, ne2, src2, ne) \
    GGML_TENSOR_LOCALS(size_t, nb2, src2, nb) \
    GGML_TENSOR_LOCALS(int64_t, ne, dst, ne) \
    GGML_TENSOR_LOCALS(size_t, nb, dst, nb)

// The default value, in C++, of a parameter that older releases of ggml do not have. C++ programs that omit the argument compile.
#ifdef __cplusplus
#    define GGML_SINCE(value) = value
#else
#    define GGML_SINCE(value)
#endif

#ifdef __cplusplus
extern "C" {
#endif

enum ggml_status {
    GGML_STATUS_ALLOC_FAILED = -2, // out of memory
    GGML_STATUS_FAILED = -1,       // any other error
    GGML_STATUS_SUCCESS = 0,
    GGML_STATUS_ABORTED = 1, // the program stopped the computation, for example by an abort callback
};

// Types of elements. A block format stores its elements in blocks; the comments give the size of one block. A row of a block
// format is a sequence of complete blocks. Unused numbers belonged to types that ggml removed. Q8_1 and Q8_K hold activations
// while a backend multiplies them by quantised weights.
enum ggml_type {
    GGML_TYPE_F32 = 0,
    GGML_TYPE_F16 = 1,
    GGML_TYPE_Q4_0 = 2,     // 32 elements in 18 bytes
    GGML_TYPE_Q4_1 = 3,     // 32 elements in 20 bytes
    GGML_TYPE_Q5_0 = 6,     // 32 elements in 22 bytes
    GGML_TYPE_Q5_1 = 7,     // 32 elements in 24 bytes
    GGML_TYPE_Q8_0 = 8,     // 32 elements in 34 bytes
    GGML_TYPE_Q8_1 = 9,     // 32 elements in 36 bytes; for activations
    GGML_TYPE_Q2_K = 10,    // 256 elements in 84 bytes
    GGML_TYPE_Q3_K = 11,    // 256 elements in 110 bytes
    GGML_TYPE_Q4_K = 12,    // 256 elements in 144 bytes
    GGML_TYPE_Q5_K = 13,    // 256 elements in 176 bytes
    GGML_TYPE_Q6_K = 14,    // 256 elements in 210 bytes
    GGML_TYPE_Q8_K = 15,    // 256 elements in 292 bytes; for activations
    GGML_TYPE_IQ2_XXS = 16, // 256 elements in 66 bytes
    GGML_TYPE_IQ2_XS = 17,  // 256 elements in 74 bytes
    GGML_TYPE_IQ3_XXS = 18, // 256 elements in 98 bytes
    GGML_TYPE_IQ1_S = 19,   // 256 elements in 50 bytes
    GGML_TYPE_IQ4_NL = 20,  // 32 elements in 18 bytes
    GGML_TYPE_IQ3_S = 21,   // 256 elements in 110 bytes
    GGML_TYPE_IQ2_S = 22,   // 256 elements in 82 bytes
    GGML_TYPE_IQ4_XS = 23,  // 256 elements in 136 bytes
    GGML_TYPE_I8 = 24,
    GGML_TYPE_I16 = 25,
    GGML_TYPE_I32 = 26,
    GGML_TYPE_I64 = 27,
    GGML_TYPE_F64 = 28,
    GGML_TYPE_IQ1_M = 29, // 256 elements in 56 bytes
    GGML_TYPE_BF16 = 30,
    GGML_TYPE_TQ1_0 = 34, // 256 elements in 54 bytes
    GGML_TYPE_TQ2_0 = 35, // 256 elements in 66 bytes
    GGML_TYPE_MXFP4 = 39, // 32 elements in 17 bytes
    GGML_TYPE_NVFP4 = 40, // 64 elements in 36 bytes
    GGML_TYPE_Q1_0 = 41,  // 128 elements in 18 bytes
    GGML_TYPE_Q2_0 = 42,  // 64 elements in 18 bytes
    GGML_TYPE_COUNT = 43,
};

// The lowest precision that a backend may use for an op, from the most precise to the least. With GGML_PREC_UNDEFINED, which
// equals GGML_PREC_DEFAULT, the backend chooses.
enum ggml_prec {
    GGML_PREC_UNDEFINED = 0,
    GGML_PREC_DEFAULT = 0,
    GGML_PREC_F32 = 10,
    GGML_PREC_BF16 = 15,
    GGML_PREC_F16 = 20,
    GGML_PREC_Q8 = 30,
    GGML_PREC_Q4 = 40,
};

// Facts about the operands of MUL_MAT that allow a faster algorithm. A backend may ignore them; Berth's backends do.
enum ggml_op_hint {
    GGML_HINT_NONE = 0,
    GGML_HINT_SRC0_IS_HADAMARD = 1, // the first operand is a Hadamard matrix
};

// Type of a model file: the type of most of its tensors. ggml_ftype_to_ggml_type() converts it.
enum ggml_ftype {
    GGML_FTYPE_UNKNOWN = -1,
    GGML_FTYPE_ALL_F32 = 0,
    GGML_FTYPE_MOSTLY_F16 = 1,
    GGML_FTYPE_MOSTLY_Q4_0 = 2,
    GGML_FTYPE_MOSTLY_Q4_1 = 3,
    GGML_FTYPE_MOSTLY_Q4_1_SOME_F16 = 4,
    GGML_FTYPE_MOSTLY_Q8_0 = 7,
    GGML_FTYPE_MOSTLY_Q5_0 = 8,
    GGML_FTYPE_MOSTLY_Q5_1 = 9,
    GGML_FTYPE_MOSTLY_Q2_K = 10,
    GGML_FTYPE_MOSTLY_Q3_K = 11,
    GGML_FTYPE_MOSTLY_Q4_K = 12,
    GGML_FTYPE_MOSTLY_Q5_K = 13,
    GGML_FTYPE_MOSTLY_Q6_K = 14,
    GGML_FTYPE_MOSTLY_IQ2_XXS = 15,
    GGML_FTYPE_MOSTLY_IQ2_XS = 16,
    GGML_FTYPE_MOSTLY_IQ3_XXS = 17,
    GGML_FTYPE_MOSTLY_IQ1_S = 18,
    GGML_FTYPE_MOSTLY_IQ4_NL = 19,
    GGML_FTYPE_MOSTLY_IQ3_S = 20,
    GGML_FTYPE_MOSTLY_IQ2_S = 21,
    GGML_FTYPE_MOSTLY_IQ4_XS = 22,
    GGML_FTYPE_MOSTLY_IQ1_M = 23,
    GGML_FTYPE_MOSTLY_BF16 = 24,
    GGML_FTYPE_MOSTLY_MXFP4 = 25,
    GGML_FTYPE_MOSTLY_NVFP4 = 26,
    GGML_FTYPE_MOSTLY_Q1_0 = 27,
    GGML_FTYPE_MOSTLY_Q2_0 = 28,
};

// Ops. Most ops have a constructor of the same name in lower case. UNARY and GLU stand for several functions: op_params[0] holds
// the function as enum ggml_unary_op or enum ggml_glu_op. NONE: the tensor is not the result of an op.
enum ggml_op {
    GGML_OP_NONE = 0,
    GGML_OP_DUP = 1,
    GGML_OP_ADD = 2,
    GGML_OP_ADD_ID = 3,
    GGML_OP_ADD1 = 4,
    GGML_OP_ACC = 5,
    GGML_OP_SUB = 6,
    GGML_OP_MUL = 7,
    GGML_OP_DIV = 8,
    GGML_OP_SQR = 9,
    GGML_OP_SQRT = 10,
    GGML_OP_LOG = 11,
    GGML_OP_SIN = 12,
    GGML_OP_COS = 13,
    GGML_OP_SUM = 14,
    GGML_OP_SUM_ROWS = 15,
    GGML_OP_CUMSUM = 16,
    GGML_OP_MEAN = 17,
    GGML_OP_ARGMAX = 18,
    GGML_OP_COUNT_EQUAL = 19,
    GGML_OP_REPEAT = 20,
    GGML_OP_REPEAT_BACK = 21,
    GGML_OP_CONCAT = 22,
    GGML_OP_SILU_BACK = 23,
    GGML_OP_NORM = 24,
    GGML_OP_RMS_NORM = 25,
    GGML_OP_RMS_NORM_BACK = 26,
    GGML_OP_GROUP_NORM = 27,
    GGML_OP_L2_NORM = 28,
    GGML_OP_MUL_MAT = 29,
    GGML_OP_MUL_MAT_ID = 30,
    GGML_OP_OUT_PROD = 31,
    GGML_OP_SCALE = 32,
    GGML_OP_SET = 33,
    GGML_OP_CPY = 34,
    GGML_OP_CONT = 35,
    GGML_OP_RESHAPE = 36,
    GGML_OP_VIEW = 37,
    GGML_OP_PERMUTE = 38,
    GGML_OP_TRANSPOSE = 39,
    GGML_OP_GET_ROWS = 40,
    GGML_OP_GET_ROWS_BACK = 41,
    GGML_OP_SET_ROWS = 42,
    GGML_OP_DIAG = 43,
    GGML_OP_DIAG_MASK_INF = 44,
    GGML_OP_DIAG_MASK_ZERO = 45,
    GGML_OP_SOFT_MAX = 46,
    GGML_OP_SOFT_MAX_BACK = 47,
    GGML_OP_ROPE = 48,
    GGML_OP_ROPE_BACK = 49,
    GGML_OP_CLAMP = 50,
    GGML_OP_CONV_TRANSPOSE_1D = 51,
    GGML_OP_IM2COL = 52,
    GGML_OP_IM2COL_BACK = 53,
    GGML_OP_IM2COL_3D = 54,
    GGML_OP_COL2IM_1D = 55,
    GGML_OP_CONV_2D = 56,
    GGML_OP_CONV_3D = 57,
    GGML_OP_CONV_2D_DW = 58,
    GGML_OP_CONV_TRANSPOSE_2D = 59,
    GGML_OP_POOL_1D = 60,
    GGML_OP_POOL_2D = 61,
    GGML_OP_POOL_2D_BACK = 62,
    GGML_OP_UPSCALE = 63,
    GGML_OP_PAD = 64,
    GGML_OP_PAD_REFLECT_1D = 65,
    GGML_OP_ROLL = 66,
    GGML_OP_ARANGE = 67,
    GGML_OP_TIMESTEP_EMBEDDING = 68,
    GGML_OP_ARGSORT = 69,
    GGML_OP_TOP_K = 70,
    GGML_OP_LEAKY_RELU = 71,
    GGML_OP_TRI = 72,
    GGML_OP_FILL = 73,
    GGML_OP_FLASH_ATTN_EXT = 74,
    GGML_OP_FLASH_ATTN_BACK = 75,
    GGML_OP_SSM_CONV = 76,
    GGML_OP_SSM_SCAN = 77,
    GGML_OP_WIN_PART = 78,
    GGML_OP_WIN_UNPART = 79,
    GGML_OP_GET_REL_POS = 80,
    GGML_OP_ADD_REL_POS = 81,
    GGML_OP_RWKV_WKV6 = 82,
    GGML_OP_GATED_LINEAR_ATTN = 83,
    GGML_OP_RWKV_WKV7 = 84,
    GGML_OP_SOLVE_TRI = 85,
    GGML_OP_GATED_DELTA_NET = 86,
    GGML_OP_LIGHTNING_INDEXER = 87,
    GGML_OP_DSV4_HC_COMB = 88,
    GGML_OP_DSV4_HC_PRE = 89,
    GGML_OP_DSV4_HC_POST = 90,
    GGML_OP_UNARY = 91,
    GGML_OP_MAP_CUSTOM1 = 92,
    GGML_OP_MAP_CUSTOM2 = 93,
    GGML_OP_MAP_CUSTOM3 = 94,
    GGML_OP_CUSTOM = 95,
    GGML_OP_CROSS_ENTROPY_LOSS = 96,
    GGML_OP_CROSS_ENTROPY_LOSS_BACK = 97,
    GGML_OP_OPT_STEP_ADAMW = 98,
    GGML_OP_OPT_STEP_SGD = 99,
    GGML_OP_GLU = 100,
    GGML_OP_COUNT = 101,
#ifdef BERTH_2023_OPS // include/2023/ggml.h: names of ops that programs written in 2023 test for
    BERTH_2023_OPS
#endif
};

// Functions of the op UNARY. The constructors below give the formulas.
enum ggml_unary_op {
    GGML_UNARY_OP_ABS = 0,
    GGML_UNARY_OP_SGN = 1,
    GGML_UNARY_OP_NEG = 2,
    GGML_UNARY_OP_STEP = 3,
    GGML_UNARY_OP_TANH = 4,
    GGML_UNARY_OP_ELU = 5,
    GGML_UNARY_OP_RELU = 6,
    GGML_UNARY_OP_SIGMOID = 7,
    GGML_UNARY_OP_GELU = 8,
    GGML_UNARY_OP_GELU_QUICK = 9,
    GGML_UNARY_OP_SILU = 10,
    GGML_UNARY_OP_HARDSWISH = 11,
    GGML_UNARY_OP_HARDSIGMOID = 12,
    GGML_UNARY_OP_EXP = 13,
    GGML_UNARY_OP_EXPM1 = 14,
    GGML_UNARY_OP_SOFTPLUS = 15,
    GGML_UNARY_OP_GELU_ERF = 16,
    GGML_UNARY_OP_XIELU = 17,
    GGML_UNARY_OP_FLOOR = 18,
    GGML_UNARY_OP_CEIL = 19,
    GGML_UNARY_OP_ROUND = 20,
    GGML_UNARY_OP_TRUNC = 21,
    GGML_UNARY_OP_COUNT = 22,
#ifdef BERTH_2023_UNARY_OPS
    BERTH_2023_UNARY_OPS
#endif
};

// Functions of the op GLU: an activation of one part, multiplied by the other part. ggml_glu() applies them.
enum ggml_glu_op {
    GGML_GLU_OP_REGLU = 0,
    GGML_GLU_OP_GEGLU = 1,
    GGML_GLU_OP_SWIGLU = 2,
    GGML_GLU_OP_SWIGLU_OAI = 3,
    GGML_GLU_OP_GEGLU_ERF = 4,
    GGML_GLU_OP_GEGLU_QUICK = 5,
    GGML_GLU_OP_SWIGLU_CLAMP = 6,
    GGML_GLU_OP_COUNT = 7,
};

// Kinds of objects in a context.
enum ggml_object_type {
    GGML_OBJECT_TYPE_TENSOR = 0,
    GGML_OBJECT_TYPE_GRAPH = 1,
    GGML_OBJECT_TYPE_WORK_BUFFER = 2, // bytes that ggml_new_buffer() returned
};

enum ggml_log_level {
    GGML_LOG_LEVEL_NONE = 0,
    GGML_LOG_LEVEL_DEBUG = 1,
    GGML_LOG_LEVEL_INFO = 2,
    GGML_LOG_LEVEL_WARN = 3,
    GGML_LOG_LEVEL_ERROR = 4,
    GGML_LOG_LEVEL_CONT = 5, // the text continues the previous message; Berth's libraries do not use it
};

// Bits of ggml_tensor.flags. The functions ggml_set_input() to ggml_set_loss() describe the first four.
enum ggml_tensor_flag {
    GGML_TENSOR_FLAG_INPUT = 1,
    GGML_TENSOR_FLAG_OUTPUT = 2,
    GGML_TENSOR_FLAG_PARAM = 4,
    GGML_TENSOR_FLAG_LOSS = 8,
    GGML_TENSOR_FLAG_COMPUTE = 16, // backends compute only nodes with this flag; ggml_build_forward_expand() sets it
};

// The elements a[i0, i1] that ggml_tri() keeps.
enum ggml_tri_type {
    GGML_TRI_TYPE_UPPER_DIAG = 0, // i0 >= i1
    GGML_TRI_TYPE_UPPER = 1,      // i0 > i1
    GGML_TRI_TYPE_LOWER_DIAG = 2, // i0 <= i1
    GGML_TRI_TYPE_LOWER = 3,      // i0 < i1
};

// The value that pooling takes from a window: its maximum or its average.
enum ggml_op_pool {
    GGML_OP_POOL_MAX = 0,
    GGML_OP_POOL_AVG = 1,
    GGML_OP_POOL_COUNT = 2,
};

// How ggml_upscale() and ggml_interpolate() compute an element between elements of the source.
enum ggml_scale_mode {
    GGML_SCALE_MODE_NEAREST = 0,
    GGML_SCALE_MODE_BILINEAR = 1,
    GGML_SCALE_MODE_BICUBIC = 2,
    GGML_SCALE_MODE_COUNT = 3,
};

// Bits that ggml_interpolate() accepts in addition to a scale mode.
enum ggml_scale_flag {
    GGML_SCALE_FLAG_ALIGN_CORNERS = 256, // the corner elements of source and result have the same positions
    GGML_SCALE_FLAG_ANTIALIAS = 512,     // only with GGML_SCALE_MODE_BILINEAR
};

enum ggml_sort_order {
    GGML_SORT_ORDER_ASC = 0,
    GGML_SORT_ORDER_DESC = 1,
};

// Priority of the threads of a pool.
enum ggml_sched_priority {
    GGML_SCHED_PRIO_LOW = -1,     // SCHED_BATCH
    GGML_SCHED_PRIO_NORMAL = 0,   // the priority of the process, unchanged
    GGML_SCHED_PRIO_MEDIUM = 1,   // SCHED_FIFO, priority 40
    GGML_SCHED_PRIO_HIGH = 2,     // SCHED_FIFO, priority 80
    GGML_SCHED_PRIO_REALTIME = 3, // SCHED_FIFO, priority 90
};

struct ggml_object;         // one object in a context
struct ggml_context;        // memory for tensors and graphs
struct ggml_cgraph;         // a graph: nodes in execution order, and leafs
struct ggml_backend_buffer; // memory of a device, see ggml-backend.h

typedef uint16_t ggml_fp16_t; // bits of an IEEE 754 binary16 number
typedef struct {
    uint16_t bits;
} ggml_bf16_t; // bits of a bfloat16 number

// Identifies a kind of backend.
typedef uint8_t ggml_guid[16];
typedef ggml_guid *ggml_guid_t;

struct ggml_init_params {
    size_t mem_size;  // bytes of the context's memory
    void *mem_buffer; // memory that the caller owns and that outlives the context; NULL: the context allocates its own
    bool no_alloc;    // true: new tensors have no data; an allocator or the caller assigns their memory later
};

struct ggml_tensor {
    enum ggml_type type;
#ifdef BERTH_2023_TENSOR_BACKEND
    BERTH_2023_TENSOR_BACKEND
#endif
    struct ggml_backend_buffer *buffer; // the buffer of data; NULL: data is in the context's or the program's memory, or NULL
    int64_t ne[GGML_MAX_DIMS];          // elements per dimension
    size_t nb[GGML_MAX_DIMS];           // bytes from one index of a dimension to the next; nb[0]: to the next element or block
    enum ggml_op op;
    int32_t op_params[GGML_MAX_OP_PARAMS / sizeof(int32_t)]; // parameters of the op: integers, and the bits of floats
    int32_t flags;                                           // enum ggml_tensor_flag
    struct ggml_tensor *src[GGML_MAX_SRC];                   // operands of the op; NULL where there is none
    struct ggml_tensor *view_src; // of a view: the tensor that has the memory and is not a view itself; else NULL
    size_t view_offs;             // bytes from view_src's data to this tensor's data
    void *data;                   // address of the first element; NULL while the tensor has no memory
    char name[GGML_MAX_NAME];     // terminated by 0
    void *extra;                  // for the backend that owns buffer; of poison: the error message
#ifdef BERTH_2023_TENSOR_PADDING
    BERTH_2023_TENSOR_PADDING
#else
    char padding[8];
#endif
};

static const size_t GGML_TENSOR_SIZE = sizeof(struct ggml_tensor);

// Receives the message of ggml_abort(). The process ends when it returns.
typedef void (*ggml_abort_callback_t)(const char *);
// Called with the program's pointer after each node of a graph. True ends the computation with GGML_STATUS_ABORTED.
typedef bool (*ggml_abort_callback)(void *);
// Functions of custom ops. Their arguments are the result, the operands, the number of this task (from 0), the number of tasks,
// and the program's pointer. Tasks run concurrently on several threads. Each task computes its share of the result.
typedef void (*ggml_custom1_op_t)(struct ggml_tensor *, const struct ggml_tensor *, int, int, void *);
typedef void (*ggml_custom2_op_t)(struct ggml_tensor *, const struct ggml_tensor *, const struct ggml_tensor *, int, int, void *);
typedef void (*ggml_custom3_op_t)(
    struct ggml_tensor *, const struct ggml_tensor *, const struct ggml_tensor *, const struct ggml_tensor *, int, int, void *);
// The same; the operands are in src of the result.
typedef void (*ggml_custom_op_t)(struct ggml_tensor *, int, int, void *);
// Receives a log message and the program's pointer. The message is valid during the call. Threads may call it concurrently.
typedef void (*ggml_log_callback)(enum ggml_log_level, const char *, void *);
// These convert a row from a type to f32, and from f32 to a type. The last argument is the number of elements, a multiple of the
// type's block size.
typedef void (*ggml_to_float_t)(const void *GGML_RESTRICT, float *GGML_RESTRICT, int64_t);
typedef void (*ggml_from_float_t)(const float *GGML_RESTRICT, void *GGML_RESTRICT, int64_t);

struct ggml_type_traits {
    const char *type_name;        // for example "q4_0"
    int64_t blck_size;            // elements per block; 1: the type has no blocks; 0: the type does not exist
    int64_t blck_size_interleave; // always 0 in Berth
    size_t type_size;             // bytes per block
    bool is_quantized;
    ggml_to_float_t to_float;         // NULL for f32 and for types without a conversion
    ggml_from_float_t from_float_ref; // portable, without an importance matrix; NULL for f32 and for types without it
};

struct ggml_threadpool_params {
    bool cpumask[GGML_MAX_N_THREADS]; // processors that the threads may use; all false: any
    int n_threads;                    // with the calling thread
    enum ggml_sched_priority prio;
    uint32_t poll;   // an idle thread polls for poll * 20 us before it sleeps; 0 to 100
    bool strict_cpu; // true: one processor of cpumask per thread; false: any processor of cpumask
    bool paused;     // the pool starts paused: idle threads sleep without polling until the first graph
};

// Threads that compute graphs on the CPU. ggml-cpu.h has its functions.
struct ggml_threadpool;
typedef struct ggml_threadpool *ggml_threadpool_t;

// ---- errors ----

// Sets the function that ggml_abort() calls with its message, and returns the previous one. With NULL, ggml_abort() prints to
// stderr.
GGML_API ggml_abort_callback_t ggml_set_abort_callback(ggml_abort_callback_t callback);
// Ends the process with abort() after it has reported "file:line: message". Berth's libraries never call it.
GGML_NORETURN GGML_API void ggml_abort(const char *file, int line, const char *fmt, ...) GGML_ATTRIBUTE_FORMAT(3, 4);
// Returns a constant text for a status. Returns "GGML status: unknown" for any other number.
GGML_API const char *ggml_status_to_string(enum ggml_status status);

// ---- number formats ----

// Returns the value of an f16 number. The conversion is exact.
GGML_API float ggml_fp16_to_fp32(ggml_fp16_t);
// Returns the nearest f16 number, ties to even. Values that are too large become infinity.
GGML_API ggml_fp16_t ggml_fp32_to_fp16(float);
// Converts n f16 numbers to f32; n is the last argument.
GGML_API void ggml_fp16_to_fp32_row(const ggml_fp16_t *, float *, int64_t);
// Converts n f32 numbers to f16, as ggml_fp32_to_fp16; n is the last argument.
GGML_API void ggml_fp32_to_fp16_row(const float *, ggml_fp16_t *, int64_t);
// Returns the nearest bf16 number, ties to even. A NaN stays a NaN.
GGML_API ggml_bf16_t ggml_fp32_to_bf16(float);
// Returns the value of a bf16 number. The conversion is exact.
GGML_API float ggml_bf16_to_fp32(ggml_bf16_t);
// Converts n bf16 numbers to f32; n is the last argument.
GGML_API void ggml_bf16_to_fp32_row(const ggml_bf16_t *, float *, int64_t);
// Converts n f32 numbers to bf16, as ggml_fp32_to_bf16; n is the last argument.
GGML_API void ggml_fp32_to_bf16_row_ref(const float *, ggml_bf16_t *, int64_t);
// The same as ggml_fp32_to_bf16_row_ref.
GGML_API void ggml_fp32_to_bf16_row(const float *, ggml_bf16_t *, int64_t);

// ---- identity, clock, files ----

// Returns true if both GUIDs have the same bytes. Returns false if one is NULL.
GGML_API bool ggml_guid_matches(ggml_guid_t guid_a, ggml_guid_t guid_b);
// Returns the version of ggml's API that Berth implements, "0.25.1". berth_version() returns Berth's own version.
GGML_API const char *ggml_version(void);
// Returns "berth-" followed by Berth's version.
GGML_API const char *ggml_commit(void);
// Does nothing. Programs written for ggml call it before they use the clock.
GGML_API void ggml_time_init(void);
// Returns the time of a monotonic clock in milliseconds. Its start is arbitrary: only differences have a meaning.
GGML_API int64_t ggml_time_ms(void);
// As ggml_time_ms, in microseconds.
GGML_API int64_t ggml_time_us(void);
// Returns the processor time of the process, as clock() of the C library does.
GGML_API int64_t ggml_cycles(void);
// Returns the number of ggml_cycles() units per millisecond.
GGML_API int64_t ggml_cycles_per_ms(void);
// Opens a file as fopen() does. The caller closes it with fclose(). Returns NULL on failure and if an argument is NULL.
GGML_API FILE *ggml_fopen(const char *fname, const char *mode);

// ---- queries on tensors and types ----
// For a NULL tensor, and for a number that is not a type, these return 0 or false unless the comment says otherwise. Returned
// strings are constants and need not be freed.

// Logs type, offset and size of an object at level INFO.
GGML_API void ggml_print_object(const struct ggml_object *obj);
// Logs all objects of a context at level INFO, in the order of their creation.
GGML_API void ggml_print_objects(const struct ggml_context *ctx);
// Returns ne[0] * ne[1] * ne[2] * ne[3].
GGML_API int64_t ggml_nelements(const struct ggml_tensor *tensor);
// Returns ne[1] * ne[2] * ne[3].
GGML_API int64_t ggml_nrows(const struct ggml_tensor *tensor);
// Returns the bytes from the first byte of a tensor to its last byte. Gaps between the elements of a strided view count. The
// result is 0 for a tensor without elements, and 2^63 if the strides exceed 63 bits.
GGML_API size_t ggml_nbytes(const struct ggml_tensor *tensor);
// Returns ggml_nbytes() rounded up to a multiple of GGML_MEM_ALIGN.
GGML_API size_t ggml_nbytes_pad(const struct ggml_tensor *tensor);
// Returns the number of elements per block, which is 1 for types without blocks.
GGML_API int64_t ggml_blck_size(enum ggml_type type);
// Returns the bytes of one block, or of one element for types without blocks.
GGML_API size_t ggml_type_size(enum ggml_type type);
// Returns the bytes of ne contiguous elements. ne should be a multiple of the block size; otherwise the result is rounded down.
// Returns 0, with an error, if ne is negative, if the type does not exist, or if the size overflows.
GGML_API size_t ggml_row_size(enum ggml_type type, int64_t ne);
// Returns the average number of bytes per element, for example 0.5625 for q4_0.
GGML_API double ggml_type_sizef(enum ggml_type type);
// Returns the name of a type in lower case, such as "f16" or "q4_0". Returns "NONE" for a number that is not a type.
GGML_API const char *ggml_type_name(enum ggml_type type);
// Returns the name of an op, such as "MUL_MAT". Returns "UNKNOWN" for a number that is not an op.
GGML_API const char *ggml_op_name(enum ggml_op op);
// Returns a short formula of an op, such as "x+y". Returns "?" for a number that is not an op.
GGML_API const char *ggml_op_symbol(enum ggml_op op);
// Returns the name of a unary function, such as "SILU". Returns "UNKNOWN" for any other number.
GGML_API const char *ggml_unary_op_name(enum ggml_unary_op op);
// Returns the name of a gated unit, such as "SWIGLU". Returns "UNKNOWN" for any other number.
GGML_API const char *ggml_glu_op_name(enum ggml_glu_op op);
// Returns the name of a tensor's op. For UNARY and GLU it returns the name of the function. Returns "NONE" for NULL.
GGML_API const char *ggml_op_desc(const struct ggml_tensor *t);
// Returns ggml_type_size() of the tensor's type.
GGML_API size_t ggml_element_size(const struct ggml_tensor *tensor);
// Returns true if the type is a quantised block format.
GGML_API bool ggml_is_quantized(enum ggml_type type);
// Returns the type of most tensors in a file of type ftype. Returns GGML_TYPE_COUNT, with an error, if no single type belongs to
// ftype.
GGML_API enum ggml_type ggml_ftype_to_ggml_type(enum ggml_ftype ftype);
// Returns true if nb[0] > nb[1], as for the result of ggml_transpose().
GGML_API bool ggml_is_transposed(const struct ggml_tensor *tensor);
// Returns true if a stride is larger than the stride of the next dimension: nb[0] > nb[1], nb[1] > nb[2] or nb[2] > nb[3].
GGML_API bool ggml_is_permuted(const struct ggml_tensor *tensor);
// Returns true if the tensor has no elements: one of its extents is 0.
GGML_API bool ggml_is_empty(const struct ggml_tensor *tensor);
// Returns true if the tensor uses the memory of another tensor (view_src).
GGML_API bool ggml_is_view(const struct ggml_tensor *tensor);
// Returns true if the tensor has exactly one element.
GGML_API bool ggml_is_scalar(const struct ggml_tensor *tensor);
// Returns true if ne[1], ne[2] and ne[3] are 1. A scalar is a vector, too.
GGML_API bool ggml_is_vector(const struct ggml_tensor *tensor);
// Returns true if ne[2] and ne[3] are 1. A vector is a matrix, too.
GGML_API bool ggml_is_matrix(const struct ggml_tensor *tensor);
// Returns true if ne[3] is 1. A matrix is 3d, too.
GGML_API bool ggml_is_3d(const struct ggml_tensor *tensor);
// Returns the number of dimensions, 1 to 4. Trailing extents of 0 or 1 do not count. Returns 0 for NULL.
GGML_API int ggml_n_dims(const struct ggml_tensor *tensor);
// Returns true if the elements follow each other without gaps in the order of the dimensions. Strides of dimensions of extent 1
// are ignored.
GGML_API bool ggml_is_contiguous(const struct ggml_tensor *tensor);
// The same as ggml_is_contiguous.
GGML_API bool ggml_is_contiguous_0(const struct ggml_tensor *tensor);
// As ggml_is_contiguous, but the stride nb[1] is arbitrary: there may be gaps between rows.
GGML_API bool ggml_is_contiguous_1(const struct ggml_tensor *tensor);
// As ggml_is_contiguous, but the strides nb[1] and nb[2] are arbitrary.
GGML_API bool ggml_is_contiguous_2(const struct ggml_tensor *tensor);
// Returns true if dimension 0 is contiguous. The strides of dimensions 1 to 3 are ignored.
GGML_API bool ggml_is_contiguous_to_1(const struct ggml_tensor *tensor);
// Returns true if dimensions 0 and 1 are contiguous. The strides of dimensions 2 and 3 are ignored.
GGML_API bool ggml_is_contiguous_to_2(const struct ggml_tensor *tensor);
// Returns true if dimensions 0 to 2 are contiguous. The stride of dimension 3 is ignored.
GGML_API bool ggml_is_contiguous_to_3(const struct ggml_tensor *tensor);
// Returns true if the tensor's bytes have no gaps. The dimensions may be in any order.
GGML_API bool ggml_is_contiguously_allocated(const struct ggml_tensor *tensor);
// Returns true if dimension 2 is contiguous, followed by dimension 0, then 1: nb[2] is the element size, and nb[2] < nb[0] <
// nb[1].
GGML_API bool ggml_is_contiguous_channels(const struct ggml_tensor *tensor);
// Returns true if the elements of each row are contiguous. The strides of dimensions 1 to 3 are ignored.
GGML_API bool ggml_is_contiguous_rows(const struct ggml_tensor *tensor);
// Returns true if all four extents are equal.
GGML_API bool ggml_are_same_shape(const struct ggml_tensor *t0, const struct ggml_tensor *t1);
// Returns true if all four strides are equal.
GGML_API bool ggml_are_same_stride(const struct ggml_tensor *t0, const struct ggml_tensor *t1);
// Returns true if each extent of t1 is a multiple of the same extent of t0. An empty t0 repeats only into an empty t1.
GGML_API bool ggml_can_repeat(const struct ggml_tensor *t0, const struct ggml_tensor *t1);
// Returns the bytes that one tensor takes in a context, without its data. It helps to compute mem_size of ggml_init_params.
GGML_API size_t ggml_tensor_overhead(void);
// Returns true if nbytes bytes of data are blocks of the type without NaN and infinity. Floats and the scales of blocks are
// checked. Returns false, with an error, also if nbytes is not a multiple of ggml_type_size() or if the type does not occur in
// files (q8_1).
GGML_API bool ggml_validate_row_data(enum ggml_type type, const void *data, size_t nbytes);

// ---- contexts ----
// A context is an arena: it has a fixed amount of memory, and new objects follow each other in it. One tensor takes
// ggml_tensor_overhead() bytes. Its data takes further bytes, unless no_alloc is set. Memory of backend buffers does not belong
// to a context.

// Creates a context with params.mem_size bytes of memory. Returns NULL, with an error, if memory is unavailable. The caller frees
// the context with ggml_free(). Threads may call ggml_init() concurrently.
GGML_API struct ggml_context *ggml_init(struct ggml_init_params params) GGML_OF_MAX_NAME("ggml_init");
// Removes all objects and the error of a context, and keeps its memory for new objects. Pointers to the old objects become
// invalid.
GGML_API void ggml_reset(struct ggml_context *ctx);
// Frees a context with all its tensors and graphs. It does not free params.mem_buffer that the caller passed to ggml_init(), nor
// buffers of backends. NULL is allowed.
GGML_API void ggml_free(struct ggml_context *ctx);
// Returns the bytes of the context's memory that objects occupy.
GGML_API size_t ggml_used_mem(const struct ggml_context *ctx);
// Returns whether new tensors have no data. Returns false for NULL.
GGML_API bool ggml_get_no_alloc(struct ggml_context *ctx);
// Sets whether tensors that are created from now on have no data. Existing tensors do not change.
GGML_API void ggml_set_no_alloc(struct ggml_context *ctx, bool no_alloc);
// Returns the start of the context's memory: the caller's mem_buffer, or the memory that ggml_init() allocated.
GGML_API void *ggml_get_mem_buffer(const struct ggml_context *ctx);
// Returns the bytes that the context can use. It is less than mem_size if the caller's mem_buffer is not aligned to
// GGML_MEM_ALIGN.
GGML_API size_t ggml_get_mem_size(const struct ggml_context *ctx);
// Returns ggml_nbytes() of the largest tensor in the context. Returns 0 if there is none.
GGML_API size_t ggml_get_max_tensor_size(const struct ggml_context *ctx);

// ---- tensors ----

// Creates a contiguous tensor with the extents ne[0] to ne[n_dims - 1]; n_dims is 1 to 4, and further extents are 1. Its data is
// not initialised, and NULL in a no_alloc context. ne[0] must be a multiple of the type's block size. No extent may be negative.
GGML_API struct ggml_tensor *ggml_new_tensor(struct ggml_context *ctx, enum ggml_type type, int n_dims, const int64_t *ne);
// As ggml_new_tensor, with the shape [ne0].
GGML_API struct ggml_tensor *ggml_new_tensor_1d(struct ggml_context *ctx, enum ggml_type type, int64_t ne0);
// As ggml_new_tensor, with the shape [ne0, ne1].
GGML_API struct ggml_tensor *ggml_new_tensor_2d(struct ggml_context *ctx, enum ggml_type type, int64_t ne0, int64_t ne1);
// As ggml_new_tensor, with the shape [ne0, ne1, ne2].
GGML_API struct ggml_tensor *ggml_new_tensor_3d(
    struct ggml_context *ctx, enum ggml_type type, int64_t ne0, int64_t ne1, int64_t ne2);
// As ggml_new_tensor, with the shape [ne0, ne1, ne2, ne3].
GGML_API struct ggml_tensor *ggml_new_tensor_4d(
    struct ggml_context *ctx, enum ggml_type type, int64_t ne0, int64_t ne1, int64_t ne2, int64_t ne3);
// Returns nbytes bytes of the context's memory, aligned to GGML_MEM_ALIGN, also in a no_alloc context. Returns NULL if the
// context is NULL or, with an error, if it is full.
GGML_API void *ggml_new_buffer(struct ggml_context *ctx, size_t nbytes);
// Creates a contiguous tensor with the type and shape of src. Data, name and op of src are not copied.
GGML_API struct ggml_tensor *ggml_dup_tensor(struct ggml_context *ctx, const struct ggml_tensor *src);
// Creates a tensor with the type, shape, strides and memory of src, named "<name of src> (view)". It has no op: in a graph it
// does not depend on the op that computes src.
GGML_API struct ggml_tensor *ggml_view_tensor(struct ggml_context *ctx, struct ggml_tensor *src);
// Returns the tensor that was created first in the context. Returns NULL if there is none.
GGML_API struct ggml_tensor *ggml_get_first_tensor(const struct ggml_context *ctx);
// Returns the tensor that was created next after tensor. tensor must belong to ctx. Returns NULL after the last one.
GGML_API struct ggml_tensor *ggml_get_next_tensor(const struct ggml_context *ctx, struct ggml_tensor *tensor);
// Returns the first tensor in the context with this name. Returns NULL if there is none. The search is linear.
GGML_API struct ggml_tensor *ggml_get_tensor(struct ggml_context *ctx, const char *name);
// Computes the indices of element i: i = i0 + ne[0] * (i1 + ne[1] * (i2 + ne[2] * i3)). Output pointers may be NULL.
GGML_API void ggml_unravel_index(const struct ggml_tensor *tensor, int64_t i, int64_t *i0, int64_t *i1, int64_t *i2, int64_t *i3);
// Returns the function of a UNARY tensor. Returns GGML_UNARY_OP_COUNT for any other tensor, and sets berth_last_error().
GGML_API enum ggml_unary_op ggml_get_unary_op(const struct ggml_tensor *tensor);
// Returns the function of a GLU tensor. Returns GGML_GLU_OP_COUNT for any other tensor, and sets berth_last_error().
GGML_API enum ggml_glu_op ggml_get_glu_op(const struct ggml_tensor *tensor);
// Returns tensor->data, which is NULL while the tensor has no memory. In a device's buffer it may be an address of that device.
GGML_API void *ggml_get_data(const struct ggml_tensor *tensor);
// As ggml_get_data, for f32 tensors. Returns NULL, with an error, for any other type.
GGML_API float *ggml_get_data_f32(const struct ggml_tensor *tensor);
// Returns the name stored in the tensor, or "" for NULL.
GGML_API const char *ggml_get_name(const struct ggml_tensor *tensor);
// Copies at most GGML_MAX_NAME - 1 bytes of name into the tensor and returns the tensor. Poison is not changed.
GGML_API struct ggml_tensor *ggml_set_name(struct ggml_tensor *tensor, const char *name);
// As ggml_set_name, with a printf-style format.
GGML_API struct ggml_tensor *ggml_format_name(struct ggml_tensor *tensor, const char *fmt, ...) GGML_ATTRIBUTE_FORMAT(2, 3);
// Marks a tensor that the program writes before a graph runs. A graph allocator assigns its memory before the first node, and
// inputs do not share memory with each other.
GGML_API void ggml_set_input(struct ggml_tensor *tensor);
// Marks a tensor that the program reads after a graph ran. A graph allocator does not reuse its memory for other tensors of the
// graph. If tensor is a view, the tensor that has the memory is marked, too.
GGML_API void ggml_set_output(struct ggml_tensor *tensor);
// Marks a trainable parameter: ggml_build_backward_expand() computes its gradient. The tensor must not be the result of an op;
// otherwise nothing changes and an error is logged.
GGML_API void ggml_set_param(struct ggml_tensor *tensor);
// Marks the tensor that training minimises. It must be one f32 element; otherwise nothing changes and an error is logged.
GGML_API void ggml_set_loss(struct ggml_tensor *tensor);

// ---- element-wise ops ----
// The result has the type and shape of a, unless the comment says otherwise. In formulas, x is an element of a and y is the
// element of b for the same indices. Where b may be smaller than a, each extent of b must divide the same extent of a, and b
// repeats along that dimension: ggml_can_repeat(b, a). Berth's CPU and CUDA backends accept f32, f16 and bf16 in any combination,
// with any strides, and compute in f32.

// result = x: a contiguous copy of a, which may have any type.
GGML_API struct ggml_tensor *ggml_dup(struct ggml_context *ctx, struct ggml_tensor *a);
// As ggml_dup, and the result shares a's memory.
GGML_API struct ggml_tensor *ggml_dup_inplace(struct ggml_context *ctx, struct ggml_tensor *a);
// result = x + y. b repeats to the shape of a. The CPU backend also accepts a quantised a with an f32 b.
GGML_API struct ggml_tensor *ggml_add(struct ggml_context *ctx, struct ggml_tensor *a, struct ggml_tensor *b);
// As ggml_add, and the result shares a's memory.
GGML_API struct ggml_tensor *ggml_add_inplace(struct ggml_context *ctx, struct ggml_tensor *a, struct ggml_tensor *b);
// result = x + y, converted to type. a must be quantised, f16 or bf16. b repeats to the shape of a, but b.ne[0] must equal
// a.ne[0].
GGML_API struct ggml_tensor *ggml_add_cast(
    struct ggml_context *ctx, struct ggml_tensor *a, struct ggml_tensor *b, enum ggml_type type);
// result[:, i, j, l] = a[:, i, j, l] + b[:, ids[i, j]] for a [n, k, t, r], b [n, m] and i32 ids [k, t]. ids has values from 0
// to m - 1. The CPU backend fails the computation at any other value.
GGML_API struct ggml_tensor *ggml_add_id(
    struct ggml_context *ctx, struct ggml_tensor *a, struct ggml_tensor *b, struct ggml_tensor *ids);
// result = x + b[0], where b has one element. a must be contiguous, except that there may be gaps between rows.
GGML_API struct ggml_tensor *ggml_add1(struct ggml_context *ctx, struct ggml_tensor *a, struct ggml_tensor *b);
// As ggml_add1, and the result shares a's memory.
GGML_API struct ggml_tensor *ggml_add1_inplace(struct ggml_context *ctx, struct ggml_tensor *a, struct ggml_tensor *b);
// The result is a copy of a with b added to a part of it. Element b[i0, i1, i2, i3] is added to the element of a at byte
// offset + 4 * i0 + nb1 * i1 + nb2 * i2 + nb3 * i3. a and b are f32, a is contiguous, and b has no more elements than a. The
// offset, and the strides that b uses, are below 2^31. Backends, not the constructor, check that the part is inside a.
GGML_API struct ggml_tensor *ggml_acc(
    struct ggml_context *ctx, struct ggml_tensor *a, struct ggml_tensor *b, size_t nb1, size_t nb2, size_t nb3, size_t offset);
// As ggml_acc, and the result shares a's memory: b is added to a itself.
GGML_API struct ggml_tensor *ggml_acc_inplace(
    struct ggml_context *ctx, struct ggml_tensor *a, struct ggml_tensor *b, size_t nb1, size_t nb2, size_t nb3, size_t offset);
// result = x - y. b repeats to the shape of a.
GGML_API struct ggml_tensor *ggml_sub(struct ggml_context *ctx, struct ggml_tensor *a, struct ggml_tensor *b);
// As ggml_sub, and the result shares a's memory.
GGML_API struct ggml_tensor *ggml_sub_inplace(struct ggml_context *ctx, struct ggml_tensor *a, struct ggml_tensor *b);
// result = x * y. b repeats to the shape of a.
GGML_API struct ggml_tensor *ggml_mul(struct ggml_context *ctx, struct ggml_tensor *a, struct ggml_tensor *b);
// As ggml_mul, and the result shares a's memory.
GGML_API struct ggml_tensor *ggml_mul_inplace(struct ggml_context *ctx, struct ggml_tensor *a, struct ggml_tensor *b);
// result = x / y. b repeats to the shape of a.
GGML_API struct ggml_tensor *ggml_div(struct ggml_context *ctx, struct ggml_tensor *a, struct ggml_tensor *b);
// As ggml_div, and the result shares a's memory.
GGML_API struct ggml_tensor *ggml_div_inplace(struct ggml_context *ctx, struct ggml_tensor *a, struct ggml_tensor *b);
// result = x * x.
GGML_API struct ggml_tensor *ggml_sqr(struct ggml_context *ctx, struct ggml_tensor *a);
// As ggml_sqr, and the result shares a's memory.
GGML_API struct ggml_tensor *ggml_sqr_inplace(struct ggml_context *ctx, struct ggml_tensor *a);
// result = sqrt(x).
GGML_API struct ggml_tensor *ggml_sqrt(struct ggml_context *ctx, struct ggml_tensor *a);
// As ggml_sqrt, and the result shares a's memory.
GGML_API struct ggml_tensor *ggml_sqrt_inplace(struct ggml_context *ctx, struct ggml_tensor *a);
// result = log(x), the natural logarithm.
GGML_API struct ggml_tensor *ggml_log(struct ggml_context *ctx, struct ggml_tensor *a);
// As ggml_log, and the result shares a's memory.
GGML_API struct ggml_tensor *ggml_log_inplace(struct ggml_context *ctx, struct ggml_tensor *a);
// result = exp(x) - 1, precise also for x near 0. The rows of a must be contiguous (ggml_is_contiguous_rows).
GGML_API struct ggml_tensor *ggml_expm1(struct ggml_context *ctx, struct ggml_tensor *a);
// As ggml_expm1, and the result shares a's memory.
GGML_API struct ggml_tensor *ggml_expm1_inplace(struct ggml_context *ctx, struct ggml_tensor *a);
// result = log(1 + exp(x)), and x if x > 20. The rows of a must be contiguous (ggml_is_contiguous_rows).
GGML_API struct ggml_tensor *ggml_softplus(struct ggml_context *ctx, struct ggml_tensor *a);
// As ggml_softplus, and the result shares a's memory.
GGML_API struct ggml_tensor *ggml_softplus_inplace(struct ggml_context *ctx, struct ggml_tensor *a);
// result = sin(x), x in radians.
GGML_API struct ggml_tensor *ggml_sin(struct ggml_context *ctx, struct ggml_tensor *a);
// As ggml_sin, and the result shares a's memory.
GGML_API struct ggml_tensor *ggml_sin_inplace(struct ggml_context *ctx, struct ggml_tensor *a);
// result = cos(x), x in radians.
GGML_API struct ggml_tensor *ggml_cos(struct ggml_context *ctx, struct ggml_tensor *a);
// As ggml_cos, and the result shares a's memory.
GGML_API struct ggml_tensor *ggml_cos_inplace(struct ggml_context *ctx, struct ggml_tensor *a);

// ---- reductions and repetition ----
// The shape of a is [n, m, k, l]. Berth's CPU and CUDA backends reduce f32, f16 and bf16 tensors with any strides.

// The result [1] is the sum of all elements, in the type of a.
GGML_API struct ggml_tensor *ggml_sum(struct ggml_context *ctx, struct ggml_tensor *a);
// The result [1, m, k, l] has the sum of each row, in the type of a.
GGML_API struct ggml_tensor *ggml_sum_rows(struct ggml_context *ctx, struct ggml_tensor *a);
// The result has the shape of a: result[i] = a[0] + ... + a[i] along each row. a must be f32.
GGML_API struct ggml_tensor *ggml_cumsum(struct ggml_context *ctx, struct ggml_tensor *a);
// The result [1, m, k, l] has the mean of each row, in f32.
GGML_API struct ggml_tensor *ggml_mean(struct ggml_context *ctx, struct ggml_tensor *a);
// For a matrix a [n, m], the i32 result [m] has the index of the largest element of each row. Of several equal maxima it has the
// last one.
GGML_API struct ggml_tensor *ggml_argmax(struct ggml_context *ctx, struct ggml_tensor *a);
// The i64 result [1] is the number of positions at which a and b have the same value. a and b have the same shape. Berth's
// backends require i32.
GGML_API struct ggml_tensor *ggml_count_equal(struct ggml_context *ctx, struct ggml_tensor *a, struct ggml_tensor *b);
// The result has the type of a and the shape of b: it is a, repeated along each dimension. Each extent of b must be a multiple of
// the same extent of a (ggml_can_repeat). Only the shape of b is used. a may have any type.
GGML_API struct ggml_tensor *ggml_repeat(struct ggml_context *ctx, struct ggml_tensor *a, struct ggml_tensor *b);
// As ggml_repeat, with the result shape [ne0, ne1, ne2, ne3].
GGML_API struct ggml_tensor *ggml_repeat_4d(
    struct ggml_context *ctx, struct ggml_tensor *a, int64_t ne0, int64_t ne1, int64_t ne2, int64_t ne3);
// The reverse of ggml_repeat: the result has the shape of b, and each element is the sum of the elements of a that repeat it.
// Each extent of a must be a multiple of the same extent of b. Only the shape of b is used. Berth's backends require f32.
GGML_API struct ggml_tensor *ggml_repeat_back(struct ggml_context *ctx, struct ggml_tensor *a, struct ggml_tensor *b);
// The result has the elements of a, followed by those of b along dimension dim (0 to 3). a and b have the same extents except
// ne[dim]. They have the same type, which may be any type.
GGML_API struct ggml_tensor *ggml_concat(struct ggml_context *ctx, struct ggml_tensor *a, struct ggml_tensor *b, int dim);

// ---- unary functions ----
// Rules and types are those of the element-wise ops: x is an element of a, and the result has the type and shape of a. In
// addition, the rows of a must be contiguous (ggml_is_contiguous_rows), except for ggml_leaky_relu, ggml_silu_back and
// ggml_xielu. sigmoid(x) is 1 / (1 + exp(-x)).

// result = |x|.
GGML_API struct ggml_tensor *ggml_abs(struct ggml_context *ctx, struct ggml_tensor *a);
// As ggml_abs, and the result shares a's memory.
GGML_API struct ggml_tensor *ggml_abs_inplace(struct ggml_context *ctx, struct ggml_tensor *a);
// result = 1 if x > 0, -1 if x < 0, else 0.
GGML_API struct ggml_tensor *ggml_sgn(struct ggml_context *ctx, struct ggml_tensor *a);
// As ggml_sgn, and the result shares a's memory.
GGML_API struct ggml_tensor *ggml_sgn_inplace(struct ggml_context *ctx, struct ggml_tensor *a);
// result = -x.
GGML_API struct ggml_tensor *ggml_neg(struct ggml_context *ctx, struct ggml_tensor *a);
// As ggml_neg, and the result shares a's memory.
GGML_API struct ggml_tensor *ggml_neg_inplace(struct ggml_context *ctx, struct ggml_tensor *a);
// result = 1 if x > 0, else 0.
GGML_API struct ggml_tensor *ggml_step(struct ggml_context *ctx, struct ggml_tensor *a);
// As ggml_step, and the result shares a's memory.
GGML_API struct ggml_tensor *ggml_step_inplace(struct ggml_context *ctx, struct ggml_tensor *a);
// result = tanh(x).
GGML_API struct ggml_tensor *ggml_tanh(struct ggml_context *ctx, struct ggml_tensor *a);
// As ggml_tanh, and the result shares a's memory.
GGML_API struct ggml_tensor *ggml_tanh_inplace(struct ggml_context *ctx, struct ggml_tensor *a);
// result = x if x > 0, else exp(x) - 1.
GGML_API struct ggml_tensor *ggml_elu(struct ggml_context *ctx, struct ggml_tensor *a);
// As ggml_elu, and the result shares a's memory.
GGML_API struct ggml_tensor *ggml_elu_inplace(struct ggml_context *ctx, struct ggml_tensor *a);
// result = max(x, 0).
GGML_API struct ggml_tensor *ggml_relu(struct ggml_context *ctx, struct ggml_tensor *a);
// result = max(x, 0) + negative_slope * min(x, 0). If inplace is true, the result shares a's memory.
GGML_API struct ggml_tensor *ggml_leaky_relu(struct ggml_context *ctx, struct ggml_tensor *a, float negative_slope, bool inplace);
// As ggml_relu, and the result shares a's memory.
GGML_API struct ggml_tensor *ggml_relu_inplace(struct ggml_context *ctx, struct ggml_tensor *a);
// result = sigmoid(x).
GGML_API struct ggml_tensor *ggml_sigmoid(struct ggml_context *ctx, struct ggml_tensor *a);
// As ggml_sigmoid, and the result shares a's memory.
GGML_API struct ggml_tensor *ggml_sigmoid_inplace(struct ggml_context *ctx, struct ggml_tensor *a);
// result = 0.5 * x * (1 + tanh(sqrt(2 / pi) * (x + 0.044715 * x^3))). Where |x| < 10, the CPU backend rounds x and the
// result to f16.
GGML_API struct ggml_tensor *ggml_gelu(struct ggml_context *ctx, struct ggml_tensor *a);
// As ggml_gelu, and the result shares a's memory.
GGML_API struct ggml_tensor *ggml_gelu_inplace(struct ggml_context *ctx, struct ggml_tensor *a);
// result = 0.5 * x * (1 + erf(x / sqrt(2))).
GGML_API struct ggml_tensor *ggml_gelu_erf(struct ggml_context *ctx, struct ggml_tensor *a);
// As ggml_gelu_erf, and the result shares a's memory.
GGML_API struct ggml_tensor *ggml_gelu_erf_inplace(struct ggml_context *ctx, struct ggml_tensor *a);
// result = x * sigmoid(1.702 * x). The CPU backend rounds x and the result to f16.
GGML_API struct ggml_tensor *ggml_gelu_quick(struct ggml_context *ctx, struct ggml_tensor *a);
// As ggml_gelu_quick, and the result shares a's memory.
GGML_API struct ggml_tensor *ggml_gelu_quick_inplace(struct ggml_context *ctx, struct ggml_tensor *a);
// result = x * sigmoid(x).
GGML_API struct ggml_tensor *ggml_silu(struct ggml_context *ctx, struct ggml_tensor *a);
// As ggml_silu, and the result shares a's memory.
GGML_API struct ggml_tensor *ggml_silu_inplace(struct ggml_context *ctx, struct ggml_tensor *a);
// The gradient of ggml_silu: result = a * s * (1 + b * (1 - s)), where s = sigmoid(b). a is the gradient of the result of
// ggml_silu, and b is the operand of ggml_silu. a and b have the same shape, which the constructor does not check.
GGML_API struct ggml_tensor *ggml_silu_back(struct ggml_context *ctx, struct ggml_tensor *a, struct ggml_tensor *b);
// result = x * min(1, max(0, (x + 3) / 6)).
GGML_API struct ggml_tensor *ggml_hardswish(struct ggml_context *ctx, struct ggml_tensor *a);
// result = min(1, max(0, (x + 3) / 6)).
GGML_API struct ggml_tensor *ggml_hardsigmoid(struct ggml_context *ctx, struct ggml_tensor *a);
// result = exp(x).
GGML_API struct ggml_tensor *ggml_exp(struct ggml_context *ctx, struct ggml_tensor *a);
// As ggml_exp, and the result shares a's memory.
GGML_API struct ggml_tensor *ggml_exp_inplace(struct ggml_context *ctx, struct ggml_tensor *a);
// result = the largest integer that is not above x.
GGML_API struct ggml_tensor *ggml_floor(struct ggml_context *ctx, struct ggml_tensor *a);
// As ggml_floor, and the result shares a's memory.
GGML_API struct ggml_tensor *ggml_floor_inplace(struct ggml_context *ctx, struct ggml_tensor *a);
// result = the smallest integer that is not below x.
GGML_API struct ggml_tensor *ggml_ceil(struct ggml_context *ctx, struct ggml_tensor *a);
// As ggml_ceil, and the result shares a's memory.
GGML_API struct ggml_tensor *ggml_ceil_inplace(struct ggml_context *ctx, struct ggml_tensor *a);
// result = the integer nearest to x. Ties round away from 0.
GGML_API struct ggml_tensor *ggml_round(struct ggml_context *ctx, struct ggml_tensor *a);
// As ggml_round, and the result shares a's memory.
GGML_API struct ggml_tensor *ggml_round_inplace(struct ggml_context *ctx, struct ggml_tensor *a);
// result = x without its fraction, rounded toward 0.
GGML_API struct ggml_tensor *ggml_trunc(struct ggml_context *ctx, struct ggml_tensor *a);
// As ggml_trunc, and the result shares a's memory.
GGML_API struct ggml_tensor *ggml_trunc_inplace(struct ggml_context *ctx, struct ggml_tensor *a);
// If x > 0, result = p * x^2 + beta * x. Otherwise result = n * (exp(min(x, eps)) - 1 - x) + beta * x. p is softplus(alpha_p),
// and n is beta + softplus(alpha_n).
GGML_API struct ggml_tensor *ggml_xielu(
    struct ggml_context *ctx, struct ggml_tensor *a, float alpha_n, float alpha_p, float beta, float eps);

// ---- gated units ----
// How to read the comments from here to the end of the file:
// - A shape is written in ggml's order, `[ne0, ne1, ne2, ne3]`. Extents that are not written are 1. `...` stands for the
//   remaining extents, which are equal in all tensors of that line. `a [k, m]` -> `[m]`: the shape of a, then of the result.
// - A row is the elements along ne0. The result is y. The result has the type of a and its own memory unless stated.
// - "As X, and the result shares a's memory" means that the result is a view of a, so that computing it overwrites a.
// - The constructor checks the rules on types and shapes unless stated. A backend may support fewer types than a constructor
//   accepts: ggml_backend_supports_op returns whether a backend can compute a tensor.
//
// A gated unit computes y = act(x) * g on each element. act is ReLU (reglu), GELU by tanh (geglu), SiLU (swiglu), GELU by erf
// (geglu_erf) or x * sigmoid(1.702 * x) (geglu_quick).
// One operand: `a [2 * n, ...]` -> `[n, ...]`. x is the first half of each row of a, and g is the second half.
// Two operands: `a [n, ...]`, `b [n, ...]` -> `[n, ...]`. x is a, and g is b; both have the same type. If b is NULL, a is
// divided as with one operand. ggml_is_contiguous_1 must be true for a and b.

// Computes the gated unit op with one operand. swapped: x is the second half of each row, and g is the first half.
// ggml_swiglu_oai and ggml_swiglu_clamp set the parameters of GGML_GLU_OP_SWIGLU_OAI and _CLAMP; here these are 0.
GGML_API struct ggml_tensor *ggml_glu(struct ggml_context *ctx, struct ggml_tensor *a, enum ggml_glu_op op, bool swapped);
// y = relu(x) * g, with one operand.
GGML_API struct ggml_tensor *ggml_reglu(struct ggml_context *ctx, struct ggml_tensor *a);
// As ggml_reglu, and x is the second half of each row.
GGML_API struct ggml_tensor *ggml_reglu_swapped(struct ggml_context *ctx, struct ggml_tensor *a);
// y = gelu(x) * g, with one operand and the tanh formula of GELU. The CPU backend rounds gelu(x) to f16 where |x| < 10.
GGML_API struct ggml_tensor *ggml_geglu(struct ggml_context *ctx, struct ggml_tensor *a);
// As ggml_geglu, and x is the second half of each row.
GGML_API struct ggml_tensor *ggml_geglu_swapped(struct ggml_context *ctx, struct ggml_tensor *a);
// y = silu(x) * g, with one operand; silu(x) = x / (1 + exp(-x)).
GGML_API struct ggml_tensor *ggml_swiglu(struct ggml_context *ctx, struct ggml_tensor *a);
// As ggml_swiglu, and x is the second half of each row.
GGML_API struct ggml_tensor *ggml_swiglu_swapped(struct ggml_context *ctx, struct ggml_tensor *a);
// y = gelu_erf(x) * g, with one operand; gelu_erf(x) = x / 2 * (1 + erf(x / sqrt(2))).
GGML_API struct ggml_tensor *ggml_geglu_erf(struct ggml_context *ctx, struct ggml_tensor *a);
// As ggml_geglu_erf, and x is the second half of each row.
GGML_API struct ggml_tensor *ggml_geglu_erf_swapped(struct ggml_context *ctx, struct ggml_tensor *a);
// y = x * sigmoid(1.702 * x) * g, with one operand. The CPU backend rounds x * sigmoid(1.702 * x) to f16.
GGML_API struct ggml_tensor *ggml_geglu_quick(struct ggml_context *ctx, struct ggml_tensor *a);
// As ggml_geglu_quick, and x is the second half of each row.
GGML_API struct ggml_tensor *ggml_geglu_quick_swapped(struct ggml_context *ctx, struct ggml_tensor *a);
// Computes the gated unit op with two operands: y = act(a) * b.
GGML_API struct ggml_tensor *ggml_glu_split(
    struct ggml_context *ctx, struct ggml_tensor *a, struct ggml_tensor *b, enum ggml_glu_op op);
// As ggml_reglu, with two operands: y = relu(a) * b.
GGML_API struct ggml_tensor *ggml_reglu_split(struct ggml_context *ctx, struct ggml_tensor *a, struct ggml_tensor *b);
// As ggml_geglu, with two operands: y = gelu(a) * b.
GGML_API struct ggml_tensor *ggml_geglu_split(struct ggml_context *ctx, struct ggml_tensor *a, struct ggml_tensor *b);
// As ggml_swiglu, with two operands: y = silu(a) * b.
GGML_API struct ggml_tensor *ggml_swiglu_split(struct ggml_context *ctx, struct ggml_tensor *a, struct ggml_tensor *b);
// As ggml_geglu_erf, with two operands: y = gelu_erf(a) * b.
GGML_API struct ggml_tensor *ggml_geglu_erf_split(struct ggml_context *ctx, struct ggml_tensor *a, struct ggml_tensor *b);
// As ggml_geglu_quick, with two operands: y = a * sigmoid(1.702 * a) * b.
GGML_API struct ggml_tensor *ggml_geglu_quick_split(struct ggml_context *ctx, struct ggml_tensor *a, struct ggml_tensor *b);
// y = v * sigmoid(alpha * v) * (u + 1), with two operands; v = min(a, limit), and u is b clamped to -limit .. limit.
GGML_API struct ggml_tensor *ggml_swiglu_oai(
    struct ggml_context *ctx, struct ggml_tensor *a, struct ggml_tensor *b, float alpha, float limit);
// y = silu(v) * u, with two operands; v = min(a, limit), and u is b clamped to -limit .. limit.
GGML_API struct ggml_tensor *ggml_swiglu_clamp(
    struct ggml_context *ctx, struct ggml_tensor *a, struct ggml_tensor *b, float limit);

// ---- normalisation ----
// The result has the shape and the type of a. The constructors accept every type; the CPU backend computes f32.
// eps is a small positive number that prevents a division by 0.

// y = (x - mean) / sqrt(variance + eps) for each row x of a. The variance is the mean of (x - mean)^2.
GGML_API struct ggml_tensor *ggml_norm(struct ggml_context *ctx, struct ggml_tensor *a, float eps);
// As ggml_norm, and the result shares a's memory.
GGML_API struct ggml_tensor *ggml_norm_inplace(struct ggml_context *ctx, struct ggml_tensor *a, float eps);
// y = x / sqrt(mean(x^2) + eps) for each row x of a.
GGML_API struct ggml_tensor *ggml_rms_norm(struct ggml_context *ctx, struct ggml_tensor *a, float eps);
// As ggml_rms_norm, and the result shares a's memory.
GGML_API struct ggml_tensor *ggml_rms_norm_inplace(struct ggml_context *ctx, struct ggml_tensor *a, float eps);
// As ggml_norm, over groups of channels: `a [w, h, c, n]`. A group is ceil(c / n_groups) consecutive channels of one image.
// The last group may have fewer channels. All w * h elements of all channels of a group share one mean and one variance.
GGML_API struct ggml_tensor *ggml_group_norm(struct ggml_context *ctx, struct ggml_tensor *a, int n_groups, float eps);
// As ggml_group_norm, and the result shares a's memory.
GGML_API struct ggml_tensor *ggml_group_norm_inplace(struct ggml_context *ctx, struct ggml_tensor *a, int n_groups, float eps);
// y = x / max(sqrt(sum(x^2)), eps) for each row x of a.
GGML_API struct ggml_tensor *ggml_l2_norm(struct ggml_context *ctx, struct ggml_tensor *a, float eps);
// As ggml_l2_norm, and the result shares a's memory.
GGML_API struct ggml_tensor *ggml_l2_norm_inplace(struct ggml_context *ctx, struct ggml_tensor *a, float eps);
// Computes the gradient of ggml_rms_norm by its input: a is the gradient d of the result, b is the input x, and eps is that
// of the forward op. y = (d - x * sum(x * d) / (sum(x^2) + n * eps)) / sqrt(mean(x^2) + eps) for each row of n elements.
// The constructor does not compare the shapes of a and b, but a backend requires that they are equal.
GGML_API struct ggml_tensor *ggml_rms_norm_back(
    struct ggml_context *ctx, struct ggml_tensor *a, struct ggml_tensor *b, float eps);

// ---- products ----
// Results are f32. ggml_mul_mat and ggml_mul_mat_id multiply rows, ggml_out_prod multiplies columns.

// y[i, j] = sum over l of a[l, i] * b[l, j]: `a [k, m, a2, a3]`, `b [k, n, b2, b3]` -> f32 `[m, n, b2, b3]`.
// a may be quantised. a must not be transposed: nb[0] <= nb[1]. b2 is a multiple of a2, and b3 of a3: consecutive batches of b
// share a batch of a, so batch i of b is multiplied with batch i / (b2 / a2) of a.
GGML_API struct ggml_tensor *ggml_mul_mat(struct ggml_context *ctx, struct ggml_tensor *a, struct ggml_tensor *b);
// Sets the lowest precision that a backend may use for the sums of a, the result of ggml_mul_mat, ggml_mul_mat_id or
// ggml_flash_attn_ext. Returns false and changes nothing if a is the result of another op, poison or NULL.
// The precision is a field of the tensor; Berth's CPU and CUDA backends do not read it.
GGML_API bool ggml_prec_set_acc(struct ggml_tensor *a, enum ggml_prec prec);
// Sets the lowest precision to which a backend may convert source idx of a before it computes. Only source 1 (b) of
// ggml_mul_mat and ggml_mul_mat_id has this precision. Returns false and changes nothing for every other source or op.
GGML_API bool ggml_prec_set_src(struct ggml_tensor *a, enum ggml_prec prec, int idx);
// As ggml_prec_set_acc, for results of ggml_mul_mat only. For another op it reports an error and changes nothing.
GGML_API void ggml_mul_mat_set_prec(struct ggml_tensor *a, enum ggml_prec prec);
// Stores a fact about the operands that a backend may use to run faster. Berth's CPU and CUDA backends do not read it.
// For a tensor that is not a result of ggml_mul_mat it reports an error and changes nothing.
GGML_API void ggml_mul_mat_set_hint(struct ggml_tensor *a, enum ggml_op_hint hint);
// Computes a product with the experts that ids selects for each token: `as [k, m, n_expert]`, `b [k, n_b, n_token]`,
// `ids [n_used, n_token]` of i32 -> f32 `[m, n_used, n_token]`.
// y[i, u, t] = sum over l of as[l, i, ids[u, t]] * b[l, u % n_b, t]. n_used is a multiple of n_b. as must not be transposed.
// An id out of range makes the computation fail.
GGML_API struct ggml_tensor *ggml_mul_mat_id(
    struct ggml_context *ctx, struct ggml_tensor *as, struct ggml_tensor *b, struct ggml_tensor *ids);
// y[i, j] = sum over l of a[i, l] * b[j, l]: `a [m, k, a2, a3]`, `b [n, k, b2, b3]` -> f32 `[m, n, b2, b3]`.
// a must not be transposed. Batches of a repeat as in ggml_mul_mat.
GGML_API struct ggml_tensor *ggml_out_prod(struct ggml_context *ctx, struct ggml_tensor *a, struct ggml_tensor *b);

// ---- scaling, copies and views ----
// Strides (nb1, nb2, nb3) and offsets are in bytes.
// Views, reshapes, permutations and transpositions move no data: the result is a view of a with other extents and strides.

// y = s * a. Rows of a have no gaps and are evenly spaced: nb[2] = nb[1] * ne[1], and nb[3] = nb[2] * ne[2].
GGML_API struct ggml_tensor *ggml_scale(struct ggml_context *ctx, struct ggml_tensor *a, float s);
// As ggml_scale, and the result shares a's memory.
GGML_API struct ggml_tensor *ggml_scale_inplace(struct ggml_context *ctx, struct ggml_tensor *a, float s);
// y = s * a + b. The rule on strides is that of ggml_scale.
GGML_API struct ggml_tensor *ggml_scale_bias(struct ggml_context *ctx, struct ggml_tensor *a, float s, float b);
// As ggml_scale_bias, and the result shares a's memory.
GGML_API struct ggml_tensor *ggml_scale_bias_inplace(struct ggml_context *ctx, struct ggml_tensor *a, float s, float b);
// Computes a copy of a with one part replaced by b. The part starts at offset, has the shape of b and the strides nb1, nb2,
// nb3. b has at most as many elements as a. offset is below 2^30, and each stride that b uses fits 31 bits.
// A part that is not inside a makes the computation fail. The CPU backend requires that a and b are both f32 or both i32.
GGML_API struct ggml_tensor *ggml_set(
    struct ggml_context *ctx, struct ggml_tensor *a, struct ggml_tensor *b, size_t nb1, size_t nb2, size_t nb3, size_t offset);
// As ggml_set, and the result shares a's memory.
GGML_API struct ggml_tensor *ggml_set_inplace(
    struct ggml_context *ctx, struct ggml_tensor *a, struct ggml_tensor *b, size_t nb1, size_t nb2, size_t nb3, size_t offset);
// As ggml_set, with the strides of a.
GGML_API struct ggml_tensor *ggml_set_1d(struct ggml_context *ctx, struct ggml_tensor *a, struct ggml_tensor *b, size_t offset);
// As ggml_set_1d, and the result shares a's memory.
GGML_API struct ggml_tensor *ggml_set_1d_inplace(
    struct ggml_context *ctx, struct ggml_tensor *a, struct ggml_tensor *b, size_t offset);
// As ggml_set, with the strides nb[2] and nb[3] of a.
GGML_API struct ggml_tensor *ggml_set_2d(
    struct ggml_context *ctx, struct ggml_tensor *a, struct ggml_tensor *b, size_t nb1, size_t offset);
// As ggml_set_2d, and the result shares a's memory.
GGML_API struct ggml_tensor *ggml_set_2d_inplace(
    struct ggml_context *ctx, struct ggml_tensor *a, struct ggml_tensor *b, size_t nb1, size_t offset);
// Copies a into b and converts it to b's type. Both have the same number of elements; their shapes may differ.
// The result is a view of b.
GGML_API struct ggml_tensor *ggml_cpy(struct ggml_context *ctx, struct ggml_tensor *a, struct ggml_tensor *b);
// Computes a copy of a in the given type: `a [...]` -> `[...]`.
GGML_API struct ggml_tensor *ggml_cast(struct ggml_context *ctx, struct ggml_tensor *a, enum ggml_type type);
// Computes a contiguous copy of a, with the same shape and type.
GGML_API struct ggml_tensor *ggml_cont(struct ggml_context *ctx, struct ggml_tensor *a);
// As ggml_cont, in the shape `[ne0]`. The number of elements stays the same.
GGML_API struct ggml_tensor *ggml_cont_1d(struct ggml_context *ctx, struct ggml_tensor *a, int64_t ne0);
// As ggml_cont, in the shape `[ne0, ne1]`. The number of elements stays the same.
GGML_API struct ggml_tensor *ggml_cont_2d(struct ggml_context *ctx, struct ggml_tensor *a, int64_t ne0, int64_t ne1);
// As ggml_cont, in the shape `[ne0, ne1, ne2]`. The number of elements stays the same.
GGML_API struct ggml_tensor *ggml_cont_3d(struct ggml_context *ctx, struct ggml_tensor *a, int64_t ne0, int64_t ne1, int64_t ne2);
// As ggml_cont, in the shape `[ne0, ne1, ne2, ne3]`. The number of elements stays the same.
GGML_API struct ggml_tensor *ggml_cont_4d(
    struct ggml_context *ctx, struct ggml_tensor *a, int64_t ne0, int64_t ne1, int64_t ne2, int64_t ne3);
// Returns a view of a in the shape of b. a is contiguous and has as many elements as b. b is not a source of the result.
GGML_API struct ggml_tensor *ggml_reshape(struct ggml_context *ctx, struct ggml_tensor *a, struct ggml_tensor *b);
// As ggml_reshape, in the shape `[ne0]`.
GGML_API struct ggml_tensor *ggml_reshape_1d(struct ggml_context *ctx, struct ggml_tensor *a, int64_t ne0);
// As ggml_reshape, in the shape `[ne0, ne1]`.
GGML_API struct ggml_tensor *ggml_reshape_2d(struct ggml_context *ctx, struct ggml_tensor *a, int64_t ne0, int64_t ne1);
// As ggml_reshape, in the shape `[ne0, ne1, ne2]`.
GGML_API struct ggml_tensor *ggml_reshape_3d(
    struct ggml_context *ctx, struct ggml_tensor *a, int64_t ne0, int64_t ne1, int64_t ne2);
// As ggml_reshape, in the shape `[ne0, ne1, ne2, ne3]`.
GGML_API struct ggml_tensor *ggml_reshape_4d(
    struct ggml_context *ctx, struct ggml_tensor *a, int64_t ne0, int64_t ne1, int64_t ne2, int64_t ne3);
// Returns a view of ne0 elements of a, which starts offset bytes after the start of a. Elements of a row follow each other.
// A view of a view refers to the tensor that holds the data. The constructors of views check that a contiguous tensor of the
// same shape would fit into that tensor. A strided view that reaches past its end makes the computation fail.
GGML_API struct ggml_tensor *ggml_view_1d(struct ggml_context *ctx, struct ggml_tensor *a, int64_t ne0, size_t offset);
// As ggml_view_1d, in the shape `[ne0, ne1]` with nb1 bytes from row to row.
GGML_API struct ggml_tensor *ggml_view_2d(
    struct ggml_context *ctx, struct ggml_tensor *a, int64_t ne0, int64_t ne1, size_t nb1, size_t offset);
// As ggml_view_2d, in the shape `[ne0, ne1, ne2]`; nb2 is the stride of dimension 2.
GGML_API struct ggml_tensor *ggml_view_3d(struct ggml_context *ctx, struct ggml_tensor *a, int64_t ne0, int64_t ne1, int64_t ne2,
    size_t nb1, size_t nb2, size_t offset);
// As ggml_view_3d, in the shape `[ne0, ne1, ne2, ne3]`; nb3 is the stride of dimension 3.
GGML_API struct ggml_tensor *ggml_view_4d(struct ggml_context *ctx, struct ggml_tensor *a, int64_t ne0, int64_t ne1, int64_t ne2,
    int64_t ne3, size_t nb1, size_t nb2, size_t nb3, size_t offset);
// Returns a view of a in which dimension i of a is dimension axis_i. The four axes are 0 to 3, each once.
GGML_API struct ggml_tensor *ggml_permute(
    struct ggml_context *ctx, struct ggml_tensor *a, int axis0, int axis1, int axis2, int axis3);
// Returns a view of a with dimensions 0 and 1 exchanged: `a [m, n, ...]` -> `[n, m, ...]`.
GGML_API struct ggml_tensor *ggml_transpose(struct ggml_context *ctx, struct ggml_tensor *a);

// ---- rows, masks, softmax ----
// A row number that is out of range makes the computation fail. Nothing outside a tensor is read or written.

// y[:, i, j, k] = a[:, b[i, j, k], j, k]: `a [n, n_row, r2, r3]`, `b [n_ids, r2, r3]` of i32 -> `[n, n_ids, r2, r3]`.
// The result is i32 if a is i32, else f32.
GGML_API struct ggml_tensor *ggml_get_rows(struct ggml_context *ctx, struct ggml_tensor *a, struct ggml_tensor *b);
// Computes the gradient of ggml_get_rows by its table: row r of y is the sum of all rows i of a for which b[i] = r.
// `a [n, n_ids]`, `b [n_ids]` of i32, `c [n, n_row]` -> f32 `[n, n_row]`. Only the shape of c is used.
GGML_API struct ggml_tensor *ggml_get_rows_back(
    struct ggml_context *ctx, struct ggml_tensor *a, struct ggml_tensor *b, struct ggml_tensor *c);
// Writes rows of b into a: a[:, c[i, j % c1, k % c2], j, k] = b[:, i, j, k]. The result is a view of a.
// `a [n, n_row, r2, r3]`, `b [n, n_ids, r2, r3]` of f32 or f16, `c [n_ids, c1, c2]` of i32 or i64; r2 is a multiple of c1, and
// r3 of c2. Rows of b are converted to a's type. Rows of a and b have no gaps.
GGML_API struct ggml_tensor *ggml_set_rows(
    struct ggml_context *ctx, struct ggml_tensor *a, struct ggml_tensor *b, struct ggml_tensor *c);
// Computes a matrix with a on its diagonal and 0 elsewhere: `a [n, 1, ...]` -> `[n, n, ...]`.
GGML_API struct ggml_tensor *ggml_diag(struct ggml_context *ctx, struct ggml_tensor *a);
// y[i, j] = a[i, j] if i <= j + n_past, else -INFINITY: `a [n, m, ...]` -> `[n, m, ...]`. The CPU backend computes f32.
GGML_API struct ggml_tensor *ggml_diag_mask_inf(struct ggml_context *ctx, struct ggml_tensor *a, int n_past);
// As ggml_diag_mask_inf, and the result shares a's memory.
GGML_API struct ggml_tensor *ggml_diag_mask_inf_inplace(struct ggml_context *ctx, struct ggml_tensor *a, int n_past);
// As ggml_diag_mask_inf, with 0 in place of -INFINITY.
GGML_API struct ggml_tensor *ggml_diag_mask_zero(struct ggml_context *ctx, struct ggml_tensor *a, int n_past);
// As ggml_diag_mask_zero, and the result shares a's memory.
GGML_API struct ggml_tensor *ggml_diag_mask_zero_inplace(struct ggml_context *ctx, struct ggml_tensor *a, int n_past);
// y = exp(x) / sum(exp(x)) for each row x of a. a is contiguous. The CPU backend computes f32.
GGML_API struct ggml_tensor *ggml_soft_max(struct ggml_context *ctx, struct ggml_tensor *a);
// As ggml_soft_max, and the result shares a's memory.
GGML_API struct ggml_tensor *ggml_soft_max_inplace(struct ggml_context *ctx, struct ggml_tensor *a);
// As ggml_soft_max, of scale * a + slope * mask. `a [n, m, r2, r3]`, `mask [n, m or more, m2, m3]` of f16 or f32, contiguous,
// or NULL; r2 is a multiple of m2, and r3 of m3. Matrix (j, k) of a uses matrix (j % m2, k % m3) of the mask.
// slope is 1 if max_bias <= 0. Else it falls from head to head (ALiBi), and a mask is required. Head h is index h of
// dimension 2. With p = the largest power of two <= r2, slope = 2^(-max_bias * (h + 1) / p) for h < p, and
// 2^(-max_bias * (2 * (h - p) + 1) / (2 * p)) for the other heads.
GGML_API struct ggml_tensor *ggml_soft_max_ext(
    struct ggml_context *ctx, struct ggml_tensor *a, struct ggml_tensor *mask, float scale, float max_bias);
// As ggml_soft_max_ext, and the result shares a's memory.
GGML_API struct ggml_tensor *ggml_soft_max_ext_inplace(
    struct ggml_context *ctx, struct ggml_tensor *a, struct ggml_tensor *mask, float scale, float max_bias);
// Adds the term exp(sinks[h]) to the sum of each row of head h of a, a result of ggml_soft_max_ext. The result has no element
// for it. `sinks [r2]` of f32, one for each head. NULL removes the sinks. If the sinks do not fit, or a is another op or has
// sinks already, the function reports an error and a becomes poison.
GGML_API void ggml_soft_max_add_sinks(struct ggml_tensor *a, struct ggml_tensor *sinks);
// Computes the gradient of ggml_soft_max_ext by its input: a is the gradient d of the result, and b is that result p.
// y = scale * p * (d - sum(p * d)) for each row. a and b have the same shape; this is checked when the graph is computed.
// The CPU backend requires max_bias = 0, which is correct for a forward op with slopes too.
GGML_API struct ggml_tensor *ggml_soft_max_ext_back(
    struct ggml_context *ctx, struct ggml_tensor *a, struct ggml_tensor *b, float scale, float max_bias);
// As ggml_soft_max_ext_back, and the result shares a's memory.
GGML_API struct ggml_tensor *ggml_soft_max_ext_back_inplace(
    struct ggml_context *ctx, struct ggml_tensor *a, struct ggml_tensor *b, float scale, float max_bias);

// ---- positions ----
// RoPE rotates pairs of elements of each row: `a [d, n_head, n_token, ...]` -> the same shape. It rotates the first n_dims
// elements of a row and copies the others. n_dims is even.
// The angle of pair i of a token at position p is p * freq_base^(-2 * i / n_dims), changed by the parameters below.
// - b, i32: the positions, `[n_token]`. With a mode that has the bit GGML_ROPE_TYPE_MROPE, each token has four positions:
//   `[4 * n_token]`, where b[t + s * n_token] is position s of token t. sections[s] pairs use position s.
// - mode, a GGML_ROPE_TYPE_:
//   NORMAL: a pair is elements 2 * i and 2 * i + 1.
//   NEOX: a pair is elements i and i + n_dims / 2.
//   MROPE: pairs as NEOX. The first sections[0] pairs use position 0, the next sections[1] pairs use position 1, and so on.
//   IMROPE: pairs as NEOX. Pair i uses position i % 3 while i < 3 * sections[i % 3], else position 3.
//   VISION: n_dims is d / 2, and a pair is elements i and i + n_dims. Sections as MROPE; each starts with the frequency 1.
//   In the last three modes the assignment repeats after the sum of the four sections.
// - c, f32: frequency factors, or NULL. The angle of pair i is divided by c[i]. There are at least n_dims / 2 factors, and
//   n_dims with VISION.
// - freq_scale: a factor of all angles, 1 for none. attn_factor: a factor of all rotated elements, 1 for none.
// - ext_factor, n_ctx_orig, beta_fast, beta_slow: YaRN. ext_factor is 0 without YaRN and 1 with YaRN. YaRN applies freq_scale
//   only to pairs after the range of ggml_rope_yarn_corr_dims. Pairs before the range keep their angle, and pairs in the range
//   mix both angles. YaRN also multiplies the rotated elements with 1 + 0.1 * ln(1 / freq_scale).
// The constructor checks the positions, the factors, and that bit 0 of mode is 0. Other errors in mode, n_dims or sections
// make the computation fail. The CPU backend computes f32, f16 and bf16.

// Computes RoPE with freq_base 10000 and without factors, scaling or YaRN. mode is NORMAL or NEOX: there are no sections.
GGML_API struct ggml_tensor *ggml_rope(
    struct ggml_context *ctx, struct ggml_tensor *a, struct ggml_tensor *b, int n_dims, int mode);
// As ggml_rope, and the result shares a's memory.
GGML_API struct ggml_tensor *ggml_rope_inplace(
    struct ggml_context *ctx, struct ggml_tensor *a, struct ggml_tensor *b, int n_dims, int mode);
// Computes RoPE with all parameters except sections. mode is NORMAL or NEOX.
GGML_API struct ggml_tensor *ggml_rope_ext(struct ggml_context *ctx, struct ggml_tensor *a, struct ggml_tensor *b,
    struct ggml_tensor *c, int n_dims, int mode, int n_ctx_orig, float freq_base, float freq_scale, float ext_factor,
    float attn_factor, float beta_fast, float beta_slow);
// Computes RoPE with all parameters. sections has GGML_MROPE_SECTIONS (4) numbers, which are copied if mode has the MROPE bit.
GGML_API struct ggml_tensor *ggml_rope_multi(struct ggml_context *ctx, struct ggml_tensor *a, struct ggml_tensor *b,
    struct ggml_tensor *c, int n_dims, int *sections, int mode, int n_ctx_orig, float freq_base, float freq_scale,
    float ext_factor, float attn_factor, float beta_fast, float beta_slow);
// As ggml_rope_ext, and the result shares a's memory.
GGML_API struct ggml_tensor *ggml_rope_ext_inplace(struct ggml_context *ctx, struct ggml_tensor *a, struct ggml_tensor *b,
    struct ggml_tensor *c, int n_dims, int mode, int n_ctx_orig, float freq_base, float freq_scale, float ext_factor,
    float attn_factor, float beta_fast, float beta_slow);
// As ggml_rope_multi, and the result shares a's memory.
GGML_API struct ggml_tensor *ggml_rope_multi_inplace(struct ggml_context *ctx, struct ggml_tensor *a, struct ggml_tensor *b,
    struct ggml_tensor *c, int n_dims, int *sections, int mode, int n_ctx_orig, float freq_base, float freq_scale,
    float ext_factor, float attn_factor, float beta_fast, float beta_slow);
// As ggml_rope_ext, without frequency factors.
GGML_API struct ggml_tensor *ggml_rope_custom(struct ggml_context *ctx, struct ggml_tensor *a, struct ggml_tensor *b, int n_dims,
    int mode, int n_ctx_orig, float freq_base, float freq_scale, float ext_factor, float attn_factor, float beta_fast,
    float beta_slow);
// As ggml_rope_custom, and the result shares a's memory.
GGML_API struct ggml_tensor *ggml_rope_custom_inplace(struct ggml_context *ctx, struct ggml_tensor *a, struct ggml_tensor *b,
    int n_dims, int mode, int n_ctx_orig, float freq_base, float freq_scale, float ext_factor, float attn_factor, float beta_fast,
    float beta_slow);
// Writes the range of pairs in which YaRN mixes angles to dims[0] (first pair, at least 0) and dims[1] (last pair, at most
// n_dims - 1). The pairs are those that make beta_fast and beta_slow rotations within n_ctx_orig tokens, rounded outward.
GGML_API void ggml_rope_yarn_corr_dims(
    int n_dims, int n_ctx_orig, float freq_base, float beta_fast, float beta_slow, float *dims);
// Computes the gradient of ggml_rope_ext by its input: a is the gradient of the result. It rotates by the negative angles.
GGML_API struct ggml_tensor *ggml_rope_ext_back(struct ggml_context *ctx, struct ggml_tensor *a, struct ggml_tensor *b,
    struct ggml_tensor *c, int n_dims, int mode, int n_ctx_orig, float freq_base, float freq_scale, float ext_factor,
    float attn_factor, float beta_fast, float beta_slow);
// Computes the gradient of ggml_rope_multi by its input: a is the gradient of the result. It rotates by the negative angles.
GGML_API struct ggml_tensor *ggml_rope_multi_back(struct ggml_context *ctx, struct ggml_tensor *a, struct ggml_tensor *b,
    struct ggml_tensor *c, int n_dims, int *sections, int mode, int n_ctx_orig, float freq_base, float freq_scale,
    float ext_factor, float attn_factor, float beta_fast, float beta_slow);
// Makes a, a result of RoPE or of its gradient, rotate the elements n_offs to n_offs + n_dims - 1 in place of the first
// n_dims. Angles do not change: pair i is counted from n_offs. Returns a. An odd n_offs makes the computation fail.
// For another op, a negative n_offs or mode VISION it reports an error and a becomes poison.
GGML_API struct ggml_tensor *ggml_rope_set_offset(struct ggml_tensor *a, int n_offs);

// ---- convolution, pooling, resampling ----
// a is the kernel and b is the data. Data of images is `[w, h, c, n]`: width, height, channels, images.
// s is the stride, p the number of zeros that are added on both sides, d the dilation.
// The suffixes 0, 1 and 2 stand for width, height and depth.
// ow, oh and od are the extents of the result: out = (in + 2 * p - d * (k - 1) - 1) / s + 1 for a kernel of k elements. A
// constructor returns poison if this is not positive; a direct convolution does so if it is negative.
// ggml_conv_1d, ggml_conv_2d, ggml_conv_3d and their variants gather the windows with im2col and call ggml_mul_mat: they add
// several nodes. The windows are f16, or f32 if the kernel is bf16. The _direct and _transpose functions add one node.

// Gathers the windows of b, one per row of the result. Only the shape of a is used. A row has kw elements of each of kh lines
// of each channel, in this order. is_2D: `a [kw, kh, c, oc]`, `b [w, h, c, n]` -> `[c * kh * kw, ow, oh, n]` of dst_type.
// Else: `a [kw, c, oc]`, `b [w, c, n]` -> `[c * kw, ow, n]` of dst_type; s1, p1 and d1 are not used.
GGML_API struct ggml_tensor *ggml_im2col(struct ggml_context *ctx, struct ggml_tensor *a, struct ggml_tensor *b, int s0, int s1,
    int p0, int p1, int d0, int d1, bool is_2D, enum ggml_type dst_type);
// Computes the gradient of ggml_im2col by its data: a is the gradient of the windows, b is the kernel, of which only the
// shape is used, and ne has the four extents of the data. The result is f32. Elements of overlapping windows are added.
GGML_API struct ggml_tensor *ggml_im2col_back(struct ggml_context *ctx, struct ggml_tensor *a, struct ggml_tensor *b, int64_t *ne,
    int s0, int s1, int p0, int p1, int d0, int d1, bool is_2D);
// Adds up windows: `a [k * oc, n]` -> `[(n - 1) * s0 + k - 2 * p0, oc]`. y[x, o] is the sum of all a[o * k + j, i] for which
// i * s0 + j - p0 = x. a is contiguous and f32, f16 or bf16. s0 and oc are positive, p0 is at least 0.
GGML_API struct ggml_tensor *ggml_col2im_1d(struct ggml_context *ctx, struct ggml_tensor *a, int s0, int oc, int p0);
// Computes a convolution along rows: `a [k, c, oc]`, `b [w, c, n]` -> f32 `[ow, oc, n]`.
// n should be 1: with n > 1 the elements of the result are stored in the order `[ow, n, oc]`.
GGML_API struct ggml_tensor *ggml_conv_1d(
    struct ggml_context *ctx, struct ggml_tensor *a, struct ggml_tensor *b, int s0, int p0, int d0);
// As ggml_conv_1d, with p0 = k / 2.
GGML_API struct ggml_tensor *ggml_conv_1d_ph(
    struct ggml_context *ctx, struct ggml_tensor *a, struct ggml_tensor *b, int s, int d);
// Computes a depthwise convolution along rows, with one kernel per channel: `a [k, 1, c]`, `b [w, c]` -> f32 `[ow, c]`.
GGML_API struct ggml_tensor *ggml_conv_1d_dw(
    struct ggml_context *ctx, struct ggml_tensor *a, struct ggml_tensor *b, int s0, int p0, int d0);
// As ggml_conv_1d_dw, with p0 = k / 2.
GGML_API struct ggml_tensor *ggml_conv_1d_dw_ph(
    struct ggml_context *ctx, struct ggml_tensor *a, struct ggml_tensor *b, int s0, int d0);
// Computes a transposed convolution along rows: `a [k, oc, c]`, `b [w, c]` -> f32 `[(w - 1) * s0 + k, oc]`. Each element of b
// adds a multiple of the kernel to the result, at s0 times its position. p0 is 0 and d0 is 1: other values are not supported.
GGML_API struct ggml_tensor *ggml_conv_transpose_1d(
    struct ggml_context *ctx, struct ggml_tensor *a, struct ggml_tensor *b, int s0, int p0, int d0);
// Computes a convolution of images: `a [kw, kh, c, oc]`, `b [w, h, c, n]` -> f32 `[ow, oh, oc, n]`.
GGML_API struct ggml_tensor *ggml_conv_2d(
    struct ggml_context *ctx, struct ggml_tensor *a, struct ggml_tensor *b, int s0, int s1, int p0, int p1, int d0, int d1);
// As ggml_im2col, in three dimensions. IC is the number of channels, which share a dimension with oc and n:
// `a [kw, kh, kd, IC * oc]`, `b [w, h, d, IC * n]` -> `[IC * kd * kh * kw, ow, oh, od * n]` of dst_type.
GGML_API struct ggml_tensor *ggml_im2col_3d(struct ggml_context *ctx, struct ggml_tensor *a, struct ggml_tensor *b, int64_t IC,
    int s0, int s1, int s2, int p0, int p1, int p2, int d0, int d1, int d2, enum ggml_type dst_type);
// Computes a convolution of volumes: `a [kw, kh, kd, IC * oc]`, `b [w, h, d, IC * n]` -> f32 `[ow, oh, od, oc * n]`.
// IC is the number of channels of b.
GGML_API struct ggml_tensor *ggml_conv_3d(struct ggml_context *ctx, struct ggml_tensor *a, struct ggml_tensor *b, int64_t IC,
    int s0, int s1, int s2, int p0, int p1, int p2, int d0, int d1, int d2);
// As ggml_conv_2d, with the extents of the kernel as strides and without padding: the windows do not overlap.
GGML_API struct ggml_tensor *ggml_conv_2d_sk_p0(struct ggml_context *ctx, struct ggml_tensor *a, struct ggml_tensor *b);
// As ggml_conv_2d, with stride 1 and half the kernel as padding. With odd kernels, ow = w and oh = h.
GGML_API struct ggml_tensor *ggml_conv_2d_s1_ph(struct ggml_context *ctx, struct ggml_tensor *a, struct ggml_tensor *b);
// Computes a depthwise convolution of images, one kernel per channel: `a [kw, kh, 1, c]`, `b [w, h, c, n]` -> f32
// `[ow, oh, c, n]`.
GGML_API struct ggml_tensor *ggml_conv_2d_dw(
    struct ggml_context *ctx, struct ggml_tensor *a, struct ggml_tensor *b, int s0, int s1, int p0, int p1, int d0, int d1);
// As ggml_conv_2d_dw, as one node. The result has b's type. If the channels of b are adjacent in memory
// (ggml_is_contiguous_channels), those of the result are too. The CPU backend takes f32 data and kernels of f32 or f16.
GGML_API struct ggml_tensor *ggml_conv_2d_dw_direct(struct ggml_context *ctx, struct ggml_tensor *a, struct ggml_tensor *b,
    int stride0, int stride1, int pad0, int pad1, int dilation0, int dilation1);
// Computes a transposed convolution of images: `a [kw, kh, oc, c]`, `b [w, h, c, n]` -> f32
// `[(w - 1) * stride + kw, (h - 1) * stride + kh, oc, n]`. Each element of b adds a multiple of the kernel to the result, at
// stride times its position. There is no padding.
GGML_API struct ggml_tensor *ggml_conv_transpose_2d_p0(
    struct ggml_context *ctx, struct ggml_tensor *a, struct ggml_tensor *b, int stride);
// As ggml_conv_2d, as one node. The result has b's type. The CPU backend takes f32 data and kernels of f32 or f16.
GGML_API struct ggml_tensor *ggml_conv_2d_direct(
    struct ggml_context *ctx, struct ggml_tensor *a, struct ggml_tensor *b, int s0, int s1, int p0, int p1, int d0, int d1);
// As ggml_conv_3d, as one node: `a [kw, kh, kd, n_channels * n_channels_out]`, `b [w, h, d, n_channels * n_batch]` -> f32
// `[ow, oh, od, n_channels_out * n_batch]`. The CPU backend takes f32 data and kernels of f32 or f16.
GGML_API struct ggml_tensor *ggml_conv_3d_direct(struct ggml_context *ctx, struct ggml_tensor *a, struct ggml_tensor *b, int s0,
    int s1, int s2, int p0, int p1, int p2, int d0, int d1, int d2, int n_channels, int n_batch, int n_channels_out);
// Computes the maximum or the mean of windows of k0 elements of each row: `a [w, ...]` -> f32
// `[(w + 2 * p0 - k0) / s0 + 1, ...]`. Padding does not count: a mean is that of the elements inside the row.
GGML_API struct ggml_tensor *ggml_pool_1d(
    struct ggml_context *ctx, struct ggml_tensor *a, enum ggml_op_pool op, int k0, int s0, int p0);
// As ggml_pool_1d, with windows of k0 * k1 elements: `a [w, h, ...]` -> f32 `[ow, oh, ...]`, ow = (w + 2 * p0 - k0) / s0 + 1.
// The mean divides by k0 * k1 at the borders too.
// A fraction of p0 or p1 counts for ow and oh only; the position of the windows uses the integer part.
GGML_API struct ggml_tensor *ggml_pool_2d(
    struct ggml_context *ctx, struct ggml_tensor *a, enum ggml_op_pool op, int k0, int k1, int s0, int s1, float p0, float p1);
// Computes the gradient of ggml_pool_2d by its input: a is the gradient of the result, and af is the input. The result is f32
// in the shape of af. The other parameters are those of the forward op.
// A maximum passes its gradient to the first largest element of its window.
GGML_API struct ggml_tensor *ggml_pool_2d_back(struct ggml_context *ctx, struct ggml_tensor *a, struct ggml_tensor *af,
    enum ggml_op_pool op, int k0, int k1, int s0, int s1, float p0, float p1);
// Enlarges an image: `a [w, h, ...]` -> `[w * scale_factor, h * scale_factor, ...]`. scale_factor is 2 or more. a is f32.
GGML_API struct ggml_tensor *ggml_upscale(
    struct ggml_context *ctx, struct ggml_tensor *a, int scale_factor, enum ggml_scale_mode mode);
// Resamples a to `[ne0, ne1, ne2, ne3]`, which may be smaller or larger than a. It computes the same as ggml_interpolate.
GGML_API struct ggml_tensor *ggml_upscale_ext(
    struct ggml_context *ctx, struct ggml_tensor *a, int ne0, int ne1, int ne2, int ne3, enum ggml_scale_mode mode);
// Resamples a to `[ne0, ne1, ne2, ne3]`. a is f32. mode is a ggml_scale_mode, which may be combined with ggml_scale_flag by |.
// The mode applies to width and height; dimensions 2 and 3 take the nearest element. GGML_SCALE_FLAG_ALIGN_CORNERS maps the
// corner pixels of a to those of the result. GGML_SCALE_FLAG_ANTIALIAS requires GGML_SCALE_MODE_BILINEAR.
GGML_API struct ggml_tensor *ggml_interpolate(
    struct ggml_context *ctx, struct ggml_tensor *a, int64_t ne0, int64_t ne1, int64_t ne2, int64_t ne3, uint32_t mode);
// Adds p0 to p3 zeros at the end of each dimension: `a [n0, n1, n2, n3]` -> `[n0 + p0, n1 + p1, n2 + p2, n3 + p3]`.
// A negative number removes elements.
GGML_API struct ggml_tensor *ggml_pad(struct ggml_context *ctx, struct ggml_tensor *a, int p0, int p1, int p2, int p3);
// As ggml_pad, and the new elements are those of a, repeated from its start.
GGML_API struct ggml_tensor *ggml_pad_circular(struct ggml_context *ctx, struct ggml_tensor *a, int p0, int p1, int p2, int p3);
// As ggml_pad, with lp0 to lp3 elements before and rp0 to rp3 elements after each dimension.
GGML_API struct ggml_tensor *ggml_pad_ext(
    struct ggml_context *ctx, struct ggml_tensor *a, int lp0, int rp0, int lp1, int rp1, int lp2, int rp2, int lp3, int rp3);
// As ggml_pad_ext, and the new elements are those of a, repeated periodically in both directions.
GGML_API struct ggml_tensor *ggml_pad_ext_circular(
    struct ggml_context *ctx, struct ggml_tensor *a, int lp0, int rp0, int lp1, int rp1, int lp2, int rp2, int lp3, int rp3);
// Adds p0 elements before and p1 after each row, mirrored at the first and the last element, which are not repeated:
// `a [n, ...]` -> `[p0 + n + p1, ...]`. a is f32 and contiguous. p0 and p1 are 0 to n - 1.
GGML_API struct ggml_tensor *ggml_pad_reflect_1d(struct ggml_context *ctx, struct ggml_tensor *a, int p0, int p1);
// Moves elements cyclically: element i of dimension k of a is element (i + shift_k) mod ne[k] of the result. A shift may be
// negative; it is smaller than the extent. Rows of a have no gaps.
GGML_API struct ggml_tensor *ggml_roll(
    struct ggml_context *ctx, struct ggml_tensor *a, int shift0, int shift1, int shift2, int shift3);
// Keeps a triangle of each matrix and sets the other elements to 0: `a [n, n, ...]` -> `[n, n, ...]`. a is f32 and contiguous.
// For element [i, j] (column i of row j) these stay: UPPER_DIAG i >= j, UPPER i > j, LOWER_DIAG i <= j, LOWER i < j.
GGML_API struct ggml_tensor *ggml_tri(struct ggml_context *ctx, struct ggml_tensor *a, enum ggml_tri_type type);
// y = a limited to min .. max.
GGML_API struct ggml_tensor *ggml_clamp(struct ggml_context *ctx, struct ggml_tensor *a, float min, float max);
// As ggml_clamp, and the result shares a's memory.
GGML_API struct ggml_tensor *ggml_clamp_inplace(struct ggml_context *ctx, struct ggml_tensor *a, float min, float max);
// y = c in each element. Only the type and the shape of a are used. a is f32 or f16, and contiguous.
GGML_API struct ggml_tensor *ggml_fill(struct ggml_context *ctx, struct ggml_tensor *a, float c);
// As ggml_fill, and the result shares a's memory.
GGML_API struct ggml_tensor *ggml_fill_inplace(struct ggml_context *ctx, struct ggml_tensor *a, float c);
// Computes sinusoidal embeddings: `timesteps [n]` -> f32 `[dim, n]`. With m = dim / 2 and f = max_period^(-j / m),
// y[j, i] = cos(timesteps[i] * f) and y[m + j, i] = sin(timesteps[i] * f) for j < m. The last element is 0 if dim is odd.
GGML_API struct ggml_tensor *ggml_timestep_embedding(
    struct ggml_context *ctx, struct ggml_tensor *timesteps, int dim, int max_period);

// ---- sorting ----
// The CPU backend sorts f32, f16 and bf16. There, equal elements keep their order, and NaN counts as larger than every number.

// Computes the indices that sort each row of a, ascending or descending: `a [n, ...]` -> i32 `[n, ...]`.
GGML_API struct ggml_tensor *ggml_argsort(struct ggml_context *ctx, struct ggml_tensor *a, enum ggml_sort_order order);
// Computes the indices of the k largest elements of each row, the largest first: `a [n, ...]` -> i32 `[k, ...]`.
// The result is a view of the first k indices of a full sort, so its rows are n * 4 bytes apart. k is 0 to n.
GGML_API struct ggml_tensor *ggml_argsort_top_k(struct ggml_context *ctx, struct ggml_tensor *a, int k);
// Computes the indices of the k largest elements of each row, in no order: `a [n, ...]` -> i32 `[k, ...]`. k is 0 to n.
GGML_API struct ggml_tensor *ggml_top_k(struct ggml_context *ctx, struct ggml_tensor *a, int k);
// y[i] = start + i * step -> f32 `[ceil((stop - start) / step)]`. stop > start; it is not part of the result.
GGML_API struct ggml_tensor *ggml_arange(struct ggml_context *ctx, float start, float stop, float step);

// ---- attention and recurrences ----
// The recurrences carry a state from token to token. Their result is one f32 tensor: first the outputs of all tokens, then the
// new states. A program reads both through views. S[i][j] stands for element i * d + j of the state of a head.

// y = softmax(scale * q k + slope * mask) v without a stored matrix of scores: `q [d_k, n_token, n_head, n_seq]`,
// `k [d_k, n_kv, n_head_k, n_seq]`, `v [d_v, n_kv, n_head_v, n_seq]` -> f32 `[d_v, n_head, n_token, n_seq]`. The result has
// heads before tokens. n_head is a multiple of n_head_k and n_head_v; head h of q uses head h / (n_head / n_head_k) of k.
// mask: f16, contiguous, `[n_kv or more, n_token or more, m2, m3]`, or NULL; n_head is a multiple of m2, and n_seq of m3.
// Head h uses matrix h % m2. max_bias and slope: as in ggml_soft_max_ext. logit_softcap L, if not 0: scores are
// L * tanh(scale * q k / L) before the mask is added. With all keys masked by -INFINITY, the CPU backend returns 0.
// The constructor does not check n_head_v, nor n_kv of v and mask, nor n_token of mask; ggml_backend_supports_op does.
GGML_API struct ggml_tensor *ggml_flash_attn_ext(struct ggml_context *ctx, struct ggml_tensor *q, struct ggml_tensor *k,
    struct ggml_tensor *v, struct ggml_tensor *mask, float scale, float max_bias, float logit_softcap);
// As ggml_prec_set_acc, for results of ggml_flash_attn_ext only. For another op it reports an error and changes nothing.
GGML_API void ggml_flash_attn_ext_set_prec(struct ggml_tensor *a, enum ggml_prec prec);
// Returns the precision that was set, GGML_PREC_DEFAULT if none was.
// For another op it reports an error and returns GGML_PREC_DEFAULT.
GGML_API enum ggml_prec ggml_flash_attn_ext_get_prec(const struct ggml_tensor *a);
// Declares that no row of the mask of a lets more than n_kv_max keys through; 0 means unknown. A backend may use it to run
// faster; Berth's CPU and CUDA backends do not read it.
// For another op or a negative number it reports an error and changes nothing.
GGML_API void ggml_flash_attn_ext_set_n_kv_max(struct ggml_tensor *a, int32_t n_kv_max);
// Adds the term exp(sinks[h]) to the sum of the softmax of head h of a, a result of ggml_flash_attn_ext. `sinks [n_head]` of
// f32. NULL removes the sinks. If the sinks do not fit or a has some already, the function reports an error and a becomes
// poison. For another op it reports an error and changes nothing.
GGML_API void ggml_flash_attn_ext_add_sinks(struct ggml_tensor *a, struct ggml_tensor *sinks);
// Always returns poison: this op is not implemented.
// ggml_build_backward_expand builds the gradient of attention from other ops.
GGML_API struct ggml_tensor *ggml_flash_attn_back(struct ggml_context *ctx, struct ggml_tensor *q, struct ggml_tensor *k,
    struct ggml_tensor *v, struct ggml_tensor *d, bool masked);
// y[i, t, s] = sum over j of sx[t + j, i, s] * c[j, i], a filter per channel along time:
// `sx [d_conv - 1 + n_token, d_inner, n_seq]`, `c [d_conv, d_inner]` -> f32 `[d_inner, n_token, n_seq]`.
GGML_API struct ggml_tensor *ggml_ssm_conv(struct ggml_context *ctx, struct ggml_tensor *sx, struct ggml_tensor *c);
// Computes the scan of a state space model (Mamba). For each element x of a head, with the step e = softplus(dt):
// h = exp(e * A) * h + e * x * B, and y = sum(C * h). `s [d_state, d_head, n_head, n_state]`,
// `x [d_head, n_head, n_token, n_seq]`, `dt [n_head, n_token, n_seq]`, `A [d_state or 1, n_head]`, `B` and `C`
// `[d_state, n_group, n_token, n_seq]`, `ids [n_seq]` of i32. Sequence i starts from state ids[i] of s. n_head is a multiple
// of n_group. s, dt and A are contiguous. The result has one dimension: y in the shape of x, then K blocks
// `[d_state, d_head, n_head, n_seq]` of states: block i has the states before the last i tokens, block 0 the final ones.
// Blocks that would precede the first token are not written. K > 1 requires A->ne[0] = 1. In C++, K is 1 by default.
// If the ggml release of the calling program is unknown, a K outside 1 to 256, or any K with A->ne[0] > 1, is 1, because
// programs for releases before 0.25 pass no K.
GGML_API struct ggml_tensor *ggml_ssm_scan(struct ggml_context *ctx, struct ggml_tensor *s, struct ggml_tensor *x,
    struct ggml_tensor *dt, struct ggml_tensor *A, struct ggml_tensor *B, struct ggml_tensor *C, struct ggml_tensor *ids,
    int64_t K GGML_SINCE(1));
// Divides an image into windows of w * w: `a [c, width, height]` of f32 -> `[c, w, w, nx * ny]`, nx = ceil(width / w) and
// ny = ceil(height / w). Window x + y * nx is at column x * w and row y * w. Elements outside the image are 0.
GGML_API struct ggml_tensor *ggml_win_part(struct ggml_context *ctx, struct ggml_tensor *a, int w);
// Computes the inverse of ggml_win_part: `a [c, w, w, n]` of f32 -> `[c, w0, h0]`. Padding is removed.
// a has all windows of the image.
GGML_API struct ggml_tensor *ggml_win_unpart(struct ggml_context *ctx, struct ggml_tensor *a, int w0, int h0, int w);
// Applies the function op to each element of a: `a [...]` -> `[...]`. The functions are those of ggml_abs to ggml_trunc.
// Rows of a have no gaps. For GGML_UNARY_OP_XIELU use ggml_xielu, which sets its parameters.
GGML_API struct ggml_tensor *ggml_unary(struct ggml_context *ctx, struct ggml_tensor *a, enum ggml_unary_op op);
// As ggml_unary, and the result shares a's memory.
GGML_API struct ggml_tensor *ggml_unary_inplace(struct ggml_context *ctx, struct ggml_tensor *a, enum ggml_unary_op op);
// y[:, k, q] = a[:, kh - 1 - k + q] for all pairs of positions: `a [d, 2 * qh - 1]` -> f16 `[d, kh, qh]`, kh = qh.
// Bits are copied without conversion: a should be f16. The CPU backend requires elements of 2 bytes.
GGML_API struct ggml_tensor *ggml_get_rel_pos(struct ggml_context *ctx, struct ggml_tensor *a, int qh, int kh);
// y[i * w + j, r, n] = a[i * w + j, r, n] + pw[j, r, n] + ph[i, r, n]: `a [w * w, n1 * n2, n]`, `pw` and `ph [w, n1, n2, n]`
// of f32, whose index r counts n1 and n2 together -> the shape of a. All are contiguous. The CPU backend takes a of f32.
GGML_API struct ggml_tensor *ggml_add_rel_pos(
    struct ggml_context *ctx, struct ggml_tensor *a, struct ggml_tensor *pw, struct ggml_tensor *ph);
// As ggml_add_rel_pos, and the result shares a's memory.
GGML_API struct ggml_tensor *ggml_add_rel_pos_inplace(
    struct ggml_context *ctx, struct ggml_tensor *a, struct ggml_tensor *pw, struct ggml_tensor *ph);
// Computes RWKV 6. For each head, with the state S [d, d]: y[j] = sum over i of r[i] * (S[i][j] + tf[i] * k[i] * v[j]), then
// S[i][j] = td[i] * S[i][j] + k[i] * v[j]. k, v, r, td `[d, n_head, n_token]`, tf with d * n_head elements,
// `state [d * d * n_head, n_seq]` -> f32 `[d * n_head, n_token + d * n_seq]`: n_token rows of y, then the states.
// The tokens are n_seq sequences of n_token / n_seq tokens each. All operands are contiguous. The CPU backend takes f32.
GGML_API struct ggml_tensor *ggml_rwkv_wkv6(struct ggml_context *ctx, struct ggml_tensor *k, struct ggml_tensor *v,
    struct ggml_tensor *r, struct ggml_tensor *tf, struct ggml_tensor *td, struct ggml_tensor *state);
// Computes gated linear attention. For each head, with the state S [d, d]: S[i][j] = g[i] * S[i][j] + k[i] * v[j], then
// y[j] = scale * sum over i of q[i] * S[i][j]. k, v, q, g `[d, n_head, n_token]`. State and result are as in ggml_rwkv_wkv6.
GGML_API struct ggml_tensor *ggml_gated_linear_attn(struct ggml_context *ctx, struct ggml_tensor *k, struct ggml_tensor *v,
    struct ggml_tensor *q, struct ggml_tensor *g, struct ggml_tensor *state, float scale);
// Computes RWKV 7. For each head, with the state S [d, d]: S[i][j] = w[j] * S[i][j] + v[i] * k[j] + s[i] * b[j], where s[i]
// is the sum over l of S[i][l] * a[l] before that; then y[i] = sum over j of S[i][j] * r[j]. r, w, k, v, a, b
// `[d, n_head, n_token]`. State and result are as in ggml_rwkv_wkv6.
GGML_API struct ggml_tensor *ggml_rwkv_wkv7(struct ggml_context *ctx, struct ggml_tensor *r, struct ggml_tensor *w,
    struct ggml_tensor *k, struct ggml_tensor *v, struct ggml_tensor *a, struct ggml_tensor *b, struct ggml_tensor *state);
// Solves a y = b for y by forward substitution: b[j, i] = sum over l <= i of a[l, i] * y[j, l]. `a [n, n, ...]`,
// `b [m, n, ...]` -> `[m, n, ...]`, all f32; a and b are contiguous. Elements of a above its diagonal are not read.
// left and lower must be true and uni must be false: other values are not supported.
GGML_API struct ggml_tensor *ggml_solve_tri(
    struct ggml_context *ctx, struct ggml_tensor *a, struct ggml_tensor *b, bool left, bool lower, bool uni);
// Computes the gated delta rule. For each head, with the state S [d, d]: S[i][j] = exp(g[j]) * S[i][j], then
// S[i][j] += beta * (v[i] - sum over l of S[i][l] * k[l]) * k[j], then y[i] = sum over j of S[i][j] * q[j] / sqrt(d).
// `v [d, n_head, n_token, n_seq]`, `g [d or 1, n_head, n_token, n_seq]`, `beta [1, n_head, n_token, n_seq]`,
// `state [d, d, n_head, n_seq]`, all f32. q and k have the shape of v, or fewer heads and sequences, of which those of v are
// multiples: head h uses head h % q->ne[1]. g, beta and state are contiguous, rows of q, k and v have no gaps.
// The result is `[d * n_head, (n_token + K * d) * n_seq]`: y in the shape of v, then K blocks in the shape of state. Block i
// has the states before the last i tokens, block 0 the final ones. Blocks that would precede the first token are not written.
GGML_API struct ggml_tensor *ggml_gated_delta_net(struct ggml_context *ctx, struct ggml_tensor *q, struct ggml_tensor *k,
    struct ggml_tensor *v, struct ggml_tensor *g, struct ggml_tensor *beta, struct ggml_tensor *state, int64_t K);
// Computes the score of each key for each token: y[j, t, 0, s] = mask[j, t, 0, s % m3] + sum over heads h of
// weights[h, t, 0, s] * max(0, sum over i of q[i, h, t, s] * k[i, 0, j, s]). `q [d, n_head, n_token, n_seq]` of f32,
// `k [d, 1, n_kv, n_seq]`, `weights [n_head, n_token, 1, n_seq]` of f32, `mask [n_kv, n_token, 1, m3]` of f16
// -> f32 `[n_kv, n_token, 1, n_seq]`. n_seq is a multiple of m3.
GGML_API struct ggml_tensor *ggml_lightning_indexer(struct ggml_context *ctx, struct ggml_tensor *q, struct ggml_tensor *k,
    struct ggml_tensor *weights, struct ggml_tensor *mask);
// Computes the matrix that mixes 4 residual streams (hyper-connections), one per token: `mixes [24, n_token]`,
// `scale [3 or more]`, `base [24]`, all f32 -> f32 `[4, 4, n_token]`. With z = mixes * scale[2] + base, elements 8 to 23 of z
// are the 4 rows of a matrix. Each row goes through a softmax, and eps is added to each element. Then the columns are divided
// by their sum + eps. n_iter - 1 rounds follow, which divide first the rows and then the columns by their sum + eps
// (Sinkhorn). n_iter is positive.
GGML_API struct ggml_tensor *ggml_dsv4_hc_comb(struct ggml_context *ctx, struct ggml_tensor *mixes, struct ggml_tensor *scale,
    struct ggml_tensor *base, float eps, int32_t n_iter);
// Computes one stream from several: y[:, t] = sum over s of weights[s, t] * x[:, s, t]. `x [n_embd, n_stream, n_token]`,
// `weights [n_stream, n_token]`, both f32 -> f32 `[n_embd, n_token]`.
GGML_API struct ggml_tensor *ggml_dsv4_hc_pre(struct ggml_context *ctx, struct ggml_tensor *x, struct ggml_tensor *weights);
// y[:, t] = scale * sum over s of sigmoid(gate[:, s, t]) * x[:, s, t]. `x [n_embd, n_stream, n_token]`, gate in the shape of
// x, both f32 -> f32 `[n_embd, n_token]`.
GGML_API struct ggml_tensor *ggml_dsv4_hc_pre_gated(
    struct ggml_context *ctx, struct ggml_tensor *x, struct ggml_tensor *gate, float scale);
// Computes several streams from one: y[:, s, t] = post[s, t] * x[:, t] + sum over f of comb[s, f, t] * residual[:, f, t].
// `x [n_embd, n_token]`, `residual [n_embd, n_stream, n_token]`, `post [n_stream, n_token]`,
// `comb [n_stream, n_stream, n_token]`, all f32 -> f32 in the shape of residual.
// comb may be NULL: then the sum is residual[:, s, t].
GGML_API struct ggml_tensor *ggml_dsv4_hc_post(struct ggml_context *ctx, struct ggml_tensor *x, struct ggml_tensor *residual,
    struct ggml_tensor *post, struct ggml_tensor *comb);

// ---- custom ops ----
// The caller's function fun computes the node. fun gets the result, the operands (for ggml_custom_* they are result->src[]),
// the number ith of its task, the number nth of tasks, and userdata. The tasks call fun concurrently, with ith = 0 to nth - 1.
// nth is n_tasks, at most the number of threads; GGML_N_TASKS_MAX stands for all threads. fun must not be NULL.
// userdata is not copied: it must be valid whenever the graph is computed. Only the CPU backend of Berth computes custom ops.

// Returns a result in the type and shape of a, computed by fun from a. n_tasks is positive or GGML_N_TASKS_MAX.
GGML_API struct ggml_tensor *ggml_map_custom1(
    struct ggml_context *ctx, struct ggml_tensor *a, ggml_custom1_op_t fun, int n_tasks, void *userdata);
// As ggml_map_custom1, and the result shares a's memory.
GGML_API struct ggml_tensor *ggml_map_custom1_inplace(
    struct ggml_context *ctx, struct ggml_tensor *a, ggml_custom1_op_t fun, int n_tasks, void *userdata);
// As ggml_map_custom1, from a and b. b has any shape and type; if it is NULL, fun gets NULL.
GGML_API struct ggml_tensor *ggml_map_custom2(
    struct ggml_context *ctx, struct ggml_tensor *a, struct ggml_tensor *b, ggml_custom2_op_t fun, int n_tasks, void *userdata);
// As ggml_map_custom2, and the result shares a's memory.
GGML_API struct ggml_tensor *ggml_map_custom2_inplace(
    struct ggml_context *ctx, struct ggml_tensor *a, struct ggml_tensor *b, ggml_custom2_op_t fun, int n_tasks, void *userdata);
// As ggml_map_custom2, from a, b and c. c may be NULL too.
GGML_API struct ggml_tensor *ggml_map_custom3(struct ggml_context *ctx, struct ggml_tensor *a, struct ggml_tensor *b,
    struct ggml_tensor *c, ggml_custom3_op_t fun, int n_tasks, void *userdata);
// As ggml_map_custom3, and the result shares a's memory.
GGML_API struct ggml_tensor *ggml_map_custom3_inplace(struct ggml_context *ctx, struct ggml_tensor *a, struct ggml_tensor *b,
    struct ggml_tensor *c, ggml_custom3_op_t fun, int n_tasks, void *userdata);
// Returns a result `[ne0, ne1, ne2, ne3]` of the given type, computed by fun from n_args tensors, at most GGML_MAX_SRC - 1.
// The list args is copied, and its tensors may be NULL. args may be NULL if n_args is 0.
GGML_API struct ggml_tensor *ggml_custom_4d(struct ggml_context *ctx, enum ggml_type type, int64_t ne0, int64_t ne1, int64_t ne2,
    int64_t ne3, struct ggml_tensor **args, int n_args, ggml_custom_op_t fun, int n_tasks, void *userdata);
// As ggml_custom_4d, and the result is a view of a. Source 0 is a, and the tensors of args, at
// most GGML_MAX_SRC - 2, are the sources after it.
GGML_API struct ggml_tensor *ggml_custom_inplace(struct ggml_context *ctx, struct ggml_tensor *a, struct ggml_tensor **args,
    int n_args, ggml_custom_op_t fun, int n_tasks, void *userdata);

// ---- training ----
// These functions build loss and optimiser nodes. ggml-opt.h uses them; docs/user/training.md describes gradients.

// Computes the mean over all rows of -sum(b * log(softmax(a))): `a [n, ...]` are logits, `b [n, ...]` are the target
// probabilities -> `[1]`. The CPU backend computes f32.
GGML_API struct ggml_tensor *ggml_cross_entropy_loss(struct ggml_context *ctx, struct ggml_tensor *a, struct ggml_tensor *b);
// Computes the gradient of ggml_cross_entropy_loss by the logits: y = (softmax(b) - c) * a / number of rows. `a [1]` is the
// gradient of the loss, b are the logits, c are the target probabilities, in the shape of b -> the shape and type of b.
GGML_API struct ggml_tensor *ggml_cross_entropy_loss_back(
    struct ggml_context *ctx, struct ggml_tensor *a, struct ggml_tensor *b, struct ggml_tensor *c);
// Computes one AdamW step. It overwrites a, m and v, and the result is a view of a. a is marked by ggml_set_param. a, grad, m
// and v have the same shape. `adamw_params [7]` of f32: alpha, beta1, beta2, eps, wd, 1 / (1 - beta1^t), 1 / (1 - beta2^t)
// for step t. m = beta1 * m + (1 - beta1) * grad; v = beta2 * v + (1 - beta2) * grad^2;
// a = a * (1 - alpha * wd) - alpha * m * p[5] / (sqrt(v * p[6]) + eps), p = adamw_params.
GGML_API struct ggml_tensor *ggml_opt_step_adamw(struct ggml_context *ctx, struct ggml_tensor *a, struct ggml_tensor *grad,
    struct ggml_tensor *m, struct ggml_tensor *v, struct ggml_tensor *adamw_params);
// Computes one step of gradient descent: a = a * (1 - alpha * wd) - alpha * grad. It overwrites a, and the result is a view
// of a. a is marked by ggml_set_param and has the shape of grad. `sgd_params [2]` of f32: alpha, wd.
GGML_API struct ggml_tensor *ggml_opt_step_sgd(
    struct ggml_context *ctx, struct ggml_tensor *a, struct ggml_tensor *grad, struct ggml_tensor *sgd_params);

// ---- graphs ----
// A graph is memory of a context, and is freed with it. It has nodes, in the order in which they are computed, and leafs. A
// leaf is a tensor that has no op and is not a parameter. A graph has gradients if it was made with grads = true.
// A graph fails if it is full, if memory is short while it is built, or if a tensor depends on itself. Then the error is
// reported, nothing is added any more, and planning or computing the graph returns an error. berth_graph_check finds this.
// One thread at a time may use a graph. Several threads may build different graphs over the same tensors.

// Adds n_tensors alternatives to the graph, of which only tensors[idx] is marked to be computed. The graph keeps its form when
// idx changes. Returns tensors[idx]. If idx is out of range or an argument is NULL, it reports an error and returns NULL.
GGML_API struct ggml_tensor *ggml_build_forward_select(
    struct ggml_cgraph *cgraph, struct ggml_tensor **tensors, int n_tensors, int idx);
// Adds tensor and all tensors that it depends on, sources before users, and marks them to be computed. Tensors that are in the
// graph already are not added twice. Tensors without a name get one: "node_N" or "leaf_N".
GGML_API void ggml_build_forward_expand(struct ggml_cgraph *cgraph, struct ggml_tensor *tensor);
// As ggml_build_forward_expand, without the mark. This fixes the order of nodes. A backend skips nodes without the mark.
GGML_API void ggml_build_forward_order(struct ggml_cgraph *cgraph, struct ggml_tensor *tensor);
// Adds the nodes that compute the gradients of all losses (ggml_set_loss) by all parameters (ggml_set_param) in the graph. The
// graph has gradients. Call it after ggml_build_forward_expand. New tensors are made in ctx.
// grad_accs is NULL or has an entry for each node of the graph: NULL, or the tensor to which the node's gradient is added.
// A loss without such a tensor gets one of `[1]` in f32, which ggml_graph_reset sets to 1. ggml_graph_get_grad returns the
// gradients. On failure (no loss, no parameter, an op without a gradient rule, an op in place) ctx is poisoned and the graph
// cannot be computed.
GGML_API void ggml_build_backward_expand(struct ggml_context *ctx, struct ggml_cgraph *cgraph, struct ggml_tensor **grad_accs);
// As ggml_new_graph_custom, with GGML_DEFAULT_GRAPH_SIZE nodes and without gradients.
GGML_API struct ggml_cgraph *ggml_new_graph(struct ggml_context *ctx);
// Returns a new, empty graph for at most size nodes and size leafs. grads: it has gradients. Returns NULL if ctx is NULL, if
// its memory is too small (ggml_graph_overhead_custom), or if size is above 2^31 - 1.
GGML_API struct ggml_cgraph *ggml_new_graph_custom(struct ggml_context *ctx, size_t size, bool grads);
// Returns a copy of the graph in ctx, of the same size. Both graphs refer to the same tensors. force_grads: the copy has
// gradients even if cgraph has none. Returns NULL on failure.
GGML_API struct ggml_cgraph *ggml_graph_dup(struct ggml_context *ctx, struct ggml_cgraph *cgraph, bool force_grads);
// Replaces the contents of dst by those of src. If dst is smaller than src, dst fails.
GGML_API void ggml_graph_cpy(struct ggml_cgraph *src, struct ggml_cgraph *dst);
// Prepares a graph with gradients for training from the start: sets gradient accumulators to 0, those of losses to 1, and the
// moments of AdamW steps to 0. The tensors must have memory. For a graph without gradients it reports an error.
GGML_API void ggml_graph_reset(struct ggml_cgraph *cgraph);
// Removes all nodes and leafs. A graph that failed can be used after this call.
GGML_API void ggml_graph_clear(struct ggml_cgraph *cgraph);
// Returns the number of nodes for which the graph has memory, 0 for NULL.
GGML_API int ggml_graph_size(struct ggml_cgraph *cgraph);
// Returns node i. A negative i counts from the end: -1 is the last node.
// If there is no such node, it reports an error and returns NULL.
GGML_API struct ggml_tensor *ggml_graph_node(struct ggml_cgraph *cgraph, int i);
// Returns the array of nodes, which has ggml_graph_n_nodes entries and belongs to the graph. Returns NULL for NULL.
GGML_API struct ggml_tensor **ggml_graph_nodes(struct ggml_cgraph *cgraph);
// Returns the number of nodes, 0 for NULL.
GGML_API int ggml_graph_n_nodes(struct ggml_cgraph *cgraph);
// Appends tensor as a node, without its sources and without marking it to be computed. A full graph fails.
GGML_API void ggml_graph_add_node(struct ggml_cgraph *cgraph, struct ggml_tensor *tensor);
// Returns the bytes that ggml_new_graph takes from its context.
GGML_API size_t ggml_graph_overhead(void);
// Returns the bytes that ggml_new_graph_custom takes from its context.
// If size is above 2^31 - 1, it reports an error and returns SIZE_MAX.
GGML_API size_t ggml_graph_overhead_custom(size_t size, bool grads);
// Returns the first leaf or else the first node of that name, NULL if there is none.
GGML_API struct ggml_tensor *ggml_graph_get_tensor(const struct ggml_cgraph *cgraph, const char *name);
// Returns the gradient of node, after ggml_build_backward_expand: an f32 tensor in the shape of node. Returns NULL
// if node has none.
GGML_API struct ggml_tensor *ggml_graph_get_grad(const struct ggml_cgraph *cgraph, const struct ggml_tensor *node);
// Returns the accumulator of node's gradient, NULL if it has none. A gradient without one is not kept between computations.
GGML_API struct ggml_tensor *ggml_graph_get_grad_acc(const struct ggml_cgraph *cgraph, const struct ggml_tensor *node);
// Logs all nodes and leafs with shape, type, op and name, at GGML_LOG_LEVEL_INFO.
GGML_API void ggml_graph_print(const struct ggml_cgraph *cgraph);
// Writes cgraph to a file in the format of Graphviz's dot. gb is NULL or a graph with gradients: tensors that have a gradient
// in gb get another colour. If cgraph is NULL, gb is drawn. A file that cannot be written is reported as an error.
GGML_API void ggml_graph_dump_dot(const struct ggml_cgraph *gb, const struct ggml_cgraph *cgraph, const char *filename);

// ---- log ----
// All functions of Berth's libraries log through one callback of the process. It gets the level, the text and user_data, and
// may be called by any thread, also concurrently.

// Writes the callback and its user_data to the two addresses, each of which may be NULL. Without a callback of the program,
// this is the one that prints to stderr. Safe on any thread.
GGML_API void ggml_log_get(ggml_log_callback *log_callback, void **user_data);
// Sets the callback and its user_data together. A NULL callback restores the default, which prints to stderr.
// Safe on any thread.
GGML_API void ggml_log_set(ggml_log_callback log_callback, void *user_data);

// ---- quantisation ----
// These functions are safe on any thread if no two threads write to the same memory.

// Sets all bytes of the tensor's memory to 0, in host or device memory. Returns tensor. On failure (no memory, or a buffer
// without memset) it reports an error and changes nothing.
GGML_API struct ggml_tensor *ggml_set_zero(struct ggml_tensor *tensor);
// Does nothing: the tables of all types are constants. It exists for programs that call it.
GGML_API void ggml_quantize_init(enum ggml_type type);
// Does nothing: there are no tables to free. It exists for programs that call it.
GGML_API void ggml_quantize_free(void);
// True if ggml_quantize_chunk requires an importance matrix for this type: IQ2_XXS, IQ2_XS and IQ1_S.
GGML_API bool ggml_quantize_requires_imatrix(enum ggml_type type);
// Converts nrows rows of n_per_row floats to type, which may be F32, F16 or BF16 too. start is the index of the first element;
// it is a multiple of n_per_row. Row r of src becomes row r of dst, so src and dst are the starts of the whole tensors, and
// threads may convert different rows concurrently. imatrix is NULL or has n_per_row weights of the squared error, the same for
// all rows. n_per_row is a multiple of the block size.
// Returns the bytes written. On failure it reports an error and returns 0.
GGML_API size_t ggml_quantize_chunk(
    enum ggml_type type, const float *src, void *dst, int64_t start, int64_t nrows, int64_t n_per_row, const float *imatrix);
// Returns the properties of a type: name, block size in elements, bytes per block, and conversions of rows, NULL where there
// are none. They are constants. Returns NULL if type is not below GGML_TYPE_COUNT. A removed type has the block size 0.
GGML_API const struct ggml_type_traits *ggml_get_type_traits(enum ggml_type type);

// ---- thread pool parameters ----
// Parameters of ggml_threadpool_new (ggml-cpu.h). cpumask selects the CPUs of the threads; no CPU selected: any. strict_cpu:
// each thread runs on one CPU of the mask. poll: how long an idle thread spins before it sleeps, in steps of 20 us, at most
// 100. paused: the threads of the new pool sleep without spinning.

// Returns the default parameters for n_threads threads: any CPU, normal priority, poll 50 (1 ms), not paused.
GGML_API struct ggml_threadpool_params ggml_threadpool_params_default(int n_threads);
// As ggml_threadpool_params_default, written to *p. NULL is ignored.
GGML_API void ggml_threadpool_params_init(struct ggml_threadpool_params *p, int n_threads);
// True if p0 and p1 are equal in n_threads, prio, poll, strict_cpu and cpumask. paused is not compared. False for NULL.
GGML_API bool ggml_threadpool_params_match(const struct ggml_threadpool_params *p0, const struct ggml_threadpool_params *p1);

#ifdef __cplusplus
}
#endif
