// Wrong input is a status and a sentence that names the argument: never a crash, never silence.
#include <gtest/gtest.h>

#include <cmath>
#include <cstring>
#include <functional>
#include <limits>
#include <string>
#include <vector>

#include "support.hpp"

namespace deepgemm::api_test {
namespace {

constexpr auto kInvalid = DEEPGEMM_ERROR_INVALID_ARGUMENT;

// ---- Null arguments
// ------------------------------------------------------------------------------

TEST(BadInput, NullArgumentsAreNamed) {
  const gemm_intent_t intent = fp32_intent(GEMM_OP_NN);
  const PlanOwner owner(intent, 2, 2, 2);
  gemm_plan_t plan;
  gemm_launch_args_t args = {};
  deepgemm_verification_t verification;
  deepgemm_packed_weights_t* packed = nullptr;
  deepgemm_weight_tensors_t tensors = {};
  gemm_layout_t layout = {};
  size_t bytes = 0;
  void* memory = nullptr;
  EXPECT_TRUE(failed(deepgemm_create_plan(nullptr, &intent, 1, 1, 1), kInvalid, "plan"));
  EXPECT_TRUE(failed(deepgemm_create_plan(&plan, nullptr, 1, 1, 1), kInvalid, "intent"));
  EXPECT_TRUE(failed(deepgemm_launch_plan(nullptr, &bytes, &bytes, &bytes), kInvalid, "plan"));
  EXPECT_TRUE(failed(deepgemm_launch_plan_args(&owner.plan, nullptr), kInvalid, "args"));
  EXPECT_TRUE(failed(deepgemm_get_plan_info(&owner.plan, nullptr), kInvalid, "info"));
  EXPECT_TRUE(
      failed(deepgemm_explain_problem(nullptr, 1, 1, 1, DEEPGEMM_EXPLAIN_TEXT, nullptr, 0, nullptr),
             kInvalid, "intent"));
  EXPECT_TRUE(failed(deepgemm_check_problem(nullptr, 1, 1, 1), kInvalid, "intent"));
  EXPECT_TRUE(failed(deepgemm_prepare(nullptr, nullptr, 0, nullptr), kInvalid, "intent"));
  EXPECT_TRUE(failed(deepgemm_prepare(&intent, nullptr, 1, nullptr), kInvalid, "shapes"));
  EXPECT_TRUE(failed(deepgemm_verify_plan(&owner.plan, nullptr, &verification), kInvalid, "args"));
  EXPECT_TRUE(failed(deepgemm_verify_plan(&owner.plan, &args, nullptr), kInvalid, "result"));
  EXPECT_TRUE(failed(deepgemm_pack_weights(nullptr, &owner.plan, &tensors), kInvalid, "packed"));
  EXPECT_TRUE(failed(deepgemm_pack_weights(&packed, nullptr, &tensors), kInvalid, "plan"));
  EXPECT_TRUE(failed(deepgemm_pack_weights(&packed, &owner.plan, nullptr), kInvalid, "tensors"));
  EXPECT_TRUE(failed(deepgemm_unpack_weights(nullptr, &tensors), kInvalid, "packed"));
  EXPECT_TRUE(failed(deepgemm_get_packed_info(nullptr, nullptr), kInvalid, "packed"));
  EXPECT_TRUE(failed(deepgemm_layout_bytes(nullptr, PRECISION_FP32, &bytes), kInvalid, "layout"));
  EXPECT_TRUE(failed(deepgemm_layout_bytes(&layout, PRECISION_FP32, nullptr), kInvalid, "bytes"));
  EXPECT_TRUE(failed(deepgemm_convert_layout(nullptr, nullptr, nullptr, &layout, PRECISION_FP32),
                     kInvalid, "destination_layout"));
  EXPECT_TRUE(failed(deepgemm_malloc(static_cast<void**>(nullptr), 8), kInvalid, "pointer"));
  EXPECT_TRUE(failed(deepgemm_malloc_purpose(&memory, 8, nullptr), kInvalid, "purpose"));
  EXPECT_TRUE(failed(deepgemm_malloc_operand(&memory, nullptr, GEMM_OPERAND_A, 1, 1, 1), kInvalid,
                     "intent"));
  EXPECT_TRUE(failed(deepgemm_copy(nullptr, &bytes, 8), kInvalid, "destination"));
  EXPECT_TRUE(failed(deepgemm_copy(&bytes, nullptr, 8), kInvalid, "source"));
  EXPECT_TRUE(failed(deepgemm_get_pool_stats(nullptr), kInvalid, "stats"));
  EXPECT_TRUE(failed(deepgemm_write_trace(nullptr), kInvalid, "path"));
}

TEST(BadInput, EmptyDestroyedAndStalePlansAreTold) {
  gemm_plan_t plan = {};
  float value = 0;
  EXPECT_TRUE(succeeded(deepgemm_destroy_plan(nullptr)));
  EXPECT_TRUE(succeeded(deepgemm_destroy_plan(&plan)));
  EXPECT_TRUE(failed(deepgemm_launch_plan(&plan, &value, &value, &value), kInvalid, "empty"));
  const gemm_intent_t intent = fp32_intent(GEMM_OP_NN);
  ASSERT_TRUE(succeeded(deepgemm_create_plan(&plan, &intent, 1, 1, 1)));
  gemm_plan_t copy = plan;
  EXPECT_TRUE(succeeded(deepgemm_destroy_plan(&plan)));
  EXPECT_TRUE(succeeded(deepgemm_destroy_plan(&plan))) << "an emptied plan may be destroyed again";
  EXPECT_TRUE(failed(deepgemm_destroy_plan(&copy), kInvalid, "no live plan"));
  EXPECT_TRUE(
      failed(deepgemm_launch_plan(&copy, &value, &value, &value), kInvalid, "no live plan"));
  std::memset(static_cast<void*>(&plan), 0xCD, sizeof plan);
  EXPECT_TRUE(
      failed(deepgemm_launch_plan(&plan, &value, &value, &value), kInvalid, "no live plan"));
}

// ---- Declarations
// --------------------------------------------------------------------------------

struct BadIntent {
  const char* name;
  std::function<void(gemm_intent_t&)> change;
  deepgemm_status_t status;
  const char* named;  // in the sentence
};

template <class Enum>
Enum garbage() {
  // By memory, as from C: converting such a value in C++ would be undefined.
  const int value = 77;
  Enum result;
  static_assert(sizeof result == sizeof value);
  std::memcpy(&result, &value, sizeof result);
  return result;
}

const BadIntent kBadIntents[] = {
    {"nan alpha", [](gemm_intent_t& i) { i.alpha = NAN; }, kInvalid, "alpha"},
    {"infinite beta", [](gemm_intent_t& i) { i.beta = INFINITY; }, kInvalid, "beta"},
    {"nan relative error", [](gemm_intent_t& i) { i.numerical_contract.max_relative_error = NAN; },
     kInvalid, "max_relative_error"},
    {"negative absolute error",
     [](gemm_intent_t& i) { i.numerical_contract.max_absolute_error = -1; }, kInvalid,
     "max_absolute_error"},
    {"error model without its limit",
     [](gemm_intent_t& i) {
       i.numerical_contract.error_model = ERROR_MODEL_RELATIVE_EPSILON;
       i.numerical_contract.max_relative_error = 0;
     },
     kInvalid, "max_relative_error"},
    {"confidence of 2", [](gemm_intent_t& i) { i.numerical_contract.confidence = 2; }, kInvalid,
     "confidence"},
    {"reserved of the contract", [](gemm_intent_t& i) { i.numerical_contract.reserved[1] = 9; },
     kInvalid, "reserved"},
    {"reserved of the intent", [](gemm_intent_t& i) { i.reserved[0] = 1; }, kInvalid, "reserved"},
    {"warp larger than block",
     [](gemm_intent_t& i) {
       i.tiling_policy.block_m = 32;
       i.tiling_policy.warp_m = 64;
     },
     kInvalid, "warp_m"},
    {"block not a multiple of warp",
     [](gemm_intent_t& i) {
       i.tiling_policy.block_n = 40;
       i.tiling_policy.warp_n = 16;
     },
     kInvalid, "block_n"},
    {"negative block", [](gemm_intent_t& i) { i.tiling_policy.block_k = -1; }, kInvalid, "block_k"},
    {"reliability of 4", [](gemm_intent_t& i) { i.budget.reliability_level = 4; }, kInvalid,
     "reliability_level"},
    {"negative latency", [](gemm_intent_t& i) { i.budget.max_latency_us = -1; }, kInvalid,
     "max_latency_us"},
    {"shape that contradicts", [](gemm_intent_t& i) { i.layout_a.logical_shape[1] = 99; }, kInvalid,
     "A"},
    {"broadcast output", [](gemm_intent_t& i) { i.layout_c.strides[1] = GEMM_STRIDE_BROADCAST; },
     kInvalid, "C"},
    {"overlapping rows of the output",
     [](gemm_intent_t& i) {
       i.layout_c.strides[0] = 100;
       i.layout_c.strides[1] = 1;
       i.layout_c.strides[2] = 1;
     },
     kInvalid, "C"},
    {"odd N with swiglu", [](gemm_intent_t& i) { i.epilogue.activation = GEMM_ACTIVATION_SWIGLU; },
     kInvalid, "N"},
    {"unknown operation", [](gemm_intent_t& i) { i.operation = garbage<gemm_operation_t>(); },
     kInvalid, "operation"},
    {"unknown role", [](gemm_intent_t& i) { i.role = garbage<gemm_role_t>(); }, kInvalid, "role"},
    {"unknown precision",
     [](gemm_intent_t& i) { i.numerical_contract.output_precision = garbage<gemm_precision_t>(); },
     kInvalid, "output_precision"},
    {"unknown activation",
     [](gemm_intent_t& i) { i.epilogue.activation = garbage<gemm_activation_t>(); }, kInvalid,
     "activation"},
    {"unknown layout",
     [](gemm_intent_t& i) { i.layout_b.physical_layout = garbage<gemm_physical_layout_t>(); },
     kInvalid, "B"},
    {"unknown prefetch",
     [](gemm_intent_t& i) { i.tiling_policy.l2_prefetch = garbage<gemm_l2_prefetch_t>(); },
     kInvalid, "l2_prefetch"},
    {"groups", [](gemm_intent_t& i) { i.group_kind = GEMM_GROUP_MASKED; },
     DEEPGEMM_ERROR_UNSUPPORTED, "group_kind"},
    {"several outputs", [](gemm_intent_t& i) { i.output_count = 3; }, DEEPGEMM_ERROR_UNSUPPORTED,
     "output_count"},
    {"unknown device", [](gemm_intent_t& i) { i.device = "abacus"; }, kInvalid, "abacus"},
    {"device without backend", [](gemm_intent_t& i) { i.device = "sim:h200"; },
     DEEPGEMM_ERROR_UNSUPPORTED, "not part of this build"},
};

TEST(BadInput, DeclarationsAreRefusedByName) {
  for (const BadIntent& bad : kBadIntents) {
    SCOPED_TRACE(bad.name);
    gemm_intent_t intent = fp32_intent(GEMM_OP_NN);
    bad.change(intent);
    gemm_plan_t plan;
    EXPECT_TRUE(failed(deepgemm_create_plan(&plan, &intent, 4, 5, 6), bad.status, bad.named));
    EXPECT_EQ(plan.handle, nullptr);
    EXPECT_EQ(deepgemm_check_problem(&intent, 4, 5, 6), bad.status);
  }
}

TEST(BadInput, SizesAreChecked) {
  const gemm_intent_t intent = fp32_intent(GEMM_OP_NN);
  gemm_plan_t plan;
  constexpr int64_t kHuge = std::numeric_limits<int64_t>::max();
  EXPECT_TRUE(failed(deepgemm_create_plan(&plan, &intent, -1, 5, 6), kInvalid, "M"));
  EXPECT_TRUE(failed(deepgemm_create_plan(&plan, &intent, 4, -5, 6), kInvalid, "N"));
  EXPECT_TRUE(
      failed(deepgemm_create_plan(&plan, &intent, 4, 5, std::numeric_limits<int64_t>::min()),
             kInvalid, "K"));
  EXPECT_TRUE(failed(deepgemm_create_plan(&plan, &intent, kHuge, kHuge, kHuge), kInvalid, "M"));
  EXPECT_EQ(deepgemm_create_plan(&plan, &intent, kHuge, 0, 1), kInvalid);
  void* memory = nullptr;
  EXPECT_NE(deepgemm_malloc_operand(&memory, &intent, GEMM_OPERAND_A, kHuge, 0, 1),
            DEEPGEMM_SUCCESS);
  EXPECT_EQ(memory, nullptr);
  const deepgemm_shape_t shape = {-1, 4, 4};
  EXPECT_TRUE(failed(deepgemm_prepare(&intent, &shape, 1, nullptr), kInvalid, "max_m"));
}

// ---- Launches
// ------------------------------------------------------------------------------------

class BadLaunch : public testing::Test {
 protected:
  static constexpr int64_t kM = 8, kN = 6, kK = 10;

  void expect_refused(const gemm_plan_t& plan, const std::string& named) {
    const std::vector<float> before = memory_;
    EXPECT_TRUE(failed(deepgemm_launch_plan_args(&plan, &args_), kInvalid, named));
    EXPECT_EQ(memory_, before) << "a refused launch writes nothing";
  }

  const gemm_intent_t intent_ = fp32_intent(GEMM_OP_NN);
  const PlanOwner owner_{intent_, kM, kN, kK};
  std::vector<float> memory_ = std::vector<float>(1000, 1);
  float* const a_ = memory_.data();
  float* const b_ = a_ + kM * kK;
  float* const c_ = b_ + kK * kN;
  gemm_launch_args_t args_ = [this] {
    gemm_launch_args_t args = {};
    args.A = a_;
    args.B = b_;
    args.C = c_;
    return args;
  }();
};

TEST_F(BadLaunch, NullOperands) {
  args_.A = nullptr;
  expect_refused(owner_.plan, "A");
  args_.A = a_;
  args_.B = nullptr;
  expect_refused(owner_.plan, "B");
  args_.B = b_;
  args_.C = nullptr;
  expect_refused(owner_.plan, "C");
}

TEST_F(BadLaunch, OutputsThatOverlapInputs) {
  args_.C = a_;
  expect_refused(owner_.plan, "C: overlaps A");
  args_.C = b_ + kK * kN - 1;
  expect_refused(owner_.plan, "C: overlaps B");
  args_.C = reinterpret_cast<char*>(b_) - 1;
  expect_refused(owner_.plan, "overlaps");
}

TEST_F(BadLaunch, OutputsThatOverlapBiasOrResidual) {
  gemm_intent_t intent = intent_;
  intent.epilogue.bias = true;
  intent.epilogue.residual = true;
  const PlanOwner owner(intent, kM, kN, kK);
  args_.bias = c_ + kM * kN - 1;
  args_.residual = c_ + kM * kN;
  expect_refused(owner.plan, "C: overlaps bias");
  args_.bias = c_ + 2 * kM * kN;
  args_.residual = c_;
  expect_refused(owner.plan, "C: overlaps residual");
  args_.residual = nullptr;
  expect_refused(owner.plan, "residual: is NULL");
}

TEST_F(BadLaunch, AColumnSliceOfTheBufferThatHoldsAIsNoOverlap) {
  gemm_intent_t intent = intent_;
  intent.layout_a.strides[0] = kM * 20;
  intent.layout_a.strides[1] = 20;
  intent.layout_a.strides[2] = 1;
  intent.layout_c.strides[0] = kM * 20;
  intent.layout_c.strides[1] = 20;
  intent.layout_c.strides[2] = 1;
  const PlanOwner owner(intent, kM, kN, kK);
  args_.A = a_;
  args_.C = a_ + kK;
  args_.B = a_ + 400;
  EXPECT_TRUE(succeeded(deepgemm_launch_plan_args(&owner.plan, &args_)));
  EXPECT_EQ(a_[kK], static_cast<float>(kK));
  EXPECT_EQ(a_[kK + kN], 1) << "beyond the slice";
}

TEST_F(BadLaunch, OperandsThatThePlanDoesNotKnow) {
  args_.bias = c_ + 100;
  expect_refused(owner_.plan, "bias");
  args_.bias = nullptr;
  args_.residual = c_ + 100;
  expect_refused(owner_.plan, "residual");
  args_.residual = nullptr;
  args_.scale_a = c_ + 100;
  expect_refused(owner_.plan, "scale_a");
  args_.scale_a = nullptr;
  args_.extra_outputs[1] = c_ + 100;
  expect_refused(owner_.plan, "extra_outputs");
  args_.extra_outputs[1] = nullptr;
  const int64_t offset = 0;
  args_.group_offsets = &offset;
  expect_refused(owner_.plan, "group_offsets");
  args_.group_offsets = nullptr;
  args_.reserved[2] = 1;
  expect_refused(owner_.plan, "reserved");
}

TEST_F(BadLaunch, RunTimeValuesOutOfRange) {
  int64_t rows = kM + 1;
  args_.actual_m = &rows;
  expect_refused(owner_.plan, "actual_m");
  rows = -1;
  expect_refused(owner_.plan, "actual_m");
  args_.actual_m = nullptr;
  const double nan = NAN;
  args_.alpha = &nan;
  expect_refused(owner_.plan, "alpha");
  args_.alpha = nullptr;
  args_.beta = &nan;
  expect_refused(owner_.plan, "beta");
  const double one = 1;
  args_.beta = &one;
  expect_refused(owner_.plan, "declare intent.beta");
}

TEST_F(BadLaunch, WorkspacesTooSmallMisalignedOrInTheWay) {
  deepgemm_plan_info_t info = {};
  ASSERT_TRUE(succeeded(deepgemm_get_plan_info(&owner_.plan, &info)));
  ASSERT_GT(info.workspace_bytes, 0u);
  std::vector<char> workspace(info.workspace_bytes + 128);
  auto* aligned = workspace.data() + 64 - reinterpret_cast<uintptr_t>(workspace.data()) % 64;
  args_.workspace = aligned;
  args_.workspace_bytes = info.workspace_bytes - 1;
  expect_refused(owner_.plan, "workspace_bytes");
  args_.workspace = aligned + 1;
  args_.workspace_bytes = info.workspace_bytes;
  expect_refused(owner_.plan, "workspace");
  args_.workspace = aligned;
  args_.C = aligned + 64;
  expect_refused(owner_.plan, "C: overlaps workspace");
}

TEST_F(BadLaunch, PackedWeightsMissingFreedOrOfAnotherShape) {
  gemm_intent_t intent = {};
  intent.operation = GEMM_OP_NT;
  intent.numerical_contract.input_precision = PRECISION_INT4_AWQ;
  intent.numerical_contract.activation_precision = PRECISION_FP32;
  intent.numerical_contract.output_precision = PRECISION_FP32;
  intent.device = "cpu";
  const PlanOwner owner(intent, kM, kN, kK);
  expect_refused(owner.plan, "B: must be packed");
  auto weights = random_elements(PRECISION_FP32, kN * kK, 1);
  const void* freed = nullptr;
  {
    const PackedOwner packed(owner.plan, weights, PRECISION_FP32, kK, kN);
    freed = packed.packed;
    args_.B = packed.packed;
    EXPECT_TRUE(succeeded(deepgemm_launch_plan_args(&owner.plan, &args_)));
    const PlanOwner wider(intent, kM, kN + 1, kK);
    expect_refused(wider.plan, "do not fit");
    const float scale = 1;
    args_.scale_b = &scale;
    expect_refused(owner.plan, "scale_b");
    args_.scale_b = nullptr;
  }
  args_.B = freed;
  expect_refused(owner.plan, "B: must be packed");
  auto* stale = static_cast<deepgemm_packed_weights_t*>(const_cast<void*>(freed));
  deepgemm_packed_info_t info;
  EXPECT_TRUE(failed(deepgemm_get_packed_info(stale, &info), kInvalid, "no live"));
  EXPECT_TRUE(failed(deepgemm_destroy_packed_weights(&stale), kInvalid, "no live"));
  EXPECT_TRUE(succeeded(deepgemm_destroy_packed_weights(nullptr)));
}

// ---- Memory and text
// -----------------------------------------------------------------------------

TEST(BadInput, ForeignAndFreedPointersAreNotFreed) {
  int local = 0;
  EXPECT_TRUE(failed(deepgemm_free(&local), kInvalid, "pointer"));
  float* memory = nullptr;
  ASSERT_TRUE(succeeded(deepgemm_malloc(&memory, 1000)));
  EXPECT_TRUE(failed(deepgemm_free(memory + 1), kInvalid, "pointer"));
  EXPECT_TRUE(succeeded(deepgemm_free(memory)));
  EXPECT_TRUE(failed(deepgemm_free(memory), kInvalid, "freed already"));
  EXPECT_TRUE(succeeded(deepgemm_free(nullptr)));
}

TEST(BadInput, TooMuchMemoryIsOutOfMemoryAndGivesNull) {
  int local = 0;
  void* memory = &local;
  EXPECT_TRUE(failed(deepgemm_malloc(&memory, std::numeric_limits<size_t>::max()),
                     DEEPGEMM_ERROR_OUT_OF_MEMORY, "in use"));
  EXPECT_EQ(memory, nullptr);
}

TEST(BadInput, BuffersTooSmallForAReportTellTheSize) {
  const PlanOwner owner(fp32_intent(GEMM_OP_NN), 2, 2, 2);
  size_t needed = 0;
  char buffer[8];
  std::memset(buffer, 'x', sizeof buffer);
  EXPECT_TRUE(failed(
      deepgemm_explain_plan(&owner.plan, DEEPGEMM_EXPLAIN_TEXT, buffer, sizeof buffer, &needed),
      DEEPGEMM_ERROR_BUFFER_TOO_SMALL, "capacity"));
  EXPECT_GT(needed, sizeof buffer);
  for (const char c : buffer) EXPECT_EQ(c, 'x');
  EXPECT_TRUE(failed(deepgemm_explain_plan(&owner.plan, DEEPGEMM_EXPLAIN_TEXT, nullptr, 5, nullptr),
                     kInvalid, "buffer"));
  EXPECT_TRUE(failed(
      deepgemm_explain_plan(&owner.plan, garbage<deepgemm_explain_format_t>(), nullptr, 0, nullptr),
      kInvalid, "format"));
}

TEST(BadInput, LayoutsAndConversionsAreChecked) {
  std::vector<float> memory(100);
  size_t bytes = 0;
  gemm_layout_t layout = {};
  layout.logical_shape[0] = 1;
  layout.logical_shape[1] = 4;
  layout.logical_shape[2] = 5;
  layout.physical_layout = LAYOUT_ROW_MAJOR;
  gemm_layout_t other = layout;
  other.logical_shape[1] = 3;
  EXPECT_EQ(
      deepgemm_convert_layout(memory.data(), &layout, memory.data() + 50, &other, PRECISION_FP32),
      kInvalid);
  EXPECT_TRUE(failed(
      deepgemm_convert_layout(memory.data(), &layout, memory.data() + 10, &layout, PRECISION_FP32),
      kInvalid, "overlap"));
  EXPECT_TRUE(
      failed(deepgemm_convert_layout(nullptr, &layout, memory.data(), &layout, PRECISION_FP32),
             kInvalid, "destination"));
  EXPECT_TRUE(
      failed(deepgemm_layout_bytes(&layout, PRECISION_DEFAULT, &bytes), kInvalid, "precision"));
  layout.logical_shape[2] = -5;
  EXPECT_TRUE(
      failed(deepgemm_layout_bytes(&layout, PRECISION_FP32, &bytes), kInvalid, "logical_shape"));
  layout.logical_shape[2] = std::numeric_limits<int64_t>::max();
  EXPECT_EQ(deepgemm_layout_bytes(&layout, PRECISION_FP32, &bytes), kInvalid);
}

TEST(BadInput, UnknownEnumValuesOfArgumentsAreRefused) {
  const gemm_intent_t intent = fp32_intent(GEMM_OP_NT);
  const PlanOwner owner(intent, 2, 2, 2);
  gemm_layout_t layout = {};
  size_t bytes = 0;
  void* memory = nullptr;
  EXPECT_TRUE(failed(deepgemm_layout_bytes(&layout, garbage<gemm_precision_t>(), &bytes), kInvalid,
                     "precision"));
  EXPECT_TRUE(
      failed(deepgemm_malloc_operand(&memory, &intent, garbage<deepgemm_operand_t>(), 2, 2, 2),
             kInvalid, "operand"));
  std::vector<float> weights(4);
  deepgemm_weight_tensors_t tensors = {};
  tensors.format = garbage<deepgemm_weight_format_t>();
  tensors.precision = PRECISION_FP32;
  tensors.in_features = tensors.out_features = 2;
  tensors.weight = weights.data();
  deepgemm_packed_weights_t* packed = nullptr;
  EXPECT_TRUE(
      failed(deepgemm_pack_weights(&packed, &owner.plan, &tensors), kInvalid, "tensors.format"));
  tensors.format = WEIGHT_FORMAT_DENSE;
  tensors.precision = garbage<gemm_precision_t>();
  EXPECT_TRUE(
      failed(deepgemm_pack_weights(&packed, &owner.plan, &tensors), kInvalid, "tensors.precision"));
}

TEST(BadInput, DevicesAndCompilersAreChecked) {
  EXPECT_TRUE(failed(deepgemm_set_device("sim:h200"), DEEPGEMM_ERROR_UNSUPPORTED, "simulator"));
  EXPECT_TRUE(failed(deepgemm_set_device("abacus"), kInvalid, "h200"));
  EXPECT_TRUE(failed(deepgemm_set_nvcc_path("/nowhere/nvcc"), kInvalid, "/nowhere/nvcc"));
  EXPECT_TRUE(succeeded(deepgemm_set_nvcc_path(nullptr)));
}

}  // namespace
}  // namespace deepgemm::api_test
