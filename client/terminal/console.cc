#include "client/terminal/console.h"

#include <langinfo.h>
#include <locale.h>
#include <unistd.h>

#include <atomic>
#include <cerrno>
#include <cstdio>
#include <cstdlib>
#include <iostream>
#include <nlohmann/json.hpp>

#include "absl/strings/ascii.h"
#include "absl/strings/str_cat.h"
#include "client/base/exit_codes.h"

namespace gpuctl {
namespace {

// Of a write to stdout that found no room.
std::atomic<int> output_error{0};

bool IsSet(const char* name) {
  const char* value = std::getenv(name);
  return value != nullptr && *value != '\0';
}

bool Equals(const char* name, const char* wanted) {
  const char* value = std::getenv(name);
  return value != nullptr && absl::string_view(value) == wanted;
}

void WriteText(int fd, absl::string_view text) {
  while (!text.empty()) {
    const ssize_t written = write(fd, text.data(), text.size());
    if (written < 0 && errno == EINTR) continue;
    if (written < 0) {
      // Else nobody reads, and there is nobody to tell.
      if (fd == STDOUT_FILENO && (errno == ENOSPC || errno == EFBIG || errno == EDQUOT)) {
        output_error = errno;
      }
      return;
    }
    text.remove_prefix(static_cast<size_t>(written));
  }
}

}  // namespace

TerminalTraits DetectTerminal(bool no_color) {
  TerminalTraits traits;
  traits.stdout_tty = isatty(STDOUT_FILENO) != 0;
  traits.stderr_tty = isatty(STDERR_FILENO) != 0;
  const bool plain = no_color || IsSet("NO_COLOR") || Equals("CLICOLOR", "0") ||
                     Equals("TERM", "dumb") || !IsSet("TERM") || IsSet("CI");
  traits.colour = traits.stdout_tty && !plain;
  traits.animation = traits.stdout_tty && traits.stderr_tty && !plain;
  // Of the locale only the character set is wanted; the rest stays "C".
  setlocale(LC_CTYPE, "");
  traits.utf8 = absl::string_view(nl_langinfo(CODESET)) == "UTF-8";
  return traits;
}

void PrintOut(absl::string_view text) { WriteText(STDOUT_FILENO, text); }

absl::Status OutputStatus() {
  const int error = output_error;
  return error == 0 ? absl::OkStatus() : absl::ErrnoToStatus(error, "write the output");
}

void PrintProgress(const Console& console, absl::string_view line) {
  if (console.json()) return;
  WriteText(STDERR_FILENO, absl::StrCat(line, "\n"));
}

void PrintError(const Console& console, const absl::Status& status) {
  const std::string hint = HintOf(status);
  if (console.json()) {
    nlohmann::ordered_json error;
    error["code"] = absl::StatusCodeToString(status.code());
    error["message"] = status.message();
    error["hint"] = hint.empty() ? nlohmann::ordered_json() : nlohmann::ordered_json(hint);
    error["exit_code"] = static_cast<int>(ExitCodeOf(status));
    error["source"] = "gpuctl";
    const std::string text = error.dump(-1, ' ', false, nlohmann::json::error_handler_t::replace);
    PrintOut(absl::StrCat(WithSchemaVersion(absl::StrCat("{\"error\":", text, "}")), "\n"));
    return;
  }
  std::string text = absl::StrCat("gpuctl: ", status.message(), "\n");
  if (!hint.empty()) absl::StrAppend(&text, "HINT: ", hint, "\n");
  WriteText(STDERR_FILENO, text);
}

void ExitAtOnce(const Console& console, const absl::StatusOr<int>& result) {
  if (!result.ok()) PrintError(console, result.status());
  _exit(result.ok() ? *result : static_cast<int>(ExitCodeOf(result.status())));
}

absl::StatusOr<bool> AskYesNo(const Console& console, const std::string& question,
                              const std::string& nobody) {
  if (console.json() || isatty(STDIN_FILENO) == 0) return UsageError(nobody, "add -y");
  PrintProgress(console, absl::StrCat(question, " [y/N]"));
  std::string answer;
  std::getline(std::cin, answer);
  answer = absl::AsciiStrToLower(absl::StripAsciiWhitespace(answer));
  return answer == "y" || answer == "yes";
}

std::string WithSchemaVersion(absl::string_view object) {
  return absl::StrCat("{\"schema_version\":", kJsonSchemaVersion, object == "{}" ? "" : ",",
                      object.substr(1));
}

void PrintJsonList(const Console& console, absl::string_view key,
                   const std::vector<std::string>& objects) {
  std::string text;
  if (console.format == OutputFormat::kJsonLines) {
    for (const std::string& object : objects) {
      absl::StrAppend(&text, WithSchemaVersion(object), "\n");
    }
  } else {
    text = absl::StrCat("{\"", key, "\":[");
    for (size_t i = 0; i < objects.size(); ++i) {
      absl::StrAppend(&text, i == 0 ? "" : ",", objects[i]);
    }
    absl::StrAppend(&text, "]}");
    text = absl::StrCat(WithSchemaVersion(text), "\n");
  }
  PrintOut(text);
}

}  // namespace gpuctl
