// cuBLASLt as a peer, opened at run time.
#pragma once

#include <cstddef>
#include <cstdint>
#include <memory>
#include <string>
#include <vector>

#include "base/result.hpp"

namespace deepgemm::bench {

// C[m][n] = A[m][k] * B[n][k]^T, all row-major and contiguous.
struct PeerProduct {
  int64_t m = 0, n = 0, k = 0;
  std::string row_class;  // of the peer: "bf16", "fp16", "tf32", "fp32", "fp64", "int8"
};

class CublasLt {
 public:
  // `named`, unless empty; else where the loader looks, then the usual folders of toolkits and
  // Python packages. UNSUPPORTED, with what was tried.
  static base::Result<std::unique_ptr<CublasLt>> open(const std::string& named);
  ~CublasLt();
  CublasLt(const CublasLt&) = delete;
  CublasLt& operator=(const CublasLt&) = delete;

  const std::string& path() const { return path_; }
  size_t version() const { return version_; }
  // Bytes of scratch that a product may use, on the device.
  static constexpr size_t kWorkspace = size_t{32} << 20;  // cuBLAS: recommended on Hopper

  // How many algorithms the library proposes for the product, at most 8; 0: it has none.
  int prepare(const PeerProduct& product);
  // Enqueues the product that was prepared with one of them. False when the library refuses.
  bool launch(int algorithm, const void* a, const void* b, void* c, void* workspace, void* stream);

 private:
  struct Calls;
  struct Algorithm {  // cublasLtMatmulHeuristicResult_t
    uint64_t algorithm[8];
    size_t workspace;
    int state;
    float waves;
    int reserved[4];
  };
  explicit CublasLt(std::unique_ptr<Calls> calls);
  void forget();

  std::unique_ptr<Calls> calls_;
  std::string path_;
  size_t version_ = 0;
  void* handle_ = nullptr;
  void* description_ = nullptr;
  void* layouts_[3] = {};  // of B, A and C, which are the columns of cuBLAS
  std::vector<Algorithm> algorithms_;
  std::string row_class_;  // that was prepared
};

// Bytes of an element of A and B, and of C, of a class.
int input_bytes(const std::string& row_class);
int output_bytes(const std::string& row_class);

}  // namespace deepgemm::bench
