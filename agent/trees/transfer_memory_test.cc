// The memory of a transfer, with each end in its own process: 500,000 files, and a file of 20 GB
// that is one hole.
#include <gtest/gtest.h>
#include <sys/resource.h>
#include <sys/socket.h>
#include <sys/wait.h>
#include <unistd.h>

#include <csignal>
#include <cstdlib>
#include <cstring>

#include "common/base/heap.h"
#include "common/files/sha256.h"
#include "tests/support/transfer_fixture.h"

namespace gpuctl {
namespace {

const bool kMemoryInMemory = UseMemoryFileSystem();
constexpr int64_t kMaxBytes = 100'000'000;
// The memory of each process before its first file, in bytes. The rest grows with the number of
// files.
constexpr int64_t kMaxBytesAtRest = 15'000'000;
constexpr int kManyFiles = 500'000;
constexpr int kFewerFiles = 100'000;
constexpr int64_t kMaxBytesForFewer =
    kMaxBytesAtRest + (kMaxBytes - kMaxBytesAtRest) / (kManyFiles / kFewerFiles);

int64_t PeakMemory() {
  struct rusage usage {};
  getrusage(RUSAGE_SELF, &usage);
#if defined(__APPLE__)
  return usage.ru_maxrss;
#else
  return int64_t{usage.ru_maxrss} * 1024;
#endif
}

// A process that runs `work` and reports its peak memory. The memory of this process is a small
// part of it.
class Measured {
 public:
  explicit Measured(const std::function<absl::Status()>& work) {
    int fds[2];
    EXPECT_EQ(pipe(fds), 0);
    result_.reset(fds[0]);
    pid_ = fork();
    if (pid_ == 0) {
      KeepHeap();
      const absl::Status status = work();
      if (!status.ok()) fprintf(stderr, "%s\n", status.ToString().c_str());
      const int64_t peak = status.ok() ? PeakMemory() : -1;
      _exit(write(fds[1], &peak, sizeof(peak)) == sizeof(peak) ? 0 : 1);
    }
    close(fds[1]);
  }
  // Waits for its end. Returns its peak memory, or -1 when it failed.
  int64_t Peak() {
    int64_t peak = -1;
    if (read(result_.get(), &peak, sizeof(peak)) != sizeof(peak)) peak = -1;
    int status = 0;
    EXPECT_EQ(waitpid(pid_, &status, 0), pid_);
    return peak;
  }

 private:
  UniqueFd result_;
  pid_t pid_ = -1;
};

// Runs both ends over a socket; each closes the other's descriptor.
void RunBoth(const std::string& what, int64_t max_bytes,
             const std::function<absl::Status(int fd)>& laptop,
             const std::function<absl::Status(int fd)>& node) {
  int fds[2];
  ASSERT_EQ(socketpair(AF_UNIX, SOCK_STREAM, 0, fds), 0);
  signal(SIGPIPE, SIG_IGN);
  Measured at_node([&] {
    close(fds[0]);
    return node(fds[1]);
  });
  Measured at_laptop([&] {
    close(fds[1]);
    return laptop(fds[0]);
  });
  close(fds[0]);
  close(fds[1]);
  const int64_t laptop_peak = at_laptop.Peak();
  const int64_t node_peak = at_node.Peak();
  printf("%s: laptop %.1f MB, node %.1f MB\n", what.c_str(), static_cast<double>(laptop_peak) / 1e6,
         static_cast<double>(node_peak) / 1e6);
  EXPECT_GT(laptop_peak, 0) << what;
  EXPECT_GT(node_peak, 0) << what;
  EXPECT_LE(laptop_peak, max_bytes) << what;
  EXPECT_LE(node_peak, max_bytes) << what;
}

TransferStream StreamOn(int fd) {
  TransferStream stream;
  stream.bytes = std::make_shared<FdStream>(fd, fd);
  return stream;
}

absl::Status ScanAndPush(const std::string& root, const PushTarget& target, int fd) {
  const auto manifest = ScanTree(root);
  if (!manifest.ok()) return manifest.status();
  return PushTree(StreamOn(fd), root, *manifest, target, Clock::Real(), {}).status();
}

// Makes a tree of `files` files, a fifth of them with content, as links so that it takes little
// room.
void MakeFiles(const std::string& root, int files) {
  constexpr int kFilesEach = 1000;
  for (int d = 0; d < files / kFilesEach; ++d) {
    const std::string directory = JoinPath(root, absl::StrCat("data/class-", 1000 + d));
    ASSERT_OK(MakeDirectories(directory, 0755));
    const std::string first = JoinPath(directory, "sample-0");
    const std::string full = JoinPath(directory, "full-0");
    const UniqueFd empty(file_ops::Open(first, O_WRONLY | O_CREAT, 0644));
    const UniqueFd content(file_ops::Open(full, O_WRONLY | O_CREAT, 0644));
    ASSERT_OK(WriteAll(content.get(), absl::StrCat("content ", d), full));
    for (int f = 1; f < kFilesEach; ++f) {
      const bool is_full = f % 5 == 0;
      const std::string path =
          JoinPath(directory, absl::StrCat(is_full ? "full-" : "sample-", 1'000'000 + f));
      ASSERT_EQ(link((is_full ? full : first).c_str(), path.c_str()), 0);
    }
  }
}

TEST(TransferMemory, OfAPushOfHalfAMillionFiles) {
  TempDir laptop;
  MakeFiles(laptop.path(), kManyFiles);
  Node node;
  RunBoth(
      "push to the store", kMaxBytes, [&](int fd) { return ScanAndPush(laptop.path(), {}, fd); },
      [&](int fd) { return ReceivePush(node.root, fd, fd); });
  EXPECT_EQ(node.Stored().size(), 2u);
}

// Three whole trees matter: the last pushed one, the one being pushed, and the one after this push.
TEST(TransferMemory, OfChangesToHalfAMillionFilesOfWhichTheJobKeepsOne) {
  TempDir laptop;
  MakeFiles(laptop.path(), kManyFiles);
  laptop.Write("changed-by-both", "1");
  Node node;
  ASSERT_OK(MakeDirectories(node.job.dir));
  MakeFiles(node.job.work, kManyFiles);
  ASSERT_GT(Measured([&] {
              // As if it had been pushed from the laptop.
              const auto manifest = ScanTree(laptop.path());
              if (!manifest.ok()) return manifest.status();
              return WriteFileAtomic(WorkManifestPath(node.job), manifest->bytes());
            }).Peak(),
            0);
  node.dir.Write("root/jobs/j-1/work/changed-by-both", "job");
  laptop.Write("changed-by-both", "2");
  laptop.Write("added", "2");
  PushTarget target;
  target.job_id = "j-1";
  RunBoth(
      "push of changes, one file kept", kMaxBytes,
      [&](int fd) { return ScanAndPush(laptop.path(), target, fd); },
      [&](int fd) { return ReceivePush(node.root, fd, fd); });
  EXPECT_EQ(ReadFileToString(JoinPath(node.job.work, "changed-by-both")).value(), "job");
  EXPECT_EQ(ReadFileToString(JoinPath(node.job.work, "added")).value(), "2");
  // In the new base, kept files are unchanged and received files are new.
  const int64_t base_peak =
      Measured([&]() -> absl::Status {
        const auto bytes = ReadFileToString(WorkManifestPath(node.job));
        if (!bytes.ok()) return bytes.status();
        const auto base = ParseManifest(*bytes);
        if (!base.ok()) return base.status();
        std::map<std::string, std::string> found;
        for (const gpuctl::v1::FileEntry& entry : *base) {
          if (absl::StrContains(entry.path(), "/")) continue;
          found[entry.path()] = entry.sha256();
        }
        return found["added"] == Sha256Of("2") && found["changed-by-both"] == Sha256Of("1")
                   ? absl::OkStatus()
                   : absl::InternalError("the base is another");
      }).Peak();
  EXPECT_GT(base_peak, 0);
}

TEST(TransferMemory, GrowsNoFasterWhereThereIsSomethingToCompareWith) {
  TempDir laptop;
  MakeFiles(laptop.path(), kFewerFiles);
  Node node;
  ASSERT_OK(MakeDirectories(node.job.work, 0755));
  PushTarget target;
  const auto push = [&](const std::string& what) {
    RunBoth(
        what, kMaxBytesForFewer, [&](int fd) { return ScanAndPush(laptop.path(), target, fd); },
        [&](int fd) { return ReceivePush(node.root, fd, fd); });
  };
  push("push to the store");
  laptop.Write("changed", "1");
  push("push of a tree like a stored one");
  target.job_id = "j-1";
  push("push into a work directory");
  laptop.Write("changed", "2");
  push("push of changes");
  EXPECT_EQ(ReadFileToString(JoinPath(node.job.work, "changed")).value(), "2");
  TempDir to;
  RunBoth(
      "pull", kMaxBytesForFewer,
      [&](int fd) {
        PullSubject subject;
        subject.job_id = "j-1";
        subject.path = "work";
        const auto pulled = PullTree(StreamOn(fd), subject, to.path(), Clock::Real(), {});
        return pulled.ok() ? PublishPulled(*pulled->tree, to.Sub("got")) : pulled.status();
      },
      [&](int fd) { return SendPull(node.root, fd, fd); });
  EXPECT_EQ(to.Names("got"), (std::vector<std::string>{"changed", "data"}));
}

TEST(TransferMemory, OfAFileOf20GB) {
  TempDir laptop;
  constexpr int64_t kSize = 20'000'000'000;
  {
    const UniqueFd fd(file_ops::Open(laptop.Sub("sparse"), O_RDWR | O_CREAT, 0644));
    ASSERT_EQ(ftruncate(fd.get(), kSize), 0);
  }
  Node node;
  RunBoth(
      "20 GB", kMaxBytes,
      [&](int fd) {
        // The same as a scan would give, without reading all of it.
        gpuctl::v1::FileEntry entry = FileOf("sparse", "", 0644);
        const std::string zeros(static_cast<size_t>(kPartBytes), '\0');
        const std::string zero_hash = Sha256Of(zeros);
        std::string hashes;
        for (int64_t part = 0; part + 1 < PartCount(kSize); ++part) hashes += zero_hash;
        hashes += Sha256Of(absl::string_view(zeros).substr(0, kSize % kPartBytes));
        entry.set_size(kSize);
        SetHashes(hashes, entry);
        return PushTree(StreamOn(fd), laptop.path(), ManifestOf({entry}), {}, Clock::Real(), {})
            .status();
      },
      [&](int fd) { return ReceivePush(node.root, fd, fd); });
  EXPECT_EQ(node.Stored().size(), 2u);
}

}  // namespace
}  // namespace gpuctl
