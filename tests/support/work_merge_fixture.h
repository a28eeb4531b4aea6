// A laptop and a job whose work directory came from the laptop, for tests of merges.
#ifndef GPUCTL_TESTS_SUPPORT_WORK_MERGE_FIXTURE_H_
#define GPUCTL_TESTS_SUPPORT_WORK_MERGE_FIXTURE_H_

#include <gtest/gtest.h>
#include <sys/stat.h>

#include <memory>
#include <string>
#include <vector>

#include "agent/trees/work_merge.h"
#include "tests/support/transfer_fixture.h"

namespace gpuctl {

inline std::vector<std::string> Kept(const gpuctl::v1::MergeReport& report) {
  EXPECT_EQ(report.kept_count(), report.kept_size());
  return {report.kept().begin(), report.kept().end()};
}

class WorkMergeTest : public testing::Test {
 protected:
  WorkMergeTest() { EXPECT_OK(MakeDirectories(node_.job.work, 0755)); }

  void OnLaptop(const std::string& path, absl::string_view content, mode_t mode = 0644) {
    laptop_.dir.Write(path, content, mode);
  }
  void OnJob(const std::string& path, absl::string_view content, mode_t mode = 0644) {
    node_.dir.Write(absl::StrCat("root/jobs/j-1/work/", path), content, mode);
  }
  std::string Live(const std::string& path) const { return JoinPath(node_.job.work, path); }
  std::string There(const std::string& path) const {
    return ReadFileToString(Live(path)).value_or("(none)");
  }
  mode_t ModeOf(const std::string& path) const {
    struct stat info {};
    return lstat(Live(path).c_str(), &info) == 0 ? info.st_mode & 0777 : 0;
  }

  gpuctl::v1::MergeReport Sync(bool overwrite = false, const std::string& into = "") {
    laptop_.Scan();
    const auto outcome = node_.PushWork(laptop_, overwrite, into);
    EXPECT_OK(outcome);
    if (!outcome.ok()) return {};
    sent_ = outcome->sent.bytes;
    EXPECT_TRUE(Node::Names(node_.job.dir, true).empty());
    return outcome->merge;
  }
  void ExpectSame() const {
    EXPECT_TRUE(Snapshot(node_.job.work) == Snapshot(laptop_.dir.path()));
    EXPECT_EQ(DigestOf(node_.job.work), laptop_.digest());
  }

  Laptop laptop_;
  Node node_;
  int64_t sent_ = 0;  // content bytes of the last Sync
};

// A fixture for the two halves of a merge.
class WorkMergeHalvesTest : public WorkMergeTest {
 protected:
  absl::StatusOr<std::unique_ptr<WorkMerge>> Plan() {
    laptop_.Scan();
    return WorkMerge::Plan(node_.job, "", laptop_.manifest, false);
  }
  // Fills the merge's builder from the laptop's directory.
  static void Fill(WorkMerge& merge, const Laptop& laptop) {
    const UniqueFd fd(file_ops::Open(laptop.dir.path(), O_RDONLY | O_DIRECTORY));
    ASSERT_OK(merge.builder().TakeSamePaths(fd.get()));
    ASSERT_OK(merge.builder().Finish());
  }
};

}  // namespace gpuctl

#endif  // GPUCTL_TESTS_SUPPORT_WORK_MERGE_FIXTURE_H_
