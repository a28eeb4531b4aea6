#include "client/spec/notify_request.h"

#include <string>
#include <vector>

#include "absl/strings/ascii.h"
#include "absl/strings/match.h"
#include "absl/strings/str_cat.h"
#include "absl/strings/str_join.h"

namespace gpuctl {

std::string DescribeNotify(const NotifyRequest& notify) {
  std::vector<std::string> ways;
  if (notify.desktop) ways.emplace_back("a message on this screen");
  if (!notify.command.empty()) {
    ways.push_back(absl::StrCat("the command \"", notify.command, "\" on this computer"));
  }
  if (!notify.webhook.empty()) {
    ways.push_back(absl::StrCat("the webhook in secret ", notify.webhook));
  }
  return ways.empty() ? "nobody is told of the end"
                      : absl::StrCat("at the end: ", absl::StrJoin(ways, "; "));
}

absl::Status CheckWebhookUrl(absl::string_view url) {
  bool good = absl::StartsWith(url, "https://") || absl::StartsWith(url, "http://");
  for (const char c : url) good = good && absl::ascii_isgraph(static_cast<unsigned char>(c));
  if (good && url.size() <= 4096 && url.find("://") + 3 < url.size()) return absl::OkStatus();
  // The address is a key, so it is not shown.
  return absl::InvalidArgumentError(
      "a webhook is an address that begins with https://, or the name of a secret that has one");
}

absl::Status CheckWebhookName(absl::string_view name) {
  if (absl::StrContains(name, "://")) {
    return absl::InvalidArgumentError(
        "whoever has a webhook's address can write there, so it does not belong into this file; "
        "gpuctl login --secret SLACK_WEBHOOK keeps it, and webhook: SLACK_WEBHOOK names it");
  }
  bool good = !name.empty() && !absl::ascii_isdigit(static_cast<unsigned char>(name[0]));
  for (const char c : name) {
    good = good && (c == '_' || absl::ascii_isalnum(static_cast<unsigned char>(c)));
  }
  if (good) return absl::OkStatus();
  return absl::InvalidArgumentError(
      absl::StrCat("\"", name, "\" cannot name a secret; use letters, digits and _"));
}

}  // namespace gpuctl
