#include "cpu_peers.hpp"

#include <algorithm>
#include <chrono>
#include <utility>

#include "base/formats.hpp"

#if DEEPGEMM_BENCH_DNNL
#include <dnnl.hpp>
#endif
#if DEEPGEMM_BENCH_OPENBLAS
#include <cblas.h>
#endif

namespace deepgemm::bench {
namespace {

using Peer = std::unique_ptr<Product>;

// Shortest of three launches, after one that is not counted.
[[maybe_unused]] double shortest_us(Product& product) {
  using Clock = std::chrono::steady_clock;
  double best = 1e300;
  for (int run = 0; run < 4; ++run) {
    const Clock::time_point start = Clock::now();
    if (!product.launch(0).ok()) return 1e300;
    const double us = std::chrono::duration<double, std::micro>(Clock::now() - start).count();
    if (run > 0) best = std::min(best, us);
  }
  return best;
}

[[maybe_unused]] Peer faster(Peer one, Peer other) {
  if (one == nullptr || other == nullptr) return one == nullptr ? std::move(other) : std::move(one);
  return shortest_us(*one) <= shortest_us(*other) ? std::move(one) : std::move(other);
}

#if DEEPGEMM_BENCH_OPENBLAS

class OpenBlasProduct : public Product {
 public:
  OpenBlasProduct(const Inputs& inputs, bool gemv)
      : inputs_(inputs),
        gemv_(gemv),
        output_(base::storage_bytes(PRECISION_FP32, inputs.m * inputs.n)) {}

  base::Result<void> launch(size_t set) override {
    const auto* x = reinterpret_cast<const float*>(inputs_.activations[set].data());
    const auto* w = reinterpret_cast<const float*>(inputs_.weights[set].data());
    auto* y = reinterpret_cast<float*>(output_.data());
    const auto m = static_cast<blasint>(inputs_.m);
    const auto n = static_cast<blasint>(inputs_.n);
    const auto k = static_cast<blasint>(inputs_.k);
    if (gemv_) {
      cblas_sgemv(CblasRowMajor, CblasNoTrans, n, k, 1, w, k, x, 1, 0, y, 1);
    } else {
      cblas_sgemm(CblasRowMajor, CblasNoTrans, CblasTrans, m, n, k, 1, x, k, w, k, 0, y, n);
    }
    return {};
  }
  const void* output() const override { return output_.data(); }
  std::string family() const override { return openblas_get_corename(); }
  std::string config() const override { return gemv_ ? "cblas_sgemv" : "cblas_sgemm"; }

 private:
  const Inputs& inputs_;
  bool gemv_;
  cli::Buffer output_;
};

Peer make_openblas(const Inputs& inputs) {
  if (inputs.format != PRECISION_FP32 || inputs.output != PRECISION_FP32) return nullptr;
  Peer gemm = std::make_unique<OpenBlasProduct>(inputs, false);
  if (inputs.m > 1) return gemm;
  return faster(std::move(gemm), std::make_unique<OpenBlasProduct>(inputs, true));
}

#endif
#if DEEPGEMM_BENCH_DNNL

using Tag = dnnl::memory::format_tag;
using Type = dnnl::memory::data_type;

const dnnl::engine& engine() {
  static const dnnl::engine cpu(dnnl::engine::kind::cpu, 0);
  return cpu;
}

Type type_of(gemm_precision_t precision) {
  if (precision == PRECISION_FP32) return Type::f32;
  if (precision == PRECISION_BF16) return Type::bf16;
  return precision == PRECISION_INT8 ? Type::s8 : Type::undef;
}

// Scales of the rows of W; oneDNN takes them per column of the output.
dnnl::primitive_attr attributes(const Inputs& inputs) {
  dnnl::primitive_attr attributes;
  if (inputs.format == PRECISION_INT8) {
    const auto* scales = reinterpret_cast<const float*>(inputs.scales.data());
    attributes.set_output_scales(1 << 1, std::vector<float>(scales, scales + inputs.n));
  }
  return attributes;
}

// Matmul has the weights as [k][n], inner product as [n][k]; in memory they are the same.
struct MatmulTraits {
  static constexpr const char* kName = "matmul";
  using Primitive = dnnl::matmul;
  static dnnl::memory::desc weights(const Inputs& inputs, Tag tag) {
    return {{inputs.k, inputs.n}, type_of(inputs.format), tag};
  }
  static constexpr Tag kStored = Tag::ba;
  static Primitive::desc desc(const dnnl::memory::desc& x, const dnnl::memory::desc& w,
                              const dnnl::memory::desc& y) {
    return {x, w, y};
  }
};

struct InnerProductTraits {
  static constexpr const char* kName = "inner_product";
  using Primitive = dnnl::inner_product_forward;
  static dnnl::memory::desc weights(const Inputs& inputs, Tag tag) {
    return {{inputs.n, inputs.k}, type_of(inputs.format), tag};
  }
  static constexpr Tag kStored = Tag::ab;
  static Primitive::desc desc(const dnnl::memory::desc& x, const dnnl::memory::desc& w,
                              const dnnl::memory::desc& y) {
    return {dnnl::prop_kind::forward_inference, x, w, y};
  }
};

template <class Traits>
class DnnlProduct : public Product {
 public:
  using Primitive = typename Traits::Primitive;

  // Throws dnnl::error.
  explicit DnnlProduct(const Inputs& inputs)
      : stream_(engine()),
        x_({inputs.m, inputs.k}, type_of(inputs.format), Tag::ab),
        y_({inputs.m, inputs.n}, type_of(inputs.output), Tag::ab),
        chosen_(Traits::desc(x_, Traits::weights(inputs, Tag::any), y_), attributes(inputs),
                engine()),
        primitive_(chosen_),
        output_(y_, engine()) {
    for (size_t set = 0; set < inputs.activations.size(); ++set) {
      const dnnl::memory stored(Traits::weights(inputs, Traits::kStored), engine(),
                                inputs.weights[set].data());
      dnnl::memory packed(chosen_.weights_desc(), engine());
      dnnl::reorder(stored, packed).execute(stream_, const_cast<dnnl::memory&>(stored), packed);
      arguments_.push_back(
          {{DNNL_ARG_SRC, dnnl::memory(x_, engine(), inputs.activations[set].data())},
           {DNNL_ARG_WEIGHTS, packed},
           {DNNL_ARG_DST, output_}});
    }
    stream_.wait();
  }

  base::Result<void> launch(size_t set) override {
    primitive_.execute(stream_, arguments_[set]);
    stream_.wait();
    return {};
  }
  const void* output() const override { return output_.get_data_handle(); }
  std::string family() const override { return chosen_.impl_info_str(); }
  std::string config() const override { return Traits::kName; }

 private:
  dnnl::stream stream_;
  dnnl::memory::desc x_, y_;
  typename Primitive::primitive_desc chosen_;
  Primitive primitive_;
  dnnl::memory output_;
  std::vector<std::unordered_map<int, dnnl::memory>> arguments_;
};

template <class Traits>
base::Result<Peer> make_dnnl_form(const Inputs& inputs) {
  try {
    return Peer(std::make_unique<DnnlProduct<Traits>>(inputs));
  } catch (const dnnl::error& error) {
    if (error.status == dnnl_unimplemented) return Peer();
    return base::make_error(DEEPGEMM_ERROR_DEVICE, "oneDNN {}: {}", Traits::kName, error.what());
  }
}

base::Result<Peer> make_dnnl(const Inputs& inputs) {
  if (type_of(inputs.format) == Type::undef || type_of(inputs.output) == Type::undef) return Peer();
  DEEPGEMM_TRY_ASSIGN(matmul, make_dnnl_form<MatmulTraits>(inputs));
  DEEPGEMM_TRY_ASSIGN(inner_product, make_dnnl_form<InnerProductTraits>(inputs));
  return faster(std::move(matmul), std::move(inner_product));
}

const char* dnnl_isa() {
  switch (dnnl::get_effective_cpu_isa()) {
    case dnnl::cpu_isa::avx512_core_amx:
      return "avx512_core_amx";
    case dnnl::cpu_isa::avx512_core_bf16:
      return "avx512_core_bf16";
    case dnnl::cpu_isa::avx512_core_vnni:
      return "avx512_core_vnni";
    case dnnl::cpu_isa::avx512_core:
      return "avx512_core";
    case dnnl::cpu_isa::avx2_vnni:
      return "avx2_vnni";
    case dnnl::cpu_isa::avx2:
      return "avx2";
    default:
      return "other";
  }
}

#endif

}  // namespace

void set_peer_threads([[maybe_unused]] int threads) {
#if DEEPGEMM_BENCH_OPENBLAS
  openblas_set_num_threads(threads);
#endif
}

std::map<std::string, std::string> peer_versions() {
  std::map<std::string, std::string> versions;
#if DEEPGEMM_BENCH_DNNL
  const dnnl::version_t* version = dnnl::version();
  versions["onednn"] =
      fmt::format("{}.{}.{} {}", version->major, version->minor, version->patch, dnnl_isa());
#endif
#if DEEPGEMM_BENCH_OPENBLAS
  versions["openblas"] = fmt::format("{}, core {}", openblas_get_config(), openblas_get_corename());
#endif
  return versions;
}

base::Result<std::map<std::string, std::unique_ptr<Product>>> make_peers(
    [[maybe_unused]] const Inputs& inputs) {
  std::map<std::string, Peer> peers;
#if DEEPGEMM_BENCH_DNNL
  DEEPGEMM_TRY_ASSIGN(onednn, make_dnnl(inputs));
  if (onednn != nullptr) peers["onednn"] = std::move(onednn);
#endif
#if DEEPGEMM_BENCH_OPENBLAS
  if (Peer openblas = make_openblas(inputs)) peers["openblas"] = std::move(openblas);
#endif
  return peers;
}

}  // namespace deepgemm::bench
