#include "client/notify/send_notice.h"

#include <vector>

#include "absl/strings/str_cat.h"
#include "absl/strings/str_replace.h"
#include "client/base/run_program.h"
#include "common/base/status_macros.h"
#include "common/files/files.h"

namespace gpuctl {
namespace {

constexpr absl::Duration kDesktopLimit = absl::Seconds(10);
constexpr absl::Duration kCommandLimit = absl::Seconds(30);
constexpr absl::Duration kWebhookLimit = absl::Seconds(15);

absl::Status RunToEnd(const char* what, absl::Duration limit, const std::vector<std::string>& argv,
                      const std::vector<std::string>& env = {}) {
  const absl::StatusOr<ProgramEnd> end = RunWithin(limit, argv, env);
  if (!end.ok()) return Annotate(end.status(), what);
  if (end->exit_code == 0) return absl::OkStatus();
  return absl::UnknownError(absl::StrCat(what, ": ended with code ", end->exit_code));
}

}  // namespace

absl::Status SendToDesktop(const Notice& notice) {
  const std::string title = TitleOf(notice), body = BodyOf(notice);
  if (const std::string osascript = FindInPath("osascript"); !osascript.empty()) {
    // The texts are arguments, so nothing in them is script.
    return RunToEnd("osascript", kDesktopLimit,
                    {osascript, "-e", "on run argv", "-e",
                     "display notification (item 2 of argv) with title (item 1 of argv)", "-e",
                     "end run", title, body});
  }
  const std::string notify_send = FindInPath("notify-send");
  if (notify_send.empty()) {
    return absl::FailedPreconditionError(
        "desktop: there is no notify-send here (package libnotify-bin)");
  }
  // The body may have markup, the title has none.
  const std::string plain =
      absl::StrReplaceAll(body, {{"&", "&amp;"}, {"<", "&lt;"}, {">", "&gt;"}});
  return RunToEnd("notify-send", kDesktopLimit,
                  {notify_send, "--app-name=gpuctl", "--", title, plain});
}

absl::Status SendToCommand(const Notice& notice, const std::string& script,
                           const std::string& facts_file) {
  RETURN_IF_ERROR(WriteFileAtomic(
      facts_file, absl::StrCat(NoticeJson(notice).dump(-1, ' ', false,
                                                       nlohmann::json::error_handler_t::replace),
                               "\n")));
  return RunToEnd("command", kCommandLimit,
                  {"/bin/sh", "-c", "exec /bin/sh -c \"$1\" < \"$2\"", "sh", script, facts_file},
                  NoticeVariables(notice));
}

absl::Status SendToWebhook(const Notice& notice, const std::string& url, Http& http) {
  HttpRequest request;
  request.method = "POST";
  request.url = url;
  request.headers = {{"content-type", "application/json"}};
  request.body =
      SlackMessage(notice).dump(-1, ' ', false, nlohmann::json::error_handler_t::replace);
  request.timeout = kWebhookLimit;
  const absl::StatusOr<HttpResponse> answer = http.Send(request);
  if (!answer.ok()) {
    // Its words may have the address in them.
    if (absl::IsInvalidArgument(answer.status())) {
      return absl::FailedPreconditionError("webhook: its address is no address");
    }
    return absl::Status(answer.status().code(), absl::IsFailedPrecondition(answer.status())
                                                    ? "webhook: libcurl is not installed here"
                                                    : "webhook: no answer came");
  }
  if (answer->status >= 200 && answer->status < 300) return absl::OkStatus();
  const std::string refused = absl::StrCat("webhook: it answered ", answer->status);
  const bool for_good = answer->status >= 300 && answer->status < 500 && answer->status != 408 &&
                        answer->status != 425 && answer->status != 429;
  return for_good ? absl::FailedPreconditionError(refused) : absl::UnavailableError(refused);
}

}  // namespace gpuctl
