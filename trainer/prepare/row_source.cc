#include "trainer/prepare/row_source.h"

#include <fcntl.h>
#include <unistd.h>

#include <algorithm>
#include <cerrno>
#include <string_view>
#include <utility>

#include "trainer/base/error.h"
#include "trainer/base/files.h"
#include "trainer/base/text.h"

namespace gpuctl::trainer {
namespace {

constexpr size_t kReadBytes = size_t{256} << 10;
constexpr size_t kBatchBytes = size_t{256} << 10;
constexpr char kBom[] = "\xef\xbb\xbf";

bool HasEnding(const std::string& name, const std::string& ending) {
  return name.size() > ending.size() &&
         name.compare(name.size() - ending.size(), ending.size(), ending) == 0;
}

bool IsBlank(char c) { return c == ' ' || c == '\t' || c == '\n' || c == '\r'; }

// What a file begins with, if it is something else than text in UTF-8.
struct Magic {
  std::string_view bytes;
  const char* what;
  const char* hint;
};
constexpr Magic kMagics[] = {
    {"\x1f\x8b", "is compressed (gzip)", "unpack it with gunzip"},
    {"\x28\xb5\x2f\xfd", "is compressed (zstd)", "unpack it with unzstd"},
    {"\xfd"
     "7zXZ",
     "is compressed (xz)", "unpack it with unxz"},
    {"BZh", "is compressed (bzip2)", "unpack it with bunzip2"},
    {"PK\x03\x04", "is compressed (zip)", "unpack it with unzip"},
    {"PAR1", "is a Parquet file", "write its rows as JSON lines"},
    {"ARROW1", "is an Arrow file", "write its rows as JSON lines"},
    {"\xff\xfe", "is text in UTF-16", "write it as UTF-8"},
    {"\xfe\xff", "is text in UTF-16", "write it as UTF-8"},
};

// Returns where a long document is cut: before a line, else before a word, else before a code
// point; tokens seldom cross such places.
size_t CutOfDocument(std::string_view text, size_t most) {
  for (size_t at = most; at > most / 2; --at) {
    if (text[at - 1] == '\n' && !IsBlank(text[at])) return at;
  }
  for (size_t at = most; at > most / 2; --at) {
    if (text[at] == ' ' && !IsBlank(text[at - 1])) return at;
  }
  size_t at = most;
  while (at > most - 4 && (static_cast<unsigned char>(text[at]) & 0xc0) == 0x80) --at;
  return at;
}

void DropCarriageReturns(std::string* text) {
  size_t to = 0;
  for (size_t i = 0; i < text->size(); ++i) {
    if ((*text)[i] == '\r' && i + 1 < text->size() && (*text)[i + 1] == '\n') continue;
    (*text)[to++] = (*text)[i];
  }
  text->resize(to);
}

}  // namespace

std::vector<DataFile> FindDataFiles(const std::vector<std::string>& paths, bool held_out) {
  std::vector<DataFile> files;
  for (const std::string& path : paths) {
    if (!IsDirectory(path)) {
      if (!Exists(path)) throw DataError("read data " + path + ": no such file");
      files.push_back({path, held_out});
      continue;
    }
    const size_t before = files.size();
    for (const std::string& name : ListDirectory(path)) {
      const std::string file = path + "/" + name;
      if (name[0] == '.' || !HasEnding(name, ".jsonl") || IsDirectory(file)) continue;
      if (!IsFile(file)) throw DataError("read data " + file + ": no regular file");
      files.push_back({file, held_out});
    }
    if (files.size() == before) {
      throw DataError("read data " + path + ": the directory has no file *.jsonl",
                      "name the files themselves");
    }
  }
  return files;
}

// One file, of which it holds what is needed for the next row.
class RowSource::Reader {
 public:
  explicit Reader(DataFile file) : file_(std::move(file)) {
    fd_ = open(file_.path.c_str(), O_RDONLY | O_CLOEXEC);
    if (fd_ < 0) throw IoError("open", file_.path, errno);
    is_document_ = HasEnding(file_.path, ".txt");
    while (Left().size() < 8 && More()) {
    }
    const std::string_view beginning = Left();
    for (const Magic& magic : kMagics) {
      if (beginning.substr(0, magic.bytes.size()) != magic.bytes) continue;
      throw DataError("read data " + file_.path + ": " + magic.what, magic.hint);
    }
    if (beginning.substr(0, 3) == kBom) at_ = 3;
  }
  ~Reader() { close(fd_); }
  Reader(const Reader&) = delete;
  Reader& operator=(const Reader&) = delete;

  const DataFile& file() const { return file_; }

  bool Next(RawRow* row) { return is_document_ ? NextPiece(row) : NextLine(row); }

 private:
  std::string_view Left() const { return std::string_view(buffer_).substr(at_); }

  // Reads more of the file behind what is left. Returns false at its end.
  bool More() {
    if (ended_) return false;
    buffer_.erase(0, at_);
    at_ = 0;
    const size_t old = buffer_.size();
    buffer_.resize(old + kReadBytes);
    ssize_t count;
    do {
      count = read(fd_, buffer_.data() + old, kReadBytes);
    } while (count < 0 && errno == EINTR);
    const int error = errno;
    buffer_.resize(old + static_cast<size_t>(std::max<ssize_t>(count, 0)));
    if (count < 0) throw IoError("read", file_.path, error);
    ended_ = count == 0;
    return !ended_;
  }

  bool NextLine(RawRow* row) {
    for (;;) {
      *row = RawRow();
      size_t searched = 0;
      size_t end;
      bool too_long = false;
      while ((end = Left().find('\n', searched)) == std::string_view::npos) {
        searched = Left().size();
        if (searched > kMaxLineBytes) {  // forget what was read, and go on to the line's end
          too_long = true;
          at_ = buffer_.size();
          searched = 0;
        }
        if (!More()) break;
      }
      std::string_view line = Left().substr(0, end);
      if (end == std::string_view::npos && line.empty() && !too_long) return false;
      row->line = ++line_;
      too_long = too_long || line.size() > kMaxLineBytes;
      at_ += line.size() + (end == std::string_view::npos ? 0 : 1);
      while (!line.empty() && IsBlank(line.back())) line.remove_suffix(1);
      while (!line.empty() && IsBlank(line.front())) line.remove_prefix(1);
      if (too_long) {
        row->fault = Format("the line has more than %zu MiB", kMaxLineBytes >> 20);
        return true;
      }
      if (line.empty()) continue;
      row->bytes = line;
      return true;
    }
  }

  bool NextPiece(RawRow* row) {
    while (Left().size() <= kDocumentPieceBytes && More()) {
    }
    const std::string_view left = Left();
    if (left.empty() && line_ > 0) return false;
    const size_t size =
        left.size() <= kDocumentPieceBytes ? left.size() : CutOfDocument(left, kDocumentPieceBytes);
    *row = RawRow();
    row->line = line_ + 1;
    row->is_document = true;
    row->continues = line_ > 0;
    row->ends = size == left.size();
    row->bytes = left.substr(0, size);
    // A document without a line end is read once, too.
    line_ += std::max<int64_t>(1, std::count(row->bytes.begin(), row->bytes.end(), '\n'));
    at_ += size;
    DropCarriageReturns(&row->bytes);
    return true;
  }

  DataFile file_;
  int fd_ = -1;
  bool is_document_ = false;
  bool ended_ = false;
  std::string buffer_;
  size_t at_ = 0;  // what was given out ends here
  int64_t line_ = 0;
};

RowSource::RowSource(std::vector<DataFile> files) : files_(std::move(files)) {}
RowSource::~RowSource() = default;

bool RowSource::Next(RowBatch* batch) {
  *batch = RowBatch();
  while (batch->rows.empty()) {
    if (reader_ == nullptr) {
      if (next_file_ == files_.size()) return false;
      reader_ = std::make_unique<Reader>(files_[next_file_++]);
    }
    batch->path = reader_->file().path;
    batch->held_out = reader_->file().held_out;
    RawRow row;
    while (batch->bytes < kBatchBytes) {
      if (!reader_->Next(&row)) {
        reader_.reset();
        break;
      }
      batch->bytes += row.bytes.size();
      batch->rows.push_back(std::move(row));
    }
  }
  return true;
}

}  // namespace gpuctl::trainer
