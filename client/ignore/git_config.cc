#include "client/ignore/git_config.h"

#include <cstdlib>
#include <filesystem>
#include <functional>
#include <utility>

#include "absl/strings/ascii.h"
#include "absl/strings/match.h"
#include "absl/strings/numbers.h"
#include "absl/strings/str_cat.h"
#include "absl/strings/strip.h"
#include "client/base/run_program.h"
#include "client/ignore/git_glob.h"
#include "common/files/files.h"

namespace gpuctl {
namespace {

constexpr int kMaxIncludeDepth = 10;
constexpr int64_t kMaxConfigBytes = 16 << 20;

// One setting: section and name in lower case, the subsection as written; no value means "true".
struct Setting {
  std::string section, subsection, name;
  std::optional<std::string> value;
};

// Parses a file and passes each setting to `use`. Returns false when the rest is no configuration.
class ConfigParser {
 public:
  ConfigParser(absl::string_view text, const std::function<void(const Setting&)>& use)
      : text_(text), use_(use) {
    absl::ConsumePrefix(&text_, "\xef\xbb\xbf");
  }

  bool Parse() {
    while (at_ < text_.size()) {
      const char c = Peek();
      if (absl::ascii_isspace(static_cast<unsigned char>(c))) {
        Next();
      } else if (c == '#' || c == ';') {
        SkipLine();
      } else if (c == '[') {
        if (!Section()) return false;
      } else if (!Variable()) {
        return false;
      }
    }
    return true;
  }

  int line() const { return line_; }

 private:
  bool AtEnd() const { return at_ >= text_.size(); }
  // Returns the next character; '\n' at the end and for CRLF.
  char Peek() const {
    if (AtEnd()) return '\n';
    const bool crlf = text_[at_] == '\r' && at_ + 1 < text_.size() && text_[at_ + 1] == '\n';
    return crlf ? '\n' : text_[at_];
  }
  char Next() {
    const char c = Peek();
    if (c == '\n') ++line_;
    if (!AtEnd()) at_ += text_[at_] == '\r' && c == '\n' ? 2 : 1;
    return c;
  }
  void SkipLine() {
    while (!AtEnd() && Next() != '\n') {
    }
  }
  void SkipBlanks() {
    while (!AtEnd() && (Peek() == ' ' || Peek() == '\t')) Next();
  }

  bool Section() {
    Next();
    setting_ = Setting();
    while (Peek() != ']') {
      const char c = Next();
      if (absl::ascii_isspace(static_cast<unsigned char>(c))) {
        if (c == '\n') return false;
        return Subsection();
      }
      if (!absl::ascii_isalnum(static_cast<unsigned char>(c)) && c != '-' && c != '.') return false;
      setting_.section += absl::ascii_tolower(static_cast<unsigned char>(c));
    }
    Next();
    // The old syntax of a subsection, which ignores case.
    if (const size_t dot = setting_.section.find('.'); dot != std::string::npos) {
      setting_.subsection = setting_.section.substr(dot + 1);
      setting_.section.resize(dot);
    }
    return true;
  }

  bool Subsection() {
    SkipBlanks();
    if (Next() != '"') return false;
    while (true) {
      char c = Next();
      if (c == '"') break;
      if (c == '\\') c = Next();
      if (c == '\n') return false;
      setting_.subsection += c;
    }
    return Next() == ']';
  }

  bool Variable() {
    if (!absl::ascii_isalpha(static_cast<unsigned char>(Peek()))) return false;
    setting_.name.clear();
    setting_.value.reset();
    while (absl::ascii_isalnum(static_cast<unsigned char>(Peek())) || Peek() == '-') {
      setting_.name += absl::ascii_tolower(static_cast<unsigned char>(Next()));
    }
    SkipBlanks();
    if (Peek() != '\n') {
      if (Next() != '=') return false;
      if (!Value(setting_.value.emplace())) return false;
    } else {
      Next();
    }
    use_(setting_);
    return true;
  }

  bool Value(std::string& value) {
    bool quoted = false;
    size_t spaces = 0;  // spaces not yet added to the value: those at its end do not count
    while (true) {
      char c = Next();
      if (c == '\n') return !quoted;
      if (!quoted) {
        if (absl::ascii_isspace(static_cast<unsigned char>(c))) {
          if (!value.empty()) ++spaces;
          continue;
        }
        if (c == '#' || c == ';') {
          --at_;
          SkipLine();
          return true;
        }
      }
      value.append(spaces, ' ');
      spaces = 0;
      if (c == '"') {
        quoted = !quoted;
        continue;
      }
      if (c == '\\') {
        c = Next();
        if (c == '\n') continue;
        constexpr absl::string_view kEscapes = "tbn\\\"";
        const size_t which = kEscapes.find(c);
        if (which == absl::string_view::npos) return false;
        c = "\t\b\n\\\""[which];
      }
      value += c;
    }
  }

  absl::string_view text_;
  const std::function<void(const Setting&)>& use_;
  size_t at_ = 0;
  int line_ = 1;
  Setting setting_;
};

class Reader {
 public:
  Reader(const GitEnvironment& environment, const std::optional<GitRepository>& repository,
         GitConfig& config)
      : environment_(environment), repository_(repository), config_(config) {}

  void ReadFile(const std::string& path, int depth = 0) {
    if (path.empty() || IsDirectory(path)) return;
    const absl::StatusOr<std::string> text = ReadFileToString(path, kMaxConfigBytes);
    if (absl::IsNotFound(text.status())) return;
    if (!text.ok()) {
      config_.notes.emplace_back(text.status().message());
      return;
    }
    const std::function<void(const Setting&)> use = [&](const Setting& setting) {
      Use(setting, path, depth);
    };
    ConfigParser parser(*text, use);
    if (!parser.Parse()) {
      config_.notes.push_back(
          absl::StrCat("read ", path, ": line ", parser.line(), " is no git configuration"));
    }
  }

  const std::optional<std::string>& excludes_file() const { return excludes_file_; }
  bool worktree_config() const { return worktree_config_; }

 private:
  void Use(const Setting& setting, const std::string& file, int depth) {
    if (setting.section == "core" && setting.subsection.empty()) {
      if (setting.name == "excludesfile" && setting.value.has_value()) {
        excludes_file_ = Expand(*setting.value);
      } else if (setting.name == "ignorecase") {
        config_.ignore_case = IsGitTrue(setting.value);
      }
    } else if (setting.section == "extensions" && setting.name == "worktreeconfig") {
      worktree_config_ = IsGitTrue(setting.value);
    } else if (setting.name == "path" && setting.value.has_value() && depth < kMaxIncludeDepth) {
      const bool plain = setting.section == "include" && setting.subsection.empty();
      if (plain || (setting.section == "includeif" && IsMet(setting.subsection, file))) {
        const std::filesystem::path target = Expand(*setting.value);
        ReadFile((std::filesystem::path(DirName(file)) / target).string(), depth + 1);
      }
    }
  }

  std::string Expand(const std::string& path) const {
    if (path != "~" && !absl::StartsWith(path, "~/")) return path;
    return absl::StrCat(environment_.home, path.substr(1));
  }

  // True when the condition of an includeIf in `file` holds.
  bool IsMet(absl::string_view condition, const std::string& file) const {
    bool ignore_case = false;
    if (absl::ConsumePrefix(&condition, "gitdir/i:")) {
      ignore_case = true;
    } else if (!absl::ConsumePrefix(&condition, "gitdir:")) {
      return false;
    }
    if (!repository_.has_value()) return false;
    std::string pattern = Expand(std::string(condition));
    std::string prefix;  // compared literally
    if (absl::StartsWith(pattern, "./")) {
      std::error_code error;
      const std::filesystem::path real = std::filesystem::canonical(DirName(file), error);
      if (error) return false;
      prefix = real.string();
      pattern = pattern.substr(1);
    } else if (!absl::StartsWith(pattern, "/")) {
      pattern = absl::StrCat("**/", pattern);
    }
    if (absl::EndsWith(pattern, "/")) pattern += "**";
    const std::string& text = repository_->git_dir;
    return text.size() >= prefix.size() &&
           EqualBytes(text.substr(0, prefix.size()), prefix, ignore_case) &&
           GitGlob(pattern, ignore_case).Matches(text.substr(prefix.size()));
  }

  const GitEnvironment& environment_;
  const std::optional<GitRepository>& repository_;
  GitConfig& config_;
  std::optional<std::string> excludes_file_;
  bool worktree_config_ = false;
};

std::string Variable(const char* name) {
  const char* value = std::getenv(name);
  return value == nullptr ? "" : value;
}

std::string FindGit() {
  std::string git = FindInPath("git");
#if defined(__APPLE__)
  // Apple's /usr/bin/git only forwards to the developer tools; without these it opens a window that
  // offers to install them.
  if (git == "/usr/bin/git" && !PathExists("/Library/Developer/CommandLineTools/usr/bin/git") &&
      !PathExists("/var/db/xcode_select_link") && !PathExists("/Applications/Xcode.app")) {
    git.clear();
  }
#endif
  return git;
}

}  // namespace

bool IsGitTrue(const std::optional<std::string>& value) {
  if (!value.has_value()) return true;
  for (const char* word : {"true", "yes", "on"}) {
    if (absl::EqualsIgnoreCase(*value, word)) return true;
  }
  int64_t number = 0;
  return absl::SimpleAtoi(*value, &number) && number != 0;
}

GitEnvironment GitEnvironment::FromProcess() {
  GitEnvironment environment;
  environment.home = Variable("HOME");
  environment.xdg_config_home = Variable("XDG_CONFIG_HOME");
  if (std::getenv("GIT_CONFIG_SYSTEM") != nullptr) {
    environment.system_config = Variable("GIT_CONFIG_SYSTEM");
  } else {
    environment.system_config = "/etc/gitconfig";
  }
  if (std::getenv("GIT_CONFIG_NOSYSTEM") != nullptr && IsGitTrue(Variable("GIT_CONFIG_NOSYSTEM"))) {
    environment.system_config.clear();
  }
  if (std::getenv("GIT_CONFIG_GLOBAL") != nullptr) {
    environment.global_config = Variable("GIT_CONFIG_GLOBAL");
  }
  for (const char* name : {"GIT_DIR", "GIT_CONFIG_COUNT", "GIT_CONFIG_PARAMETERS"}) {
    environment.says_settings = environment.says_settings || std::getenv(name) != nullptr;
  }
  environment.git = FindGit();
  return environment;
}

std::string GitEnvironment::UserFile(const std::string& name) const {
  if (!xdg_config_home.empty()) return absl::StrCat(xdg_config_home, "/git/", name);
  return home.empty() ? "" : absl::StrCat(home, "/.config/git/", name);
}

GitConfig ReadGitConfig(const GitEnvironment& environment,
                        const std::optional<GitRepository>& repository) {
  GitConfig config;
  Reader reader(environment, repository, config);
  reader.ReadFile(environment.system_config);
  if (environment.global_config.has_value()) {
    reader.ReadFile(*environment.global_config);
  } else {
    reader.ReadFile(environment.UserFile("config"));
    if (!environment.home.empty()) reader.ReadFile(JoinPath(environment.home, ".gitconfig"));
  }
  if (repository.has_value()) {
    reader.ReadFile(JoinPath(repository->common_dir, "config"));
    if (reader.worktree_config()) reader.ReadFile(JoinPath(repository->git_dir, "config.worktree"));
  }
  config.excludes_file = reader.excludes_file().value_or(environment.UserFile("ignore"));
  const bool relative = !config.excludes_file.empty() && config.excludes_file[0] != '/';
  if (relative && repository.has_value()) {
    config.excludes_file = JoinPath(repository->root, config.excludes_file);
  }
  return config;
}

}  // namespace gpuctl
