#include "client/notify/tell_end.h"

#include <algorithm>
#include <memory>
#include <optional>
#include <set>
#include <utility>

#include "absl/strings/match.h"
#include "absl/strings/str_cat.h"
#include "client/bill/run_machines.h"
#include "client/config/settings.h"
#include "client/keys/key_store.h"
#include "client/notify/notice.h"
#include "client/notify/notice_store.h"
#include "client/notify/send_notice.h"
#include "client/spec/launch_record.h"
#include "client/streams/mirror.h"
#include "client/streams/mirror_reader.h"
#include "common/base/status_macros.h"
#include "common/files/file_lock.h"
#include "common/files/files.h"
#include "provisioning/http/curl_http.h"
#include "provisioning/ledger/lease.h"

namespace gpuctl {
namespace {

// An end that nobody noticed for so long is no news.
constexpr absl::Duration kNews = absl::Hours(7 * 24);

// Returns how the end of `row` is to be told.
absl::StatusOr<NotifyRequest> RequestOf(const ClientPaths& paths, const RunRow& row) {
  const absl::StatusOr<LaunchRecord> record = ParseLaunchRecord(row.launch_json);
  if (record.ok() && record->spec.notify.given) return record->spec.notify;
  return ReadUsersNotify(paths.config_dir);
}

absl::StatusOr<std::string> AddressOf(const ClientPaths& paths, const std::string& webhook) {
  if (absl::StrContains(webhook, "://")) return webhook;
  const absl::StatusOr<MarketKey> found = KeyStore(paths.config_dir).FindSecret(webhook);
  if (absl::IsNotFound(found.status())) {
    return absl::UnavailableError(absl::StrCat(
        "webhook: the secret ", webhook, " has no value here: gpuctl login --secret ", webhook));
  }
  RETURN_IF_ERROR(found.status());
  const std::string address(absl::StripAsciiWhitespace(found->key));
  if (absl::Status status = CheckWebhookUrl(address); !status.ok()) {
    return absl::FailedPreconditionError(
        absl::StrCat("webhook: the secret ", webhook, " is no address"));
  }
  return address;
}

Notice NoticeOf(CommandContext& context, const ClientPaths& paths, Holdings& holdings,
                RunStore& store, const RunRow& row) {
  Notice notice;
  notice.row = row;
  notice.status = StatusOfEnded(row);
  const std::string mirror_dir = paths.MirrorDir(row.run_id);
  if (const absl::StatusOr<Lifecycle> lifecycle = ReadMirrorLifecycle(mirror_dir); lifecycle.ok()) {
    notice.status = DeriveStatus(row, *lifecycle);
  }
  MirrorReader mirror(mirror_dir, row.output_segment_bytes);
  // What cannot be read is left out: the end itself is the news.
  if (mirror.Refresh().ok() && mirror.RefreshOutputMetrics().ok()) {
    notice.best = BestOf(mirror.progress());
  }
  const absl::StatusOr<Ledger*> ledger = holdings.FindLedger();
  if (!ledger.ok() || *ledger == nullptr) return notice;
  const absl::StatusOr<RunMachines> machines = MachinesOfRun(**ledger, store, row);
  if (machines.ok() && !machines->empty()) {
    notice.cost_usd = SpentByRun(*machines, context.NowMs()).high_usd;
  }
  return notice;
}

// Sends one notice by all ways that it was not sent by yet.
class Sender {
 public:
  Sender(const ClientPaths& paths, const NotifyRequest& request, const Notice& notice,
         std::set<std::string> sent)
      : paths_(paths), request_(request), notice_(notice), sent_(std::move(sent)) {}

  void SendAll() {
    const std::string facts = JoinPath(paths_.MirrorDir(notice_.row.run_id), "notice.json");
    if (request_.desktop) One("desktop", [&] { return SendToDesktop(notice_); });
    if (!request_.command.empty()) {
      One("command", [&] { return SendToCommand(notice_, request_.command, facts); });
    }
    if (!request_.webhook.empty()) One("webhook", [&] { return SendToAddress(); });
  }

  const std::set<std::string>& sent() const { return sent_; }
  const std::string& by() const { return by_; }
  const absl::Status& status() const { return status_; }
  // True when a later try may do better.
  bool again() const { return again_; }

 private:
  template <typename Send>
  void One(const char* way, Send send) {
    if (sent_.count(way) != 0) return;
    const absl::Status status = send();
    if (status.ok()) {
      sent_.insert(way);
      absl::StrAppend(&by_, by_.empty() ? "" : ", ", way);
      return;
    }
    if (absl::IsFailedPrecondition(status)) {
      sent_.insert(way);  // never again
    } else {
      again_ = true;
    }
    status_.Update(status);
  }

  absl::Status SendToAddress() {
    ASSIGN_OR_RETURN(const std::string url, AddressOf(paths_, request_.webhook));
    CurlHttpOptions options;
    options.max_reply_bytes = 64 << 10;
    const std::unique_ptr<Http> http = MakeCurlHttp(std::move(options));
    return SendToWebhook(notice_, url, *http);
  }

  const ClientPaths& paths_;
  const NotifyRequest& request_;
  const Notice& notice_;
  std::set<std::string> sent_;
  std::string by_;
  absl::Status status_;
  bool again_ = false;
};

// Returns nothing when there is nothing to tell, or somebody else tells it.
absl::StatusOr<std::optional<ToldEnd>> Tell(CommandContext& context, Holdings& holdings,
                                            RunStore& store, const std::string& run_id) {
  ASSIGN_OR_RETURN(const ClientPaths paths, context.Paths());
  ASSIGN_OR_RETURN(const RunRow row, store.Get(run_id));
  if (!row.end.has_value()) return std::nullopt;
  ASSIGN_OR_RETURN(const std::unique_ptr<NoticeStore> notices, NoticeStore::Open(paths.database()));
  // Whoever launched it was told that nothing started.
  const bool never_ran = row.end->state == gpuctl::v1::JOB_STATE_UNSPECIFIED;
  const bool old = context.NowMs() - row.end->ended_ms > absl::ToInt64Milliseconds(kNews);
  ASSIGN_OR_RETURN(const bool due, notices->IsDue(run_id, row.end->ended_ms, context.NowMs()));
  if (!due) return std::nullopt;
  // The lock is for a process that was asleep meanwhile, the claim for everything else.
  const absl::StatusOr<UniqueFd> lock = TryLock(JoinPath(paths.MirrorDir(run_id), "notice.lock"));
  if (absl::IsUnavailable(lock.status())) return std::nullopt;
  ASSIGN_OR_RETURN(const std::optional<NoticeStore::Claim> claim,
                   notices->TryClaim(run_id, row.end->ended_ms, context.NowMs()));
  if (!claim.has_value()) return std::nullopt;
  if (never_ran || old) {
    RETURN_IF_ERROR(notices->Record(run_id, claim->sent, /*done=*/true));
    return std::nullopt;
  }
  ASSIGN_OR_RETURN(const NotifyRequest request, RequestOf(paths, row));
  if (request.empty()) {
    RETURN_IF_ERROR(notices->Record(run_id, claim->sent, /*done=*/true));
    return std::nullopt;
  }
  const Notice notice = NoticeOf(context, paths, holdings, store, row);
  Sender sender(paths, request, notice, claim->sent);
  sender.SendAll();
  RETURN_IF_ERROR(notices->Record(run_id, sender.sent(), !sender.again()));
  return ToldEnd{row.name, sender.by(), sender.status(),
                 sender.again() && claim->tries < NoticeStore::kMostTries};
}

// Returns the whole sentence about what went wrong.
std::string Trouble(const std::string& name, const absl::Status& status) {
  return absl::StrCat("tell of the end of ", name, ": ", status.message());
}

}  // namespace

void ExpectEnd(CommandContext& context, const std::string& run_id) {
  const absl::StatusOr<ClientPaths> paths = context.Paths();
  if (!paths.ok()) return;
  const auto notices = NoticeStore::Open(paths->database());
  const absl::Status noted = notices.ok() ? (*notices)->Expect(run_id) : notices.status();
  if (!noted.ok()) context.Warn(absl::StrCat("its end will not be told: ", noted.message()));
}

void TellEnd(CommandContext& context, Holdings& holdings, RunStore& store,
             const std::string& run_id) {
  const absl::StatusOr<std::optional<ToldEnd>> told = Tell(context, holdings, store, run_id);
  if (!told.ok()) {
    if (!absl::IsNotFound(told.status())) context.Warn(Trouble(run_id, told.status()));
    return;
  }
  if (!told->has_value() || (*told)->status.ok()) return;
  context.Warn(Trouble((*told)->name, (*told)->status));
  if ((*told)->again)
    context.Hint("gpuctl keep tries again; gpuctl keep --install does so by itself");
}

std::vector<ToldEnd> TellAllEnds(CommandContext& context, Holdings& holdings, RunStore& store,
                                 const std::function<bool()>& cancelled) {
  std::vector<ToldEnd> all;
  const absl::StatusOr<ClientPaths> paths = context.Paths();
  if (!paths.ok()) return all;
  const auto notices = NoticeStore::Open(paths->database());
  const absl::StatusOr<std::vector<std::string>> waiting =
      notices.ok() ? (*notices)->Waiting() : notices.status();
  if (!waiting.ok()) {
    all.push_back({"all runs", "", waiting.status()});
    return all;
  }
  for (const std::string& run_id : *waiting) {
    if (cancelled && cancelled()) break;
    absl::StatusOr<std::optional<ToldEnd>> told = Tell(context, holdings, store, run_id);
    if (!told.ok()) {
      all.push_back({run_id, "", told.status()});
    } else if (told->has_value()) {
      all.push_back(**std::move(told));
    }
  }
  return all;
}

}  // namespace gpuctl
