// Which ends of runs were told: a table in state.db. A claim in it lets one process tell an end,
// and not two.
#ifndef GPUCTL_CLIENT_NOTIFY_NOTICE_STORE_H_
#define GPUCTL_CLIENT_NOTIFY_NOTICE_STORE_H_

#include <cstdint>
#include <memory>
#include <optional>
#include <set>
#include <string>
#include <vector>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "absl/strings/string_view.h"

struct sqlite3;

namespace gpuctl {

class NoticeStore {
 public:
  // A failed message is sent this often at most, in all processes together.
  static constexpr int kMostTries = 6;

  // Opens the database and makes the table where it is missing.
  static absl::StatusOr<std::unique_ptr<NoticeStore>> Open(const std::string& path);
  ~NoticeStore();
  NoticeStore(const NoticeStore&) = delete;
  NoticeStore& operator=(const NoticeStore&) = delete;

  // Says that the end of this run is to be told. Runs without it, such as those of an older gpuctl,
  // are never told.
  absl::Status Expect(absl::string_view run_id);

  // Claims the end at `ended_ms` for this process and counts a try. Nothing when it was told, when
  // it is another process's turn, or when a retry is not due yet: after a minute, then two, four …
  // An end that was undone and came again is another end.
  struct Claim {
    std::set<std::string> sent;  // the ways by which it was told already
    int tries = 0;               // this one included
  };
  absl::StatusOr<std::optional<Claim>> TryClaim(absl::string_view run_id, int64_t ended_ms,
                                                int64_t now_ms);
  // True when TryClaim would find the end unclaimed now.
  absl::StatusOr<bool> IsDue(absl::string_view run_id, int64_t ended_ms, int64_t now_ms);
  // Records by which ways it was told. `done`: nothing more is to be sent.
  absl::Status Record(absl::string_view run_id, const std::set<std::string>& sent, bool done);

  // Returns the ids of runs whose end is still to be told, as far as is known here.
  absl::StatusOr<std::vector<std::string>> Waiting();

 private:
  explicit NoticeStore(sqlite3* database) : database_(database) {}
  sqlite3* database_;
};

}  // namespace gpuctl

#endif  // GPUCTL_CLIENT_NOTIFY_NOTICE_STORE_H_
