// Reads files of rows in constant memory: JSON lines, and documents of plain text.

#ifndef TRAINER_PREPARE_ROW_SOURCE_H_
#define TRAINER_PREPARE_ROW_SOURCE_H_

#include <cstddef>
#include <cstdint>
#include <memory>
#include <string>
#include <vector>

namespace gpuctl::trainer {

// A longer line is a bad row.
constexpr size_t kMaxLineBytes = size_t{16} << 20;
// A longer document comes in pieces of this size.
constexpr size_t kDocumentPieceBytes = size_t{1} << 20;

struct DataFile {
  std::string path;
  bool held_out = false;
};

// Returns the files of `paths`; a directory stands for its files *.jsonl, by name. Throws
// Error(kBadData) for a path that is not there and for a directory without such files.
std::vector<DataFile> FindDataFiles(const std::vector<std::string>& paths, bool held_out);

// A row as it lies in its file: a line, or a piece of a document (a whole one, mostly).
struct RawRow {
  std::string bytes;
  int64_t line = 0;          // from 1; that at which a piece of a document begins
  bool is_document = false;  // else JSON
  bool continues = false;    // the document before it goes on
  bool ends = true;          // no piece of the same document follows
  std::string fault;         // why it cannot be read, or ""
};

struct RowBatch {
  std::string path;
  bool held_out = false;
  size_t bytes = 0;
  std::vector<RawRow> rows;
};

// Not thread-safe.
class RowSource {
 public:
  // The rows come in the order of the files.
  explicit RowSource(std::vector<DataFile> files);
  ~RowSource();
  RowSource(const RowSource&) = delete;
  RowSource& operator=(const RowSource&) = delete;

  // Fills `batch` with rows of one file, about 256 KiB or one long row. Returns false at the end.
  // Empty lines are left out; a BOM and the CR of CRLF, too. Throws Error(kBadData) for a file that
  // is compressed or no text at all, Error(kIo).
  bool Next(RowBatch* batch);

 private:
  class Reader;

  std::vector<DataFile> files_;
  size_t next_file_ = 0;
  std::unique_ptr<Reader> reader_;
};

}  // namespace gpuctl::trainer

#endif  // TRAINER_PREPARE_ROW_SOURCE_H_
