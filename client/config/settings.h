// The user's and the project's defaults for launches: config.toml and gpuctl.toml, and variables of
// the environment. They have the names of the run file's fields.
//
// A flag counts before a variable, a variable before the run file, the run file before gpuctl.toml,
// and this before config.toml. A project comes from elsewhere, perhaps with a clone. So gpuctl.toml
// can set no command or address, and can only lower what limits the user's money.
#ifndef GPUCTL_CLIENT_CONFIG_SETTINGS_H_
#define GPUCTL_CLIENT_CONFIG_SETTINGS_H_

#include <nlohmann/json.hpp>
#include <string>
#include <vector>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "absl/strings/string_view.h"
#include "absl/time/time.h"
#include "client/spec/notify_request.h"
#include "client/spec/run_spec.h"

namespace gpuctl {

// What may set a key in gpuctl.toml.
enum class ProjectMay {
  kSet,
  kLower,  // only to less than the user's own value, or the built-in one
  kNot
};

struct SettingKey {
  const char* key;  // of the run file: "resources.max_price"
  bool rented;      // only rented machines have it, so it does not count for others
  bool list;        // the value can be a list
  ProjectMay project;
  const char* about;
};
// All keys, in the order of the run file; then those that no run file has.
const std::vector<SettingKey>& SettingKeys();
// Finds a key by its name or, where that is clear, by its last word. INVALID_ARGUMENT names the
// nearest one.
absl::StatusOr<SettingKey> FindSettingKey(absl::string_view name);
// Returns the variable of a key, like "GPUCTL_MAX_PRICE"; "" when it has none.
std::string VariableOf(const SettingKey& key);

enum class Origin { kUser, kProject, kEnvironment };
struct Setting {
  SettingKey key;
  nlohmann::json value;
  Origin origin = Origin::kUser;
  std::string where;  // "/home/ada/.config/gpuctl/config.toml:3", or the variable's name
  // Why it does not count; empty: it does.
  std::string ignored;
};

// Makes a setting of text that a user typed: numbers, true and false, and lists at commas.
nlohmann::json SettingValue(const SettingKey& key, absl::string_view text);
// INVALID_ARGUMENT, beginning with `where`, when the key cannot have the value.
absl::Status CheckSetting(const SettingKey& key, const nlohmann::json& value,
                          absl::string_view where);
// Reads one file of settings. INVALID_ARGUMENT names file, line, column, and the nearest known key.
absl::StatusOr<std::vector<Setting>> ParseSettings(absl::string_view text, const std::string& file,
                                                   Origin origin);

class Settings {
 public:
  // Reads the user's file in `config_dir`, the project's for the directory `work`, and the
  // environment. A missing file has no settings. Takes no file that another user could have put
  // there.
  static absl::StatusOr<Settings> Read(const std::string& config_dir, const std::string& work);
  // The same without a project's.
  static absl::StatusOr<Settings> ReadUsers(const std::string& config_dir);
  // For tests: `user` and `project` as ParseSettings returns them.
  static Settings Of(std::vector<Setting> user, std::vector<Setting> project,
                     std::vector<Setting> environment);

  // Sets the fields of `spec` that neither the run file nor a flag has; variables give way only to
  // flags. `rented`: those that only rented machines have; otherwise all others. Adds what it sets
  // to used().
  absl::Status Apply(bool rented, RunSpec& spec);

  // The settings that count, one for each key at most, in the order of SettingKeys.
  const std::vector<Setting>& effective() const { return effective_; }
  // Those of the project that do not count, with the reason.
  const std::vector<Setting>& ignored() const { return ignored_; }
  // Those that Apply used, for the plan.
  const std::vector<Setting>& used() const { return used_; }
  std::vector<std::string> UsedLines() const;
  nlohmann::json UsedJson() const;

 private:
  std::vector<Setting> effective_, ignored_, used_;
};

// Returns the value for people, without an address that is a key.
std::string ShownSetting(const Setting& setting);

// Returns whom the user's own file wants to be told of a run that says nothing of it.
absl::StatusOr<NotifyRequest> ReadUsersNotify(const std::string& config_dir);

// How long a connection is kept for the next command when nothing is set.
constexpr absl::Duration kUsualWarmLink = absl::Minutes(10);
// Returns how long a connection is kept, from the user's own file or GPUCTL_WARM_LINK; zero when
// none is kept.
absl::StatusOr<absl::Duration> ReadWarmLink(const std::string& config_dir);

// Returns the path of the user's file; it need not be there.
std::string UserConfigFile(const std::string& config_dir);
// Finds gpuctl.toml in `work` or above it, up to the root of the git repository or the home
// directory; where there is neither, only in `work`. "" when there is none.
std::string FindProjectFile(const std::string& work);

}  // namespace gpuctl

#endif  // GPUCTL_CLIENT_CONFIG_SETTINGS_H_
