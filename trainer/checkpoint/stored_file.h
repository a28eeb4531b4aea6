// A safetensors file that is open for reading, and the folder of a model that has several. Uses no
// LibTorch.

#ifndef TRAINER_CHECKPOINT_STORED_FILE_H_
#define TRAINER_CHECKPOINT_STORED_FILE_H_

#include <cstdint>
#include <functional>
#include <map>
#include <memory>
#include <string>
#include <vector>

#include "trainer/base/background_sha256.h"
#include "trainer/checkpoint/safetensors_header.h"

namespace gpuctl::trainer {

// The header has been checked. Threads may read at the same time.
class StoredFile {
 public:
  // Throws Error(kIo) or, for an invalid file, Error(kBadData).
  explicit StoredFile(const std::string& path);
  ~StoredFile();
  StoredFile(const StoredFile&) = delete;
  StoredFile& operator=(const StoredFile&) = delete;

  const std::string& path() const { return path_; }
  const std::vector<StoredTensor>& tensors() const { return header_.tensors; }
  const std::map<std::string, std::string>& metadata() const { return header_.metadata; }
  // Returns what lies before the tensors, as it is in the file. The tensors follow, one behind the
  // other, in their order. Throws as Read.
  std::string HeaderBytes() const;
  uint64_t data_bytes() const { return tensors().empty() ? 0 : tensors().back().end; }
  // Reads all of the file. Read then takes the tensors from memory. Returns the SHA-256 of the
  // file, from the same bytes. Not while other threads read.
  std::string TakeIn();
  // Returns the SHA-256 of the file, which it reads for it. Calls `check` often; it may throw to
  // give up. Throws as Read does.
  std::string Digest(const std::function<void()>& check) const;
  // Returns size and time of the last writing, in some form, to tell later whether a program wrote
  // into the file. Throws Error(kIo).
  std::string Stamp() const;
  // Copies `size` bytes of a tensor, from its byte `first` on. Throws Error(kIo), or
  // Error(kBadData) when the file has become shorter.
  void Read(const StoredTensor& tensor, uint64_t first, uint64_t size, void* into) const;

 private:
  const std::string path_;
  int fd_ = -1;
  SafetensorsHeader header_;
  std::string content_;  // the tensors, once they are taken in
};

// Computes the SHA-256 of a file from the bytes that are read of it anyway.
class FileDigest {
 public:
  // The file must live as long. Throws as StoredFile::Read does.
  explicit FileDigest(const StoredFile& file);
  // Takes bytes of a tensor, from its byte `first` on. They must lie behind those that it took
  // before; it reads what is between them itself. Throws as StoredFile::Read does.
  void Add(const StoredTensor& tensor, uint64_t first, const void* bytes, size_t size);
  // Reads the rest. Call once. Throws as StoredFile::Read does.
  std::string Hex();

 private:
  void ReadUpTo(uint64_t end);

  const StoredFile& file_;
  BackgroundSha256 digest_;
  uint64_t taken_ = 0;  // bytes of the data
};

// One tensor and the file that has it.
struct StoredPlace {
  StoredTensor tensor;
  std::shared_ptr<const StoredFile> file;
};

// Throws Error(kBadData) for a tensor that is not F32, F16 or BF16.
void CheckFloats(const StoredFile& file);

// Returns the weights of a model folder, by name: those of model.safetensors, or of the shards that
// model.safetensors.index.json lists; only F32, F16 and BF16 are there. Refuses an index that names
// files outside of the folder, that are missing, or that hold other tensors than it says. Throws
// Error(kBadData) that names file and tensor, or Error(kIo).
std::map<std::string, StoredPlace> OpenWeights(const std::string& folder);

}  // namespace gpuctl::trainer

#endif  // TRAINER_CHECKPOINT_STORED_FILE_H_
