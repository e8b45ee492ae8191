#include "backend/cuda/profile.hpp"

#include <algorithm>
#include <cctype>
#include <cmath>
#include <string>
#include <vector>

namespace deepgemm::cuda {
namespace {

using schedule::DeviceProfile;

// "NVIDIA A100-SXM4-80GB": nvidia, a100, sxm4, 80gb.
std::vector<std::string> words_of(const std::string& title) {
  std::vector<std::string> words = {""};
  for (const char letter : title) {
    if (std::isalnum(static_cast<unsigned char>(letter)) != 0) {
      words.back() += static_cast<char>(std::tolower(static_cast<unsigned char>(letter)));
    } else if (!words.back().empty()) {
      words.emplace_back();
    }
  }
  return words;
}

// "h200", or "rtx" followed by "4090".
bool is_named(const std::vector<std::string>& words, const std::string& profile) {
  for (size_t i = 0; i < words.size(); ++i) {
    if (words[i] == profile) return true;
    if (i + 1 < words.size() && words[i] + words[i + 1] == profile) return true;
  }
  return false;
}

const DeviceProfile* shipped(const DeviceFacts& facts) {
  const std::vector<std::string> words = words_of(facts.title);
  for (const DeviceProfile& profile : schedule::all_profiles()) {
    if (profile.sm == facts.sm && is_named(words, profile.name)) return &profile;
  }
  return nullptr;
}

// The GPU whose compute capability is nearest from below, and then whose size is.
const DeviceProfile& relative(const DeviceFacts& facts) {
  const DeviceProfile* best = nullptr;
  const auto distance = [&](const DeviceProfile& profile) {
    const int generations = profile.sm <= facts.sm ? facts.sm - profile.sm : 1000 + profile.sm;
    return std::pair(generations, std::abs(profile.units - facts.sms));
  };
  for (const DeviceProfile& profile : schedule::all_profiles()) {
    if (profile.backend != schedule::Backend::kCuda) continue;
    if (best == nullptr || distance(profile) < distance(*best)) best = &profile;
  }
  return *best;
}

double bus_gbs(const DeviceFacts& facts) {
  constexpr double kTransfers = 2;  // a clock (CUDA Driver API, memory clock rate)
  return kTransfers * facts.memory_clock_khz * 1e3 * facts.memory_bus_bits / 8 / 1e9;
}

DeviceProfile scaled(const DeviceProfile& base, const DeviceFacts& facts) {
  DeviceProfile profile = base;
  const double size = static_cast<double>(facts.sms) / base.units;
  for (double schedule::PeakRates::*rate :
       {&schedule::PeakRates::fp64, &schedule::PeakRates::fp32, &schedule::PeakRates::tf32,
        &schedule::PeakRates::fp16, &schedule::PeakRates::bf16, &schedule::PeakRates::fp8,
        &schedule::PeakRates::int8, &schedule::PeakRates::fp64_tensor}) {
    profile.peak.*rate *= size;
  }
  if (const double gbs = bus_gbs(facts); gbs > 0) profile.bandwidth_gbs = gbs;
  profile.l2_gbs *= size;
  profile.board_power_w = 0;  // not stated
  profile.source =
      fmt::format("estimated: rates of {} by multiprocessors; sizes from the driver", base.name);
  return profile;
}

}  // namespace

DeviceProfile device_profile(const DeviceFacts& facts) {
  const DeviceProfile* known = shipped(facts);
  DeviceProfile profile = known != nullptr ? *known : scaled(relative(facts), facts);
  if (known != nullptr && facts.sms != known->units) {  // a part of the chip: MIG
    profile = scaled(*known, facts);
  }
  profile.name = fmt::format("cuda:{}", facts.ordinal);
  profile.title = facts.title;
  profile.backend = schedule::Backend::kCuda;
  profile.sm = facts.sm;
  profile.units = facts.sms;
  profile.l2_bytes = facts.l2_bytes;
  profile.memory_bytes = facts.memory_bytes;
  profile.shared_bytes_per_block = facts.shared_bytes_per_block;
  return profile;
}

}  // namespace deepgemm::cuda
