#include "common/base/link_fault.h"

#include <gtest/gtest.h>

#include <cerrno>

#include "common/base/status_macros.h"

namespace gpuctl {
namespace {

TEST(LinkFault, ComesBackThroughAnnotations) {
  const absl::Status status =
      WithFault(absl::PermissionDeniedError("changed"), LinkFault::kHostKeyChanged);
  EXPECT_EQ(FaultOf(Annotate(Annotate(status, "log in"), "reach x")), LinkFault::kHostKeyChanged);
  EXPECT_EQ(FaultOf(absl::PermissionDeniedError("changed")), LinkFault::kNone);
  EXPECT_EQ(FaultOf(absl::OkStatus()), LinkFault::kNone);
  EXPECT_TRUE(WithFault(absl::OkStatus(), LinkFault::kHostKeyChanged).ok());
}

TEST(DiskFull, IsKnownByItsNumberAndNotByItsWords) {
  for (const int error : {ENOSPC, EDQUOT}) {
    const absl::Status full = ErrnoStatus(error, "write a");
    EXPECT_TRUE(IsDiskFull(Annotate(full, "merge"))) << full;
    EXPECT_FALSE(IsDiskFull(absl::Status(full.code(), full.message()))) << full;
  }
  // EMFILE gives the same status code.
  EXPECT_FALSE(IsDiskFull(ErrnoStatus(EMFILE, "open a")));
  EXPECT_FALSE(IsDiskFull(absl::OkStatus()));
}

}  // namespace
}  // namespace gpuctl
