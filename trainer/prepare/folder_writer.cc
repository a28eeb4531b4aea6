#include "trainer/prepare/folder_writer.h"

#include <fcntl.h>
#include <sys/file.h>
#include <sys/stat.h>
#include <unistd.h>

#include <algorithm>
#include <cerrno>
#include <filesystem>

#include "trainer/base/error.h"
#include "trainer/data/prepared.h"
#include "trainer/data/prompts.h"

namespace gpuctl::trainer {
namespace {

constexpr size_t kBufferBytes = size_t{1} << 20;
const char* const kPartNames[] = {kTrainPart, kHeldOutPart};

// Returns whether all that a folder has is what `prepare` writes.
bool IsOnlyPrepared(const std::string& folder) {
  std::vector<std::string> known = {kDatasetFile, kPromptsFile};
  for (const char* part : kPartNames) {
    known.push_back(std::string(part) + kTokensSuffix);
    known.push_back(std::string(part) + kEndsSuffix);
  }
  for (const std::string& name : ListDirectory(folder)) {
    if (std::find(known.begin(), known.end(), name) == known.end()) return false;
  }
  return IsPrepared(folder);
}

// Follows symbolic links, so that a link to a folder stays one.
std::string RealPath(const std::string& path) {
  std::error_code error;
  std::filesystem::path real =
      std::filesystem::weakly_canonical(std::filesystem::absolute(path), error);
  if (error) throw IoError("find", path, error.value());
  if (real.filename().empty()) real = real.parent_path();  // a slash at the end
  return real.string();
}

}  // namespace

PartFiles::PartFiles(const std::string& folder, const std::string& part) {
  tokens_.name = part + kTokensSuffix;
  ends_.name = part + kEndsSuffix;
  for (File* file : {&tokens_, &ends_}) {
    file->out = std::make_unique<OutputFile>(folder + "/" + file->name);
  }
}

void PartFiles::Append(const void* bytes, size_t size, File* file) {
  file->buffer.append(static_cast<const char*>(bytes), size);
  if (file->buffer.size() >= kBufferBytes) Flush(file);
}

void PartFiles::Flush(File* file) {
  if (file->buffer.empty()) return;
  file->digest.Update(file->buffer.data(), file->buffer.size());
  file->out->Write(file->buffer.data(), file->buffer.size());
  file->size += file->buffer.size();
  file->buffer.clear();
}

void PartFiles::Add(const uint32_t* words, size_t size) {
  Append(words, size * sizeof(*words), &tokens_);
  counts_.rows += 1;
  counts_.tokens += static_cast<int64_t>(size);
  counts_.longest = std::max(counts_.longest, static_cast<int64_t>(size));
  counts_.learned +=
      std::count_if(words, words + size, [](uint32_t word) { return (word & kLearnedBit) != 0; });
  const auto end = static_cast<uint64_t>(counts_.tokens);
  Append(&end, sizeof(end), &ends_);
}

void PartFiles::Close() {
  for (File* file : {&tokens_, &ends_}) {
    Flush(file);
    file->out->Close();
  }
}

std::string PartFiles::Digests() {
  std::string lines;
  for (File* file : {&ends_, &tokens_}) {
    lines += file->name + " " + std::to_string(file->size) + " " + file->digest.Hex() + "\n";
  }
  return lines;
}

FolderWriter::FolderWriter(const std::string& folder) : folder_(RealPath(folder)) {
  if (Exists(folder_) && !(IsDirectory(folder_) && IsOnlyPrepared(folder_))) {
    throw ConfigError("write " + folder + ": it exists, and is not what prepare makes",
                      "name a new folder");
  }
  const std::filesystem::path path(folder_);
  made_ = (path.parent_path() / ("." + path.filename().string() + ".unfinished")).string();
  MakeDirectories(path.parent_path().string());
  Lock();
  try {
    for (const std::string& name : ListDirectory(made_)) RemoveTree(made_ + "/" + name);
    for (const Part part : {kTrain, kHeldOut}) {
      parts_[part] = std::make_unique<PartFiles>(made_, kPartNames[part]);
    }
  } catch (...) {
    RemoveMade();
    close(lock_);
    throw;
  }
}

// The folder beside the place is the lock. What a process that was killed left there is not locked.
void FolderWriter::Lock() {
  for (;;) {
    MakeDirectory(made_);
    lock_ = open(made_.c_str(), O_RDONLY | O_DIRECTORY | O_NOFOLLOW | O_CLOEXEC);
    if (lock_ < 0 && errno == ENOENT) continue;
    if (lock_ < 0) throw IoError("open", made_, errno);
    if (flock(lock_, LOCK_EX | LOCK_NB) != 0 && errno == EWOULDBLOCK) {
      close(lock_);
      throw ConfigError("write " + folder_ + ": another process prepares it now");
    }
    // Another process may have put the folder into its place before it was locked here.
    struct stat locked {};
    struct stat there {};
    if (fstat(lock_, &locked) == 0 && stat(made_.c_str(), &there) == 0 &&
        locked.st_ino == there.st_ino && locked.st_dev == there.st_dev) {
      return;
    }
    close(lock_);
  }
}

FolderWriter::~FolderWriter() {
  parts_[kTrain].reset();
  parts_[kHeldOut].reset();
  if (!published_) RemoveMade();
  close(lock_);
}

void FolderWriter::RemoveMade() {
  std::error_code ignored;
  std::filesystem::remove_all(made_, ignored);
}

void FolderWriter::Finish(Part from, const std::vector<std::pair<int64_t, int64_t>>& rows) {
  for (const auto& part : parts_) part->Close();
  if (rows.empty()) return;
  const Part to = from == kTrain ? kHeldOut : kTrain;
  const TokenRows old(made_, kPartNames[from]);
  // The old files stay mapped, and new ones get their names.
  for (const char* suffix : {kTokensSuffix, kEndsSuffix}) {
    RemoveTree(made_ + "/" + kPartNames[from] + suffix);
  }
  for (auto& part : parts_) part.reset();
  for (const Part part : {kTrain, kHeldOut}) {
    parts_[part] = std::make_unique<PartFiles>(made_, kPartNames[part]);
  }
  auto next = rows.begin();
  for (int64_t row = 0; row < old.rows(); ++row) {
    while (next != rows.end() && row >= next->second) ++next;
    const bool moves = next != rows.end() && row >= next->first;
    parts_[moves ? to : from]->Add(old.Words(row), static_cast<size_t>(old.Size(row)));
  }
  for (const auto& part : parts_) part->Close();
}

void FolderWriter::AddFile(const std::string& name, const std::string& content) {
  WriteFileDurably(made_ + "/" + name, content);
}

void FolderWriter::Publish(nlohmann::ordered_json description, bool pairs) {
  nlohmann::ordered_json whole = {{"format", pairs ? kPairsFormat : kPreparedFormat}};
  whole["digest"] =
      Sha256Hex((pairs ? "pairs\n" : "") + parts_[kHeldOut]->Digests() + parts_[kTrain]->Digests());
  whole.update(description);
  for (const Part part : {kTrain, kHeldOut}) {
    const PartCounts& counts = parts_[part]->counts();
    whole["parts"][kPartNames[part]] = {{"rows", counts.rows},
                                        {"tokens", counts.tokens},
                                        {"learned", counts.learned},
                                        {"longest", counts.longest}};
  }
  using Json = nlohmann::ordered_json;
  WriteFileDurably(made_ + "/" + kDatasetFile,
                   whole.dump(2, ' ', false, Json::error_handler_t::replace) + "\n");
  SyncDirectory(made_);
  if (!Exists(folder_)) {
    Rename(made_, folder_);
    published_ = true;
  } else {
    // The old folder gets the name that others lock, until it is gone.
    const int old = open(folder_.c_str(), O_RDONLY | O_DIRECTORY | O_CLOEXEC);
    if (old >= 0) flock(old, LOCK_EX | LOCK_NB);
    try {
      ReplaceDirectory(made_, folder_);
    } catch (...) {
      close(old);
      throw;
    }
    published_ = true;
    RemoveMade();
    close(old);
  }
  SyncDirectory(std::filesystem::path(folder_).parent_path().string());
}

}  // namespace gpuctl::trainer
