// The file operations for publishing a checkpoint, and for reading files that others made. All of
// them throw Error(kIo).
//
// Every operation that changes the disk first calls the fault hook, so that a test can make the
// n-th one fail, for every n, without a failing disk.

#ifndef TRAINER_BASE_FILES_H_
#define TRAINER_BASE_FILES_H_

#include <cstddef>
#include <cstdint>
#include <functional>
#include <string>
#include <vector>

namespace gpuctl::trainer {

// A hook that gets the name of the operation (mkdir, open, write, fsync, close, rename, remove) and
// the path. It returns 0 to allow the operation, or an errno value to make it fail.
using FaultHook = std::function<int(const char* operation, const std::string& path)>;

// Installs `hook` for the whole process; an empty one removes it. For tests only; must not be
// called while another thread writes.
void SetFaultHook(FaultHook hook);

// A file that is written from its beginning. Not thread-safe. The destructor closes the descriptor
// without syncing; only Close() makes the bytes durable.
class OutputFile {
 public:
  explicit OutputFile(std::string path);
  ~OutputFile();
  OutputFile(const OutputFile&) = delete;
  OutputFile& operator=(const OutputFile&) = delete;

  void Write(const void* bytes, size_t size);
  // Flushes to the disk and closes. Must be called exactly once for the file to count as written.
  void Close();

 private:
  std::string path_;
  int fd_ = -1;
};

void WriteFileDurably(const std::string& path, const std::string& bytes);

constexpr uint64_t kLargestText = 512 << 20;     // bytes
constexpr uint64_t kLargestSettings = 16 << 20;  // bytes, of a file that is parsed as JSON

// Opens a regular file, or a link to one, and returns its descriptor, which the caller closes.
// Throws Error(kBadData) for anything else: a FIFO would keep the reader waiting, and a device may
// have no end.
int OpenRegularFile(const std::string& path);
// Reads a regular file. Throws Error(kBadData), also when it has more than `most` bytes.
std::string ReadWholeFile(const std::string& path, uint64_t most = kLargestText);
// Does the same for a path that a person gave, which may be a FIFO, such as /dev/stdin.
std::string ReadGivenFile(const std::string& path, uint64_t most = kLargestText);

void MakeDirectory(const std::string& path);  // one level; an existing directory is fine
void MakeDirectories(const std::string& path);
void SyncDirectory(const std::string& path);
void Rename(const std::string& from, const std::string& to);
// Puts the directory `from` in the place of the directory `to`, at once where the file system can
// exchange two names. What was `to` then lies at `from`. Where it cannot, a crash in between may
// leave the old directory at `from`.old.
void ReplaceDirectory(const std::string& from, const std::string& to);
void RemoveTree(const std::string& path);  // a missing one is fine

// These throw where the path cannot be looked at, for example for want of permission.
bool IsDirectory(const std::string& path);  // or a link to one
bool IsSymlink(const std::string& path);
bool IsFile(const std::string& path);  // a regular one, or a link to one
bool Exists(const std::string& path);
uint64_t FileSize(const std::string& path);
// Returns names, not paths, sorted by byte value; without "." and "..".
std::vector<std::string> ListDirectory(const std::string& path);

}  // namespace gpuctl::trainer

#endif  // TRAINER_BASE_FILES_H_
