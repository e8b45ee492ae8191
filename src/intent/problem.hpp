// The resolved problem: an intent with sizes in which nothing is left to choose but layouts
// declared ANY. Everything after this point (contract, schedule, backends) reads only this.
#pragma once

#include <cstdint>
#include <string>

#include "base/result.hpp"
#include "contract/contract.hpp"
#include "deepgemm/types.h"
#include "layout/matrix_layout.hpp"

namespace deepgemm::intent {

// One operand as stored.
struct Operand {
  gemm_precision_t precision = PRECISION_FP32;
  layout::MatrixLayout layout;  // stored shape; for ANY the row-major contiguous form
  gemm_physical_layout_t physical = LAYOUT_ANY;   // as declared
  gemm_memory_space_t space = MEM_SPACE_DEFAULT;  // DEFAULT replaced by the role's wish, if it has
  gemm_access_pattern_t access = ACCESS_PATTERN_DEFAULT;  // one (role_wishes); likewise

  bool operator==(const Operand&) const = default;
};

struct Epilogue {
  gemm_activation_t activation = GEMM_ACTIVATION_NONE;
  bool bias = false;
  bool residual = false;
  gemm_precision_t bias_precision = PRECISION_FP32;
  gemm_precision_t residual_precision = PRECISION_FP32;
  int64_t residual_row_stride = 0;  // elements; resolved, never 0 for a non-empty residual

  bool operator==(const Epilogue&) const = default;
};

struct Budget {
  double max_latency_us = 0;  // 0: no limit
  double energy_cap_mj = 0;
  int reliability_level = 0;

  bool operator==(const Budget&) const = default;
};

struct Problem {
  gemm_operation_t operation = GEMM_OP_NN;
  gemm_role_t role = GEMM_ROLE_GENERIC;
  int64_t m = 0, n = 0, k = 0;  // op(A) [m,k] * op(B) [k,n]
  int64_t batch = 1;
  Operand a, b, c;  // c: m x n, or m x n/2 with SWIGLU
  double alpha = 1, beta = 0;
  contract::Contract contract;
  Epilogue epilogue;
  Budget budget;
  gemm_tiling_policy_t tiling = {};  // zeros: chosen by the planner

  // Columns of C.
  int64_t output_columns() const {
    return epilogue.activation == GEMM_ACTIVATION_SWIGLU ? n / 2 : n;
  }
  // True when weights are INT4: B must then be packed.
  bool requires_packed_b() const;
};
bool operator==(const Problem& left, const Problem& right);

// Validates an intent with sizes. INVALID_ARGUMENT names the field, its value, the rule and the
// nearest legal value; UNSUPPORTED for what is declared but not built (groups, several outputs).
base::Result<Problem> resolve(const gemm_intent_t& intent, int64_t m, int64_t n, int64_t k);

// One text line names a problem everywhere (log, command line, test, bench file, bug report), e.g.
//   nt m=1 n=4096 k=4096 a=fp16 b=int4_awq c=fp16 abs=0.002 outlier=fp16 group=128
// Fields at their default are left out; docs/canonical_line.md has the grammar. Problems with an
// unknown enum value have no line: only what resolve() returns may be formatted.
std::string format_line(const Problem& problem);

struct ProblemSpec {
  gemm_intent_t intent = {};
  int64_t m = 0, n = 0, k = 0;
  std::string device;  // intent.device points here once the caller binds it; empty: none named
};
// FORMAT errors name the token and the nearest known word. resolve(parse_line(format_line(p))) ==
// p.
base::Result<ProblemSpec> parse_line(const std::string& line);

// What a role asks for where the caller left DEFAULT. Residency and caching only: a role never
// changes the result.
//   dense, qkv, output projection, expert, LM head: B (weights) is read once a launch: STREAMING,
//   so
//     that it does not push activations out of the cache; A REUSED, every column of B needs it.
//   attention scores: B (the key cache) STREAMING; C REUSED, the softmax reads it next.
//   MoE gate: B (a small router matrix) is wanted in L2 and REUSED.
//   rotary embedding: B (the rotation table) REUSED; A STREAMING; C REUSED.
//   generic: nothing.
struct OperandWish {
  gemm_memory_space_t space = MEM_SPACE_DEFAULT;
  gemm_access_pattern_t access = ACCESS_PATTERN_DEFAULT;
};
struct RoleWishes {
  OperandWish a, b, c;
};
RoleWishes role_wishes(gemm_role_t role);

// Stored shape of A, B and C for an operation: {rows, columns}.
struct StoredShape {
  int64_t rows = 0, cols = 0;
};
StoredShape stored_shape_a(gemm_operation_t operation, int64_t m, int64_t k);
StoredShape stored_shape_b(gemm_operation_t operation, int64_t n, int64_t k);

// Names for enums as used in the line and in reports; nullptr for unknown values.
const char* operation_name(gemm_operation_t operation);
const char* role_name(gemm_role_t role);
const char* activation_name(gemm_activation_t activation);
const char* physical_layout_name(gemm_physical_layout_t layout);

}  // namespace deepgemm::intent
