// The laptop's list of runs: one SQLite file, which several processes may use at once. It never
// holds secrets.
#ifndef GPUCTL_CLIENT_RUNS_RUN_STORE_H_
#define GPUCTL_CLIENT_RUNS_RUN_STORE_H_

#include <cstdint>
#include <functional>
#include <map>
#include <memory>
#include <optional>
#include <set>
#include <string>
#include <utility>
#include <vector>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "absl/strings/string_view.h"
#include "client/base/node_target.h"
#include "client/runs/run_end.h"

struct sqlite3;

namespace gpuctl {

struct RunRow {
  std::string run_id;
  std::string name;  // with its number; unique among all runs
  NodeTarget target;
  std::string job_id;
  std::string node_id;                           // of the node that accepted it; "" until one has
  std::string spec_json;                         // JobSpec as protobuf JSON; only Get fills it
  std::vector<std::string> checkpoint_patterns;  // only Get fills these three
  std::vector<std::string> artifact_patterns;
  std::vector<std::string> ports;
  std::string launch_json;   // of its launch (client/spec/launch_record.h); only Get fills it
  std::string resumed_from;  // id of the run that it goes on from; only Get fills it
  std::string source_json;   // client/runs/source_record.h, without the diff; only Get fills it
  std::string source_diff;   // only for Insert; SourceDiff returns it
  std::vector<std::string> tags;  // sorted, each once
  std::string note;               // the user's; only Get fills it
  std::string packages;           // of its Python, a line each; "": not asked; only Get fills it
  std::string command;            // one line for people
  std::string workdir;            // as an absolute path on the laptop
  int64_t output_segment_bytes = 0;
  int64_t created_ms = 0;
  int64_t accepted_ms = 0;  // 0: no node accepted it, as far as known
  int64_t heard_ms = 0;     // time of the node's last sign of life
  std::optional<RunEnd> end;
  // Last known progress, stored when a run ends so that `ps` opens no other file for it.
  int64_t step = -1;
  int64_t total_steps = -1;
  std::optional<double> loss;
  // Of a member of a run on several machines: the id of that run, which is rank 0's, and the
  // member's own rank. "" and 0 for the run itself, as for every other run.
  std::string leader;
  int rank = 0;
};

// Which runs are listed. A field that is not set excludes none.
struct RunFilter {
  bool live_only = false;
  int limit = 0;               // the newest; 0: all
  std::string tag;             // "": any or none
  int64_t since_ms = 0;        // created then or later
  std::string prefix;          // of the names; "": all
  std::string target_name;     // NodeTarget::name; "": all
  int64_t ended_since_ms = 0;  // live, or ended then or later; 0: all
  // Lists, in place of the runs, the members of runs on several machines, which are in no list.
  bool members = false;
};

// Accepts a word that can be a tag: 1 to 64 letters, digits and . _ - : / = @ + of ASCII, and no
// '-' in front. INVALID_ARGUMENT for another.
absl::Status CheckTag(absl::string_view tag);
// Does so for all tags of a run; also for more than 32.
absl::Status CheckTags(const std::vector<std::string>& tags);
// Accepts a text of at most 4096 bytes; INVALID_ARGUMENT for a longer one.
absl::Status CheckNote(absl::string_view note);

class RunStore {
 public:
  // Opens or creates the database, and creates its directory. FAILED_PRECONDITION when a newer
  // gpuctl made it.
  static absl::StatusOr<std::unique_ptr<RunStore>> Open(const std::string& path);
  // Opens a copy in memory of a database that cannot be written. What is stored is forgotten.
  static absl::StatusOr<std::unique_ptr<RunStore>> OpenCopy(const std::string& path);
  ~RunStore();
  RunStore(const RunStore&) = delete;
  RunStore& operator=(const RunStore&) = delete;

  // Returns the client_id of every Watch: random, made once.
  absl::StatusOr<std::string> ClientId();

  // Inserts the run; durable before it returns. Adds a number to row.name, one more than the last
  // run of that name has ("train-1", "train-2" …), but not to a new name that ends in a number. So
  // a name that was told stays the same run's.
  // A member of another run keeps the name that it has.
  absl::Status Insert(RunRow& row);
  // Records the node that gpuctl will ask to start the job. Call it before asking.
  // FAILED_PRECONDITION when the run was removed meanwhile: nothing may start then.
  absl::Status SetNode(absl::string_view run_id, absl::string_view node_id);
  // Returns the node that last answered under this target's name; "" when none has.
  absl::StatusOr<std::string> LastNodeOf(absl::string_view target_name);
  // Records that the node has the job. Removes an end that says that the run never started: another
  // gpuctl may have taken its launch for dead.
  absl::Status SetAccepted(absl::string_view run_id, absl::string_view node_id, int64_t now_ms);
  absl::Status SetHeard(absl::string_view run_id, int64_t now_ms);
  // Records the end; a recorded end stays until UndoEnd. Does nothing when it says that the run
  // never started, and a node has accepted the job meanwhile.
  absl::Status SetEnd(absl::string_view run_id, const RunEnd& end);
  // Removes the end if it is still the one that gpuctl recorded at `ended_ms` by itself.
  absl::Status UndoEnd(absl::string_view run_id, int64_t ended_ms);
  absl::Status SetProgress(absl::string_view run_id, int64_t step, int64_t total_steps,
                           std::optional<double> loss);
  // Adds and removes tags; returns those that the run has then. Adds before it removes.
  // INVALID_ARGUMENT when one of `add` can be no tag, or when there would be more than 32.
  absl::StatusOr<std::vector<std::string>> ChangeTags(absl::string_view run_id,
                                                      const std::vector<std::string>& add,
                                                      const std::vector<std::string>& remove);
  absl::Status SetNote(absl::string_view run_id, absl::string_view note);
  // Replaces what is recorded of its launch (client/spec/launch_record.h).
  absl::Status SetLaunch(absl::string_view run_id, absl::string_view launch_json);
  absl::Status SetPackages(absl::string_view run_id, absl::string_view packages);
  absl::Status Delete(absl::string_view run_id);

  // Inserts a run on several machines: itself first, then its other members, by rank, who get its
  // name with ".node1" and so on. All of them or none.
  absl::Status InsertAll(RunRow& run, const std::vector<RunRow*>& members);
  // Returns the other members of a run on several machines, by rank; none for every other run. They
  // are in no list, and Get finds them only by a whole name or id.
  absl::StatusOr<std::vector<RunRow>> Members(absl::string_view run_id);
  // Returns the ids of those.
  absl::StatusOr<std::vector<std::string>> MemberIds(absl::string_view run_id);
  // Returns the same of all runs on several machines, by the run's id.
  absl::StatusOr<std::map<std::string, std::vector<std::string>>> AllMemberIds();
  // Lists runs, newest first; `live_only` without those that ended. A `limit` of 0 means none.
  absl::StatusOr<std::vector<RunRow>> List(bool live_only = false, int limit = 0);
  absl::StatusOr<std::vector<RunRow>> List(const RunFilter& filter);
  // Returns those of these runs that are in the list, by their ids.
  absl::StatusOr<std::map<std::string, RunRow>> Find(const std::set<std::string>& run_ids);
  // Returns the number of all runs.
  absl::StatusOr<int64_t> Count();
  // Returns the names of the runs that were resumed from this one and that a node accepted, newest
  // first.
  absl::StatusOr<std::vector<std::string>> SuccessorsOf(absl::string_view run_id);
  // Returns the runs that were resumed as others: the newest of these, by the id of the former.
  absl::StatusOr<std::map<std::string, std::string>> Resumptions();
  // Returns the diff of the run's work directory, as Insert got it.
  absl::StatusOr<std::string> SourceDiff(absl::string_view run_id);
  // Finds a run by name, run id, job id or a unique prefix of name or run id. A whole name is that
  // run, one without its number the newest run of that name, "@last" the newest of all. NOT_FOUND
  // names the nearest run; FAILED_PRECONDITION lists the runs with an ambiguous prefix.
  absl::StatusOr<RunRow> Get(absl::string_view reference);
  // Sets what knows a better hint for a name that is of no run, such as one of a batch; it returns
  // "" where it knows none.
  void SetUnknownHint(std::function<std::string(absl::string_view reference)> hint) {
    unknown_hint_ = std::move(hint);
  }

 private:
  explicit RunStore(sqlite3* database) : database_(database) {}
  absl::Status Migrate();
  // True when the query gives a row.
  absl::StatusOr<bool> Finds(const char* query);
  absl::Status Upgrade();
  absl::StatusOr<std::vector<std::string>> ReadTags(absl::string_view run_id);
  absl::StatusOr<std::vector<std::string>> ChangeTagsLocked(absl::string_view run_id,
                                                            const std::vector<std::string>& add,
                                                            const std::vector<std::string>& remove);
  // Returns the number of the next run with this name.
  absl::StatusOr<int64_t> NextNumber(const std::string& base);
  absl::StatusOr<std::string> Resolve(absl::string_view reference);
  absl::Status UnknownName(absl::string_view reference);
  sqlite3* database_;
  std::function<std::string(absl::string_view)> unknown_hint_;
};

}  // namespace gpuctl

#endif  // GPUCTL_CLIENT_RUNS_RUN_STORE_H_
