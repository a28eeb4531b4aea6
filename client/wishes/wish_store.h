// What a user asked for the time until a run's end, and for the end: checkpoints at home, the
// machine given back. It is in the database of the list of runs, so that gpuctl keep does it when
// the gpuctl that was told is gone.
#ifndef GPUCTL_CLIENT_WISHES_WISH_STORE_H_
#define GPUCTL_CLIENT_WISHES_WISH_STORE_H_

#include <memory>
#include <optional>
#include <string>
#include <vector>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "absl/strings/string_view.h"

struct sqlite3;

namespace gpuctl {

struct Wish {
  std::string wish_id;
  std::string run_id;
  std::string dir;    // absolute; what comes home comes to dir/NAME
  bool pull = false;  // new checkpoints come home while the run goes on
  int keep = 0;       // with `pull`: how many of the newest stay at home; 0: all
  bool down = false;  // at the end all results come home, and the machine is given back
};

// Returns the directory for the results of a run with this name.
std::string PlaceOf(const Wish& wish, absl::string_view run_name);

// Several processes may use it at once.
class WishStore {
 public:
  // Opens the table in the database of the list of runs, and makes it where it is missing.
  static absl::StatusOr<std::unique_ptr<WishStore>> Open(const std::string& path);
  ~WishStore();
  WishStore(const WishStore&) = delete;
  WishStore& operator=(const WishStore&) = delete;

  // Records the wish; durable when it returns.
  absl::Status Insert(const Wish& wish);
  // Returns nothing for a wish that was done or dropped.
  absl::StatusOr<std::optional<Wish>> Find(absl::string_view wish_id);
  // Returns the wishes of a run; of all runs when `run_id` is "". In the order of their ids.
  absl::StatusOr<std::vector<Wish>> List(absl::string_view run_id = "");
  absl::Status Drop(absl::string_view wish_id);

 private:
  explicit WishStore(sqlite3* database) : database_(database) {}
  sqlite3* database_;
};

}  // namespace gpuctl

#endif  // GPUCTL_CLIENT_WISHES_WISH_STORE_H_
