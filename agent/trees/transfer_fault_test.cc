// Every file operation of a transfer may fail, once or from then on. The result is an error or
// success, never a wrong tree, and the next try completes.
#include <gtest/gtest.h>
#include <unistd.h>

#include "tests/support/every_nth.h"
#include "tests/support/transfer_fixture.h"

namespace gpuctl {
namespace {

const bool kFaultsInMemory = UseMemoryFileSystem();

struct SmallLaptop : Laptop {
  explicit SmallLaptop(const std::string& version) {
    dir.Write("both", absl::StrCat("both ", version));
    dir.Write("deep/er/f", absl::StrCat("deep ", version), 0755);
    dir.Write("same", "the same");
    dir.Write(absl::StrCat("only-", version), version);
    dir.Write(absl::StrCat("dir-", version, "/f"), version);
    EXPECT_EQ(symlink(version.c_str(), dir.Sub("link").c_str()), 0);
    std::string large(static_cast<size_t>(kPartBytes) + 10, 'l');
    large.replace(0, version.size(), version);
    dir.Write("large", large);
    Scan();
  }
};

// Calls `attempt` with file operation 0, 1, 2, … failing, until a call does not reach the failure.
void ForEachFailure(const std::function<void(int n, bool for_ever, bool& met)>& attempt) {
  for (const bool for_ever : {false, true}) {
    bool met = true;
    int n = 0;
    for (; met; n += (for_ever ? 3 : 1) * EveryNth())
      ASSERT_NO_FATAL_FAILURE(attempt(n, for_ever, met)) << n;
    EXPECT_GT(n, 20);
  }
}

// Runs `call` with operation `n` failing.
absl::Status With(int n, bool for_ever, bool& met, const std::function<absl::Status()>& call) {
  const FailingFiles failing(n, for_ever);
  absl::Status status = call();
  met = failing.operations() > n;
  return status;
}

TEST(TransferFaults, PushToTheStore) {
  const SmallLaptop first("v1");
  const SmallLaptop second("v2");
  ForEachFailure([&](int n, bool for_ever, bool& met) {
    Node node;
    ASSERT_OK(node.Push(first));
    const absl::Status status = With(n, for_ever, met, [&] { return node.Push(second).status(); });
    EXPECT_TRUE(met || status.ok()) << status;
    // Both share content by links, and neither damages the other.
    if (HasStoredTree(node.trees, second.digest())) {
      EXPECT_EQ(DigestOf(JoinPath(node.trees, second.digest())), second.digest());
    }
    ASSERT_OK(node.Push(second));
    node.ExpectWhole(second.digest());
    node.ExpectWhole(first.digest());
  });
}

TEST(TransferFaults, PushIntoAWorkDirectory) {
  const SmallLaptop first("v1");
  const SmallLaptop second("v2");
  const auto v1 = Snapshot(first.dir.path());
  const auto v2 = Snapshot(second.dir.path());
  ForEachFailure([&](int n, bool for_ever, bool& met) {
    Node node;
    ASSERT_OK(MakeDirectories(node.job.work, 0755));
    ASSERT_OK(node.PushWork(first));
    node.dir.Write("root/jobs/j-1/work/same", "changed by the job");
    node.dir.Write("root/jobs/j-1/work/own", "the job's");
    const absl::Status status =
        With(n, for_ever, met, [&] { return node.PushWork(second).status(); });
    EXPECT_TRUE(met || status.ok()) << status;
    for (const auto& [path, content] : Snapshot(node.job.work)) {
      if (path == "own" || path == "same") continue;
      const bool old = v1.count(path) > 0 && v1.at(path) == content;
      const bool fresh = v2.count(path) > 0 && v2.at(path) == content;
      EXPECT_TRUE(old || fresh) << n << " " << path;
    }
    const auto outcome = node.PushWork(second);
    ASSERT_OK(outcome) << n;
    EXPECT_EQ(outcome->merge.kept_count(), 0) << n;  // "same" did not change on the laptop
    auto expected = v2;
    expected["same"] = "changed by the job";
    expected["own"] = "the job's";
    const auto found = Snapshot(node.job.work);
    for (const auto& [path, content] : expected) {
      EXPECT_TRUE(found.count(path) > 0 && found.at(path) == content) << n << " " << path;
    }
    for (const auto& [path, content] : found) EXPECT_EQ(expected.count(path), 1u) << n << path;
  });
}

TEST(TransferFaults, Pull) {
  const SmallLaptop job("v1");
  Node node;
  ASSERT_OK(MakeDirectories(node.job.dir));
  ASSERT_EQ(rename(job.dir.path().c_str(), node.job.work.c_str()), 0);
  ForEachFailure([&](int n, bool for_ever, bool& met) {
    TempDir to;
    const absl::Status status = With(n, for_ever, met, [&] { return node.Pull("work", to); });
    EXPECT_TRUE(met || status.ok()) << status;
    const bool published = PathExists(to.Sub("got"));
    EXPECT_EQ(Node::Names(to.path(), false).size(), published ? 1u : 0u) << n;
    if (published) {
      EXPECT_EQ(DigestOf(to.Sub("got")), job.digest()) << n;
      return;
    }
    ASSERT_OK(node.Pull("work", to)) << n;
    EXPECT_EQ(DigestOf(to.Sub("got")), job.digest()) << n;
    EXPECT_EQ(to.Names(), std::vector<std::string>{"got"}) << n;
  });
  ASSERT_EQ(rename(node.job.work.c_str(), job.dir.path().c_str()), 0);
}

TEST(TransferFaults, CopyOutOfTheStore) {
  const SmallLaptop laptop("v1");
  Node node;
  ASSERT_OK(node.Push(laptop));
  for (const bool link : {false, true}) {
    ForEachFailure([&](int n, bool for_ever, bool& met) {
      TempDir work;
      const auto copy = [&] {
        return link ? LinkStoredTree(node.trees, laptop.digest(), work.Sub("tree"))
                    : CopyStoredTree(node.trees, laptop.digest(), work.Sub("tree"));
      };
      const absl::Status status = With(n, for_ever, met, copy);
      EXPECT_EQ(status.ok(), !met) << n;
      EXPECT_EQ(work.Names().empty(), met) << n;
      EXPECT_TRUE(!met || copy().ok()) << n;
      EXPECT_EQ(DigestOf(work.Sub("tree")), laptop.digest()) << n;
    });
  }
}

}  // namespace
}  // namespace gpuctl
