#include "client/config/settings.h"

#include <sys/stat.h>
#include <unistd.h>

#include <algorithm>
#include <cstdlib>
#include <optional>
#include <utility>

#include "absl/strings/ascii.h"
#include "absl/strings/match.h"
#include "absl/strings/numbers.h"
#include "absl/strings/str_cat.h"
#include "absl/strings/str_join.h"
#include "absl/strings/str_replace.h"
#include "absl/strings/str_split.h"
#include "absl/strings/strip.h"
#include "client/base/exit_codes.h"
#include "client/base/quantity.h"
#include "client/base/suggest.h"
#include "client/config/cluster_fields.h"
#include "client/config/toml_text.h"
#include "common/base/status_macros.h"
#include "common/files/files.h"

namespace gpuctl {
namespace {

using Json = nlohmann::json;

constexpr int64_t kMaxConfigBytes = 1 << 20;
constexpr char kProjectFile[] = "gpuctl.toml";

// The keys of a table whose own name a run file can have alone: "notify".
bool IsNotify(absl::string_view key) { return absl::StartsWith(key, "notify."); }

// The one key of this computer's own ways, which no run has.
bool IsWarmLink(absl::string_view key) { return key == "warm_link"; }
// True for a key that is no field of a run file.
bool IsOfNoRun(absl::string_view key) {
  return IsNotify(key) || IsWarmLink(key) || IsClusterKey(key);
}

constexpr absl::Duration kLongestWarmLink = absl::Hours(1);

// Returns how long a connection is kept; zero for not at all.
absl::StatusOr<absl::Duration> WarmLinkOf(const Json& value) {
  if (value.is_boolean()) return value.get<bool>() ? kUsualWarmLink : absl::ZeroDuration();
  if (value.is_string()) {
    const auto text = value.get<std::string>();
    if (text == "off") return absl::ZeroDuration();
    if (text == "on") return kUsualWarmLink;
    const absl::StatusOr<absl::Duration> time = ParseDuration(text);
    if (time.ok() && *time >= absl::ZeroDuration() && *time <= kLongestWarmLink) return time;
  }
  return absl::InvalidArgumentError("must be a time of at most 1h, like \"10m\", or off");
}

// The message of a setting must not show an address that is a key.
bool IsPrivate(absl::string_view key) { return key == "notify.webhook"; }

absl::Status CheckNotify(const SettingKey& key, const Json& value, absl::string_view where) {
  const auto wrong = [&](absl::string_view why) {
    return absl::InvalidArgumentError(absl::StrCat(where, ": ", key.key, ": ", why));
  };
  if (absl::string_view(key.key) == "notify.desktop") {
    return value.is_boolean() ? absl::OkStatus() : wrong("must be true or false");
  }
  if (!value.is_string()) return wrong("must be a text");
  const auto text = value.get<std::string>();
  if (text.find('\0') != std::string::npos) return wrong("has a NUL character in it");
  if (!IsPrivate(key.key) || text.empty()) return absl::OkStatus();
  const absl::Status status =
      absl::StrContains(text, ":") ? CheckWebhookUrl(text) : CheckWebhookName(text);
  return status.ok() ? status : wrong(status.message());
}

// Returns a number that grows with what the field lets a run cost; nothing when there is no limit.
std::optional<double> AmountOf(absl::string_view key, const RunSpec& spec) {
  if (key == "resources.max_price") return spec.max_price_usd_per_hour;
  if (key == "limits.cost") return spec.cost_limit_usd;
  if (key == "limits.time") return absl::ToDoubleSeconds(spec.time_limit);
  if (key == "limits.idle") return absl::ToDoubleSeconds(spec.idle_limit);
  return std::nullopt;
}

std::string ShownValue(const Json& value) {
  return value.is_string() ? value.get<std::string>() : value.dump();
}

// Applies what the user's own values allow of a project's setting. Returns why it does not count;
// "" when it does.
std::string Narrow(const Setting* users, Setting& project) {
  const absl::string_view key = project.key.key;
  RunSpec own, theirs;
  if (users != nullptr) (void)SetRunField(key, users->value, "", own);
  (void)SetRunField(key, project.value, "", theirs);
  if (project.key.project == ProjectMay::kLower) {
    const std::optional<double> most = AmountOf(key, own), asked = AmountOf(key, theirs);
    if (!most.has_value() || (asked.has_value() && *asked <= *most)) return "";
    return absl::StrCat(
        "a project can only lower it, and ", ShownValue(project.value), " is more than ",
        users == nullptr ? "the default" : absl::StrCat("your ", ShownValue(users->value)));
  }
  if (key != "resources.provider" || own.providers.empty() || !NamesMarket(theirs)) return "";
  Json allowed = Json::array();
  for (const std::string& name : theirs.providers) {
    const bool mine =
        std::find(own.providers.begin(), own.providers.end(), name) != own.providers.end();
    if (mine) allowed.push_back(name);
  }
  if (allowed.empty()) {
    return absl::StrCat("you rent only at ", absl::StrJoin(own.providers, ", "));
  }
  project.value = allowed;
  return "";
}

bool IsGitRoot(const std::string& dir) { return PathExists(JoinPath(dir, ".git")); }

// True when the file belongs to this user, to root, or to the owner of the directory that is sent.
bool IsTrusted(const std::string& file, const std::string& work) {
  struct stat info {
  }, dir{};
  if (stat(file.c_str(), &info) != 0 || !S_ISREG(info.st_mode)) return false;
  if (info.st_uid == geteuid() || info.st_uid == 0) return true;
  return stat(work.c_str(), &dir) == 0 && dir.st_uid == info.st_uid;
}

absl::StatusOr<std::vector<Setting>> ReadFile(const std::string& file, Origin origin) {
  const absl::StatusOr<std::string> text = ReadFileToString(file, kMaxConfigBytes);
  if (absl::IsNotFound(text.status())) return std::vector<Setting>();
  if (!text.ok()) {
    return WithExitCode(Annotate(text.status(), "read the configuration"), kExitUsage);
  }
  absl::StatusOr<std::vector<Setting>> settings = ParseSettings(*text, file, origin);
  if (settings.ok()) return settings;
  return WithHint(settings.status(), absl::StrCat("correct ", file, " there"));
}

absl::StatusOr<std::vector<Setting>> ReadEnvironment() {
  std::vector<Setting> settings;
  for (const SettingKey& key : SettingKeys()) {
    const std::string name = VariableOf(key);
    const char* const text = name.empty() ? nullptr : std::getenv(name.c_str());
    if (text == nullptr || *text == '\0') continue;
    Setting setting{key, SettingValue(key, text), Origin::kEnvironment, name, ""};
    if (absl::Status status = CheckSetting(key, setting.value, name); !status.ok()) {
      return WithHint(status, absl::StrCat("unset ", name, ", or correct it"));
    }
    settings.push_back(std::move(setting));
  }
  return settings;
}

const Setting* FindIn(const std::vector<Setting>& settings, absl::string_view key) {
  const Setting* found = nullptr;
  for (const Setting& setting : settings) {
    if (key == setting.key.key) found = &setting;
  }
  return found;
}

absl::Status UnknownKey(const TomlValue& value, absl::string_view text, const std::string& file) {
  std::vector<std::string> names;
  std::string near;
  for (const SettingKey& key : SettingKeys()) {
    names.emplace_back(key.key);
    const std::string full = absl::StrCat(".", value.key);
    if (absl::EndsWith(key.key, full) && near.empty())
      near = absl::StrCat(" (did you mean \"", key.key, "\"?)");
  }
  if (near.empty()) near = DidYouMean(value.key, names);
  RunSpec spec;
  const bool of_run_file =
      !absl::IsNotFound(SetRunField(value.key, value.value, "", spec)) && near.empty();
  return TomlError(text, file, value.key_line, value.key_column,
                   absl::StrCat("unknown setting \"", value.key, "\"", near,
                                of_run_file ? ": only a run file has it" : ""));
}

}  // namespace

const std::vector<SettingKey>& SettingKeys() {
  using P = ProjectMay;
  static const auto* const keys = new std::vector<SettingKey>{
      {"resources.gpu", false, true, P::kSet, "GPUs, best first"},
      {"resources.provider", false, true, P::kSet, "where to look for a machine"},
      {"resources.max_price", true, false, P::kLower, "USD per hour of the whole machine"},
      {"resources.on_price_rise", true, false, P::kNot, "the answer of gpuctl keep"},
      {"resources.spot", true, false, P::kSet, "cheaper, but can be taken away"},
      {"resources.region", true, true, P::kSet, "where the machine may be"},
      {"resources.disk", false, false, P::kSet, "free space that the machine must have"},
      {"resources.image", true, false, P::kSet, "container image"},
      {"limits.time", false, false, P::kLower, "of running"},
      {"limits.cost", true, false, P::kLower, "USD in all"},
      {"limits.idle", false, false, P::kLower, "how long a machine waits after its job"},
      {"limits.salvage", false, false, P::kNot, "how long results that are not home are kept"},
      {"limits.lease", false, false, P::kNot, "without contact, while no job runs"},
      {"checkpoints", false, true, P::kSet, "patterns of a script's checkpoints"},
      {"artifacts", false, true, P::kSet, "patterns of files that come home"},
      {"grace", false, false, P::kSet, "from SIGTERM to SIGKILL"},
      {"output_limit", false, false, P::kSet, "the oldest output beyond it is removed"},
      {"notify.desktop", false, false, P::kNot, "a message on this screen at a run's end"},
      {"notify.command", false, false, P::kNot, "a script for sh at a run's end"},
      {"notify.webhook", false, false, P::kNot, "an address, or a secret with one"},
      {"warm_link", false, false, P::kNot, "how long a connection is kept for the next command"},
      {"slurm.host", true, false, P::kNot, "the login node of a Slurm cluster, as for ssh"},
      {"slurm.partition", true, false, P::kNot, "the only one to look at"},
      {"slurm.account", true, false, P::kNot, "whom the cluster charges"},
      {"slurm.qos", true, false, P::kNot, "quality of service"},
      {"slurm.constraint", true, false, P::kNot, "features that the node must have"},
      {"slurm.time", true, false, P::kNot, "of an allocation whose run has no time limit"},
      {"slurm.gpus", true, true, P::kNot, "PARTITION=GPU where Slurm does not name the model"},
      {"slurm.flags", true, true, P::kNot, "words for sbatch, after gpuctl's own"},
      {"slurm.results", true, false, P::kNot, "where results are kept on the login node, or off"},
      {"slurm.without", true, true, P::kNot, "gpuctl's own words that the cluster refuses"},
  };
  return *keys;
}

absl::StatusOr<SettingKey> FindSettingKey(absl::string_view name) {
  std::vector<std::string> names;
  std::vector<SettingKey> by_word;
  for (const SettingKey& key : SettingKeys()) {
    if (name == key.key) return key;
    names.emplace_back(key.key);
    // A cluster's own words are also those of every run.
    const bool by_its_word = !IsClusterKey(key.key);
    if (by_its_word && absl::EndsWith(key.key, absl::StrCat(".", name))) by_word.push_back(key);
  }
  if (by_word.size() == 1) return by_word.front();
  for (const SettingKey& key : SettingKeys()) {
    names.push_back(absl::StrReplaceAll(key.key, {{"resources.", ""}, {"limits.", ""}}));
  }
  return UsageError(absl::StrCat("unknown setting \"", name, "\"", DidYouMean(name, names)),
                    "gpuctl config lists them");
}

std::string VariableOf(const SettingKey& key) {
  absl::string_view name = key.key;
  if (IsNotify(name)) return "";
  absl::ConsumePrefix(&name, "resources.");
  return absl::StrCat("GPUCTL_", absl::AsciiStrToUpper(absl::StrReplaceAll(name, {{".", "_"}})));
}

Json SettingValue(const SettingKey& key, absl::string_view text) {
  if (key.list) {
    const std::vector<std::string> parts = absl::StrSplit(text, ',', absl::SkipWhitespace());
    if (parts.size() == 1) return std::string(absl::StripAsciiWhitespace(parts[0]));
    Json list = Json::array();
    for (const std::string& part : parts) list.push_back(absl::StripAsciiWhitespace(part));
    return list;
  }
  if (text == "true" || text == "false") return text == "true";
  int64_t whole = 0;
  double number = 0;
  const bool digits =
      !text.empty() && text.find_first_not_of("0123456789.") == absl::string_view::npos;
  if (digits && absl::SimpleAtoi(text, &whole)) return whole;
  if (digits && absl::SimpleAtod(text, &number)) return number;
  return std::string(text);
}

absl::Status CheckSetting(const SettingKey& key, const Json& value, absl::string_view where) {
  if (IsNotify(key.key)) return CheckNotify(key, value, where);
  if (IsWarmLink(key.key)) {
    const absl::Status status = WarmLinkOf(value).status();
    if (status.ok()) return status;
    return absl::InvalidArgumentError(absl::StrCat(where, ": warm_link: ", status.message()));
  }
  if (IsClusterKey(key.key)) {
    ClusterSettings cluster;
    const absl::Status status = SetClusterField(key.key, value, cluster);
    if (status.ok()) return status;
    return absl::InvalidArgumentError(absl::StrCat(where, ": ", key.key, ": ", status.message()));
  }
  RunSpec scratch;
  return SetRunField(key.key, value, where, scratch);
}

absl::StatusOr<std::vector<Setting>> ParseSettings(absl::string_view text, const std::string& file,
                                                   Origin origin) {
  ASSIGN_OR_RETURN(const std::vector<TomlValue> values, ReadToml(text, file));
  std::vector<Setting> settings;
  for (const TomlValue& value : values) {
    const SettingKey* known = nullptr;
    for (const SettingKey& key : SettingKeys()) {
      if (value.key == key.key) known = &key;
    }
    if (known == nullptr) return UnknownKey(value, text, file);
    const auto wrong = [&](absl::string_view message) {
      return TomlError(text, file, value.line, value.column, message, !IsPrivate(value.key));
    };
    if (origin == Origin::kProject && known->project == ProjectMay::kNot) {
      return WithHint(
          TomlError(text, file, value.key_line, value.key_column,
                    absl::StrCat(value.key, " cannot come from a project, only from you"),
                    !IsPrivate(value.key)),
          absl::StrCat("gpuctl config set ", value.key, " … sets your own"));
    }
    if (absl::Status status = CheckSetting(*known, value.value, "@"); !status.ok()) {
      absl::string_view message = status.message();
      absl::ConsumePrefix(&message, "@: ");
      return wrong(message);
    }
    settings.push_back({*known, value.value, origin, absl::StrCat(file, ":", value.line), ""});
  }
  return settings;
}

Settings Settings::Of(std::vector<Setting> user, std::vector<Setting> project,
                      std::vector<Setting> environment) {
  Settings settings;
  for (const SettingKey& key : SettingKeys()) {
    const Setting* const own = FindIn(user, key.key);
    std::optional<Setting> chosen;
    if (own != nullptr) chosen = *own;
    if (const Setting* const found = FindIn(project, key.key); found != nullptr) {
      Setting theirs = *found;
      theirs.ignored = Narrow(own, theirs);
      if (theirs.ignored.empty()) {
        chosen = std::move(theirs);
      } else {
        settings.ignored_.push_back(std::move(theirs));
      }
    }
    if (const Setting* const found = FindIn(environment, key.key); found != nullptr) {
      chosen = *found;
    }
    if (chosen.has_value()) settings.effective_.push_back(*std::move(chosen));
  }
  return settings;
}

absl::StatusOr<Settings> Settings::Read(const std::string& config_dir, const std::string& work) {
  ASSIGN_OR_RETURN(std::vector<Setting> user, ReadFile(UserConfigFile(config_dir), Origin::kUser));
  std::vector<Setting> project;
  if (const std::string file = FindProjectFile(work); !file.empty()) {
    ASSIGN_OR_RETURN(project, ReadFile(file, Origin::kProject));
  }
  ASSIGN_OR_RETURN(std::vector<Setting> environment, ReadEnvironment());
  return Of(std::move(user), std::move(project), std::move(environment));
}

absl::StatusOr<Settings> Settings::ReadUsers(const std::string& config_dir) {
  ASSIGN_OR_RETURN(std::vector<Setting> user, ReadFile(UserConfigFile(config_dir), Origin::kUser));
  ASSIGN_OR_RETURN(std::vector<Setting> environment, ReadEnvironment());
  return Of(std::move(user), {}, std::move(environment));
}

absl::Status Settings::Apply(bool rented, RunSpec& spec) {
  for (const Setting& setting : effective_) {
    const std::string key = setting.key.key;
    if (IsOfNoRun(key) || setting.key.rented != rented || spec.flagged.count(key) != 0) continue;
    if (setting.origin != Origin::kEnvironment && spec.given.count(key) != 0) continue;
    RETURN_IF_ERROR(SetRunField(key, setting.value, setting.where, spec));
    used_.push_back(setting);
  }
  return absl::OkStatus();
}

absl::StatusOr<NotifyRequest> ReadUsersNotify(const std::string& config_dir) {
  ASSIGN_OR_RETURN(const std::vector<Setting> settings,
                   ReadFile(UserConfigFile(config_dir), Origin::kUser));
  NotifyRequest notify;
  for (const Setting& setting : settings) {
    const absl::string_view key = setting.key.key;
    if (key == "notify.desktop") notify.desktop = setting.value.get<bool>();
    if (key == "notify.command") notify.command = setting.value.get<std::string>();
    if (key == "notify.webhook") notify.webhook = setting.value.get<std::string>();
  }
  return notify;
}

absl::StatusOr<absl::Duration> ReadWarmLink(const std::string& config_dir) {
  if (const char* text = std::getenv("GPUCTL_WARM_LINK"); text != nullptr && *text != '\0') {
    const absl::StatusOr<absl::Duration> time = WarmLinkOf(text);
    if (time.ok()) return time;
    return WithExitCode(WithHint(absl::InvalidArgumentError(
                                     absl::StrCat("GPUCTL_WARM_LINK: ", time.status().message())),
                                 "unset GPUCTL_WARM_LINK, or correct it"),
                        kExitUsage);
  }
  ASSIGN_OR_RETURN(const std::vector<Setting> settings,
                   ReadFile(UserConfigFile(config_dir), Origin::kUser));
  const Setting* const own = FindIn(settings, "warm_link");
  return own == nullptr ? kUsualWarmLink : WarmLinkOf(own->value);
}

std::vector<std::string> Settings::UsedLines() const {
  std::vector<std::string> lines;
  for (const Setting& setting : used_) {
    lines.push_back(
        absl::StrCat(setting.key.key, " ", ShownValue(setting.value), ", from ", setting.where));
  }
  return lines;
}

Json Settings::UsedJson() const {
  Json list = Json::array();
  for (const Setting& setting : used_) {
    list.push_back({{"key", setting.key.key}, {"value", setting.value}, {"from", setting.where}});
  }
  return list;
}

std::string ShownSetting(const Setting& setting) {
  // Who has the address can write there.
  const std::string text = ShownValue(setting.value);
  if (IsPrivate(setting.key.key) && absl::StrContains(text, "://")) return "(an address)";
  return text;
}

std::string UserConfigFile(const std::string& config_dir) {
  return JoinPath(config_dir, "config.toml");
}

std::string FindProjectFile(const std::string& work) {
  const char* const home_variable = std::getenv("HOME");
  const std::string home = home_variable == nullptr ? "" : home_variable;
  // The directories up to the one that bounds the project.
  std::vector<std::string> dirs = {work};
  bool bounded = false;
  for (std::string dir = work;;) {
    bounded = IsGitRoot(dir) || dir == home;
    if (bounded || dir == "/" || dir.empty() || dir[0] != '/') break;
    dir = DirName(dir);
    dirs.push_back(dir);
  }
  if (!bounded) dirs.resize(1);
  for (const std::string& dir : dirs) {
    std::string file = JoinPath(dir, kProjectFile);
    if (IsTrusted(file, work)) return file;
  }
  return "";
}

}  // namespace gpuctl
