#include "client/keep/keep_log.h"

#include <fcntl.h>
#include <sys/stat.h>
#include <unistd.h>

#include <cerrno>
#include <cstdio>
#include <nlohmann/json.hpp>

#include "absl/strings/ascii.h"
#include "absl/strings/str_cat.h"
#include "client/base/quantity.h"
#include "common/base/status_macros.h"
#include "common/base/unique_fd.h"
#include "common/files/files.h"

namespace gpuctl {
namespace {

std::string OneLine(absl::string_view text) {
  std::string line(text);
  for (char& c : line) {
    if (absl::ascii_iscntrl(static_cast<unsigned char>(c))) c = ' ';
  }
  return line;
}

}  // namespace

KeepLog::KeepLog(const std::string& state_dir) : dir_(state_dir) {
  const absl::StatusOr<std::string> text = ReadFileToString(JoinPath(dir_, "keep.json"));
  if (!text.ok()) return;
  const nlohmann::ordered_json last = nlohmann::ordered_json::parse(*text, nullptr, false);
  if (!last.is_object()) return;
  last_ = last;
  if (last.contains("home") && last["home"].is_array()) {
    for (const auto& run_id : last["home"]) {
      if (run_id.is_string()) home_.insert(run_id.get<std::string>());
    }
  }
  if (last.contains("saved") && last["saved"].is_object()) {
    for (const auto& [run_id, at_ms] : last["saved"].items()) {
      if (at_ms.is_number_integer()) saved_[run_id] = at_ms.get<int64_t>();
    }
  }
  if (!last.contains("failures") || !last["failures"].is_object()) return;
  for (const auto& [what, result] : last["failures"].items()) {
    if (result.is_string()) before_[what] = result.get<std::string>();
  }
}

int64_t KeepLog::SavedAt(const std::string& run_id) const {
  const auto found = saved_.find(run_id);
  return found == saved_.end() ? 0 : found->second;
}

void KeepLog::LookedAtAll(const std::set<std::string>& run_ids) {
  looked_at_all_ = true;
  const auto is_gone = [&run_ids](const std::string& run_id) { return run_ids.count(run_id) == 0; };
  for (auto it = home_.begin(); it != home_.end();) it = is_gone(*it) ? home_.erase(it) : ++it;
  for (auto it = saved_.begin(); it != saved_.end();) {
    it = is_gone(it->first) ? saved_.erase(it) : ++it;
  }
}

absl::Status KeepLog::Deed(int64_t now_ms, absl::string_view verb, absl::string_view subject,
                           absl::string_view result) {
  const std::string path = JoinPath(dir_, "keep.log");
  struct stat info;
  if (stat(path.c_str(), &info) == 0 && info.st_size >= kMaxKeepLogBytes &&
      rename(path.c_str(), absl::StrCat(path, ".1").c_str()) != 0) {
    return absl::ErrnoToStatus(errno, absl::StrCat("rename ", path));
  }
  const UniqueFd file(open(path.c_str(), O_WRONLY | O_APPEND | O_CREAT | O_CLOEXEC, 0600));
  if (file.get() < 0) return absl::ErrnoToStatus(errno, absl::StrCat("open ", path));
  RETURN_IF_ERROR(
      WriteAll(file.get(),
               absl::StrCat(FormatRfc3339(now_ms), " ",
                            OneLine(absl::StrCat(verb, " ", subject, ": ", result)), "\n"),
               path));
  if (fsync(file.get()) != 0) return absl::ErrnoToStatus(errno, absl::StrCat("sync ", path));
  return absl::OkStatus();
}

absl::Status KeepLog::Failure(int64_t now_ms, absl::string_view verb, absl::string_view subject,
                              absl::string_view result, absl::string_view kind) {
  if (kind.empty()) kind = result;
  const std::string what = absl::StrCat(verb, " ", subject);
  failures_[what] = std::string(kind);
  const auto before = before_.find(what);
  if (before != before_.end() && before->second == kind) return absl::OkStatus();
  return Deed(now_ms, verb, subject, absl::StrCat("FAILED: ", result));
}

absl::Status KeepLog::Begin(int64_t begun_ms) {
  nlohmann::ordered_json pass = last_.is_object() ? last_ : nlohmann::ordered_json::object();
  pass["at_work_since"] = FormatRfc3339(begun_ms);
  return Store(pass);
}

absl::Status KeepLog::Finish(int64_t begun_ms, int64_t now_ms, int exit_code) {
  if (!looked_at_all_) failures_.insert(before_.begin(), before_.end());
  const nlohmann::ordered_json pass = {{"begun", FormatRfc3339(begun_ms)},
                                       {"ended", FormatRfc3339(now_ms)},
                                       {"exit_code", exit_code},
                                       {"home", home_},
                                       {"saved", saved_},
                                       {"failures", failures_}};
  return Store(pass);
}

absl::Status KeepLog::Store(const nlohmann::ordered_json& pass) const {
  return WriteFileAtomic(
      JoinPath(dir_, "keep.json"),
      absl::StrCat(pass.dump(2, ' ', false, nlohmann::json::error_handler_t::replace), "\n"));
}

}  // namespace gpuctl
