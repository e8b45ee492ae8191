#include "cublaslt.hpp"

#include <dlfcn.h>
#include <glob.h>

#include <map>

namespace deepgemm::bench {
namespace {

// Numbers of the cuBLAS documentation: cudaDataType, cublasComputeType_t, attributes.
struct Types {
  int input, output, compute, scale;
};
const std::map<std::string, Types> kTypes = {
    {"bf16", {14, 14, 68, 0}}, {"fp16", {2, 2, 68, 0}}, {"tf32", {0, 0, 77, 0}},
    {"fp32", {0, 0, 68, 0}},   {"fp64", {1, 1, 70, 1}}, {"int8", {3, 10, 72, 10}},
};
constexpr int kTransposeA = 3, kMaxWorkspace = 1, kTransposed = 1;

std::vector<std::string> candidates(const std::string& named) {
  if (!named.empty()) return {named};
  std::vector<std::string> paths;
  for (const char* name : {"libcublasLt.so.13", "libcublasLt.so.12", "libcublasLt.so"}) {
    paths.emplace_back(name);
  }
  for (const char* pattern :
       {"/usr/local/cuda*/lib64/libcublasLt.so.1*",
        "/usr/local/cuda*/targets/*/lib/libcublasLt.so.1*",
        "/usr/lib/python3*/site-packages/nvidia/*/lib/libcublasLt.so.1*",
        "/opt/*/.venv/lib/python3*/site-packages/nvidia/*/lib/libcublasLt.so.1*"}) {
    glob_t found = {};
    if (glob(pattern, 0, nullptr, &found) == 0) {
      paths.insert(paths.end(), found.gl_pathv, found.gl_pathv + found.gl_pathc);
    }
    globfree(&found);
  }
  return paths;
}

}  // namespace

int input_bytes(const std::string& row_class) {
  return row_class == "int8" ? 1 : output_bytes(row_class);
}
int output_bytes(const std::string& row_class) {
  if (row_class == "fp64") return 8;
  return row_class == "bf16" || row_class == "fp16" ? 2 : 4;
}

struct CublasLt::Calls {
  int (*create)(void**);
  int (*destroy)(void*);
  size_t (*version)();
  int (*desc_create)(void**, int, int);
  int (*desc_set)(void*, int, const void*, size_t);
  int (*desc_destroy)(void*);
  int (*layout_create)(void**, int, uint64_t, uint64_t, int64_t);
  int (*layout_destroy)(void*);
  int (*preference_create)(void**);
  int (*preference_set)(void*, int, const void*, size_t);
  int (*preference_destroy)(void*);
  int (*heuristic)(void*, void*, void*, void*, void*, void*, void*, int, Algorithm*, int*);
  int (*matmul)(void*, void*, const void*, const void*, void*, const void*, void*, const void*,
                const void*, void*, void*, void*, const void*, void*, size_t, void*);
};

base::Result<std::unique_ptr<CublasLt>> CublasLt::open(const std::string& named) {
  std::string tried;
  for (const std::string& path : candidates(named)) {
    void* library = dlopen(path.c_str(), RTLD_NOW | RTLD_LOCAL);
    if (library == nullptr) {
      tried += (tried.empty() ? "" : ", ") + path;
      continue;
    }
    auto calls = std::make_unique<Calls>();
    bool complete = true;
    const auto find = [&](auto& call, const char* name) {
      call = reinterpret_cast<std::decay_t<decltype(call)>>(dlsym(library, name));
      complete = complete && call != nullptr;
    };
    find(calls->create, "cublasLtCreate");
    find(calls->destroy, "cublasLtDestroy");
    find(calls->version, "cublasLtGetVersion");
    find(calls->desc_create, "cublasLtMatmulDescCreate");
    find(calls->desc_set, "cublasLtMatmulDescSetAttribute");
    find(calls->desc_destroy, "cublasLtMatmulDescDestroy");
    find(calls->layout_create, "cublasLtMatrixLayoutCreate");
    find(calls->layout_destroy, "cublasLtMatrixLayoutDestroy");
    find(calls->preference_create, "cublasLtMatmulPreferenceCreate");
    find(calls->preference_set, "cublasLtMatmulPreferenceSetAttribute");
    find(calls->preference_destroy, "cublasLtMatmulPreferenceDestroy");
    find(calls->heuristic, "cublasLtMatmulAlgoGetHeuristic");
    find(calls->matmul, "cublasLtMatmul");
    if (!complete) continue;
    std::unique_ptr<CublasLt> peer(new CublasLt(std::move(calls)));
    if (peer->calls_->create(&peer->handle_) != 0) continue;
    peer->path_ = path;
    peer->version_ = peer->calls_->version();
    return peer;
  }
  return base::make_error(DEEPGEMM_ERROR_UNSUPPORTED, "no libcublasLt: tried {}", tried);
}

CublasLt::CublasLt(std::unique_ptr<Calls> calls) : calls_(std::move(calls)) {}

CublasLt::~CublasLt() {
  forget();
  if (handle_ != nullptr) calls_->destroy(handle_);
}

void CublasLt::forget() {
  if (description_ != nullptr) calls_->desc_destroy(description_);
  description_ = nullptr;
  for (void*& layout : layouts_) {
    if (layout != nullptr) calls_->layout_destroy(layout);
    layout = nullptr;
  }
  algorithms_.clear();
}

int CublasLt::prepare(const PeerProduct& product) {
  forget();
  const auto types = kTypes.find(product.row_class);
  if (types == kTypes.end()) return 0;
  const auto& [input, output, compute, scale] = types->second;
  row_class_ = product.row_class;
  const auto m = static_cast<uint64_t>(product.m), n = static_cast<uint64_t>(product.n);
  const auto k = static_cast<uint64_t>(product.k);
  // Columns of cuBLAS are our rows: C^T[n][m] = B[n][k] * A^T[k][m].
  const int transposed = kTransposed;
  const size_t workspace = kWorkspace;
  void* preference = nullptr;
  bool fine = calls_->desc_create(&description_, compute, scale) == 0 &&
              calls_->desc_set(description_, kTransposeA, &transposed, sizeof transposed) == 0 &&
              calls_->layout_create(&layouts_[0], input, k, n, product.k) == 0 &&
              calls_->layout_create(&layouts_[1], input, k, m, product.k) == 0 &&
              calls_->layout_create(&layouts_[2], output, n, m, product.n) == 0 &&
              calls_->preference_create(&preference) == 0 &&
              calls_->preference_set(preference, kMaxWorkspace, &workspace, sizeof workspace) == 0;
  constexpr int kWanted = 8;
  int found = 0;
  algorithms_.resize(kWanted);
  fine =
      fine && calls_->heuristic(handle_, description_, layouts_[0], layouts_[1], layouts_[2],
                                layouts_[2], preference, kWanted, algorithms_.data(), &found) == 0;
  if (preference != nullptr) calls_->preference_destroy(preference);
  algorithms_.resize(static_cast<size_t>(fine ? found : 0));
  return static_cast<int>(algorithms_.size());
}

bool CublasLt::launch(int algorithm, const void* a, const void* b, void* c, void* workspace,
                      void* stream) {
  const float one = 1;
  const double double_one = 1, zero = 0;  // whose bytes are zero in every type
  const int integer_one = 1;
  const void* const alpha = row_class_ == "int8"   ? static_cast<const void*>(&integer_one)
                            : row_class_ == "fp64" ? static_cast<const void*>(&double_one)
                                                   : &one;
  return calls_->matmul(handle_, description_, alpha, b, layouts_[0], a, layouts_[1], &zero, c,
                        layouts_[2], c, layouts_[2],
                        algorithms_[static_cast<size_t>(algorithm)].algorithm, workspace,
                        kWorkspace, stream) == 0;
}

}  // namespace deepgemm::bench
