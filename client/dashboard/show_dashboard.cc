#include "client/dashboard/show_dashboard.h"

#include <poll.h>

#include <algorithm>
#include <cerrno>
#include <csignal>
#include <map>
#include <memory>
#include <nlohmann/json.hpp>
#include <set>
#include <string>
#include <utility>
#include <vector>

#include "absl/strings/match.h"
#include "absl/strings/numbers.h"
#include "absl/strings/str_cat.h"
#include "absl/strings/str_split.h"
#include "client/base/exit_codes.h"
#include "client/base/paths.h"
#include "client/base/run_program.h"
#include "client/dashboard/access.h"
#include "client/dashboard/actions.h"
#include "client/dashboard/http_server.h"
#include "client/dashboard/page.h"
#include "client/dashboard/run_list.h"
#include "client/dashboard/run_series.h"
#include "client/terminal/console.h"
#include "client/terminal/safe_text.h"
#include "common/base/bounded_json.h"
#include "common/base/ids.h"
#include "common/base/status_macros.h"
#include "common/process/process.h"
#include "common/process/signal_pipe.h"

namespace gpuctl {
namespace {

using Json = nlohmann::ordered_json;

constexpr absl::Duration kTellEvery = absl::Milliseconds(500);
constexpr absl::Duration kDetailEvery = absl::Seconds(2);
// How often a run's machine is asked for its checkpoints.
constexpr absl::Duration kAskEvery = absl::Seconds(20);
constexpr absl::Duration kAskEndedEvery = absl::Minutes(10);
constexpr absl::Duration kSignOfLifeEvery = absl::Seconds(10);
constexpr absl::Duration kEndPatience = absl::Milliseconds(500);
// A page that takes its events slower than they come gets all anew when it has taken these.
constexpr size_t kMostUnsentBytes = 1 << 20;
constexpr size_t kMostWatched = 8;  // runs of one page
constexpr int kTokenBytes = 16;
constexpr size_t kKeptNotices = 20;

// One page that is open.
struct Watcher {
  std::vector<std::string> run_ids;  // of which it gets everything
  bool whole = false;                // it gets all anew at the next occasion
  absl::Duration spoken_at = absl::ZeroDuration();
};

// A run that pages look at.
struct Watched {
  std::unique_ptr<RunSeries> series;
  RunRow row;
  std::string detail;  // as it was told last
  absl::Duration detail_at = absl::ZeroDuration();
  std::string error;   // why it cannot be read
  Json there;          // the checkpoints on its machine; null: not known
  int64_t listed = 0;  // the number of the list that told them
  absl::Duration ask_at = absl::ZeroDuration();
};

PageReply TextReply(int status, absl::string_view text) {
  PageReply reply;
  reply.status = status;
  reply.body = absl::StrCat(text, "\n");
  return reply;
}

PageReply JsonReply(int status, const Json& json) {
  PageReply reply;
  reply.status = status;
  reply.type = "application/json";
  reply.body = json.dump(-1, ' ', false, Json::error_handler_t::replace);
  return reply;
}

PageReply ErrorReply(int status, absl::string_view message) {
  return JsonReply(status, {{"error", {{"message", MakeSafe(message)}}}});
}

class Dashboard {
 public:
  Dashboard(CommandContext& context, RunStore& store, Holdings& holdings, SignalPipe signals,
            std::unique_ptr<HttpServer> server, ClientPaths paths)
      : context_(context),
        signals_(std::move(signals)),
        server_(std::move(server)),
        paths_(std::move(paths)),
        token_(RandomHex(kTokenBytes)),
        runs_(context, store, holdings),
        actions_(ExecutablePath(), context.clock),
        lists_(ExecutablePath(), context.clock) {}

  std::string Address() const {
    return absl::StrCat("http://127.0.0.1:", server_->port(), "/?token=", token_);
  }

  absl::StatusOr<int> Run() {
    absl::StatusOr<bool> over = false;
    while (over.ok() && !*over) over = Round();
    // The pages see the end at once: their connections are closed.
    server_.reset();
    lists_.End(absl::ZeroDuration());
    actions_.End(kEndPatience);
    if (!runs_.Unlink())
      ExitAtOnce(context_, over.ok() ? absl::StatusOr<int>(kExitOk) : over.status());
    RETURN_IF_ERROR(over.status());
    for (const Action& action : actions_.all()) {
      if (action.state != Action::State::kRunning || action.verb != "stop") continue;
      context_.Say(absl::StrCat("the stop of ", action.run_name, " goes on"));
    }
    return kExitOk;
  }

 private:
  // Returns true when the user ends it.
  absl::StatusOr<bool> Round() {
    RETURN_IF_ERROR(runs_.Step());
    for (std::string& notice : runs_.TakeNotices()) {
      Tell("notice", Json{{"text", MakeSafe(notice)}}.dump());
      notices_.push_back(std::move(notice));
      if (notices_.size() > kKeptNotices) notices_.erase(notices_.begin());
    }
    const absl::Duration now = context_.clock.SinceBoot();
    const bool due = now >= tell_at_;
    bool more = false;
    if (due) {
      tell_at_ = now + kTellEvery;
      TellChanges();
    }
    if (due || reads_more_) {
      RETURN_IF_ERROR(TellSeries(more));
      reads_more_ = more;
    }
    if (actions_.Step()) {
      Tell("actions", ActionsJson().dump());
      for (auto& [run_id, watched] : watched_) watched.detail_at = absl::ZeroDuration();
    }
    if (lists_.Step()) TakeLists();
    server_->Serve(
        [this](const PageRequest& request, int64_t stream) { return Handle(request, stream); });
    RETURN_IF_ERROR(Renew());
    SignLife();
    Wait(more ? absl::ZeroDuration()
              : std::max(absl::ZeroDuration(), tell_at_ - context_.clock.SinceBoot()));
    for (const int signal : signals_.Take()) {
      if (signal == SIGTSTP) {
        RETURN_IF_ERROR(Suspend());
      } else {
        return true;
      }
    }
    return false;
  }

  // Other gpuctls must not wait for the mirrors of a stopped one.
  absl::Status Suspend() {
    if (!runs_.Unlink()) context_.Say("a connection is being made; stopping all the same");
    raise(SIGSTOP);
    return absl::OkStatus();
  }

  void Wait(absl::Duration timeout) const {
    std::vector<pollfd> polled = {{signals_.fd(), POLLIN, 0}};
    for (const int fd : runs_.wake_fds()) polled.push_back({fd, POLLIN, 0});
    actions_.AddPolled(polled);
    lists_.AddPolled(polled);
    server_->AddPolled(polled);
    (void)poll(polled.data(), static_cast<nfds_t>(polled.size()),
               static_cast<int>(absl::ToInt64Milliseconds(timeout + absl::Microseconds(999))));
  }

  // --- Events ---

  // Returns true when this page takes part of what is told; one that is too slow will get all anew.
  bool Takes(int64_t stream, Watcher& watcher) {
    if (watcher.whole) return false;
    if (server_->Unsent(stream) <= kMostUnsentBytes) return true;
    watcher.whole = true;
    return false;
  }

  void SendTo(int64_t stream, absl::string_view event, absl::string_view data) {
    server_->Send(stream, FormatEvent(event, data, ++event_));
    watchers_[stream].spoken_at = context_.clock.SinceBoot();
  }

  void Tell(absl::string_view event, const std::string& data) {
    for (auto& [stream, watcher] : watchers_) {
      if (Takes(stream, watcher)) SendTo(stream, event, data);
    }
  }

  void TellChanges() {
    const RunList::Changes changes = runs_.TakeChanges();
    if (watchers_.empty()) return;
    for (const RunList::Listed& run : changes.changed) Tell("run", run.json);
    for (const std::string& run_id : changes.gone) {
      Tell("gone", Json{{"run_id", run_id}}.dump());
    }
    if (runs_.Waiting() != waiting_) {
      waiting_ = runs_.Waiting();
      Tell("waiting", waiting_);
    }
    std::string totals = runs_.Totals().dump();
    if (totals == totals_) return;
    totals_ = std::move(totals);
    Tell("totals", totals_);
  }

  void TellRun(const std::string& run_id, absl::string_view event, const std::string& data) {
    for (auto& [stream, watcher] : watchers_) {
      const auto& ids = watcher.run_ids;
      if (std::find(ids.begin(), ids.end(), run_id) != ids.end() && Takes(stream, watcher)) {
        SendTo(stream, event, data);
      }
    }
  }

  // Reads on what is watched. *more: something is left to read.
  absl::Status TellSeries(bool& more) {
    DropUnwatched();
    for (auto& [run_id, watched] : watched_) {
      if (context_.clock.SinceBoot() >= watched.detail_at) {
        watched.detail_at = context_.clock.SinceBoot() + kDetailEvery;
        const absl::StatusOr<RunRow> row = runs_.Row(run_id);
        if (row.ok()) watched.row = *row;
        AskForCheckpoints(watched);
        std::string detail = DetailOf(run_id);
        if (detail != watched.detail) {
          watched.detail = std::move(detail);
          TellRun(run_id, "detail", watched.detail);
        }
      }
      if (watched.series == nullptr) continue;
      const absl::StatusOr<bool> read =
          watched.series->Read(watched.row.heard_ms, watched.row.end.has_value());
      if (!read.ok()) {
        // One run must not hide the others.
        if (watched.error == read.status().message()) continue;
        watched.error = std::string(read.status().message());
        TellRun(run_id, "notice",
                Json{{"text",
                      MakeSafe(absl::StrCat(watched.row.name,
                                            ": its numbers here cannot be read: ", watched.error))}}
                    .dump());
        continue;
      }
      more = more || *read;
      // The beginning of a long run is drawn once all of it is read.
      if (*read) continue;
      Json news = watched.series->TakeNews();
      if (news.is_null()) continue;
      TellRun(run_id, "series", SeriesJson(run_id, std::move(news)));
    }
    return absl::OkStatus();
  }

  static std::string SeriesJson(const std::string& run_id, Json series) {
    series["run_id"] = run_id;
    return series.dump(-1, ' ', false, Json::error_handler_t::replace);
  }

  std::string DetailOf(const std::string& run_id) {
    absl::StatusOr<Json> detail = runs_.Detail(run_id);
    if (!detail.ok()) {
      return Json{{"run_id", run_id}, {"error", MakeSafe(detail.status().message())}}.dump();
    }
    const auto watched = watched_.find(run_id);
    (*detail)["checkpoints_there"] = watched == watched_.end() ? Json() : watched->second.there;
    return detail->dump(-1, ' ', false, Json::error_handler_t::replace);
  }

  // Asks the run's machine for the checkpoints of a script, which its metrics need not tell of.
  void AskForCheckpoints(Watched& watched) {
    const absl::Duration now = context_.clock.SinceBoot();
    const RunRow& row = watched.row;
    if (row.checkpoint_patterns.empty() || row.accepted_ms == 0 || now < watched.ask_at) return;
    watched.ask_at = now + (row.end.has_value() ? kAskEndedEvery : kAskEvery);
    (void)lists_.Begin("list", row.run_id, row.name);
  }

  // A machine that does not answer leaves what is known.
  void TakeLists() {
    for (const Action& list : lists_.all()) {
      const auto watched = watched_.find(list.run_id);
      if (watched == watched_.end() || list.state != Action::State::kDone ||
          list.number <= watched->second.listed) {
        continue;
      }
      watched->second.listed = list.number;
      watched->second.there = Json::parse(list.text, nullptr, false);
      MakeStringsSafe(watched->second.there);
      watched->second.detail_at = absl::ZeroDuration();
    }
  }

  // Forgets runs that no page looks at, and pages that are gone.
  void DropUnwatched() {
    std::set<std::string> wanted;
    for (auto it = watchers_.begin(); it != watchers_.end();) {
      if (!server_->HasStream(it->first)) {
        it = watchers_.erase(it);
        continue;
      }
      wanted.insert(it->second.run_ids.begin(), it->second.run_ids.end());
      ++it;
    }
    for (auto it = watched_.begin(); it != watched_.end();) {
      it = wanted.count(it->first) > 0 ? std::next(it) : watched_.erase(it);
    }
    for (const std::string& run_id : wanted) {
      if (watched_.count(run_id) > 0) continue;
      Watched watched;
      const absl::StatusOr<RunRow> row = runs_.Row(run_id);
      if (row.ok()) {
        watched.row = *row;
        watched.series =
            std::make_unique<RunSeries>(paths_.MirrorDir(run_id), row->output_segment_bytes);
      }
      watched_.emplace(run_id, std::move(watched));
    }
  }

  Json ActionsJson() const {
    Json list = Json::array();
    for (const Action& action : actions_.all()) list.push_back(ActionToJson(action));
    MakeStringsSafe(list);
    return {{"actions", std::move(list)}};
  }

  // Tells pages that began, or that lag behind, all that there is: nothing is missed whatever they
  // had before.
  absl::Status Renew() {
    for (auto& [stream, watcher] : watchers_) {
      if (!watcher.whole || server_->Unsent(stream) > 0) continue;
      watcher.whole = false;
      ASSIGN_OR_RETURN(const int64_t total, runs_.Total());
      std::string snapshot = absl::StrCat(
          "{\"total\":", total, ",\"totals\":", runs_.Totals().dump(),
          ",\"waiting\":", runs_.Waiting(), ",\"now_ms\":", context_.NowMs(), ",\"runs\":[");
      const char* comma = "";
      for (const std::string& run : runs_.Snapshot()) {
        absl::StrAppend(&snapshot, comma, run);
        comma = ",";
      }
      Json notices = notices_;
      MakeStringsSafe(notices);
      absl::StrAppend(&snapshot, "],\"notices\":", notices.dump(), "}");
      SendTo(stream, "snapshot", snapshot);
      SendTo(stream, "actions", ActionsJson().dump());
      for (const std::string& run_id : watcher.run_ids) {
        const auto watched = watched_.find(run_id);
        if (watched == watched_.end()) continue;  // its first news are whole
        if (!watched->second.detail.empty()) SendTo(stream, "detail", watched->second.detail);
        if (watched->second.series != nullptr) {
          SendTo(stream, "series", SeriesJson(run_id, watched->second.series->Whole()));
        }
      }
    }
    return absl::OkStatus();
  }

  // A page that hears nothing for long takes the dashboard for gone.
  void SignLife() {
    const absl::Duration now = context_.clock.SinceBoot();
    for (auto& [stream, watcher] : watchers_) {
      if (watcher.whole || now - watcher.spoken_at < kSignOfLifeEvery) continue;
      if (Takes(stream, watcher)) SendTo(stream, "alive", "{}");
    }
  }

  // --- Requests ---

  PageReply Handle(const PageRequest& request, int64_t stream) {
    const std::optional<PageReply> refused = Refuse(request, token_, server_->port());
    PageReply reply = refused.has_value() ? *refused : Answer(request, stream);
    const bool is_page = reply.type == "text/html; charset=utf-8";
    AddSafetyHeaders(is_page ? std::string(PageScriptHashes()) : "",
                     is_page ? std::string(PageStyleHashes()) : "", reply);
    return reply;
  }

  PageReply Answer(const PageRequest& request, int64_t stream) {
    const bool posts = request.method == "POST";
    if (request.path == "/api/stop" || request.path == "/api/pull") {
      if (posts) return Act(request);
    } else if (request.path == "/" || request.path == "/events" || request.path == "/api/runs") {
      if (!posts) return Show(request, stream);
    } else {
      return TextReply(404, "there is no such page");
    }
    return TextReply(405, posts ? "this can only be read" : "this is done with POST");
  }

  PageReply Show(const PageRequest& request, int64_t stream) {
    if (request.path == "/") return Page(request);
    if (request.path == "/events") return BeginStream(request, stream);
    size_t offset = 0, limit = RunList::kMostAtOnce;
    const std::string from = request.Query("offset"), at_most = request.Query("limit");
    if ((!from.empty() && !absl::SimpleAtoi(from, &offset)) ||
        (!at_most.empty() && !absl::SimpleAtoi(at_most, &limit))) {
      return ErrorReply(400, "offset and limit are numbers");
    }
    const absl::StatusOr<Json> found = runs_.Search(request.Query("filter"), offset, limit);
    return found.ok() ? JsonReply(200, *found) : ErrorReply(503, found.status().message());
  }

  PageReply Page(const PageRequest& request) {
    PageReply reply;
    reply.type = "text/html; charset=utf-8";
    reply.headers.emplace_back("Vary", "Accept-Encoding");
    if (absl::StrContains(request.Header("accept-encoding"), "gzip")) {
      reply.headers.emplace_back("Content-Encoding", "gzip");
      reply.body = std::string(CompressedPage());
      return reply;
    }
    absl::StatusOr<std::string> page = Unzip(CompressedPage());
    if (!page.ok()) return ErrorReply(503, page.status().message());
    reply.body = *std::move(page);
    return reply;
  }

  PageReply BeginStream(const PageRequest& request, int64_t stream) {
    if (request.method == "HEAD") return TextReply(405, "events are read with GET");
    Watcher watcher;
    watcher.whole = true;
    for (const absl::string_view id :
         absl::StrSplit(request.Query("runs"), ',', absl::SkipEmpty())) {
      if (!IsValidId(id)) return ErrorReply(400, "runs are named by their ids here");
      watcher.run_ids.emplace_back(id);
    }
    if (watcher.run_ids.size() > kMostWatched) {
      return ErrorReply(400, absl::StrCat("at most ", kMostWatched, " runs at once"));
    }
    if (watchers_.size() >= HttpServer::kMostStreams) DropUnwatched();
    if (watchers_.size() >= HttpServer::kMostStreams)
      return ErrorReply(503, "too many pages are open");
    PageReply reply;
    reply.type = "text/event-stream";
    reply.is_stream = true;
    reply.body = "retry: 1000\n\n";
    watchers_.insert_or_assign(stream, std::move(watcher));
    // What it watches is read at once.
    tell_at_ = absl::ZeroDuration();
    return reply;
  }

  PageReply Act(const PageRequest& request) {
    const nlohmann::json body = ParseBoundedJson(request.body);
    const auto id = body.is_object() ? body.find("run_id") : body.end();
    if (!body.is_object() || id == body.end() || !id->is_string() ||
        !IsValidId(id->get<std::string>())) {
      return ErrorReply(400, "the body is {\"run_id\": ID}");
    }
    const absl::StatusOr<RunRow> row = runs_.Row(id->get<std::string>());
    if (!row.ok()) {
      return ErrorReply(absl::IsNotFound(row.status()) ? 404 : 503, row.status().message());
    }
    const std::string verb = request.path.substr(request.path.rfind('/') + 1);
    if (verb == "stop" && row->end.has_value()) {
      return ErrorReply(409, absl::StrCat(row->name, " has ended already"));
    }
    const absl::Status begun = actions_.Begin(verb, row->run_id, row->name);
    if (!begun.ok()) {
      return ErrorReply(absl::IsFailedPrecondition(begun) ? 409 : 503, begun.message());
    }
    return JsonReply(202, {{"verb", verb}, {"run_id", row->run_id}, {"name", MakeSafe(row->name)}});
  }

  CommandContext& context_;
  SignalPipe signals_;
  std::unique_ptr<HttpServer> server_;
  const ClientPaths paths_;
  const std::string token_;
  RunList runs_;
  Actions actions_;
  Actions lists_;  // of what is on the machines, for the runs that are looked at
  std::map<int64_t, Watcher> watchers_;     // by stream
  std::map<std::string, Watched> watched_;  // by run id
  std::vector<std::string> notices_;
  std::string totals_;
  std::string waiting_;  // as it was told last
  int64_t event_ = 0;
  bool reads_more_ = false;
  absl::Duration tell_at_ = absl::ZeroDuration();
};

// Opens the address in the user's browser; a failure costs nothing, because the address is printed.
void OpenInBrowser(const std::string& address) {
#ifdef __APPLE__
  const std::string program = FindInPath("open");
#else
  // Without a display there is no browser to open, or one that takes the terminal.
  if (getenv("DISPLAY") == nullptr && getenv("WAYLAND_DISPLAY") == nullptr) return;
  const std::string program = FindInPath("xdg-open");
#endif
  if (program.empty()) return;
  SpawnOptions options;
  options.argv = {program, address};
  options.new_session = true;  // Ctrl-C must not end the browser
  (void)Spawn(options);        // nobody waits for it: it may be the browser itself
}

}  // namespace

absl::StatusOr<int> ShowDashboard(CommandContext& context, RunStore& store, Holdings& holdings,
                                  const DashboardOptions& options) {
  if (CompressedPage().empty()) {
    return WithHint(
        absl::FailedPreconditionError("this gpuctl was built without the dashboard's page"),
        "build it where node 18 or newer and npm are; gpuctl top shows the live runs");
  }
  ASSIGN_OR_RETURN(const ClientPaths paths, context.Paths());
  ASSIGN_OR_RETURN(SignalPipe signals, SignalPipe::Install({SIGINT, SIGTERM, SIGHUP, SIGTSTP}));
  absl::StatusOr<std::unique_ptr<HttpServer>> server =
      HttpServer::Listen(options.port, context.clock);
  if (!server.ok()) {
    return WithHint(server.status(), options.port == 0 ? "is the loopback interface up?"
                                                       : "without --port it takes a free one");
  }
  Dashboard dashboard(context, store, holdings, std::move(signals), *std::move(server), paths);
  const std::string address = dashboard.Address();
  if (context.json()) {
    context.PrintJson({{"url", address}});
  } else {
    context.PrintLine(address);
    context.Say("the address is for you alone: whoever has it can see and stop your runs");
    context.Say("Ctrl-C ends the dashboard, the runs go on");
  }
  if (options.open && !context.json() && context.terminal.stdout_tty) OpenInBrowser(address);
  return dashboard.Run();
}

}  // namespace gpuctl
