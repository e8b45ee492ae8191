// Devices of a fake driver, for tests.
#pragma once

#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <sys/wait.h>
#include <unistd.h>

#include <cstdint>
#include <functional>
#include <memory>
#include <string>
#include <vector>

#include "backend/cuda/device.hpp"
#include "backend/cuda/fake_driver.hpp"

namespace deepgemm::cuda {

class CudaFixture : public ::testing::Test {
 protected:
  void SetUp() override { platform_ = std::move(*Platform::create(fake_.driver())); }
  void TearDown() override { platform_.reset(); }

  Device& device(int ordinal = 0) { return **platform_->device(ordinal); }
  const Driver& driver() { return fake_.driver(); }
  // Of the calling thread.
  CuContext current() {
    CuContext context = nullptr;
    driver().context_current(&context);
    return context;
  }

  FakeDriver fake_{2};
  std::unique_ptr<Platform> platform_;
};

// A binary for the fake driver, with these kernels ("a,b").
inline std::vector<uint8_t> fake_image(const std::string& kernels) {
  const std::string text = "fake:" + kernels;
  std::vector<uint8_t> image(text.begin(), text.end());
  image.push_back(0);
  return image;
}

// Is `fine` true in a child of this process?
inline bool holds_in_child(const std::function<bool()>& fine) {
  const pid_t child = ::fork();
  if (child == 0) ::_exit(fine() ? 0 : 1);
  int status = -1;
  ::waitpid(child, &status, 0);
  return WIFEXITED(status) && WEXITSTATUS(status) == 0;
}

}  // namespace deepgemm::cuda
