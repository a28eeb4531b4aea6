// What `gpuctl keep` leaves for people: keep.log has a line for each deed, keep.json tells of the
// last pass. Only the holder of the pass's lock writes them.
#ifndef GPUCTL_CLIENT_KEEP_KEEP_LOG_H_
#define GPUCTL_CLIENT_KEEP_KEEP_LOG_H_

#include <cstdint>
#include <map>
#include <nlohmann/json.hpp>
#include <set>
#include <string>

#include "absl/status/status.h"
#include "absl/strings/string_view.h"

namespace gpuctl {

// Size, in bytes, from which on keep.log becomes keep.log.1, in place of an older one.
inline constexpr int64_t kMaxKeepLogBytes = 1 << 20;

// The file in the state directory to which a scheduler appends what keep says.
inline constexpr char kKeepStderrFile[] = "keep.stderr";

// One pass. Failures of the last pass are remembered, so that the same one is not written again.
class KeepLog {
 public:
  // Reads keep.json in `state_dir`. A missing or unreadable file counts as a first pass.
  explicit KeepLog(const std::string& state_dir);

  // Appends "TIME VERB SUBJECT: RESULT". Control characters become spaces. Durable when it returns.
  absl::Status Deed(int64_t now_ms, absl::string_view verb, absl::string_view subject,
                    absl::string_view result);
  // Does the same, unless the last pass had a failure of that kind at the same subject. `kind`: the
  // part of the result that does not change with the hour, as its code; "" for all of it.
  absl::Status Failure(int64_t now_ms, absl::string_view verb, absl::string_view subject,
                       absl::string_view result, absl::string_view kind = "");
  // Remembers that all results of an ended run are at home.
  bool IsHome(const std::string& run_id) const { return home_.count(run_id) > 0; }
  void NoteHome(const std::string& run_id) { home_.insert(run_id); }
  // Remembers when all that a run had made was found at home, in Unix milliseconds; 0: never.
  int64_t SavedAt(const std::string& run_id) const;
  void NoteSaved(const std::string& run_id, int64_t now_ms) { saved_[run_id] = now_ms; }
  // Says that this pass has looked at all runs, which have these ids. What is remembered of others
  // is dropped, and so are the failures that did not happen again. Without this word, after an
  // interruption, all that was remembered stays.
  void LookedAtAll(const std::set<std::string>& run_ids);
  // Writes into keep.json that a pass has begun. Its last end stays.
  absl::Status Begin(int64_t begun_ms);
  // Writes keep.json. `exit_code`: that of the pass.
  absl::Status Finish(int64_t begun_ms, int64_t now_ms, int exit_code);

 private:
  absl::Status Store(const nlohmann::ordered_json& pass) const;

  const std::string dir_;
  std::map<std::string, std::string> before_, failures_;  // result by "VERB SUBJECT"
  std::set<std::string> home_;                            // run ids
  std::map<std::string, int64_t> saved_;                  // times by run id
  bool looked_at_all_ = false;
  nlohmann::ordered_json last_;  // keep.json as it was
};

}  // namespace gpuctl

#endif  // GPUCTL_CLIENT_KEEP_KEEP_LOG_H_
