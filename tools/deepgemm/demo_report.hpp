// The demo's results as text for a newcomer and as JSON.
#pragma once

#include <string>
#include <vector>

#include "deepgemm/demo_measure.hpp"

namespace deepgemm::cli {

struct DemoResults {
  LayerSample sample;
  ContractResult strict, half, int4, outliers;

  std::vector<const ContractResult*> all() const { return {&strict, &half, &int4, &outliers}; }
  bool kept() const;
};

// For a terminal of 100 columns; ends with a newline.
std::string demo_text(const DemoResults& demo);
std::string demo_json(const DemoResults& demo);

}  // namespace deepgemm::cli
