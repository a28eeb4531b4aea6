// The ssh keys of a market's account.
#ifndef GPUCTL_PROVISIONING_REST_SSH_KEYS_H_
#define GPUCTL_PROVISIONING_REST_SSH_KEYS_H_

#include <nlohmann/json.hpp>
#include <string>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "absl/strings/string_view.h"
#include "absl/types/span.h"
#include "provisioning/rest/list_rows.h"
#include "provisioning/rest/rest_api.h"

namespace gpuctl {

struct SshKeyShape {
  static constexpr absl::string_view kAnswerItself = ".";
  absl::string_view path;     // GET lists the keys, POST adds one
  absl::string_view query{};  // of the list: "?per_page=200"
  ListShape list;
  // The fields of a row: what a create names (text or a whole number), where the key may be, and
  // what only a deleted key has.
  absl::string_view id = "id";
  absl::Span<const absl::string_view> key;
  absl::string_view deleted{};
  // The path of a new key where it is another one, and its fields; no name: the market has none.
  // And where the answer to it has a row; empty: nowhere; kAnswerItself: it is the row.
  absl::string_view new_path{};
  absl::string_view new_name{};
  absl::string_view new_key;
  absl::string_view made{};
  // Returns the refusal in an answer of 2xx to a new key, or OK; null: there is none.
  absl::Status (*refusal)(const HttpResponse& response) = nullptr;
};

// Returns the id of the account's key with type and blob of `public_key`, a line of
// authorized_keys, and adds that key when the account does not have it. It may win or lose a race
// with another gpuctl. With an empty line it returns the first key there is. INVALID_ARGUMENT for a
// line that is no key, for an account without any, and when the key cannot be added because another
// one has its name.
absl::StatusOr<std::string> EnsureSshKey(const RestApi& api, const SshKeyShape& shape,
                                         const std::string& public_key);

}  // namespace gpuctl

#endif  // GPUCTL_PROVISIONING_REST_SSH_KEYS_H_
