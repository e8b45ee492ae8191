/* DeepGEMM: declare a matrix product, read the plan, launch it.
 *
 *   gemm_intent_t intent = {.operation = GEMM_OP_NT, .alpha = 1.0, .beta = 0.0,
 *                           .numerical_contract = get_llm_contract(),
 *                           .tiling_policy = TILING_POLICY_BALANCED};
 *   gemm_plan_t plan;
 *   deepgemm_create_plan(&plan, &intent, M, N, K);
 *   deepgemm_launch_plan(&plan, A, B, C);
 *   deepgemm_destroy_plan(&plan);
 *
 * C11 and C++ (with overloads for references and typed pointers at the end). No CUDA header is
 * needed. Every function that can fail returns deepgemm_status_t and leaves a sentence for
 * deepgemm_last_error() in the calling thread. Unless a comment says otherwise a function may be
 * called from any thread. The library never prints, aborts or throws across this interface.
 */
#ifndef DEEPGEMM_DEEPGEMM_H
#define DEEPGEMM_DEEPGEMM_H

#include "deepgemm/types.h"
#include "deepgemm/version.h"

#if defined(_WIN32)
#define DEEPGEMM_API __declspec(dllexport)
#else
#define DEEPGEMM_API __attribute__((visibility("default")))
#endif

#ifdef __cplusplus
extern "C" {
#endif

/* ---- Version and errors --------------------------------------------------------------------- */

/* Version of the library that runs: major * 10000 + minor * 100 + patch. Compare with
 * DEEPGEMM_VERSION, the version compiled against. */
DEEPGEMM_API int deepgemm_version(void);

/* Name of a status code, e.g. "DEEPGEMM_ERROR_UNSUPPORTED"; "unknown status" for other values.
 * Lives as long as the library. */
DEEPGEMM_API const char *deepgemm_status_string(deepgemm_status_t status);

/* Sentence about the last failure in this thread: argument, value, rule, what to do. Empty when no
 * call failed yet. Valid until the next failing call of this thread. */
DEEPGEMM_API const char *deepgemm_last_error(void);

/* Where log records go. NULL restores the default: nothing, or standard error at the level of
 * DEEPGEMM_LOG_LEVEL. The callback may run in any thread, several at a time. */
DEEPGEMM_API deepgemm_status_t deepgemm_set_log_callback(deepgemm_log_callback_t callback,
                                                         void *user);

/* ---- Ready-made values ---------------------------------------------------------------------- */

/* FP32 storage, relative error 1e-3: TF32 tensor cores are admissible where they exist. */
DEEPGEMM_API numerical_contract_t get_llm_contract(void);

/* Tilings that suit large FP16/BF16 products on those chips (block 128x128x32, warps 64x64 on the
 * A100; block 128x256x64 on the H100). */
DEEPGEMM_API gemm_tiling_policy_t get_optimal_policy_for_a100(void);
DEEPGEMM_API gemm_tiling_policy_t get_optimal_policy_for_h100(void);

/* Large tiles for an idle device, small ones for a busy one. */
static const gemm_tiling_policy_t TILING_POLICY_AGGRESSIVE = {
    128, 256, 0, 0, 0, 0, SM_PARTITION_ALL, L2_PREFETCH_DEFAULT, {0, 0, 0, 0}};
static const gemm_tiling_policy_t TILING_POLICY_BALANCED = {
    64, 128, 0, 0, 0, 0, SM_PARTITION_ALL, L2_PREFETCH_DEFAULT, {0, 0, 0, 0}};
static const gemm_tiling_policy_t TILING_POLICY_CONSERVATIVE = {
    32, 64, 0, 0, 0, 0, SM_PARTITION_ALL, L2_PREFETCH_DEFAULT, {0, 0, 0, 0}};

/* The policy for a device load in 0 ... 1: below 0.4 AGGRESSIVE, below 0.7 BALANCED, else
 * CONSERVATIVE. A load outside 0 ... 1 or NaN counts as 1. */
DEEPGEMM_API gemm_tiling_policy_t get_tiling_policy_for_load(double load);

/* ---- Device --------------------------------------------------------------------------------- */

/* Device of intents that name none: "cpu", "cuda:<n>", "sim:<profile>" or a profile name for
 * planning only ("a100"). NULL: automatic (DEEPGEMM_DEVICE, else the first GPU, else the CPU).
 * Process-wide. INVALID_ARGUMENT for an unknown name (the message lists the known ones),
 * UNSUPPORTED for a backend that is not part of this build. */
DEEPGEMM_API deepgemm_status_t deepgemm_set_device(const char *device);

/* Stream given to plans that this thread creates afterwards. */
DEEPGEMM_API deepgemm_status_t deepgemm_set_stream(deepgemm_stream_t stream);

/* Path of the nvcc program for kernels that are not compiled by NVRTC; overrides
 * DEEPGEMM_NVCC_PATH. NULL: search again. INVALID_ARGUMENT when the file is not executable. */
DEEPGEMM_API deepgemm_status_t deepgemm_set_nvcc_path(const char *path);

/* Allow kernels that use Hopper instructions. Process-wide; plans made before keep their choice. */
DEEPGEMM_API deepgemm_status_t deepgemm_enable_hopper_opt(bool enabled);

/* ---- Plans ---------------------------------------------------------------------------------- */

/* Makes a plan for op(A) [M,K] * op(B) [K,N]. Any M, N, K >= 0. The intent is copied. On failure
 * *plan is empty, deepgemm_last_error() tells the first reason and deepgemm_explain_problem() all
 * of them. INVALID_ARGUMENT, UNSUPPORTED, CONTRACT_UNMET, BUDGET_INFEASIBLE, OUT_OF_MEMORY. */
DEEPGEMM_API deepgemm_status_t deepgemm_create_plan(gemm_plan_t *plan, const gemm_intent_t *intent,
                                                    int64_t M, int64_t N, int64_t K);

/* Frees a plan and empties *plan; NULL and empty plans are fine. Not while a launch of it runs. */
DEEPGEMM_API deepgemm_status_t deepgemm_destroy_plan(gemm_plan_t *plan);

/* Enqueues C = epilogue(alpha * op(A) * op(B)) on plan->stream with the sizes and layouts of the
 * plan. CPU: done on return. Never allocates memory from the system. INVALID_ARGUMENT names the
 * operand and the rule (null, overlap of C with an input, B not packed, memory that the GPU cannot
 * reach); UNSUPPORTED for a plan made for a device that this process does not run on; NOT_PREPARED
 * when the stream is captured into a graph and a kernel or workspace is missing: the capture is
 * then intact, and launching once before, deepgemm_prepare or args->workspace helps; DEVICE for a
 * fault of the device, also of earlier work.
 *
 * With REPRODUCIBILITY_NONE a GPU's load is looked at after every 100 launches of a plan, in the
 * background; where other programs leave so little that another kernel is predicted to be a tenth
 * faster, later launches use that one. It keeps the plan's error bound, layouts and workspace. */
DEEPGEMM_API deepgemm_status_t deepgemm_launch_plan(const gemm_plan_t *plan, const void *A,
                                                    const void *B, void *C);

/* The same with every operand. */
DEEPGEMM_API deepgemm_status_t deepgemm_launch_plan_args(const gemm_plan_t *plan,
                                                         const gemm_launch_args_t *args);

/* What the plan decided, layouts declared ANY included. */
DEEPGEMM_API deepgemm_status_t deepgemm_get_plan_info(const gemm_plan_t *plan,
                                                      deepgemm_plan_info_t *info);

/* Writes the plan's report as text or JSON: problem, candidates, first refused check of each,
 * predicted time, energy and error, the choice and why, the certificate. `needed` (may be NULL)
 * gets the size with the closing zero; BUFFER_TOO_SMALL when `capacity` is less (buffer may be NULL
 * with capacity 0). */
DEEPGEMM_API deepgemm_status_t deepgemm_explain_plan(const gemm_plan_t *plan,
                                                     deepgemm_explain_format_t format, char *buffer,
                                                     size_t capacity, size_t *needed);

/* The same report without making a plan; also when no candidate is admissible: then the report ends
 * in the reason and the function still succeeds. */
DEEPGEMM_API deepgemm_status_t deepgemm_explain_problem(const gemm_intent_t *intent, int64_t M,
                                                        int64_t N, int64_t K,
                                                        deepgemm_explain_format_t format,
                                                        char *buffer, size_t capacity,
                                                        size_t *needed);

/* Would deepgemm_create_plan succeed and the plan be launchable here? Returns what it would return;
 * never yes and then no. */
DEEPGEMM_API deepgemm_status_t deepgemm_check_problem(const gemm_intent_t *intent, int64_t M,
                                                      int64_t N, int64_t K);

/* Plans and compiles everything that M = 0 ... max_m of each shape can ever choose, so that no
 * later launch of them compiles. `report` may be NULL. */
DEEPGEMM_API deepgemm_status_t deepgemm_prepare(const gemm_intent_t *intent,
                                                const deepgemm_shape_t *shapes, size_t shape_count,
                                                deepgemm_prepare_report_t *report);

/* Launches the plan and compares the result with an FP64 reference computed on the host, element by
 * element; the certificate of the plan then carries the measured error. C is overwritten. Slow: for
 * tests and acceptance, not for service. */
DEEPGEMM_API deepgemm_status_t deepgemm_verify_plan(const gemm_plan_t *plan,
                                                    const gemm_launch_args_t *args,
                                                    deepgemm_verification_t *result);

/* Callbacks into planning, process-wide; NULL removes them. Plans made with hooks are not shared
 * through the plan cache. Not while another thread plans. */
DEEPGEMM_API deepgemm_status_t deepgemm_set_hooks(const deepgemm_hooks_t *hooks);

/* ---- Weights -------------------------------------------------------------------------------- */

/* Turns checkpoint tensors into the operand that `plan` reads as B: quantises a dense matrix as the
 * contract says, or re-lays an already quantised one exactly. Host memory in; the result belongs to
 * the caller (deepgemm_destroy_packed_weights). INVALID_ARGUMENT for a missing tensor or wrong
 * sizes, FORMAT for tensors that contradict the format, UNSUPPORTED for a format the plan's path
 * cannot use. */
DEEPGEMM_API deepgemm_status_t deepgemm_pack_weights(deepgemm_packed_weights_t **packed,
                                                     const gemm_plan_t *plan,
                                                     const deepgemm_weight_tensors_t *tensors);

/* The inverse. DENSE: writes the dequantised matrix as tensors->precision. Checkpoint formats:
 * writes the tensors that format defines, bit-exact for weights that came from it. The caller
 * provides the buffers; sizes given are checked. UNSUPPORTED where the format cannot hold the
 * packed values. */
DEEPGEMM_API deepgemm_status_t deepgemm_unpack_weights(const deepgemm_packed_weights_t *packed,
                                                       const deepgemm_weight_tensors_t *tensors);

DEEPGEMM_API deepgemm_status_t deepgemm_get_packed_info(const deepgemm_packed_weights_t *packed,
                                                        deepgemm_packed_info_t *info);

/* Frees packed weights and sets *packed to NULL; NULL is fine. Not while a launch reads them. */
DEEPGEMM_API deepgemm_status_t deepgemm_destroy_packed_weights(deepgemm_packed_weights_t **packed);

/* Copies a matrix from one declared layout to another, e.g. row-major to BLOCKED_16x16. Both
 * layouts must give logical_shape; deepgemm_layout_bytes tells the size of the destination. */
DEEPGEMM_API deepgemm_status_t deepgemm_convert_layout(void *destination,
                                                       const gemm_layout_t *destination_layout,
                                                       const void *source,
                                                       const gemm_layout_t *source_layout,
                                                       gemm_precision_t precision);
DEEPGEMM_API deepgemm_status_t deepgemm_layout_bytes(const gemm_layout_t *layout,
                                                     gemm_precision_t precision, size_t *bytes);

/* ---- Memory --------------------------------------------------------------------------------- */

/* Memory of the current device from the library's pool, 256-byte aligned; on a GPU the host cannot
 * read it (deepgemm_copy does). `bytes` may be 0 (the pointer is then unique and may not be read).
 * OUT_OF_MEMORY tells what is in use. */
DEEPGEMM_API deepgemm_status_t deepgemm_malloc(void **pointer, size_t bytes);

/* Memory that fits a purpose: a name such as "q_proj_weight", "activation", "kv_cache",
 * "workspace"; words of it choose the pool (weights, activations, caches). For a GPU, "pinned",
 * "host" or "staging" gives host memory that the GPU reads too. */
DEEPGEMM_API deepgemm_status_t deepgemm_malloc_purpose(void **pointer, size_t bytes,
                                                       const char *purpose);

/* Memory for one operand of an intent, of the size its layout and precision need. */
DEEPGEMM_API deepgemm_status_t deepgemm_malloc_operand(void **pointer, const gemm_intent_t *intent,
                                                       deepgemm_operand_t operand, int64_t M,
                                                       int64_t N, int64_t K);

/* Returns memory to the pool; NULL is fine. GPU: in the order of this thread's stream
 * (deepgemm_set_stream); work of other streams with it has ended. INVALID_ARGUMENT for a pointer
 * that is not the pool's or was freed already. */
DEEPGEMM_API deepgemm_status_t deepgemm_free(void *pointer);

/* Copies between memories of host and devices; done on return, and after what was launched on the
 * default stream. */
DEEPGEMM_API deepgemm_status_t deepgemm_copy(void *destination, const void *source, size_t bytes);

DEEPGEMM_API deepgemm_status_t deepgemm_get_pool_stats(deepgemm_pool_stats_t *stats);

/* Text with a line per live allocation (purpose, bytes, age order); empty when nothing leaks.
 * Buffer rule as in deepgemm_explain_plan. */
DEEPGEMM_API deepgemm_status_t deepgemm_get_leak_report(char *buffer, size_t capacity,
                                                        size_t *needed);

/* ---- Tracing -------------------------------------------------------------------------------- */

/* Writes the events recorded so far as a Chrome/Perfetto trace. UNSUPPORTED in builds without
 * DEEPGEMM_ENABLE_DEBUG_TRACING. */
DEEPGEMM_API deepgemm_status_t deepgemm_write_trace(const char *path);

#ifdef __cplusplus
}

/* C++: plans and intents by reference, typed pointers without casts. */
inline deepgemm_status_t deepgemm_create_plan(gemm_plan_t &plan, const gemm_intent_t &intent,
                                              int64_t M, int64_t N, int64_t K) {
  return deepgemm_create_plan(&plan, &intent, M, N, K);
}
inline deepgemm_status_t deepgemm_launch_plan(const gemm_plan_t &plan, const void *A, const void *B,
                                              void *C) {
  return deepgemm_launch_plan(&plan, A, B, C);
}
inline deepgemm_status_t deepgemm_destroy_plan(gemm_plan_t &plan) {
  return deepgemm_destroy_plan(&plan);
}
template <class T>
inline deepgemm_status_t deepgemm_malloc(T **pointer, size_t bytes) {
  void *memory = nullptr;
  const deepgemm_status_t status = deepgemm_malloc(&memory, bytes);
  if (pointer != nullptr) *pointer = static_cast<T *>(memory);
  return status;
}
#endif
#endif
