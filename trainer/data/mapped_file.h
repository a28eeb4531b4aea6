// A file that is mapped into memory, read-only.

#ifndef TRAINER_DATA_MAPPED_FILE_H_
#define TRAINER_DATA_MAPPED_FILE_H_

#include <cstddef>
#include <string>

namespace gpuctl::trainer {

// Immutable and thread-safe. A program that cuts the file short while it is mapped, or a disk that
// fails, makes reading it raise SIGBUS. The process then says so on standard error, and ends with
// the exit code of bad data, or of an error of the file system.
class MappedFile {
 public:
  // Maps the whole file. Throws Error(kBadData) when there is no such file, Error(kIo).
  explicit MappedFile(const std::string& path);
  ~MappedFile();
  MappedFile(const MappedFile&) = delete;
  MappedFile& operator=(const MappedFile&) = delete;

  // Null for an empty file.
  const void* bytes() const { return bytes_; }
  size_t size() const { return size_; }

 private:
  void* bytes_ = nullptr;
  size_t size_ = 0;
  int slot_ = -1;
};

}  // namespace gpuctl::trainer

#endif  // TRAINER_DATA_MAPPED_FILE_H_
