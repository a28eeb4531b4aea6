#include "provisioning/market/label.h"

#include <gtest/gtest.h>

namespace gpuctl {
namespace {

TEST(Label, ReadsWhatItWrote) {
  const std::string text = FormatLabel({"00ff12ab", "0123456789ab"});
  EXPECT_EQ(text, "gpuctl-00ff12ab-0123456789ab");
  const std::optional<LeaseLabel> label = ParseLabel(text);
  ASSERT_TRUE(label.has_value());
  EXPECT_EQ(label->owner, "00ff12ab");
  EXPECT_EQ(label->lease, "0123456789ab");
}

TEST(Label, LeavesOtherPeoplesNamesAlone) {
  for (const char* text :
       {"", "gpuctl", "gpuctl-", "my-pod", "gpuctl-notes-2", "gpuctl-00ff12ab-0123456789a",
        "gpuctl-00ff12ab-0123456789abc", "gpuctl-00FF12AB-0123456789ab",
        "gpuctl-00ff12ab-0123456789ab-2", "xgpuctl-00ff12ab-0123456789ab"}) {
    EXPECT_FALSE(ParseLabel(text).has_value()) << text;
  }
}

}  // namespace
}  // namespace gpuctl
