// Writes the folder that data/prepared.h describes. It is made beside its place, and gets there
// when it is whole.

#ifndef TRAINER_PREPARE_FOLDER_WRITER_H_
#define TRAINER_PREPARE_FOLDER_WRITER_H_

#include <cstdint>
#include <memory>
#include <nlohmann/json.hpp>
#include <string>
#include <utility>
#include <vector>

#include "trainer/base/files.h"
#include "trainer/base/sha256.h"

namespace gpuctl::trainer {

enum Part { kTrain = 0, kHeldOut = 1 };

struct PartCounts {
  int64_t rows = 0;
  int64_t tokens = 0;
  int64_t learned = 0;
  int64_t longest = 0;  // tokens of a row
};

// The two files of one part. Not thread-safe.
class PartFiles {
 public:
  PartFiles(const std::string& folder, const std::string& part);

  // Appends a row. Throws Error(kIo).
  void Add(const uint32_t* words, size_t size);
  // Makes the files durable. Call it once, at the end.
  void Close();

  const PartCounts& counts() const { return counts_; }
  // Returns "NAME SIZE SHA256\n" for each file; call it once, after Close.
  std::string Digests();

 private:
  struct File {
    std::string name;
    std::unique_ptr<OutputFile> out;
    Sha256 digest;
    std::string buffer;
    uint64_t size = 0;
  };
  static void Append(const void* bytes, size_t size, File* file);
  static void Flush(File* file);

  File tokens_;
  File ends_;
  PartCounts counts_;
};

// Not thread-safe. Without Publish the destructor leaves everything as it was.
class FolderWriter {
 public:
  // `folder` may be missing or what `prepare` made. Throws Error(kBadConfig) if it is something
  // else, or another process writes it now; Error(kIo).
  explicit FolderWriter(const std::string& folder);
  ~FolderWriter();
  FolderWriter(const FolderWriter&) = delete;
  FolderWriter& operator=(const FolderWriter&) = delete;

  PartFiles& part(Part part) { return *parts_[part]; }

  // Closes the parts, and moves rows [first, last) of one part to the other, which must be empty.
  // Call it once, after the last row.
  void Finish(Part from, const std::vector<std::pair<int64_t, int64_t>>& rows);
  // Writes one more file, which the digest of the data does not depend on. Throws Error(kIo).
  void AddFile(const std::string& name, const std::string& content);
  // Writes dataset.json, with what it must have added to `description`, and puts the folder into
  // its place, for an older one. `pairs` says that the rows are pairs. Call it after Finish.
  void Publish(nlohmann::ordered_json description, bool pairs = false);

 private:
  void Lock();
  void RemoveMade();

  std::string folder_;
  std::string made_;  // beside it
  int lock_ = -1;
  bool published_ = false;
  std::unique_ptr<PartFiles> parts_[2];
};

}  // namespace gpuctl::trainer

#endif  // TRAINER_PREPARE_FOLDER_WRITER_H_
