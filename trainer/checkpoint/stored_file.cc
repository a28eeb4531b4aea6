#include "trainer/checkpoint/stored_file.h"

#include <fcntl.h>
#include <sys/stat.h>
#include <unistd.h>

#include <algorithm>
#include <cerrno>
#include <cstring>
#include <utility>

#include "trainer/base/error.h"
#include "trainer/base/files.h"
#include "trainer/base/json_object.h"

namespace gpuctl::trainer {
namespace {

constexpr char kWeights[] = "model.safetensors";
constexpr char kIndex[] = "model.safetensors.index.json";
constexpr uint64_t kLargestIndex = 64 << 20;
constexpr uint64_t kPieceBytes = 1 << 20;

// Reads `size` bytes from `offset` on, or fewer where the file ends before. Returns how many.
size_t ReadSome(int fd, const std::string& path, uint64_t offset, size_t size, char* into) {
  size_t done = 0;
  while (done < size) {
    const ssize_t count = ::pread(fd, into + done, size - done, static_cast<off_t>(offset + done));
    if (count == 0) break;
    if (count > 0) {
      done += static_cast<size_t>(count);
    } else if (errno != EINTR) {
      throw IoError("read", path, errno);
    }
  }
  return done;
}

// Reads the first 8 + N bytes, or fewer if the file ends before; the parser reports that error.
std::string ReadHeaderBytes(int fd, const std::string& path, uint64_t file_size) {
  std::string bytes(8, '\0');
  bytes.resize(ReadSome(fd, path, 0, 8, bytes.data()));
  if (bytes.size() < 8) return bytes;
  uint64_t length = 0;
  for (size_t i = 8; i-- > 0;) length = (length << 8) | static_cast<unsigned char>(bytes[i]);
  length = std::min({length, file_size, kLargestSafetensorsHeader});
  bytes.resize(8 + length);
  bytes.resize(8 + ReadSome(fd, path, 8, length, bytes.data() + 8));
  return bytes;
}

// True for the name of a file that lies directly in its folder.
bool IsPlainName(const std::string& name) {
  return !name.empty() && name[0] != '.' && name.find_first_of("/\\") == std::string::npos &&
         name.find('\0') == std::string::npos;
}

std::shared_ptr<const StoredFile> Open(const std::string& path,
                                       std::map<std::string, StoredPlace>* places) {
  if (!IsFile(path)) throw DataError("read model " + path + ": no such file");
  const auto file = std::make_shared<const StoredFile>(path);
  CheckFloats(*file);
  for (const StoredTensor& tensor : file->tensors()) {
    if (!places->emplace(tensor.name, StoredPlace{tensor, file}).second) {
      throw DataError("read model " + path + ": " + tensor.name + " is in another file as well");
    }
  }
  return file;
}

void OpenShards(const std::string& folder, std::map<std::string, StoredPlace>* places) {
  const std::string path = folder + "/" + kIndex;
  const auto refuse = [&](const std::string& why) {
    throw DataError("read model " + path + ": " + why);
  };
  const nlohmann::json index =
      ParseJsonObject(ReadWholeFile(path, kLargestIndex), "read model " + path);
  if (!index.contains("weight_map") || !index["weight_map"].is_object()) {
    refuse("it has no weight_map");
  }
  std::map<std::string, std::vector<std::string>> by_file;
  for (const auto& [name, file] : index["weight_map"].items()) {
    if (!file.is_string() || !IsPlainName(file.get<std::string>())) {
      refuse(name + ": " + file.dump() + " is no name of a file in the folder");
    }
    by_file[file.get<std::string>()].push_back(name);
  }
  for (const auto& [name, names] : by_file) {
    const std::shared_ptr<const StoredFile> file = Open(folder + "/" + name, places);
    for (const std::string& tensor : names) {
      const auto found = places->find(tensor);
      if (found == places->end() || found->second.file != file) {
        refuse(tensor + " is not in " + name);
      }
    }
    for (const StoredTensor& tensor : file->tensors()) {
      if (!index["weight_map"].contains(tensor.name)) {
        refuse(tensor.name + " of " + name + " is not listed");
      }
    }
  }
}

}  // namespace

StoredFile::StoredFile(const std::string& path) : path_(path) {
  fd_ = OpenRegularFile(path);
  try {
    const uint64_t size = FileSize(path);
    header_ = ParseSafetensorsHeader(ReadHeaderBytes(fd_, path, size), size, path);
  } catch (...) {
    ::close(fd_);
    throw;
  }
}

StoredFile::~StoredFile() { ::close(fd_); }

std::string StoredFile::HeaderBytes() const {
  std::string bytes(header_.data_begin, '\0');
  if (ReadSome(fd_, path_, 0, bytes.size(), bytes.data()) != bytes.size()) {
    throw DataError("read safetensors " + path_ + ": it ended early");
  }
  return bytes;
}

std::string StoredFile::TakeIn() {
  FileDigest digest(*this);
  std::string content(data_bytes(), '\0');
  const StoredTensor all{"", "U8", {}, 0, data_bytes()};
  for (uint64_t at = 0; at < content.size(); at += kPieceBytes) {
    const uint64_t size = std::min(kPieceBytes, content.size() - at);
    Read(all, at, size, content.data() + at);
    digest.Add(all, at, content.data() + at, size);
  }
  content_ = std::move(content);
  return digest.Hex();
}

std::string StoredFile::Digest(const std::function<void()>& check) const {
  Sha256 digest;
  const std::string header = HeaderBytes();
  digest.Update(header.data(), header.size());
  const StoredTensor all{"", "U8", {}, 0, data_bytes()};
  std::string piece;
  for (uint64_t at = 0; at < data_bytes(); at += piece.size()) {
    piece.resize(std::min(kPieceBytes, data_bytes() - at));
    Read(all, at, piece.size(), piece.data());
    digest.Update(piece.data(), piece.size());
    check();
  }
  return digest.Hex();
}

std::string StoredFile::Stamp() const {
  struct stat info {};
  if (::fstat(fd_, &info) != 0) throw IoError("stat", path_, errno);
#if defined(__APPLE__)
  const timespec& written = info.st_mtimespec;
#else
  const timespec& written = info.st_mtim;
#endif
  return std::to_string(info.st_size) + " " + std::to_string(written.tv_sec) + " " +
         std::to_string(written.tv_nsec);
}

void StoredFile::Read(const StoredTensor& tensor, uint64_t first, uint64_t size, void* into) const {
  if (!content_.empty()) {
    memcpy(into, content_.data() + tensor.begin + first, size);
    return;
  }
  const uint64_t offset = header_.data_begin + tensor.begin + first;
  if (ReadSome(fd_, path_, offset, size, static_cast<char*>(into)) != size) {
    throw DataError("read safetensors " + path_ + ": it ended early");
  }
}

FileDigest::FileDigest(const StoredFile& file) : file_(file) {
  const std::string header = file.HeaderBytes();
  digest_.Update(header.data(), header.size());
}

void FileDigest::Add(const StoredTensor& tensor, uint64_t first, const void* bytes, size_t size) {
  ReadUpTo(tensor.begin + first);
  digest_.Update(bytes, size);
  taken_ += size;
}

std::string FileDigest::Hex() {
  ReadUpTo(file_.data_bytes());
  return digest_.Hex();
}

void FileDigest::ReadUpTo(uint64_t end) {
  const StoredTensor data{"", "U8", {}, 0, file_.data_bytes()};
  std::string piece;
  while (taken_ < end) {
    piece.resize(std::min(kPieceBytes, end - taken_));
    file_.Read(data, taken_, piece.size(), piece.data());
    digest_.Update(piece.data(), piece.size());
    taken_ += piece.size();
  }
}

void CheckFloats(const StoredFile& file) {
  for (const StoredTensor& tensor : file.tensors()) {
    if (tensor.dtype != "F32" && tensor.dtype != "F16" && tensor.dtype != "BF16") {
      throw DataError("read model " + file.path() + ": " + tensor.name + ": dtype " + tensor.dtype +
                      " cannot be read; F32, F16 and BF16 can");
    }
  }
}

std::map<std::string, StoredPlace> OpenWeights(const std::string& folder) {
  std::map<std::string, StoredPlace> places;
  if (IsFile(folder + "/" + kWeights)) {
    Open(folder + "/" + kWeights, &places);
  } else if (IsFile(folder + "/" + kIndex)) {
    OpenShards(folder, &places);
  } else {
    throw DataError(
        "read model " + folder + ": neither " + kWeights + " nor " + kIndex + " is there",
        "weights of other formats (.bin, .pt, .gguf) cannot be read");
  }
  return places;
}

}  // namespace gpuctl::trainer
