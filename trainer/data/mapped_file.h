// A file that is mapped into memory, read-only.

#ifndef TRAINER_DATA_MAPPED_FILE_H_
#define TRAINER_DATA_MAPPED_FILE_H_

#include <cstddef>
#include <string>

namespace gpuctl::trainer {

// From now on a process that reads behind the end of a file that was cut short while it was mapped,
// or of a disk that fails, says so on standard error and ends with the exit code of bad data, or of
// an error of the file system. Else SIGBUS ends it. For the trainer's main.
void TellOfUnreadableFiles();

// Immutable and thread-safe.
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
  // Throws Error(kBadData) when the file has become shorter. Behind its end, the rest of a page
  // reads as zeros.
  void CheckWhole() const;

 private:
  const std::string path_;
  int fd_ = -1;
  void* bytes_ = nullptr;
  size_t size_ = 0;
  int slot_ = -1;
};

}  // namespace gpuctl::trainer

#endif  // TRAINER_DATA_MAPPED_FILE_H_
