#include "common/transfer/fault_line.h"

#include <gtest/gtest.h>

#include <string>

#include "absl/strings/str_cat.h"

namespace gpuctl {
namespace {

using gpuctl::v1::ErrorDetail;

ErrorDetail Stuck(const std::string& root) {
  ErrorDetail detail;
  detail.set_kind(ErrorDetail::KIND_SERVER_STUCK);
  detail.set_root(root);
  return detail;
}

TEST(FaultLine, IsFoundAmongWhatAShellPrints) {
  const std::string root = "/home/a\n\xff b";
  const std::string line = FormatFaultLine(Stuck(root));
  const ErrorDetail found = FindFaultLine(absl::StrCat("Welcome!", line, "bye"));
  EXPECT_EQ(found.kind(), ErrorDetail::KIND_SERVER_STUCK);
  EXPECT_EQ(found.root(), root);
  // The line ends of a terminal.
  EXPECT_EQ(FindFaultLine(absl::StrCat(line.substr(0, line.size() - 1), "\r\n")).root(), root);
}

TEST(FaultLine, TheLastOneCounts) {
  EXPECT_EQ(FindFaultLine(absl::StrCat(FormatFaultLine(Stuck("/a")), FormatFaultLine(Stuck("/b"))))
                .root(),
            "/b");
}

TEST(FaultLine, AnythingElseSaysNothing) {
  const std::string line = FormatFaultLine(Stuck("/a"));
  for (const std::string& output : {
           std::string(),
           std::string("the agent's server here is older and has not made way for the new one"),
           std::string("\nGPUCTL-FAULT 1 \n"),
           std::string("\nGPUCTL-FAULT 1 zz\n"),
           std::string("\nGPUCTL-FAULT 1 0\n"),
           std::string("\nGPUCTL-FAULT 1 ffff\n"),
           std::string("\nGPUCTL-FAULT 2 0805\n"),
           absl::StrCat("x", line.substr(1)),
           line.substr(0, line.size() - 2),
       }) {
    EXPECT_EQ(FindFaultLine(output).kind(), ErrorDetail::KIND_UNSPECIFIED) << output;
  }
}

}  // namespace
}  // namespace gpuctl
