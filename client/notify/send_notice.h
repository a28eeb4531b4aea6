// The ways by which a run's end is told: a message on the screen, a command, a webhook.
#ifndef GPUCTL_CLIENT_NOTIFY_SEND_NOTICE_H_
#define GPUCTL_CLIENT_NOTIFY_SEND_NOTICE_H_

#include <string>

#include "absl/status/status.h"
#include "client/notify/notice.h"
#include "provisioning/http/http.h"

namespace gpuctl {

// Shows it on the screen: by notify-send on Linux, by osascript on a Mac. FAILED_PRECONDITION where
// there is neither, or no screen.
absl::Status SendToDesktop(const Notice& notice);

// Runs the script by /bin/sh, for half a minute at most, with the facts in its environment and, as
// JSON, on its stdin. `facts_file` is written for that.
absl::Status SendToCommand(const Notice& notice, const std::string& script,
                           const std::string& facts_file);

// Sends it to the address `url`. Errors never have the address in them. FAILED_PRECONDITION when
// the other side refuses it for good; UNAVAILABLE and others when a later try may help.
absl::Status SendToWebhook(const Notice& notice, const std::string& url, Http& http);

}  // namespace gpuctl

#endif  // GPUCTL_CLIENT_NOTIFY_SEND_NOTICE_H_
