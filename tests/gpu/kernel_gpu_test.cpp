// Every kernel on a GPU: exact operands at ragged sizes against FP64, NaN-filled outputs and guard
// zones, other numbers of blocks with the same bits; accuracy on random operands; speed.

#include <gtest/gtest.h>

#include <cmath>
#include <cstdio>
#include <cstring>
#include <random>

#include "base/formats.hpp"
#include "contract/stochastic.hpp"
#include "gpu_fixture.hpp"

namespace deepgemm::cuda {
namespace {

constexpr int64_t kSizes[] = {1, 7, 17, 63, 64, 65, 127, 129, 250};
constexpr int kCount = 9;
constexpr size_t kCapacity = size_t{8} << 20;

// Values of a matrix of op(X), or of C, as doubles.
struct Values {
  int64_t batch = 1, rows = 0, columns = 0;
  std::vector<double> at_place;
  double& at(int64_t b, int64_t row, int64_t column) {
    return at_place[static_cast<size_t>((b * rows + row) * columns + column)];
  }
  void resize(int64_t b, int64_t r, int64_t c) {
    batch = b, rows = r, columns = c;
    at_place.assign(static_cast<size_t>(b * r * c), 0);
  }
};

struct Buffers {
  explicit Buffers(Gpu& gpu)
      : a(gpu, kCapacity),
        b(gpu, kCapacity),
        c(gpu, kCapacity),
        bias(gpu, kCapacity),
        residual(gpu, kCapacity),
        scale_a(gpu, kCapacity),
        scale_b(gpu, kCapacity),
        partials(gpu, kCapacity * 8),
        counters(gpu, kCapacity) {}
  MirroredBuffer a, b, c, bias, residual, scale_a, scale_b, partials, counters;
};

// One product: its operands as numbers and on the device, and what must come out.
class Product {
 public:
  Product(Gpu& gpu, Buffers& buffers, const KernelCase& one, int64_t m, int64_t n, int64_t k)
      : gpu_(gpu), buffers_(buffers), one_(one), problem_(problem_of(one, m, n, k)) {
    random_.seed(static_cast<unsigned>(m * 1000003 + n * 1009 + k));
  }

  bool prepare() {
    const auto spec = spec_of(one_, problem_, gpu_.arch());
    EXPECT_TRUE(spec.ok()) << (spec.ok() ? "" : spec.error().message);
    if (!spec.ok()) return false;
    spec_ = *spec;
    splits_ = std::max(one_.config.split_k, 1);
    const auto shape = launch_shape(spec_, problem_, problem_.m, splits_);
    EXPECT_TRUE(shape.ok()) << (shape.ok() ? "" : shape.error().message);
    if (!shape.ok()) return false;
    shape_ = *shape;
    kernel_ = gpu_.kernel(spec_, shape_.shared_bytes);
    if (kernel_.function == nullptr) return false;
    EXPECT_EQ(kernel_.facts.local_bytes, 0) << "registers are spilled";
    fill_operands();
    return true;
  }

  // Runs with this many blocks; the bytes of C come back.
  std::vector<uint8_t> run(int64_t blocks) {
    fill_c();
    buffers_.partials.reset(static_cast<size_t>(shape_.partial_bytes));
    buffers_.partials.upload();
    LaunchOperands operands;
    operands.a = buffers_.a.device();
    operands.b = buffers_.b.device();
    operands.c = buffers_.c.device();
    operands.bias = buffers_.bias.device();
    operands.residual = buffers_.residual.device();
    const bool scaled = spec_.config.scaled || spec_.config.epilogue.row_scale ||
                        spec_.config.epilogue.column_scale;
    operands.scale_a = scaled ? static_cast<const float*>(buffers_.scale_a.device()) : nullptr;
    operands.scale_b = scaled ? static_cast<const float*>(buffers_.scale_b.device()) : nullptr;
    operands.alpha = problem_.alpha;
    operands.beta = problem_.beta;
    operands.m = problem_.m;
    operands.splits = splits_;
    operands.raster = 3;
    operands.partials = buffers_.partials.device();
    operands.counters = static_cast<uint32_t*>(buffers_.counters.device());
    if (!gpu_.launch(kernel_, shape_, blocks, launch_arguments(spec_, problem_, operands))) {
      return {};
    }
    buffers_.c.download();
    buffers_.counters.download();
    if (!gpu_.synchronize()) return {};
    EXPECT_TRUE(buffers_.c.guards_intact());
    for (int64_t i = 0; i < shape_.counters; ++i) {
      uint32_t count = 0;
      std::memcpy(&count, buffers_.counters.host() + i * 4, 4);
      EXPECT_EQ(count, 0U) << "counter " << i << " was not reset";
    }
    return {buffers_.c.host(), buffers_.c.host() + c_bytes_};
  }

  // Compares with the reference; the number of wrong elements, of which the first are told.
  int64_t count_wrong(const std::vector<uint8_t>& bytes) {
    const bool exact = problem_.epilogue.activation == GEMM_ACTIVATION_NONE ||
                       problem_.epilogue.activation == GEMM_ACTIVATION_RELU;
    const gemm_precision_t format = problem_.c.precision;
    std::vector<uint8_t> expected = before_;
    int64_t wrong = 0;
    for (int64_t b = 0; b < problem_.batch; ++b) {
      for (int64_t i = 0; i < problem_.m; ++i) {
        for (int64_t j = 0; j < problem_.output_columns(); ++j) {
          double want = reference(b, i, j);
          if (problem_.contract.seed != 0) {
            contract::round_stochastically(format, {problem_.contract.seed, b, i}, j, 1, &want);
          }
          const int64_t place = layout::element_offset(problem_.c.layout, b, i, j);
          const double got = base::decode(format, bytes.data(), place);
          base::encode(format, expected.data(), place, got);
          const double slack = exact ? 0 : 1e-5 * std::abs(want) + 1e-6;
          if (got >= base::round_to(format, want - slack) &&
              got <= base::round_to(format, want + slack)) {
            continue;
          }
          if (wrong++ < 3) {
            ADD_FAILURE() << intent::format_line(problem_) << ": C[" << b << "][" << i << "][" << j
                          << "] is " << got << ", not " << want;
          }
        }
      }
    }
    EXPECT_EQ(expected, bytes) << "something between the rows of C was written";
    return wrong;
  }

  const LaunchShape& shape() const { return shape_; }
  const intent::Problem& problem() const { return problem_; }

 private:
  double quarter() { return static_cast<double>(static_cast<int>(random_() % 9) - 4) / 4; }

  // Elements whose products and sums are exact in every accumulator.
  void fill(MirroredBuffer& buffer, const intent::Operand& operand, bool transposed,
            Values& values) {
    const layout::MatrixLayout& layout = operand.layout;
    const auto bytes = layout::buffer_bytes(layout, operand.precision);
    buffer.reset(bytes.ok() ? static_cast<size_t>(*bytes) : 0);
    values.resize(problem_.batch, transposed ? layout.cols : layout.rows,
                  transposed ? layout.rows : layout.cols);
    const double factor = operand.precision == PRECISION_INT8 ? 8 : 1;
    for (int64_t b = 0; b < problem_.batch; ++b) {
      for (int64_t i = 0; i < layout.rows; ++i) {
        for (int64_t j = 0; j < layout.cols; ++j) {
          const double value = quarter() * factor;
          const double stored = base::round_to(operand.precision, value);
          base::encode(operand.precision, buffer.host(), layout::element_offset(layout, b, i, j),
                       stored);
          (transposed ? values.at(b, j, i) : values.at(b, i, j)) = stored;
        }
      }
    }
    buffer.upload();
  }

  void fill_vector(MirroredBuffer& buffer, gemm_precision_t format, int64_t count,
                   std::vector<double>& values, bool scale) {
    buffer.reset(static_cast<size_t>(base::storage_bytes(format, count)));
    values.resize(static_cast<size_t>(count));
    for (int64_t i = 0; i < count; ++i) {
      const double value = scale ? std::ldexp(1.0, static_cast<int>(random_() % 3) - 1) : quarter();
      values[static_cast<size_t>(i)] = base::round_to(format, value);
      base::encode(format, buffer.host(), i, value);
    }
    buffer.upload();
  }

  void fill_operands() {
    const bool a_transposed = one_.operation[0] == 't', b_transposed = one_.operation[1] == 't';
    fill(buffers_.a, problem_.a, a_transposed, a_);
    fill(buffers_.b, problem_.b, b_transposed, b_);
    const gemm_dequant_strategy_t strategy = problem_.contract.dequant_strategy;
    const bool tensor = strategy == DEQUANT_STRATEGY_PER_TENSOR;
    group_ = strategy == DEQUANT_STRATEGY_BLOCK_128   ? 128
             : strategy == DEQUANT_STRATEGY_PER_GROUP ? problem_.contract.group_size
                                                      : std::max<int64_t>(problem_.k, 1);
    groups_ = (problem_.k + group_ - 1) / group_;
    rows_each_ = strategy == DEQUANT_STRATEGY_BLOCK_128 ? 128 : 1;
    step_ = tensor ? 0 : groups_;
    fill_vector(buffers_.scale_a, PRECISION_FP32, problem_.m * groups_, scale_a_, true);
    fill_vector(buffers_.scale_b, PRECISION_FP32, problem_.n * groups_, scale_b_, true);
    fill_vector(buffers_.bias, problem_.epilogue.bias_precision, problem_.n, bias_, false);
    fill_vector(buffers_.residual, problem_.epilogue.residual_precision,
                problem_.batch * problem_.m * problem_.epilogue.residual_row_stride, residual_,
                false);
    buffers_.counters.reset(static_cast<size_t>(shape_.counters) * 4);
    std::memset(buffers_.counters.host(), 0, static_cast<size_t>(shape_.counters) * 4);
    buffers_.counters.upload();
  }

  void fill_c() {
    const auto bytes = layout::buffer_bytes(problem_.c.layout, problem_.c.precision);
    c_bytes_ = bytes.ok() ? *bytes : 0;
    buffers_.c.reset(static_cast<size_t>(c_bytes_));
    old_.resize(problem_.batch, problem_.m, problem_.output_columns());
    std::mt19937 random(7);
    for (int64_t b = 0; problem_.beta != 0 && b < problem_.batch; ++b) {
      for (int64_t i = 0; i < problem_.m; ++i) {
        for (int64_t j = 0; j < old_.columns; ++j) {
          old_.at(b, i, j) = static_cast<double>(random() % 9) - 4;
          base::encode(problem_.c.precision, buffers_.c.host(),
                       layout::element_offset(problem_.c.layout, b, i, j), old_.at(b, i, j));
        }
      }
    }
    before_.assign(buffers_.c.host(), buffers_.c.host() + c_bytes_);
    buffers_.c.upload();
  }

  double product(int64_t b, int64_t i, int64_t j) {
    const bool row_scale =
        problem_.a.precision == PRECISION_INT8 || base::is_fp8(problem_.a.precision);
    const bool column_scale =
        problem_.b.precision == PRECISION_INT8 || base::is_fp8(problem_.b.precision);
    // Groups: both factors are applied to the sums.
    const bool grouped = spec_.config.scaled;
    double sum = 0;
    for (int64_t g = 0; g < groups_; ++g) {
      double part = 0;
      for (int64_t x = g * group_; x < std::min((g + 1) * group_, problem_.k); ++x) {
        part += a_.at(b, i, x) * b_.at(b, x, j);
      }
      if (row_scale || grouped) part *= scale_a_[static_cast<size_t>(i * step_ + g)];
      if (column_scale || grouped) {
        part *= scale_b_[static_cast<size_t>(j / rows_each_ * step_ + g)];
      }
      sum += part;
    }
    return sum * problem_.alpha;
  }

  double reference(int64_t b, int64_t i, int64_t j) {
    const intent::Epilogue& epilogue = problem_.epilogue;
    const auto bias = [&](int64_t column) {
      return epilogue.bias ? bias_[static_cast<size_t>(column)] : 0;
    };
    const auto silu = [](double x) { return x / (1 + std::exp(-x)); };
    const double old = problem_.beta * old_.at(b, i, j);
    double value = product(b, i, j);
    if (epilogue.activation == GEMM_ACTIVATION_SWIGLU) {
      const int64_t up = j + problem_.n / 2;
      value = silu(value + bias(j)) * (product(b, i, up) + bias(up)) + old;
    } else {
      value += old + bias(j);
      if (epilogue.activation == GEMM_ACTIVATION_RELU) value = std::max(value, 0.0);
      if (epilogue.activation == GEMM_ACTIVATION_SILU) value = silu(value);
      if (epilogue.activation == GEMM_ACTIVATION_GELU) {
        value = 0.5 * value * std::erfc(-value / std::sqrt(2.0));
      }
      if (epilogue.activation == GEMM_ACTIVATION_GELU_TANH) {
        const double y = std::sqrt(2 / M_PI) * (value + 0.044715 * value * value * value);
        value = 0.5 * value * (1 + std::tanh(y));
      }
    }
    if (epilogue.residual) {
      value +=
          residual_[static_cast<size_t>((b * problem_.m + i) * epilogue.residual_row_stride + j)];
    }
    return value;
  }

  Gpu& gpu_;
  Buffers& buffers_;
  const KernelCase& one_;
  intent::Problem problem_;
  KernelSpec spec_;
  LaunchShape shape_;
  Kernel kernel_;
  std::mt19937 random_;
  int splits_ = 1;
  int64_t c_bytes_ = 0, group_ = 1, groups_ = 1, rows_each_ = 1, step_ = 1;
  Values a_, b_, old_;  // of op(A), op(B), C
  std::vector<double> scale_a_, scale_b_, bias_, residual_;
  std::vector<uint8_t> before_;
};

class KernelOnGpu : public testing::TestWithParam<KernelCase> {};

TEST_P(KernelOnGpu, IsExactAtRaggedSizesWithAnyNumberOfBlocks) {
  std::string why;
  Gpu* gpu = Gpu::get(why);
  if (gpu == nullptr) GTEST_SKIP() << why;
  const auto spec = spec_of(GetParam(), problem_of(GetParam(), 64, 64, 256), gpu->arch());
  if (!spec.ok()) GTEST_SKIP() << spec.error().message;
  static Buffers buffers(*gpu);
  for (int i = 0; i < kCount; ++i) {
    for (int j = 0; j < kCount; ++j) {
      // Every pair of sizes occurs, for each two of m, n and k.
      Product product(*gpu, buffers, GetParam(), kSizes[i], kSizes[j],
                      kSizes[(i + 2 * j) % kCount]);
      if (!product.prepare()) return;
      const std::vector<uint8_t> bytes = product.run(product.shape().items);
      ASSERT_EQ(product.count_wrong(bytes), 0) << GetParam().name();
      ASSERT_EQ(bytes, product.run(product.shape().items / 3 + 1))
          << "other bits with fewer blocks: " << intent::format_line(product.problem());
    }
  }
}

INSTANTIATE_TEST_SUITE_P(Kernels, KernelOnGpu, testing::ValuesIn(kernel_cases()),
                         [](const auto& test) { return std::to_string(test.index); });

// Times and accuracy of kernels with FP32 output on random operands; printed, for there is no limit
// that every GPU must meet.
class LargeProduct {
 public:
  explicit LargeProduct(Gpu& gpu, int64_t size) : gpu_(gpu), size_(size) {
    const size_t bytes = static_cast<size_t>(size * (size + 16)) * 4;
    a_ = gpu.allocate(bytes);
    b_ = gpu.allocate(bytes);
    c_ = gpu.allocate(bytes);
    partials_ = gpu.allocate(bytes * 8);
    counters_ = static_cast<uint32_t*>(gpu.allocate(1 << 20));
    const std::vector<uint8_t> zeros(1 << 20);
    gpu.copy(counters_, zeros.data(), zeros.size());
  }

  void fill(gemm_precision_t format) {
    const auto count = static_cast<size_t>(size_ * (size_ + 16));
    std::vector<uint8_t> bytes(count * 4);
    std::mt19937 random(11);
    std::normal_distribution<double> normal;
    const double factor = format == PRECISION_INT8 ? 30 : 1;
    for (size_t i = 0; i < count; ++i) {
      base::encode(format, bytes.data(), static_cast<int64_t>(i), normal(random) * factor);
    }
    for (void* to : {a_, b_}) gpu_.copy(to, bytes.data(), bytes.size());
    host_ = std::move(bytes);
    gpu_.synchronize();
  }

  void run(const KernelCase& one, int64_t m) {
    const intent::Problem problem = problem_of(one, m, size_, size_);
    const auto spec = spec_of(one, problem, gpu_.arch());
    if (!spec.ok()) return;
    const int splits = std::max(one.config.split_k, 1);
    const auto shape = launch_shape(*spec, problem, m, splits);
    const Kernel kernel = gpu_.kernel(*spec, shape->shared_bytes);
    if (kernel.function == nullptr) return;
    LaunchOperands operands;
    operands.a = a_;
    operands.b = b_;
    operands.c = c_;
    operands.m = m;
    operands.splits = splits;
    operands.partials = partials_;
    operands.counters = counters_;
    const double ms =
        gpu_.median_ms(kernel, *shape, shape->items, launch_arguments(*spec, problem, operands));
    const auto products = static_cast<double>(m * size_ * size_);
    std::printf("  %9.2f us %7.1f TFLOP/s  %3d regs  m=%lld %s\n", ms * 1e3,
                2 * products / ms * 1e-9, kernel.facts.registers, static_cast<long long>(m),
                one.name().c_str());
    if (m == size_ && problem.c.precision == PRECISION_FP32 &&
        problem.a.precision == PRECISION_FP32 && std::string(one.operation) == "nt") {
      check_error(problem, contract::path_info(one.path).parts > 1);
    }
  }

 private:
  // Largest error of some elements against the sum of magnitudes. Operands that are split on tensor
  // cores keep what FP32 sums promise.
  void check_error(const intent::Problem& problem, bool split) {
    const int64_t stride = problem.c.layout.row_stride;
    std::vector<float> c(static_cast<size_t>(size_ * stride));
    gpu_.copy(c.data(), c_, c.size() * 4);
    gpu_.synchronize();
    double worst = 0;
    for (int64_t sample = 0; sample < 2000; ++sample) {
      const int64_t i = sample * 7919 % size_, j = sample * 104729 % size_;
      double sum = 0, magnitude = 0;
      for (int64_t x = 0; x < size_; ++x) {
        const double product =
            base::decode(PRECISION_FP32, host_.data(), i * problem.a.layout.row_stride + x) *
            base::decode(PRECISION_FP32, host_.data(), j * problem.b.layout.row_stride + x);
        sum += product;
        magnitude += std::abs(product);
      }
      const double error = std::abs(c[static_cast<size_t>(i * stride + j)] - sum) / magnitude;
      worst = std::max(worst, error);
    }
    std::printf("           relative error at most %.3g (FP32's worst case %.3g)\n", worst,
                static_cast<double>(size_) * 0x1p-24);
    if (split) {
      EXPECT_LE(worst, static_cast<double>(size_) * 0x1p-24);
    }
  }

  Gpu& gpu_;
  int64_t size_;
  void *a_ = nullptr, *b_ = nullptr, *c_ = nullptr, *partials_ = nullptr;
  uint32_t* counters_ = nullptr;
  std::vector<uint8_t> host_;
};

// With 8 rows the weights, 8 to 64 MiB, stay in the second-level cache between launches.
TEST(KernelSpeed, IsPrintedForManyAndFewRows) {
  std::string why;
  Gpu* gpu = Gpu::get(why);
  if (gpu == nullptr) GTEST_SKIP() << why;
  std::printf("%s, products of m x 4096 x 4096\n", gpu->device().facts().title.c_str());
  LargeProduct product(*gpu, 4096);
  for (const gemm_precision_t format :
       {PRECISION_FP32, PRECISION_BF16, PRECISION_FP16, PRECISION_INT8, PRECISION_FP8_E4M3}) {
    product.fill(format);
    for (const KernelCase& one : kernel_cases()) {
      const intent::Problem problem = problem_of(one, 64, 64, 64);
      const intent::Epilogue& epilogue = problem.epilogue;
      const bool scaled = format == PRECISION_INT8 || base::is_fp8(format);
      const bool plain = (scaled || one.fields.find_first_of(' ') == std::string::npos) &&
                         epilogue.activation == GEMM_ACTIVATION_NONE && !epilogue.bias &&
                         !epilogue.residual;
      if (plain && problem.a.precision == format && problem.b.precision == format) {
        if (one.config.block_m > 16) product.run(one, 4096);
        if (one.config.block_m <= 16) product.run(one, 8);
      }
    }
  }
}

}  // namespace
}  // namespace deepgemm::cuda
