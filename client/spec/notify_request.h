// Whom the end of a run is told. Pure.
#ifndef GPUCTL_CLIENT_SPEC_NOTIFY_REQUEST_H_
#define GPUCTL_CLIENT_SPEC_NOTIFY_REQUEST_H_

#include <string>

#include "absl/status/status.h"
#include "absl/strings/string_view.h"

namespace gpuctl {

struct NotifyRequest {
  bool desktop = false;  // a message on this computer's screen
  std::string command;   // a script for sh on this computer; empty: none
  // The name of a secret with an address, which gets the message by HTTP; empty: none. The user's
  // own configuration may have the address itself.
  std::string webhook;

  // The run has its own words, so the user's configuration does not count.
  bool given = false;

  bool empty() const { return !desktop && command.empty() && webhook.empty(); }
};

// Returns "at the end: a message on this screen; the command …", for the plan.
std::string DescribeNotify(const NotifyRequest& notify);

// Accepts an address beginning with https:// or http://. INVALID_ARGUMENT for another.
absl::Status CheckWebhookUrl(absl::string_view url);
// Accepts the name of a secret. INVALID_ARGUMENT for an address: who has it can write there.
absl::Status CheckWebhookName(absl::string_view name);

}  // namespace gpuctl

#endif  // GPUCTL_CLIENT_SPEC_NOTIFY_REQUEST_H_
