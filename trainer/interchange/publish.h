// Puts a file or folder in its place when it is whole, and never before.

#ifndef TRAINER_INTERCHANGE_PUBLISH_H_
#define TRAINER_INTERCHANGE_PUBLISH_H_

#include <cstddef>
#include <cstdint>
#include <memory>
#include <string>

#include "trainer/base/files.h"

namespace gpuctl::trainer {

// A file that is written beside its place, under a name of its own. Without Publish, nothing is
// left of it. Not thread-safe. All errors are Error(kIo).
class NewFile {
 public:
  // Throws Error(kBadConfig) when `path` is a folder, a device or anything else but a file.
  explicit NewFile(const std::string& path);
  ~NewFile();
  NewFile(const NewFile&) = delete;
  NewFile& operator=(const NewFile&) = delete;

  void Write(const void* bytes, size_t size);
  uint64_t written() const { return written_; }
  // Makes the bytes durable, and replaces what is in the place.
  void Publish();

 private:
  const std::string path_;
  const std::string temporary_;
  std::unique_ptr<OutputFile> file_;
  uint64_t written_ = 0;
};

// The same for a folder. Its files are written by others, durably.
class NewFolder {
 public:
  // Throws Error(kBadConfig) when something is in the place already.
  explicit NewFolder(const std::string& path);
  ~NewFolder();
  NewFolder(const NewFolder&) = delete;
  NewFolder& operator=(const NewFolder&) = delete;

  // Where to write the files now.
  const std::string& temporary() const { return temporary_; }
  void Publish();

 private:
  const std::string path_;
  const std::string temporary_;
  bool published_ = false;
};

}  // namespace gpuctl::trainer

#endif  // TRAINER_INTERCHANGE_PUBLISH_H_
