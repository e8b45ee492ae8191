/* Types of the DeepGEMM C interface: what a caller declares and what comes back.
 *
 * C11 and C++20. Every struct is plain data. A zero-initialised field always means "you choose";
 * where a zero is also a value somebody could want (alpha, actual M) the full-form launch takes it
 * by pointer. `reserved` fields must be zero; they are refused otherwise, so that a later version
 * can give them a meaning.
 *
 * Shapes: op(A) is M x K, op(B) is K x N, C is M x N. Sizes, strides and offsets count elements
 * unless a name ends in `_bytes`, and are 64 bits wide.
 */
#ifndef DEEPGEMM_TYPES_H
#define DEEPGEMM_TYPES_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#ifdef __cplusplus
extern "C" {
#endif

/* Each code maps to one next step; deepgemm_last_error() has the sentence with the values. */
typedef enum deepgemm_status_t {
  DEEPGEMM_SUCCESS = 0,
  DEEPGEMM_ERROR_INVALID_ARGUMENT = 1, /* correct the named argument */
  DEEPGEMM_ERROR_UNSUPPORTED = 2,      /* not built, or no kernel: see the refusals of the report */
  DEEPGEMM_ERROR_CONTRACT_UNMET = 3,   /* no arithmetic path keeps the contract: loosen as told */
  DEEPGEMM_ERROR_BUDGET_INFEASIBLE = 4, /* raise the budget to the figure told */
  DEEPGEMM_ERROR_OUT_OF_MEMORY = 5,     /* free memory or give a smaller problem */
  DEEPGEMM_ERROR_NOT_PREPARED = 6,      /* call deepgemm_prepare before this point */
  DEEPGEMM_ERROR_COMPILER_MISSING = 7,  /* install a compiler or an ahead-of-time pack */
  DEEPGEMM_ERROR_COMPILE_FAILED = 8,    /* read the compiler's output that the message names */
  DEEPGEMM_ERROR_DEVICE = 9,            /* the device or its driver failed */
  DEEPGEMM_ERROR_IO = 10,               /* a file or directory could not be used */
  DEEPGEMM_ERROR_FORMAT = 11,           /* a file or tensor is not of the stated format */
  DEEPGEMM_ERROR_BUFFER_TOO_SMALL = 12, /* call again with the size that was written back */
  DEEPGEMM_ERROR_INTERNAL = 13          /* a defect of this library: please report the message */
} deepgemm_status_t;

/* Which operand is stored transposed. Stored shapes (row-major unless the layout says otherwise):
 * A is [M,K] for NN/NT and [K,M] for TN/TT; B is [K,N] for NN/TN and [N,K] for NT/TT.
 * NT is the form of a linear layer: y = x * W^T. */
typedef enum gemm_operation_t {
  GEMM_OP_NN = 0,
  GEMM_OP_NT = 1,
  GEMM_OP_TN = 2,
  GEMM_OP_TT = 3
} gemm_operation_t;

/* What the product is for. The planner takes defaults (residency, reuse, split) from it; it never
 * changes the numerical result that the contract allows. */
typedef enum gemm_role_t {
  GEMM_ROLE_GENERIC = 0,
  GEMM_ROLE_DENSE_PROJECTION = 1,
  GEMM_ROLE_QKV_PROJECTION = 2,
  GEMM_ROLE_OUTPUT_PROJECTION = 3,
  GEMM_ROLE_ATTENTION_SCORES = 4,
  GEMM_ROLE_MOE_GATE = 5,
  GEMM_ROLE_MOE_EXPERT = 6,
  GEMM_ROLE_ROTARY_EMBEDDING = 7,
  GEMM_ROLE_LM_HEAD = 8
} gemm_role_t;

/* Number formats. TF32 is stored as FP32 and names an arithmetic; INT4_AWQ and INT4_GPTQ are INT4
 * with the group scales and zero points of those methods. Bit layouts: docs/contract.md. */
typedef enum gemm_precision_t {
  PRECISION_DEFAULT = 0,
  PRECISION_FP64 = 1,
  PRECISION_FP32 = 2,
  PRECISION_TF32 = 3,
  PRECISION_FP16 = 4,
  PRECISION_BF16 = 5,
  PRECISION_FP8_E4M3 = 6,
  PRECISION_FP8_E5M2 = 7,
  PRECISION_INT8 = 8,
  PRECISION_INT4 = 9,
  PRECISION_INT4_AWQ = 10,
  PRECISION_INT4_GPTQ = 11
} gemm_precision_t;

/* Which error limit binds (docs/contract.md has the definitions). DEFAULT: every limit given. */
typedef enum gemm_error_model_t {
  ERROR_MODEL_DEFAULT = 0,
  ERROR_MODEL_RELATIVE_EPSILON = 1,
  ERROR_MODEL_ABSOLUTE_EPSILON = 2
} gemm_error_model_t;

/* What happens to weight channels (rows of op(B), index k) with outliers when weights are quantised
 * to INT4: nothing; values beyond the 99th percentile of their group are clamped; or the whole
 * channel is kept in FP16 and multiplied exactly. */
typedef enum gemm_outlier_handling_t {
  OUTLIER_NONE = 0,
  OUTLIER_CLAMP_TO_99TH_PERCENTILE = 1,
  OUTLIER_FP16_CHANNEL = 2
} gemm_outlier_handling_t;

/* Granularity of scales. For dense quantised operands (see gemm_launch_args_t::scale_a, scale_b):
 * PER_TENSOR: one value; PER_CHANNEL: A [M], B [N]; PER_GROUP: A [M, ceil(K/g)], B [N, ceil(K/g)]
 * with g = quantization_group_size; BLOCK_128: A [M, ceil(K/128)], B [ceil(N/128), ceil(K/128)];
 * all row-major FP32. PER_CHANNEL_DYNAMIC: weight scales are computed per output channel at
 * packing. DEFAULT: PER_GROUP for INT4, PER_CHANNEL for INT8, BLOCK_128 for FP8. */
typedef enum gemm_dequant_strategy_t {
  DEQUANT_STRATEGY_DEFAULT = 0,
  DEQUANT_STRATEGY_PER_TENSOR = 1,
  DEQUANT_STRATEGY_PER_CHANNEL = 2,
  DEQUANT_STRATEGY_PER_GROUP = 3,
  DEQUANT_STRATEGY_PER_CHANNEL_DYNAMIC = 4,
  DEQUANT_STRATEGY_BLOCK_128 = 5
} gemm_dequant_strategy_t;

/* NONE: whatever is fastest; a GPU's plan may change its kernel with the load. RUN_TO_RUN: the same
 * call gives the same bits. BATCH_INVARIANT: besides, the bits of a row of C do not depend on M or
 * on the other rows. */
typedef enum gemm_reproducibility_t {
  REPRODUCIBILITY_NONE = 0,
  REPRODUCIBILITY_RUN_TO_RUN = 1,
  REPRODUCIBILITY_BATCH_INVARIANT = 2
} gemm_reproducibility_t;

/* On what an a-priori bound may rest. DEFAULT is PROBABILISTIC at the confidence that the budget's
 * reliability level implies (docs/contract.md, "Basis"). */
typedef enum gemm_bound_basis_t {
  BOUND_BASIS_DEFAULT = 0,
  BOUND_BASIS_WORST_CASE = 1,
  BOUND_BASIS_PROBABILISTIC = 2
} gemm_bound_basis_t;

/* Storage order of a matrix. ANY: the planner chooses and deepgemm_get_plan_info tells; a plain
 * pointer is then row-major. BLOCKED_16x16: tiles of 16x16 elements, row-major inside and over
 * tiles, edge tiles padded to full size. STREAMING: row-major storage that is read once, in address
 * order. */
typedef enum gemm_physical_layout_t {
  LAYOUT_ANY = 0,
  LAYOUT_ROW_MAJOR = 1,
  LAYOUT_COL_MAJOR = 2,
  LAYOUT_BLOCKED_16x16 = 3,
  LAYOUT_STREAMING = 4
} gemm_physical_layout_t;

typedef enum gemm_memory_space_t {
  MEM_SPACE_DEFAULT = 0,
  MEM_SPACE_L2_CACHE = 1, /* keep resident in L2 as far as the device grants it: a wish */
  MEM_SPACE_HOST_PINNED = 2
} gemm_memory_space_t;

typedef enum gemm_access_pattern_t {
  ACCESS_PATTERN_DEFAULT = 0,
  ACCESS_PATTERN_STREAMING = 1, /* used once: evict first */
  ACCESS_PATTERN_REUSED = 2     /* used again soon: keep */
} gemm_access_pattern_t;

typedef enum gemm_l2_prefetch_t {
  L2_PREFETCH_DEFAULT = 0,
  L2_PREFETCH_NONE = 1,
  L2_PREFETCH_MODERATE = 2,
  L2_PREFETCH_AGGRESSIVE = 3
} gemm_l2_prefetch_t;

typedef enum gemm_activation_t {
  GEMM_ACTIVATION_NONE = 0,
  GEMM_ACTIVATION_RELU = 1,
  GEMM_ACTIVATION_GELU = 2,      /* exact, with erf */
  GEMM_ACTIVATION_GELU_TANH = 3, /* the tanh approximation */
  GEMM_ACTIVATION_SILU = 4,
  GEMM_ACTIVATION_SWIGLU = 5 /* B = [gate | up] along N; C is M x N/2 = silu(gate) * up; N even */
} gemm_activation_t;

typedef enum gemm_group_kind_t {
  GEMM_GROUP_NONE = 0,
  GEMM_GROUP_CONTIGUOUS = 1, /* rows of A sorted by group, raw counts */
  GEMM_GROUP_MASKED = 2,
  GEMM_GROUP_K = 3
} gemm_group_kind_t;

/* Values of gemm_tiling_policy_t::sm_partition; a positive value is a count of SMs (CPU: threads).
 */
enum { SM_PARTITION_ALL = 0, SM_PARTITION_DYNAMIC = -1 };

/* In gemm_layout_t::strides: every index of that dimension reads the same element (inputs only). */
#define GEMM_STRIDE_BROADCAST INT64_MIN

/* How one operand lies in memory. */
typedef struct gemm_layout_t {
  int64_t logical_shape[3]; /* {batch, rows, columns} as stored; zeros: from the problem */
  gemm_physical_layout_t physical_layout;
  gemm_memory_space_t memory_space;
  gemm_access_pattern_t access_pattern;
  int64_t
      strides[3]; /* {batch, row, column} in elements; zeros: contiguous. Not for BLOCKED_16x16 */
} gemm_layout_t;

/* What a launch may cost. Zero: no limit. */
typedef struct compute_budget_t {
  double max_latency_us;
  double energy_cap_mj; /* millijoules per launch */
  /* Probability per element of missing the element tolerance that a probabilistic bound may leave:
   * 0: 1e-9 (full precision), 1: 1e-6, 2: 1e-4 (stochastic rounding allowed), 3: 1e-2. */
  int reliability_level;
} compute_budget_t;

/* What error is allowed, hence which arithmetic is admissible. Limits of zero: operands are not
 * rounded and sums are kept at least in FP32 ("native"). */
typedef struct numerical_contract_t {
  /* What A and B are stored in. INT4*: weights B only, A is activation_precision. */
  gemm_precision_t input_precision;
  gemm_precision_t
      output_precision;   /* DEFAULT: input_precision; FP32 for INT8; FP16 for INT4*, FP8 */
  bool safe_accumulation; /* no inf or NaN where the exact result is finite */
  gemm_error_model_t error_model;
  double max_relative_error; /* against |alpha|(|A||B|) + |beta C0|, element by element */
  double max_absolute_error;
  gemm_outlier_handling_t outlier_handling;
  gemm_dequant_strategy_t dequant_strategy;
  gemm_reproducibility_t reproducibility;
  gemm_bound_basis_t bound_basis;
  double confidence; /* of a probabilistic bound, per element; 0: by reliability */
  gemm_precision_t activation_precision; /* storage of A; DEFAULT: input, or output for INT4* */
  gemm_precision_t weight_precision;     /* storage of B; DEFAULT: input_precision */
  int32_t quantization_group_size;       /* -1: whole K; 0: 128; else 16, 32, 64, 128, 256 */
  double outlier_fraction;               /* share of channels kept in FP16; 0: 0.01 */
  double max_abs_a;                      /* largest |A| the caller promises; 0: not declared */
  double max_abs_b;                      /* largest |B| the caller promises; 0: not declared */
  double skip_tolerance;                 /* share of the error limit that tile skipping may use */
  uint64_t seed; /* of stochastic rounding, which it asks for; 0: outputs are rounded to nearest */
  int64_t reserved[4];
} numerical_contract_t;

/* Tiling, expanded into the generated kernel. Obeyed or refused with a reason; a field for which
 * the backend has no notion is reported as not applicable in the plan. */
typedef struct gemm_tiling_policy_t {
  int32_t block_m, block_n, block_k;
  int32_t warp_m, warp_n, warp_k;
  int32_t sm_partition; /* SM_PARTITION_ALL, SM_PARTITION_DYNAMIC or a count */
  gemm_l2_prefetch_t l2_prefetch;
  int32_t reserved[4];
} gemm_tiling_policy_t;

/* What follows the product, in this order: v = alpha*acc + beta*C0 + bias; v = activation(v);
 * v = v + residual; C = round(v). C0 is the old content of C, read only when beta != 0. With
 * SWIGLU, C0 and residual are M x N/2: v = silu(gate) * up + beta*C0 + residual. */
typedef struct gemm_epilogue_t {
  gemm_activation_t activation;
  bool bias;                           /* launch takes N values, one per column of op(B) */
  bool residual;                       /* launch takes a matrix of the shape of C, row-major */
  gemm_precision_t bias_precision;     /* DEFAULT: output_precision */
  gemm_precision_t residual_precision; /* DEFAULT: output_precision */
  int64_t residual_row_stride;         /* 0: contiguous */
  int32_t reserved[4];
} gemm_epilogue_t;

/* The declaration a plan is made from. */
typedef struct gemm_intent_t {
  gemm_operation_t operation;
  gemm_role_t role;
  double alpha; /* 0: 1. A true zero is given at launch: gemm_launch_args_t::alpha */
  double beta;
  numerical_contract_t numerical_contract;
  gemm_tiling_policy_t tiling_policy;
  compute_budget_t budget;
  gemm_layout_t layout_a, layout_b, layout_c;
  gemm_epilogue_t epilogue;
  int64_t batch_count; /* 0: 1 */
  gemm_group_kind_t group_kind;
  int64_t group_count;
  int32_t output_count;     /* QKV in one product: 3 outputs with the widths below; 0: one output */
  int64_t output_widths[3]; /* columns of each output, sum N */
  const char *device;       /* "cpu", "cuda:0", or a profile such as "a100"; NULL: current device */
  int64_t reserved[4];
} gemm_intent_t;

/* Opaque stream of the backend (a CUstream for CUDA); NULL is the backend's default. */
typedef void *deepgemm_stream_t;

/* A plan: made once, launched any number of times. Launches of one plan may run in several threads;
 * creating and destroying it may not overlap with them. */
typedef struct gemm_plan_t {
  deepgemm_stream_t
      stream; /* public: launches are enqueued here; may be changed between launches */
  struct deepgemm_plan *handle; /* private */
} gemm_plan_t;

/* Quantised or re-laid weights that a plan reads as B; see deepgemm_pack_weights. */
typedef struct deepgemm_packed_weights_t deepgemm_packed_weights_t;

/* Every operand of a launch. Zero-initialise, then set what the plan needs. */
typedef struct gemm_launch_args_t {
  const void *A;
  const void *B; /* dense matrix, or a deepgemm_packed_weights_t* where the plan asks for one */
  void *C;
  const void *bias;
  const void *residual;
  const float *scale_a; /* granularity: gemm_dequant_strategy_t; NULL: 1 */
  const float *scale_b;
  const double *alpha; /* NULL: the intent's */
  const double *beta;
  const int64_t *actual_m;      /* rows in this launch, 0 ... planned M; NULL: planned M */
  const int64_t *group_offsets; /* grouped products */
  void *extra_outputs[2];       /* second and third output of a QKV intent */
  void *workspace; /* NULL: the plan's own; else at least the size of the plan's info */
  size_t workspace_bytes;
  deepgemm_stream_t stream; /* NULL: the plan's */
  int64_t reserved[4];
} gemm_launch_args_t;

/* What a plan decided, now: see deepgemm_launch_plan. Strings live as long as the library. */
typedef struct deepgemm_plan_info_t {
  const char *device; /* profile name */
  const char *path;   /* arithmetic, e.g. "fp32" */
  const char *family; /* kernel family, e.g. "cpu_blocked" */
  bool launchable;    /* false: the plan is for a device that this process does not run on */
  bool packed_b;      /* true: B must be a deepgemm_packed_weights_t* */
  int64_t m_bucket;   /* the kernel serves every M up to this one */
  gemm_tiling_policy_t tiling;
  gemm_layout_t layout_a, layout_b, layout_c;
  double predicted_us, predicted_mj; /* mj is 0 where the profile states no power */
  double bound_relative;             /* certificate: error against |alpha|(|A||B|) + |beta C0| */
  double bound_absolute; /* smallest error floor (underflow), added to the relative part */
  gemm_bound_basis_t bound_basis;
  double bound_confidence;
  size_t workspace_bytes;
} deepgemm_plan_info_t;

/* Result of deepgemm_verify_plan: error of one launch against the FP64 reference. */
typedef struct deepgemm_verification_t {
  int64_t elements;
  int64_t nonfinite;         /* results not finite where the reference is */
  int64_t outside;           /* elements outside the plan's contract */
  double max_relative_error; /* as defined in docs/contract.md */
  double max_absolute_error;
  double bound_relative; /* the certificate's, for comparison */
  int64_t worst_row, worst_column;
  int64_t damaged_rows; /* rows with at least one element outside */
  bool contract_kept;
  bool bound_kept; /* measured error is within the certificate's bound */
} deepgemm_verification_t;

/* Formats of the tensors that deepgemm_pack_weights reads (docs/formats.md gives the bytes). */
typedef enum deepgemm_weight_format_t {
  WEIGHT_FORMAT_DENSE =
      0, /* FP64/FP32/FP16/BF16/FP8/INT8 matrix, see `precision` and `transposed` */
  WEIGHT_FORMAT_AWQ_GEMM = 1,
  WEIGHT_FORMAT_AWQ_GEMV = 2,
  WEIGHT_FORMAT_GPTQ_V1 = 3,
  WEIGHT_FORMAT_GPTQ_V2 = 4,
  WEIGHT_FORMAT_COMPRESSED_TENSORS = 5, /* pack-quantized */
  WEIGHT_FORMAT_FP8_BLOCK = 6,          /* e4m3 [N,K] with FP32 scales [ceil(N/128), ceil(K/128)] */
  WEIGHT_FORMAT_INT8_CHANNEL = 7        /* int8 [N,K] with FP32 scales [N] */
} deepgemm_weight_format_t;

/* Tensors of one weight matrix as a checkpoint has them, in host memory. Only read when packing,
 * only written when exporting; contiguous. */
typedef struct deepgemm_weight_tensors_t {
  deepgemm_weight_format_t format;
  gemm_precision_t precision; /* element type of a DENSE matrix */
  bool transposed;            /* DENSE: false: [N,K] (out_features first); true: [K,N] */
  int64_t in_features;        /* K */
  int64_t out_features;       /* N */
  int32_t bits;               /* 4 or 8; 0: 4 */
  int32_t group_size;         /* -1: whole K; 0: 128 */
  bool symmetric;             /* compressed-tensors without zero points */
  void *weight;               /* qweight, weight_packed or weight */
  void *scales;
  gemm_precision_t scale_precision; /* FP16 (default), BF16 or FP32 */
  void *zeros;                      /* qzeros, weight_zero_point; NULL: symmetric */
  int32_t *g_idx;                   /* act-order: group of each k; NULL: k / group_size */
  const float *channel_importance;  /* [K] e.g. absmax of activations: picks outlier channels */
  int64_t shard_offset;             /* first k of this shard within the unsharded matrix */
  int64_t weight_bytes, scales_bytes, zeros_bytes; /* sizes of the buffers; checked when not zero */
  int64_t reserved[4];
} deepgemm_weight_tensors_t;

/* What packing did to the weights: sizes, and the representation error (packed against given). */
typedef struct deepgemm_packed_info_t {
  int64_t in_features, out_features;
  gemm_precision_t precision;
  int32_t group_size;
  size_t bytes;
  int64_t outlier_channels; /* kept in FP16 */
  int64_t clamped_values;
  int64_t
      tiny_scales; /* scales below FP16's smallest normal: kept in FP32 under safe accumulation */
  double max_abs_error;
  double rms_error;
  double relative_frobenius_error;
  double max_column_abs_sum; /* max over n of sum over k |w|: turns relative into absolute bounds */
} deepgemm_packed_info_t;

typedef enum deepgemm_operand_t {
  GEMM_OPERAND_A = 0,
  GEMM_OPERAND_B = 1,
  GEMM_OPERAND_C = 2
} deepgemm_operand_t;

typedef enum deepgemm_explain_format_t {
  DEEPGEMM_EXPLAIN_TEXT = 0,
  DEEPGEMM_EXPLAIN_JSON = 1
} deepgemm_explain_format_t;

typedef struct deepgemm_pool_stats_t {
  size_t reserved_bytes; /* taken from the system */
  size_t used_bytes;     /* handed out */
  size_t peak_used_bytes;
  int64_t live_allocations;
  int64_t total_allocations;
  /* 1 - largest free block / free bytes; 0 when nothing is free. GPU: the driver does not tell; the
   * share of reserved bytes that is not used */
  double fragmentation_ratio;
} deepgemm_pool_stats_t;

typedef struct deepgemm_shape_t {
  int64_t max_m, n, k;
} deepgemm_shape_t;

typedef struct deepgemm_prepare_report_t {
  int64_t kernels;  /* distinct kernels that the shapes can ever choose */
  int64_t compiled; /* of them, compiled now */
  double seconds;
} deepgemm_prepare_report_t;

/* A candidate as hooks see it; strings and the struct live for the call only. */
typedef struct deepgemm_candidate_t {
  const char *device;
  const char *path;
  const char *family;
  int64_t m, n, k;
  gemm_tiling_policy_t tiling;
  double bound_relative;
  double predicted_us;
} deepgemm_candidate_t;

/* Callbacks into each layer (API12). They run in the planning thread, must be pure and must not
 * call the library. NULL members are not called. */
typedef struct deepgemm_hooks_t {
  void *user;
  /* Data orchestration: may change *layout, the layout proposed for an operand declared ANY. */
  void (*choose_layout)(void *user, deepgemm_operand_t operand, int64_t rows, int64_t cols,
                        gemm_layout_t *layout);
  /* Compute scheduling: returns the score (lower is better) used in place of the predicted time. */
  double (*score_candidate)(void *user, const deepgemm_candidate_t *candidate);
  /* Numerical contract: false refuses the candidate; the reason shown is "refused by caller". */
  bool (*admit_candidate)(void *user, const deepgemm_candidate_t *candidate);
} deepgemm_hooks_t;

typedef enum deepgemm_log_level_t {
  DEEPGEMM_LOG_ERROR = 0,
  DEEPGEMM_LOG_WARNING = 1,
  DEEPGEMM_LOG_INFO = 2,
  DEEPGEMM_LOG_DEBUG = 3
} deepgemm_log_level_t;

typedef void (*deepgemm_log_callback_t)(void *user, deepgemm_log_level_t level,
                                        const char *category, const char *message);

#ifdef __cplusplus
}
#endif
#endif
