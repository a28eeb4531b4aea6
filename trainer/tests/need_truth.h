// Tests that compare with files that others made, which may be absent.

#ifndef TRAINER_TESTS_NEED_TRUTH_H_
#define TRAINER_TESTS_NEED_TRUTH_H_

#include <gtest/gtest.h>

#include <cstdlib>
#include <string>

namespace gpuctl::trainer {

// True when a comparison must not be left out: GPUCTL_TRUTHS=required.
inline bool TruthsAreRequired() {
  const char* const said = std::getenv("GPUCTL_TRUTHS");
  return said != nullptr && std::string(said) == "required";
}

}  // namespace gpuctl::trainer

// Skips the test, or lets it fail where comparisons are required, unless `there` is true.
#define NEED_TRUTH(there, what)                                                                 \
  if (!(there) && ::gpuctl::trainer::TruthsAreRequired()) FAIL() << (what) << ": not compared"; \
  if (!(there)) GTEST_SKIP() << (what) << ": not compared"

#endif  // TRAINER_TESTS_NEED_TRUTH_H_
