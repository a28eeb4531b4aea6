#include "common/tree/file_hasher.h"

#include <unistd.h>

#include <algorithm>
#include <atomic>
#include <cerrno>
#include <thread>

#include "common/base/mutex.h"
#include "common/base/status_macros.h"
#include "common/files/sha256.h"
#include "common/tree/manifest.h"

namespace gpuctl {
namespace {

constexpr size_t kHashBytes = 32;
constexpr size_t kReadBytes = 1 << 18;
constexpr int kMaxThreads = 8;
// The bytes that justify a thread. Fewer are hashed before a thread has started.
constexpr int64_t kThreadPaysBytes = 1 << 20;

struct Task {
  FileHasher::File* file;
  int64_t part;
};

absl::Status HashPart(const Task& task, std::string& buffer) {
  const int64_t end = std::min((task.part + 1) * kPartBytes, task.file->size);
  Sha256 hash;
  for (int64_t offset = task.part * kPartBytes; offset < end;) {
    const auto wanted =
        static_cast<size_t>(std::min<int64_t>(end - offset, static_cast<int64_t>(buffer.size())));
    const ssize_t got = pread(task.file->fd, buffer.data(), wanted, offset);
    if (got < 0 && errno == EINTR) continue;
    if (got < 0) return ErrnoStatus(errno, "read");
    if (got == 0) return absl::DataLossError("read: the file is shorter than it was");
    hash.Update({buffer.data(), static_cast<size_t>(got)});
    offset += got;
  }
  hash.Finish().copy(task.file->part_hashes.data() + static_cast<size_t>(task.part) * kHashBytes,
                     kHashBytes);
  return absl::OkStatus();
}

}  // namespace

FileHasher::FileHasher(int threads)
    : threads_(threads > 0 ? threads
                           : std::clamp(static_cast<int>(std::thread::hardware_concurrency()), 1,
                                        kMaxThreads)) {}

void FileHasher::Hash(std::vector<File>& files,
                      const std::function<void(int64_t bytes)>& progress) {
  std::vector<Task> tasks;
  int64_t bytes = 0;
  for (File& file : files) {
    const int64_t parts = PartCount(file.size);
    file.part_hashes.assign(static_cast<size_t>(parts) * kHashBytes, '\0');
    for (int64_t part = 0; part < parts; ++part) tasks.push_back({&file, part});
    bytes += file.size;
  }
  std::atomic<size_t> next{0};
  Mutex mutex;  // guards the files' states and calls of `progress`
  const auto work = [&] {
    std::string buffer(kReadBytes, '\0');
    for (size_t i = next++; i < tasks.size(); i = next++) {
      const absl::Status status = HashPart(tasks[i], buffer);
      MutexLock lock(mutex);
      tasks[i].file->status.Update(status);
      if (progress) {
        progress(std::min(kPartBytes, tasks[i].file->size - tasks[i].part * kPartBytes));
      }
    }
  };
  const auto useful = std::min<int64_t>(
      {threads_, static_cast<int64_t>(tasks.size()), 1 + bytes / kThreadPaysBytes});
  std::vector<std::thread> threads;
  for (int64_t i = 1; i < useful; ++i) threads.emplace_back(work);
  work();
  for (std::thread& thread : threads) thread.join();
}

}  // namespace gpuctl
