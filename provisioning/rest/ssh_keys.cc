#include "provisioning/rest/ssh_keys.h"

#include <cstdint>
#include <vector>

#include "absl/strings/str_cat.h"
#include "common/base/status_macros.h"
#include "common/files/sha256.h"
#include "provisioning/market/provider.h"
#include "provisioning/market/rent_options.h"

namespace gpuctl {
namespace {

// Reads an id that is text or a whole number.
std::string KeyId(JsonReader& row, absl::string_view field) {
  const nlohmann::json* found = row.Find(field);
  if (found != nullptr && found->is_number_integer()) return found->dump();
  std::string id;
  row.RequireId(field, id);
  return id;
}

// Returns the id of the key with that identity, or of any key when it is empty; "" for none.
absl::StatusOr<std::string> FindSshKey(const RestApi& api, const SshKeyShape& shape,
                                       absl::string_view identity) {
  constexpr absl::string_view kDoing = "list ssh keys";
  ASSIGN_OR_RETURN(const std::vector<nlohmann::json> rows,
                   ListRows(api, kDoing, absl::StrCat(shape.path, shape.query), shape.list));
  for (const nlohmann::json& json : rows) {
    JsonReader row(json, "ssh key");
    std::string key;
    for (const absl::string_view field : shape.key) {
      if (key.empty()) row.Read(field, key);
    }
    const bool deleted = !shape.deleted.empty() && row.Find(shape.deleted) != nullptr;
    const bool fits =
        !deleted && !key.empty() && (identity.empty() || SshKeyIdentity(key) == identity);
    const std::string id = fits ? KeyId(row, shape.id) : "";
    if (!row.status().ok()) return Annotate(row.status(), kDoing);
    if (fits) return id;
  }
  return "";
}

}  // namespace

absl::StatusOr<std::string> EnsureSshKey(const RestApi& api, const SshKeyShape& shape,
                                         const std::string& public_key) {
  ASSIGN_OR_RETURN(const std::string identity, CheckedSshKey(public_key));
  ASSIGN_OR_RETURN(std::string id, FindSshKey(api, shape, identity));
  if (!id.empty()) return id;
  if (identity.empty()) {
    return absl::InvalidArgumentError("no ssh key given, and the account has none");
  }
  constexpr absl::string_view kDoing = "register the ssh key";
  const std::string name = absl::StrCat("gpuctl-", Sha256HexOf(identity).substr(0, 12));
  nlohmann::json body = {{std::string(shape.new_key), identity}};
  if (!shape.new_name.empty()) body[std::string(shape.new_name)] = name;
  ASSIGN_OR_RETURN(const HttpResponse response,
                   api.Send({.doing = kDoing,
                             .method = "POST",
                             .path = shape.new_path.empty() ? shape.path : shape.new_path,
                             .rate_class = shape.list.rate_class,
                             .body = std::move(body)}));
  absl::Status status = api.Explained(response, kDoing);
  if (status.ok() && shape.refusal != nullptr) status = Annotate(shape.refusal(response), kDoing);
  if (status.ok()) {
    if (shape.made.empty()) return "";
    const auto read = [&](JsonReader& row, std::string& value) { value = KeyId(row, shape.id); };
    absl::StatusOr<std::string> made =
        shape.made == SshKeyShape::kAnswerItself
            ? ParseAnswer<std::string>(response.body, "the answer", read)
            : ParseObject<std::string>(response.body, "the answer", shape.made, "ssh key", read);
    if (!made.ok()) return Annotate(made.status(), kDoing);
    return made;
  }
  const bool refused = response.status / 100 == 4 && response.status != 429 &&
                       !absl::IsUnauthenticated(status) && !absl::IsPermissionDenied(status);
  if (!refused) return status;
  // Somebody else may have registered it first.
  ASSIGN_OR_RETURN(id, FindSshKey(api, shape, identity));
  if (!id.empty()) return id;
  if (!absl::IsAlreadyExists(status)) return status;
  return absl::InvalidArgumentError(
      absl::StrCat(kDoing, ": the account has another one of the name ", name));
}

}  // namespace gpuctl
