#include "provisioning/slurm/slurm_provider.h"

#include <algorithm>
#include <cstdint>
#include <optional>
#include <utility>

#include "absl/strings/ascii.h"
#include "absl/strings/match.h"
#include "absl/strings/numbers.h"
#include "absl/strings/str_cat.h"
#include "absl/strings/str_join.h"
#include "absl/strings/str_split.h"
#include "absl/strings/strip.h"
#include "common/base/ids.h"
#include "common/base/status_macros.h"
#include "common/release/near_function.h"
#include "common/release/release_route.h"
#include "common/release/slurm_job.h"
#include "provisioning/market/gpu_models.h"
#include "provisioning/market/label.h"
#include "provisioning/market/offers.h"
#include "provisioning/market/rent_options.h"
#include "provisioning/slurm/slurm_text.h"

namespace gpuctl {
namespace {

constexpr char kName[] = "slurm";
constexpr char kTitle[] = "Slurm";
// Every command has a limit of its own: without its daemon squeue tries for 20 s and longer.
constexpr char kAsk[] = "LC_ALL=C SLURM_TIME_FORMAT=%s timeout -k 2 10 ";
constexpr char kMake[] = "LC_ALL=C timeout -k 2 30 ";
// A cancellation that was cut off was none.
constexpr char kCancel[] = "LC_ALL=C timeout -k 2 30 ";
constexpr absl::Duration kUsualTime = absl::Hours(24);
constexpr absl::Duration kShortestTime = absl::Minutes(1);
// Slurm's warning may come a minute early, and what was saved is brought to disk after it.
constexpr absl::Duration kAfterTheRun = absl::Minutes(2);
constexpr int kWarningS = 90;
// How much earlier than asked for Slurm may give its warning; and more, for a busy controller.
constexpr int kEarlyS = 90;
// How many offers are asked about: each question uses up a number of a job.
constexpr size_t kMostAsked = 8;

bool IsJobNumber(absl::string_view id) { return ParseSlurmJob(id).has_value(); }

bool IsNumber(absl::string_view text) {
  return !text.empty() && std::all_of(text.begin(), text.end(), [](char c) {
    return absl::ascii_isdigit(static_cast<unsigned char>(c));
  });
}

// Returns the label of a job: that of a task of an array follows from the array's name. Nothing for
// a job that is none of ours.
std::optional<std::string> LabelOf(const JobRow& row) {
  const std::optional<LeaseLabel> label = ParseLabel(row.name);
  const std::optional<SlurmJob> job = ParseSlurmJob(row.id);
  if (!label.has_value() || !job.has_value() || !job->is_task()) {
    return label.has_value() ? std::make_optional(row.name) : std::nullopt;
  }
  if (job->task >= kMostTasks) return std::nullopt;
  return FormatLabel(TaskLabel(*label, static_cast<int>(job->task)));
}

// A word of a partition's or a GPU's name, as it stands in an offer's reference.
bool IsPlain(absl::string_view word) {
  return std::all_of(word.begin(), word.end(), [](char c) {
    return absl::ascii_isalnum(static_cast<unsigned char>(c)) || absl::StrContains("._-+", c);
  });
}

// What an offer's reference says: "main|a100|4|1440|2".
struct Wanted {
  std::string partition;
  std::string type;         // empty: the generic resources have none
  int count = 0;            // of GPUs on each node
  int64_t longest_min = 0;  // 0: no limit
  int nodes = 1;
};

std::string RefOf(const Wanted& wanted) {
  return absl::StrCat(wanted.partition, "|", wanted.type, "|", wanted.count, "|",
                      wanted.longest_min, "|", wanted.nodes);
}

std::optional<Wanted> ParseRef(absl::string_view ref) {
  const std::vector<absl::string_view> parts = absl::StrSplit(ref, '|');
  Wanted wanted;
  if (parts.size() != 5 || parts[0].empty() || !IsPlain(parts[0]) || !IsPlain(parts[1]) ||
      !absl::SimpleAtoi(parts[2], &wanted.count) || wanted.count < 1 ||
      !absl::SimpleAtoi(parts[3], &wanted.longest_min) || wanted.longest_min < 0 ||
      !absl::SimpleAtoi(parts[4], &wanted.nodes) || wanted.nodes < 1) {
    return std::nullopt;
  }
  wanted.partition = std::string(parts[0]);
  wanted.type = std::string(parts[1]);
  return wanted;
}

const std::string& Either(const std::string& first, const std::string& second) {
  return first.empty() ? second : first;
}

class SlurmProvider : public Provider {
 public:
  SlurmProvider(std::shared_ptr<LoginNode> login, SlurmOptions options, Clock& clock)
      : login_(std::move(login)), options_(std::move(options)), clock_(clock) {}

  absl::string_view name() const override { return kName; }

  ProviderTraits traits() const override {
    return {.ends_itself = ReleaseRouteOf(kName).way,
            .expiry = {.at_create = true, .can_move = false, .from_start = true},
            // A job waits for its turn as long as the user does.
            .has_queue = true,
            .ready_within = absl::Hours(24 * 7),
            .silence = absl::Seconds(30)};
  }

  absl::StatusOr<std::vector<Offer>> ListOffers(const Requirements& requirements) override {
    if (requirements.spot || requirements.volume.has_value()) return std::vector<Offer>();
    const std::string& only = Either(requirements.scheduler.partition, options_.partition);
    ASSIGN_OR_RETURN(
        const std::string text,
        Ask("list the partitions",
            absl::StrCat("sinfo -h -o '", kSinfoFormat, "'", only.empty() ? "" : " -p ",
                         only.empty() ? "" : QuoteForShell(only))));
    ASSIGN_OR_RETURN(const std::vector<PartitionRow> rows, ParseSinfo(text));
    OfferList offers(kName, requirements);
    std::set<std::string> usual;
    for (const PartitionRow& row : rows) {
      if (row.usual) usual.insert(row.partition);
      if (!row.up || row.nodes < 1 || !NodeStateServes(row.state) || !IsPlain(row.partition) ||
          row.longest <
              std::max({kShortestTime, requirements.needed_for, requirements.scheduler.time})) {
        continue;
      }
      for (const GpuGres& gpu : row.gpus) AddOffers(rows, row, gpu, requirements, offers);
    }
    return InOrderOfStart(offers.Finish(), usual, requirements);
  }

  absl::StatusOr<Instance> Rent(const Offer& offer, const RentOptions& options,
                                absl::string_view label) override {
    const std::string doing = absl::StrCat("submit a job for ", offer.description);
    const std::optional<Wanted> wanted = ParseRef(offer.ref);
    if (offer.provider != kName || !wanted.has_value()) return ForeignOffer(offer, kTitle);
    RETURN_IF_ERROR(CheckRequest(offer, options, label, doing));
    ASSIGN_OR_RETURN(const int64_t minutes,
                     MinutesFor(options.expires_at, *wanted, options.scheduler, doing));
    ASSIGN_OR_RETURN(const std::string keeps, MakeResultsDirectory(label, wanted->nodes));
    ASSIGN_OR_RETURN(const std::string job,
                     Submit(SbatchWords(*wanted, minutes, label, options.scheduler),
                            ScriptOf(options, keeps, wanted->nodes), doing));
    return RentedInstance(offer, job, label, "PENDING");
  }

  absl::StatusOr<int> MostInArray() override {
    constexpr char kDoing[] = "ask for the largest array";
    ASSIGN_OR_RETURN(const std::string config, Ask(kDoing, "scontrol show config"));
    ASSIGN_OR_RETURN(const int64_t most, MostTasksInConfig(config));
    if (most < 1) {
      return absl::FailedPreconditionError("the cluster takes no arrays (MaxArraySize=0)");
    }
    if (options_.results.empty()) {
      return absl::FailedPreconditionError(
          "nothing is kept on the login node (results = \"off\"), so no run can begin by itself");
    }
    ASSIGN_OR_RETURN(const bool seen, DoNodesSeeResults());
    if (!seen) {
      return absl::FailedPreconditionError(
          absl::StrCat("no node has been seen to share ", options_.results,
                       " with the login node yet, and it is on no network file system"));
    }
    return static_cast<int>(std::min<int64_t>(most, kMostTasks));
  }

  absl::StatusOr<std::vector<Instance>> RentArray(const Offer& offer, const RentOptions& options,
                                                  absl::string_view label, int count,
                                                  int at_once) override {
    const std::string doing =
        absl::StrCat("submit an array of ", count, " jobs for ", offer.description);
    const std::optional<Wanted> wanted = ParseRef(offer.ref);
    if (offer.provider != kName || !wanted.has_value()) return ForeignOffer(offer, kTitle);
    RETURN_IF_ERROR(CheckRequest(offer, options, label, doing));
    if (count < 1 || count > kMostTasks || at_once < 0) {
      return absl::InvalidArgumentError(absl::StrCat(doing, ": one has 1 to ", kMostTasks));
    }
    ASSIGN_OR_RETURN(const int64_t minutes,
                     MinutesFor(options.expires_at, *wanted, options.scheduler, doing));
    ASSIGN_OR_RETURN(const std::string keeps, MakeResultsDirectories(label, count));
    const std::string tasks =
        absl::StrCat("--array=0-", count - 1, at_once > 0 ? absl::StrCat("%", at_once) : "", " ");
    const std::string name = FormatLabel(TaskLabel(*ParseLabel(label), 0));
    ASSIGN_OR_RETURN(
        const std::string job,
        Submit(absl::StrCat(tasks, SbatchWords(*wanted, minutes, name, options.scheduler)),
               ScriptOf(options, keeps, /*nodes=*/1), doing));
    std::vector<Instance> instances;
    for (int task = 0; task < count; ++task) {
      instances.push_back(RentedInstance(offer, absl::StrCat(job, "_", task),
                                         FormatLabel(TaskLabel(*ParseLabel(label), task)),
                                         "PENDING"));
    }
    return instances;
  }

  absl::StatusOr<Instance> Describe(const InstanceId& id) override {
    const std::string doing = absl::StrCat("look up job ", id);
    if (!IsJobNumber(id)) return absl::NotFoundError(absl::StrCat(doing, ": it is no number"));
    const absl::StatusOr<std::string> text =
        Ask(doing, absl::StrCat("squeue -h -r -t all -j ", id, " -o '", kSqueueFormat, "'"));
    if (absl::IsNotFound(text.status())) return EndByAccounting(id, doing);
    if (!text.ok()) return text.status();
    ASSIGN_OR_RETURN(const std::vector<JobRow> rows, ParseSqueue(*text));
    for (const JobRow& row : rows) {
      if (row.id != id) continue;
      const JobMeaning meaning = MeaningOf(row.state, row.reason);
      if (meaning.gone) return EndOf(WithDetails(row, meaning), doing);
      return InstanceOf(row, meaning);
    }
    return EndByAccounting(id, doing);
  }

  absl::StatusOr<std::vector<Instance>> ListInstances() override {
    ASSIGN_OR_RETURN(const std::string text,
                     Ask("list the jobs",
                         absl::StrCat("squeue -h -r -u \"$(id -un)\" -o '", kSqueueFormat, "'")));
    ASSIGN_OR_RETURN(const std::vector<JobRow> rows, ParseSqueue(text));
    std::vector<Instance> instances;
    for (const JobRow& row : rows) {
      const JobMeaning meaning = MeaningOf(row.state, row.reason);
      // The user's other jobs are none of our business.
      if (meaning.gone || !ParseLabel(row.name).has_value()) continue;
      if (!IsJobNumber(row.id) || !LabelOf(row).has_value()) {
        return absl::UnknownError(absl::StrCat("list the jobs: ", row.name, " has the number ",
                                               row.id, ", which none of ours has"));
      }
      instances.push_back(InstanceOf(row, meaning));
    }
    return instances;
  }

  absl::Status Terminate(const InstanceId& id) override {
    const std::string doing = absl::StrCat("cancel job ", id);
    if (!IsJobNumber(id)) return absl::NotFoundError(absl::StrCat(doing, ": it is no number"));
    return AskBy(doing, absl::StrCat(kCancel, "scancel ", id)).status();
  }

 private:
  static absl::Status CheckRequest(const Offer& offer, const RentOptions& options,
                                   absl::string_view label, absl::string_view doing) {
    RETURN_IF_ERROR(CheckPlainMachine(offer, options, kTitle));
    RETURN_IF_ERROR(CheckEnvNames(options.env));
    if (ParseLabel(label).has_value()) return absl::OkStatus();
    return absl::InvalidArgumentError(absl::StrCat(doing, ": the label is none of ours"));
  }

  // Calls sbatch once. Returns the job's number.
  absl::StatusOr<std::string> Submit(const std::string& words, const std::string& script,
                                     absl::string_view doing) {
    ASSIGN_OR_RETURN(const CommandAnswer answer,
                     login_->Run(absl::StrCat(kMake, "sbatch ", words), script));
    if (answer.exit_code != 0) {
      return StatusOfFailure(doing, answer.exit_code, answer.err, /*making=*/true);
    }
    std::string job = JobOfSbatch(answer.out);
    if (job.empty()) return absl::UnknownError(absl::StrCat(doing, ": sbatch named no job"));
    return job;
  }

  // Runs a command that may be repeated. Returns what it printed.
  absl::StatusOr<std::string> Ask(absl::string_view doing, absl::string_view command) {
    return AskBy(doing, absl::StrCat(kAsk, command));
  }
  absl::StatusOr<std::string> AskBy(absl::string_view doing, const std::string& command) {
    absl::StatusOr<CommandAnswer> answer = login_->Run(command, "");
    if (!answer.ok()) {
      // Whether a question was answered does not matter.
      if (absl::IsUnknown(answer.status())) {
        return absl::UnavailableError(absl::StrCat(doing, ": ", answer.status().message()));
      }
      return answer.status();
    }
    if (answer->exit_code != 0) {
      return StatusOfFailure(doing, answer->exit_code, answer->err, /*making=*/false);
    }
    return std::move(answer->out);
  }

  // Returns how many nodes of the partition of `row` have so many of these GPUs, whatever else they
  // do now: sinfo has a row for each state.
  static int64_t NodesLike(const std::vector<PartitionRow>& rows, const PartitionRow& row,
                           const GpuGres& gpu, int count) {
    int64_t nodes = 0;
    for (const PartitionRow& other : rows) {
      if (other.partition != row.partition || !other.up || !NodeStateServes(other.state)) continue;
      const bool fits = std::any_of(other.gpus.begin(), other.gpus.end(), [&](const GpuGres& has) {
        return has.type == gpu.type && has.count >= count;
      });
      if (fits) nodes += other.nodes;
    }
    return nodes;
  }

  void AddOffers(const std::vector<PartitionRow>& rows, const PartitionRow& row, const GpuGres& gpu,
                 const Requirements& requirements, OfferList& offers) const {
    if (!IsPlain(gpu.type)) return;
    const auto mapped = options_.gpus.find(row.partition);
    std::string model = gpu.type;
    if (model.empty() && mapped != options_.gpus.end()) model = mapped->second;
    const std::string name = model.empty() ? "" : CanonicalGpuName(model, 0);
    for (const int count : AskedGpuCounts(requirements)) {
      if (count > gpu.count || !offers.Takes(count, name, 0) ||
          !offers.TakesPlace(row.partition, "") ||
          NodesLike(rows, row, gpu, count) < requirements.nodes) {
        continue;
      }
      Offer& offer = offers.Add();
      const int64_t longest_min =
          row.longest == absl::InfiniteDuration() ? 0 : absl::ToInt64Minutes(row.longest);
      offer.ref = RefOf({row.partition, gpu.type, count, longest_min, requirements.nodes});
      const std::string of_one = absl::StrCat(count, "x ", name.empty() ? "GPU" : name);
      offer.description = absl::StrCat(
          requirements.nodes > 1 ? absl::StrCat(requirements.nodes, " nodes with ", of_one)
                                 : of_one,
          " in partition ", row.partition);
      offer.gpu_name = name;
      offer.gpu_count = count;
      offer.region = row.partition;
      offer.takes_volume = false;
    }
  }

  // Drops offers that the scheduler would never start, and puts those first that start first; of
  // two within a minute, that of a usual partition.
  absl::StatusOr<std::vector<Offer>> InOrderOfStart(std::vector<Offer> offers,
                                                    const std::set<std::string>& usual,
                                                    const Requirements& requirements) {
    std::vector<std::pair<int64_t, Offer>> dated;
    const int64_t now_s = absl::ToUnixSeconds(clock_.Now());
    size_t asked = 0;
    for (Offer& offer : offers) {
      if (asked++ >= kMostAsked) break;
      const std::optional<Wanted> wanted = ParseRef(offer.ref);
      ASSIGN_OR_RETURN(const int64_t minutes,
                       MinutesFor(requirements.needed_for > absl::ZeroDuration()
                                      ? clock_.Now() + requirements.needed_for
                                      : absl::InfiniteFuture(),
                                  *wanted, requirements.scheduler, "ask when a job would start"));
      const std::string command = absl::StrCat(
          "LC_ALL=C SLURM_TIME_FORMAT=%s timeout -k 2 10 sbatch --test-only ",
          SbatchWords(*wanted, minutes, "gpuctl-test", requirements.scheduler), " --wrap true");
      ASSIGN_OR_RETURN(const CommandAnswer answer, login_->Run(command, ""));
      if (answer.exit_code != 0) {
        const absl::Status why =
            StatusOfFailure("ask when a job would start", answer.exit_code, answer.err, false);
        if (absl::IsUnavailable(why)) return why;
        continue;
      }
      dated.emplace_back(StartInTestOnly(answer.err), std::move(offer));
    }
    const auto rank = [&usual, now_s](const std::pair<int64_t, Offer>& dated_offer) {
      return std::make_pair(std::max<int64_t>(0, dated_offer.first - now_s) / 60,
                            usual.count(dated_offer.second.region) == 0);
    };
    std::stable_sort(dated.begin(), dated.end(),
                     [&rank](const auto& a, const auto& b) { return rank(a) < rank(b); });
    std::vector<Offer> sorted;
    for (auto& [start_s, offer] : dated) {
      if (start_s > now_s + 60) {
        absl::StrAppend(&offer.description, ", expected to start in ",
                        absl::FormatDuration(absl::Minutes((start_s - now_s) / 60)));
      }
      sorted.push_back(std::move(offer));
    }
    return sorted;
  }

  // Returns the time limit of an allocation, in minutes.
  absl::StatusOr<int64_t> MinutesFor(absl::Time expires_at, const Wanted& wanted,
                                     const SchedulerWishes& wishes, absl::string_view doing) const {
    const absl::Duration longest =
        wanted.longest_min == 0 ? absl::InfiniteDuration() : absl::Minutes(wanted.longest_min);
    absl::Duration life = options_.time > absl::ZeroDuration() ? options_.time : kUsualTime;
    if (wishes.time > absl::ZeroDuration()) life = wishes.time;
    if (expires_at != absl::InfiniteFuture()) {
      life = expires_at - clock_.Now() + kAfterTheRun;
      if (life < kShortestTime) {
        return absl::InvalidArgumentError(
            absl::StrCat(doing, ": the time at which it is to end is over"));
      }
    }
    life = std::max(life, wishes.time);
    // Slurm takes a job that is longer than its partition allows, and never starts it.
    life = std::min(life, longest);
    return std::max<int64_t>(1, absl::ToInt64Minutes(absl::Ceil(life, absl::Minutes(1))));
  }

  // Returns the words of sbatch's command line, for a shell.
  std::string SbatchWords(const Wanted& wanted, int64_t minutes, absl::string_view label,
                          const SchedulerWishes& wishes) const {
    std::vector<std::pair<std::string, std::string>> words = {
        {"--parsable", ""},
        {"--job-name", std::string(label)},
        {"--partition", wanted.partition},
        {"--time", absl::StrCat(minutes)},
        {"--gres", absl::StrCat("gpu:", wanted.type, wanted.type.empty() ? "" : ":", wanted.count)},
        {"--nodes", absl::StrCat(wanted.nodes)},
        {"--no-requeue", ""},
        {"--signal", absl::StrCat("B:TERM@", kWarningS)},
        {"--chdir", "/tmp"},
        {"--output", "/dev/null"}};
    for (const auto& [flag, value] :
         {std::make_pair("--account", Either(wishes.account, options_.account)),
          std::make_pair("--qos", Either(wishes.qos, options_.qos)),
          std::make_pair("--constraint", Either(wishes.constraint, options_.constraint))}) {
      if (!value.empty()) words.emplace_back(flag, value);
    }
    std::vector<std::string> line;
    for (const auto& [flag, value] : words) {
      if (options_.without.count(flag) > 0) continue;
      line.push_back(value.empty() ? flag : QuoteForShell(absl::StrCat(flag, "=", value)));
    }
    for (const std::vector<std::string>& flags : {options_.flags, wishes.flags}) {
      for (const std::string& flag : flags) line.push_back(QuoteForShell(flag));
    }
    return absl::StrJoin(line, " ");
  }

  // Makes the directory of the lease's results, with a token, and one in it for each further node.
  // Returns the lines by which the batch script tells its holder of both; "" where nothing can be
  // kept, which is no reason not to rent. UNKNOWN and others: the login node cannot be asked, so
  // nothing was submitted.
  absl::StatusOr<std::string> MakeResultsDirectory(absl::string_view label, int nodes) {
    if (options_.results.empty()) return std::string();
    const std::string token = RandomHex(16);
    std::string line =
        absl::StrCat("umask 077; d=", ResultsWord(options_.results, label),
                     "; mkdir -p \"$d\" && cd \"$d\" && echo ", token, " >", kResultsTokenFile);
    for (int node = 1; node < nodes; ++node) {
      const std::string own = ResultsOfNode(node);
      absl::StrAppend(&line, " && mkdir -p ", own, " && echo ", token, " >", own, "/",
                      kResultsTokenFile);
    }
    absl::StrAppend(&line, " && sync && pwd -P");
    ASSIGN_OR_RETURN(const std::string place, AskPlace(line));
    if (place.empty()) return std::string();
    return absl::StrCat("export ", kResultsVariable, "=", QuoteForShell(place), " ",
                        kResultsTokenVariable, "=", token, "\n");
  }

  // Does the same for the tasks of an array, each of which serves one run alone. UNAVAILABLE also
  // where nothing can be kept.
  absl::StatusOr<std::string> MakeResultsDirectories(absl::string_view label, int count) {
    constexpr char kTaskName[] = "$(printf %03x ";
    const std::string token = RandomHex(16);
    std::string first = FormatLabel(TaskLabel(*ParseLabel(label), 0));
    const std::string common = first.substr(0, first.size() - 3);
    ASSIGN_OR_RETURN(
        const std::string place,
        AskPlace(absl::StrCat("umask 077; d=", ResultsWord(options_.results, common),
                              "; i=0; while [ $i -lt ", count, " ]; do t=$d", kTaskName,
                              "$i); mkdir -p \"$t\" && echo ", token, " >\"$t/", kResultsTokenFile,
                              "\" || exit; i=$((i + 1)); done; ", "sync; cd \"${d}000\" && pwd -P"),
                 20 + count / 20));
    if (!absl::EndsWith(place, absl::StrCat("/", first))) {
      return absl::UnavailableError("the directories for results cannot be made");
    }
    return absl::StrCat("export ", kHoldOneRunVariable, "=1 ", kResultsTokenVariable, "=", token,
                        " ", kResultsVariable, "=",
                        QuoteForShell(place.substr(0, place.size() - 3)), "\"", kTaskName,
                        "\"$SLURM_ARRAY_TASK_ID\")\"\n");
  }

  // Runs a line that prints a directory's path, for so long at most. Returns it, "" where it
  // printed none.
  absl::StatusOr<std::string> AskPlace(const std::string& line, int within_s = 20) {
    absl::StatusOr<CommandAnswer> made =
        login_->Run(absl::StrCat("timeout -k 2 ", within_s, " sh -c ", QuoteForShell(line)), "");
    if (!made.ok()) {
      return absl::UnavailableError(
          absl::StrCat("make the directory for results: ", made.status().message()));
    }
    const absl::string_view place = absl::StripTrailingAsciiWhitespace(made->out);
    const bool one =
        made->exit_code == 0 && absl::StartsWith(place, "/") && !absl::StrContains(place, '\n');
    return one ? std::string(place) : std::string();
  }

  // True when a node has noted that it sees the directory for results, or that is on a network file
  // system.
  absl::StatusOr<bool> DoNodesSeeResults() {
    const std::string line =
        absl::StrCat(kNearFunction, "umask 077; d=", ResultsWord(options_.results, "."),
                     "; mkdir -p \"$d\" && cd \"$d\" || exit 3; [ -e ", kSeenByNodesFile,
                     " ] || ! near . || exit 3");
    constexpr char kDoing[] = "ask whether nodes see the directory for results";
    ASSIGN_OR_RETURN(const CommandAnswer answer,
                     login_->Run(absl::StrCat("timeout -k 2 20 sh -c ", QuoteForShell(line)), ""));
    if (answer.exit_code == 0 || answer.exit_code == 3) return answer.exit_code == 0;
    return StatusOfFailure(kDoing, answer.exit_code, answer.err, /*making=*/false);
  }

  // Returns the batch script, with the variables for it after its first line.
  static std::string ScriptOf(const RentOptions& options, const std::string& keeps, int nodes) {
    std::string exports = keeps;
    if (nodes > 1) absl::StrAppend(&exports, "export ", kAllocationNodesVariable, "=", nodes, "\n");
    for (const auto& [name, value] : options.env) {
      absl::StrAppend(&exports, "export ", name, "=", QuoteForShell(value), "\n");
    }
    absl::string_view rest = options.start_script;
    std::string first = "#!/bin/sh\n";
    if (absl::StartsWith(rest, "#!")) {
      const size_t end = rest.find('\n');
      first = absl::StrCat(rest.substr(0, end), "\n");
      rest.remove_prefix(end == rest.npos ? rest.size() : end + 1);
    }
    return absl::StrCat(first, exports,
                        rest.empty() ? absl::string_view("while :; do sleep 60; done\n") : rest);
  }

  Instance InstanceOf(const JobRow& row, const JobMeaning& meaning) const {
    Instance instance;
    instance.id = row.id;
    instance.label = LabelOf(row).value_or(row.name);
    instance.state = meaning.state;
    instance.status = meaning.message;
    instance.suspended = meaning.suspended;
    instance.held = meaning.held;
    instance.bills_nothing = true;
    if (meaning.state == Instance::State::kStarting && !meaning.held && row.starts_s > 0) {
      const int64_t wait_s = row.starts_s - absl::ToUnixSeconds(clock_.Now());
      if (wait_s > 60) {
        absl::StrAppend(&instance.status, ", expected to start in ",
                        absl::FormatDuration(absl::Minutes(wait_s / 60)));
      }
    }
    // Also of one that waits: runs can be left there for it.
    instance.address = login_->address();
    if (!row.gpus.empty()) {
      instance.gpu_count = row.gpus.front().count;
      std::string model = row.gpus.front().type;
      const auto mapped = options_.gpus.find(row.partition);
      if (model.empty() && mapped != options_.gpus.end()) model = mapped->second;
      if (!model.empty()) instance.gpu_name = CanonicalGpuName(model, 0);
    }
    instance.region = row.partition;
    instance.created_ms = row.submitted_s * 1000;
    // A suspended job's time stands still.
    instance.tells_end =
        meaning.state == Instance::State::kRunning && !meaning.suspended && row.left.has_value();
    if (instance.tells_end && *row.left != absl::InfiniteDuration()) {
      instance.ends_ms = absl::ToUnixMillis(clock_.Now() + *row.left);
    }
    return instance;
  }

  static absl::Status EndOf(const JobMeaning& meaning, absl::string_view doing) {
    return meaning.taken ? GoneError(doing, meaning.message) : OwnEndError(doing, meaning.message);
  }

  // Adds to the state of a job that is over who cancelled it, that it could not be started again,
  // and that it ended because its time was nearly over: our batch script ends when Slurm warns it,
  // and then the state is COMPLETED.
  JobMeaning WithDetails(const JobRow& row, JobMeaning meaning) {
    if (row.state == "FAILED") {
      const std::optional<JobMeaning> books = AskAccounting(row.id);
      if (books.has_value() && books->message == kNotStartedAgainWords) return *books;
    }
    if (absl::StartsWith(row.state, "CANCELLED")) {
      meaning.message = WithName(AskAccounting(row.id).value_or(meaning).message);
    } else if (row.left.has_value()) {
      meaning.message = WordsAtLimit(std::move(meaning.message), *row.left);
    }
    return meaning;
  }

  static std::string WordsAtLimit(std::string message, absl::Duration left) {
    const bool by_itself =
        absl::StartsWith(message, "COMPLETED") || absl::StartsWith(message, "FAILED");
    if (!by_itself || left > absl::Seconds(kWarningS + kEarlyS)) return message;
    return absl::StrCat("TIMEOUT (it ended when Slurm warned it, with ",
                        absl::FormatDuration(absl::Trunc(left, absl::Seconds(1))), " left)");
  }

  // Puts the user's name into "CANCELLED by 1000", if the login node knows it.
  std::string WithName(const std::string& message) {
    constexpr absl::string_view kBy = "CANCELLED by ";
    absl::string_view who = message;
    if (!absl::ConsumePrefix(&who, kBy) || !IsNumber(who)) return message;
    const absl::StatusOr<std::string> name =
        Ask("ask for a user's name", absl::StrCat("id -un ", who));
    const absl::string_view word =
        name.ok() ? absl::StripAsciiWhitespace(*name) : absl::string_view();
    return word.empty() || !IsPlain(word) ? message : absl::StrCat(kBy, word);
  }

  absl::StatusOr<std::string> ReadBooks(const InstanceId& id) {
    return Ask("ask the accounting", absl::StrCat("sacct -X -D -P -n -j ", id,
                                                  " -o State,ExitCode,ElapsedRaw,TimelimitRaw"));
  }

  // Returns what the accounting says about a job that is over; nothing where it does not know.
  std::optional<JobMeaning> AskAccounting(const InstanceId& id) {
    const absl::StatusOr<std::string> text = ReadBooks(id);
    if (!text.ok()) return std::nullopt;
    // The last line is the last incarnation's.
    const std::vector<absl::string_view> lines =
        absl::StrSplit(absl::StripAsciiWhitespace(*text), '\n');
    const std::vector<absl::string_view> fields = absl::StrSplit(lines.back(), '|');
    JobMeaning meaning = MeaningOf(fields[0], "");
    const std::string no_start = absl::StrCat(kNotStartedAgainExit, ":0");
    if (fields.size() >= 2 && fields[0] == "FAILED" && fields[1] == no_start) {
      meaning.message = kNotStartedAgainWords;
      return meaning;
    }
    int64_t elapsed_s = 0;
    int64_t limit_min = 0;
    if (fields.size() >= 4 && absl::SimpleAtoi(fields[2], &elapsed_s) &&
        absl::SimpleAtoi(fields[3], &limit_min)) {
      meaning.message = WordsAtLimit(std::move(meaning.message),
                                     absl::Minutes(limit_min) - absl::Seconds(elapsed_s));
    }
    return meaning.gone ? std::make_optional(meaning) : std::nullopt;
  }

  // Returns what the accounting says about the end of a job that the controller has forgotten; no
  // words where there is no accounting, or it does not know, or has not heard of the end yet.
  absl::Status EndByAccounting(const InstanceId& id, absl::string_view doing) {
    // The books get a record of a task when that begins, or is held.
    const absl::StatusOr<std::string> books =
        ParseSlurmJob(id)->is_task() ? ReadBooks(id) : absl::StatusOr<std::string>("job");
    if (books.ok() && absl::StripAsciiWhitespace(*books).empty()) {
      return OwnEndError(doing, "CANCELLED (before it began)");
    }
    std::optional<JobMeaning> meaning = AskAccounting(id);
    if (!meaning.has_value()) return GoneError(doing, "");
    meaning->message = WithName(meaning->message);
    return EndOf(*meaning, doing);
  }

  const std::shared_ptr<LoginNode> login_;
  const SlurmOptions options_;
  Clock& clock_;
};

}  // namespace

std::string ResultsWord(const std::string& results, absl::string_view label) {
  if (results.empty()) return "";
  absl::string_view rest = results;
  const bool at_home = absl::ConsumePrefix(&rest, "~/");
  return absl::StrCat(at_home ? "\"$HOME\"/" : "", QuoteForShell(absl::StrCat(rest, "/", label)));
}

std::string ResultsOfNode(int node) { return absl::StrCat(kResultsOfNode, node); }

std::unique_ptr<Provider> MakeSlurmProvider(std::shared_ptr<LoginNode> login, SlurmOptions options,
                                            Clock& clock) {
  return std::make_unique<SlurmProvider>(std::move(login), std::move(options), clock);
}

}  // namespace gpuctl
