// Other libraries at the same products, as far as the build found them.
#pragma once

#include <map>
#include <memory>
#include <string>

#include "cpu_product.hpp"

namespace deepgemm::bench {

// Their threads; once, before anything of theirs runs. oneDNN takes OMP_NUM_THREADS when the
// process starts.
void set_peer_threads(int threads);

// Name and version of each, and which kernels it chose for this CPU.
std::map<std::string, std::string> peer_versions();

// "onednn" (FP32, BF16, INT8; weights reordered once into the form it likes best) and "openblas"
// (FP32). Where a library has two entries for the product, the faster one. A peer that cannot do
// the product is left out; one that fails is an error. `inputs` must outlive the products.
base::Result<std::map<std::string, std::unique_ptr<Product>>> make_peers(const Inputs& inputs);

}  // namespace deepgemm::bench
