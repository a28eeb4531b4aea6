// Matchers for absl::Status and absl::StatusOr; the packaged Abseil has none.
#ifndef GPUCTL_TESTS_SUPPORT_MATCHERS_H_
#define GPUCTL_TESTS_SUPPORT_MATCHERS_H_

#include <gmock/gmock.h>

#include <string>

#include "absl/status/status.h"
#include "absl/status/statusor.h"

namespace gpuctl {

inline const absl::Status& StatusOf(const absl::Status& status) { return status; }
template <typename T>
const absl::Status& StatusOf(const absl::StatusOr<T>& status_or) {
  return status_or.status();
}

MATCHER(IsOk, negation ? "is not OK" : "is OK") {
  *result_listener << StatusOf(arg).ToString();
  return StatusOf(arg).ok();
}

#define EXPECT_OK(...) EXPECT_THAT((__VA_ARGS__), ::gpuctl::IsOk())
#define ASSERT_OK(...) ASSERT_THAT((__VA_ARGS__), ::gpuctl::IsOk())

// StatusIs(absl::StatusCode::kNotFound) or with a matcher for the message.
MATCHER_P(StatusIs, code, "") {
  *result_listener << StatusOf(arg).ToString();
  return StatusOf(arg).code() == code;
}
MATCHER_P2(StatusIs, code, message, "") {
  *result_listener << StatusOf(arg).ToString();
  return StatusOf(arg).code() == code &&
         ::testing::Value(std::string(StatusOf(arg).message()), message);
}

}  // namespace gpuctl

#endif  // GPUCTL_TESTS_SUPPORT_MATCHERS_H_
