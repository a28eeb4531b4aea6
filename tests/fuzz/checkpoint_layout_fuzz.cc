// Fuzzes the files of checkpoints without a manifest: a job, or whoever wrote a library's file,
// decides over every byte and name.
//
// Input: records with their lengths, by turns the name and the content of a file.
#include <unistd.h>

#include <cstdint>
#include <cstdlib>
#include <set>
#include <string>
#include <vector>

#include "absl/strings/match.h"
#include "common/files/files.h"
#include "common/files/relative_path.h"
#include "common/job/checkpoint_layout.h"
#include "tests/fuzz/delimited.h"

namespace gpuctl {
namespace {

constexpr size_t kMaxFiles = 16;

bool IsPlainName(absl::string_view name) {
  return IsSafeRelativePath(name) && !absl::StrContains(name, "/") && name.size() < 200;
}

// Whole means that nothing is missing: without its last byte the file is not whole.
void CheckFile(const std::string& dir, const LayoutFile& file, const std::string& content) {
  const LayoutVerdict verdict = JudgeCheckpointFile(JoinPath(dir, file.path), file.size);
  Require(verdict.why.empty() == (verdict.wholeness != Wholeness::kTorn));
  if (verdict.wholeness != Wholeness::kWhole || !absl::EndsWith(file.path, ".safetensors")) return;
  Require(!content.empty());
  const std::string shorter = JoinPath(dir, "shorter.safetensors");
  Require(WriteFileAtomic(shorter, content.substr(0, content.size() - 1)).ok());
  Require(JudgeCheckpointFile(shorter, file.size - 1).wholeness != Wholeness::kWhole);
  Require(file_ops::Unlink(shorter) == 0);
}

void Judge(absl::string_view bytes, const std::string& dir) {
  std::vector<LayoutFile> files;
  std::set<std::string> names;
  absl::string_view name;
  absl::string_view content;
  while (files.size() < kMaxFiles && TakeRecord(bytes, name) && TakeRecord(bytes, content)) {
    (void)IsTemporaryName(name);
    for (const bool is_file : {false, true}) Require(StepOfCheckpointName(name, is_file) >= -1);
    if (!IsPlainName(name) || !names.insert(std::string(name)).second) continue;
    if (!WriteFileAtomic(JoinPath(dir, name), content).ok()) continue;  // the name is none here
    files.push_back({std::string(name), static_cast<int64_t>(content.size())});
    CheckFile(dir, files.back(), std::string(content));
    // A file may change between the listing and the look.
    for (const int64_t size : {int64_t{0}, int64_t{7}, files.back().size + 1, int64_t{1} << 60}) {
      (void)JudgeCheckpointFile(JoinPath(dir, name), size);
    }
  }
  const LayoutVerdict verdict = JudgeCheckpointDirectory(dir, files);
  Require(verdict.why.empty() == (verdict.wholeness != Wholeness::kTorn));
  if (verdict.wholeness == Wholeness::kTorn || files.empty()) return;
  // Files that are only named and not there.
  files.push_back({"model.safetensors", 100});
  files.push_back({"model.safetensors.index.json", 100});
  (void)JudgeCheckpointDirectory(dir, files);
}

}  // namespace
}  // namespace gpuctl

extern "C" int LLVMFuzzerTestOneInput(const uint8_t* data, size_t size) {
  static const bool in_memory =
      access("/dev/shm", W_OK | X_OK) == 0 && setenv("TMPDIR", "/dev/shm", 1) == 0;
  (void)in_memory;
  const auto dir = gpuctl::MakeTempDirectory("checkpoint-");
  gpuctl::Require(dir.ok());
  gpuctl::Judge(absl::string_view(reinterpret_cast<const char*>(data), size), *dir);
  gpuctl::Require(gpuctl::RemoveTree(*dir).ok());
  return 0;
}
