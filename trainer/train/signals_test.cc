#include "trainer/train/signals.h"

#include <ATen/Parallel.h>
#include <ATen/ops/max.h>
#include <ATen/ops/min.h>
#include <ATen/ops/ones.h>
#include <gtest/gtest.h>
#include <signal.h>
#include <unistd.h>

#include <atomic>
#include <cstdlib>
#include <thread>
#include <utility>
#include <vector>

#include "trainer/linear/matmul.h"

namespace gpuctl::trainer {
namespace {

// Multiplies while `signals` signals arrive. Leaves with 0 when the products are right and the
// signal is known.
[[noreturn]] void MultiplyUnderSignals(int signals) {
  WatchSignals();
  std::atomic<bool> sent{false};
  std::thread sender([&] {
    for (int i = 0; i < signals; ++i) {
      kill(getpid(), SIGTERM);
    }
    sent = true;
  });
  at::set_num_threads(1);
  // Of the sizes that a small model has, with the second factor by columns and by rows.
  std::vector<std::pair<at::Tensor, at::Tensor>> factors;
  for (const int64_t inner : {8, 32, 64, 128}) {
    factors.emplace_back(at::ones({128, inner}), at::ones({257, inner}).t());
    factors.emplace_back(at::ones({64, inner}), at::ones({inner, 64}));
    factors.emplace_back(at::ones({inner, 64}).t(), at::ones({inner, 32}));
  }
  bool right = true;
  while (!sent) {
    for (const auto& [left, other] : factors) {
      const at::Tensor product = MatMul(left, other);
      const float inner = static_cast<float>(left.size(1));
      right = right && product.min().item<float>() == inner && product.max().item<float>() == inner;
    }
  }
  sender.join();
  std::_Exit(right && StopSignal() == SIGTERM ? 0 : 1);
}

TEST(SignalsDeathTest, ASignalDoesNotDisturbAProduct) {
  GTEST_FLAG_SET(death_test_style, "threadsafe");
  EXPECT_EXIT(MultiplyUnderSignals(200000), testing::ExitedWithCode(0), "");
}

TEST(SignalsDeathTest, TheSignalIsTold) {
  GTEST_FLAG_SET(death_test_style, "threadsafe");
  const auto child = [](int signal) {
    WatchSignals();
    if (StopSignal() != 0) std::_Exit(1);
    raise(signal);
    std::_Exit(StopSignal());
  };
  EXPECT_EXIT(child(SIGTERM), testing::ExitedWithCode(SIGTERM), "");
  EXPECT_EXIT(child(SIGINT), testing::ExitedWithCode(SIGINT), "");
}

}  // namespace
}  // namespace gpuctl::trainer
