#include "client/terminal/console.h"

#include <langinfo.h>
#include <locale.h>
#include <unistd.h>
#include <utf8proc.h>

#include <algorithm>
#include <atomic>
#include <cerrno>
#include <cstdlib>
#include <cstring>
#include <deque>
#include <iostream>
#include <mutex>
#include <nlohmann/json.hpp>
#include <optional>
#include <utility>

#include "absl/strings/ascii.h"
#include "absl/strings/escaping.h"
#include "absl/strings/str_cat.h"
#include "absl/strings/str_join.h"
#include "absl/strings/str_split.h"
#include "absl/strings/strip.h"
#include "client/base/exit_codes.h"
#include "client/terminal/line_assembler.h"
#include "client/terminal/safe_text.h"
#include "client/terminal/terminal_size.h"
#include "client/terminal/word_wrap.h"
#include "client/terminal/write_or_wake.h"
#include "common/process/signal_pipe.h"

namespace gpuctl {
namespace {

using Json = nlohmann::ordered_json;

constexpr absl::string_view kSayPrefix = "gpuctl: ";
constexpr absl::string_view kHintPrefix = "HINT: ";
constexpr absl::string_view kTracePrefix = "trace: ";
constexpr int kIndentBelow = 2;  // of a line that goes on below
constexpr absl::string_view kEraseLine = "\r\x1b[K";

// errno of a write to stdout that found no room, or stdout closed; 0 for none.
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
      // Any other error means that nobody reads.
      const bool lost = errno == ENOSPC || errno == EFBIG || errno == EDQUOT || errno == EBADF;
      if (fd == STDOUT_FILENO && lost) {
        output_error = errno;
      }
      return;
    }
    text.remove_prefix(static_cast<size_t>(written));
  }
}

// The last line of the terminal, when that is not complete. Threads may write to stderr at once.
std::mutex last_line_mutex;
bool waiting_is_shown = false;   // it is what ShowWaiting wrote
bool line_is_rewritten = false;  // it is somebody's who calls RewriteLine
// The lines that wait for TakeNotes; nothing while they are written at once.
std::optional<std::vector<std::string>> held_notes;

// False when notes are not held.
bool HoldLines(const std::vector<std::string>& lines) {
  const std::lock_guard<std::mutex> lock(last_line_mutex);
  if (!held_notes.has_value()) return false;
  held_notes->insert(held_notes->end(), lines.begin(), lines.end());
  return true;
}

// Writes what comes in the place of a waiting line.
void WriteError(absl::string_view text) {
  const std::lock_guard<std::mutex> lock(last_line_mutex);
  const bool erases = std::exchange(waiting_is_shown, false);
  WriteText(STDERR_FILENO, absl::StrCat(erases ? kEraseLine : "", text));
}

void WriteOneLine(absl::string_view line) { WriteError(absl::StrCat(MakeSafe(line), "\n")); }

// Read by the handler; null for none.
std::atomic<const char*> word_of_interrupt{nullptr};

// Keeps the text for as long as the process lives, because a handler may read it on any thread. Few
// are ever made.
const char* KeptWord(std::string text) {
  static std::mutex mutex;
  static std::deque<std::string>& kept = *new std::deque<std::string>();
  const std::lock_guard<std::mutex> lock(mutex);
  return kept.emplace_back(std::move(text)).c_str();
}

// Only calls that a signal handler may make.
void SayAndEnd(int signal_number) {
  const char* rest = word_of_interrupt.load();
  size_t left = rest == nullptr ? 0 : strlen(rest);
  while (left > 0) {
    const ssize_t written = write(STDERR_FILENO, rest, left);
    if (written < 0 && errno == EINTR) continue;
    if (written <= 0) break;
    rest += written;
    left -= static_cast<size_t>(written);
  }
  // The signal is blocked until the handler returns, and ends the process then.
  (void)signal(signal_number, SIG_DFL);
  (void)raise(signal_number);
}

bool IsUtf8Text(const std::string& text) {
  const auto* bytes = reinterpret_cast<const utf8proc_uint8_t*>(text.data());
  const auto size = static_cast<utf8proc_ssize_t>(text.size());
  for (utf8proc_ssize_t at = 0; at < size;) {
    utf8proc_int32_t code_point = 0;
    const utf8proc_ssize_t length = utf8proc_iterate(bytes + at, size - at, &code_point);
    if (length <= 0) return false;
    at += length;
  }
  return true;
}

bool IsOddText(const Json& json) {
  return json.is_string() && !IsUtf8Text(json.get_ref<const std::string&>());
}

// Returns the bytes of a text that is no UTF-8, in Base64; null for other values.
Json BytesOf(const Json& json) {
  return IsOddText(json) ? Json(absl::Base64Escape(json.get_ref<const std::string&>())) : Json();
}

// Adds a field KEY_base64 beside each field KEY that is a text of other bytes than UTF-8, or a list
// with such a text.
void AddBytes(Json& json) {
  if (!json.is_structured()) return;
  Json added = Json::object();
  for (auto field = json.begin(); field != json.end(); ++field) {
    AddBytes(*field);
    if (!json.is_object()) continue;
    const std::string key = absl::StrCat(field.key(), "_base64");
    if (IsOddText(*field)) added[key] = BytesOf(*field);
    if (!field->is_array() || std::none_of(field->begin(), field->end(), IsOddText)) continue;
    for (const Json& each : *field) added[key].push_back(BytesOf(each));
  }
  for (auto field = added.begin(); field != added.end(); ++field) json[field.key()] = *field;
}

std::string OneLine(const Json& json) {
  return absl::StrCat(MakeJsonSafe(json.dump(-1, ' ', false, Json::error_handler_t::replace)),
                      "\n");
}

Json WithSchemaVersion(const Json& object) {
  Json versioned = {{"schema_version", kJsonSchemaVersion}};
  versioned.update(object);
  AddBytes(versioned);
  return versioned;
}

}  // namespace

TerminalTraits DetectTerminal(bool no_color) {
  TerminalTraits traits;
  traits.stdout_tty = isatty(STDOUT_FILENO) != 0;
  traits.stderr_tty = isatty(STDERR_FILENO) != 0;
  const bool plain = no_color || Equals("TERM", "dumb") || !IsSet("TERM") || IsSet("CI");
  // These two ask for no colour; a panel needs none.
  const bool grey = IsSet("NO_COLOR") || Equals("CLICOLOR", "0");
  traits.colour = traits.stdout_tty && !plain && !grey;
  traits.animation = traits.stdout_tty && traits.stderr_tty && !plain;
  // Only the character set comes from the locale; the rest stays "C".
  setlocale(LC_CTYPE, "");
  traits.utf8 = absl::string_view(nl_langinfo(CODESET)) == "UTF-8";
  return traits;
}

void Console::Say(absl::string_view line, Tone tone) const {
  Note(absl::StrCat(kSayPrefix, line), tone);
}

void Console::Hint(absl::string_view line) const { Note(absl::StrCat(kHintPrefix, line)); }

void Console::Trace(absl::string_view line) const {
  if (trace && !json()) WriteOneLine(absl::StrCat(kTracePrefix, line));
}

void Console::Note(absl::string_view line, Tone tone) const {
  if (json() || (quiet && tone == Tone::kPlain)) return;
  const bool red = tone == Tone::kAlarm && terminal.colour && terminal.stderr_tty;
  const int columns = terminal.stderr_tty ? GetTerminalSize(STDERR_FILENO).columns : 0;
  std::vector<std::string> lines = WrapAtWords(MakeSafe(line), columns, kIndentBelow);
  for (std::string& part : lines) part = red ? Red(part) : part;
  if (HoldLines(lines)) return;
  std::string text = absl::StrCat(absl::StrJoin(lines, "\n"), "\n");
  // A terminal shows ^C where the cursor is, and the line would not fit behind it.
  if (terminal.stderr_tty && TakeInterrupted()) {
    text = absl::StrCat(terminal.animation ? kEraseLine : "\n", text);
  }
  WriteError(text);
}

void HoldNotes() {
  const std::lock_guard<std::mutex> lock(last_line_mutex);
  held_notes.emplace();
}

std::vector<std::string> TakeNotes() {
  const std::lock_guard<std::mutex> lock(last_line_mutex);
  return held_notes.has_value() ? std::exchange(*held_notes, {}) : std::vector<std::string>();
}

std::vector<std::string> ReleaseNotes() {
  const std::lock_guard<std::mutex> lock(last_line_mutex);
  return std::exchange(held_notes, std::nullopt).value_or(std::vector<std::string>());
}

void Console::RewriteLine(absl::string_view line) const {
  if (json() || quiet) return;
  const std::lock_guard<std::mutex> lock(last_line_mutex);
  waiting_is_shown = false;
  line_is_rewritten = !line.empty();
  WriteText(STDERR_FILENO, absl::StrCat(kEraseLine, MakeSafe(line)));
}

void Console::ShowWaiting(absl::string_view line) const {
  if (json() || quiet) return;
  const std::lock_guard<std::mutex> lock(last_line_mutex);
  if (line_is_rewritten || (line.empty() && !waiting_is_shown)) return;
  waiting_is_shown = !line.empty();
  WriteText(STDERR_FILENO, absl::StrCat(kEraseLine, MakeSafe(line)));
}

void Console::Prompt(absl::string_view question) const { WriteError(MakeSafe(question)); }

void Console::EndPrompt() const { WriteText(STDERR_FILENO, "\n"); }

void Console::PrintLine(absl::string_view line) const {
  WriteText(STDOUT_FILENO, absl::StrCat(MakeSafe(line), "\n"));
}

void Console::PrintLines(const std::vector<std::string>& lines) const {
  std::string text;
  for (const std::string& line : lines) absl::StrAppend(&text, MakeSafe(line), "\n");
  WriteText(STDOUT_FILENO, text);
}

void Console::PrintOwnText(absl::string_view text) const {
  PrintLines(absl::StrSplit(absl::StripSuffix(text, "\n"), '\n'));
}

void Console::PrintTable(const std::vector<TableRow>& rows) const {
  WriteText(STDOUT_FILENO, FormatTable(rows, terminal.colour));
}

void Console::PrintTableWithin(std::vector<TableRow> rows, int columns,
                               const std::vector<std::string>& least) const {
  WriteText(STDOUT_FILENO, FormatTableWithin(std::move(rows), columns, least, terminal.colour));
}

void Console::PrintTableWrapped(std::vector<TableRow> rows, int columns,
                                const std::vector<std::string>& least) const {
  WriteText(STDOUT_FILENO, FormatTableWrapped(std::move(rows), columns, least, terminal.colour));
}

void Console::PrintPage(std::vector<TableRow> rows, int columns) const {
  WriteText(STDOUT_FILENO, FormatPage(std::move(rows), columns));
}

void Console::PrintJson(const Json& object) const {
  WriteText(STDOUT_FILENO, OneLine(WithSchemaVersion(object)));
}

void Console::PrintJsonList(const std::string& key, const std::vector<Json>& objects) const {
  if (format != OutputFormat::kJsonLines) return PrintJson({{key, objects}});
  std::string text;
  for (const Json& object : objects) text += OneLine(WithSchemaVersion(object));
  WriteText(STDOUT_FILENO, text);
}

std::vector<std::string> ExcerptLines(const Excerpt& excerpt) {
  constexpr size_t kBefore = 50, kBehind = 50;
  absl::string_view text = excerpt.text;
  const size_t at = std::min(static_cast<size_t>(std::max(excerpt.column - 1, 0)), text.size());
  // Of a long line only what is around the place. No character is cut.
  const auto inside = [&text](size_t i) { return i < text.size() && (text[i] & 0xC0) == 0x80; };
  size_t begin = at > kBefore ? at - kBefore : 0;
  while (begin < at && inside(begin)) ++begin;
  size_t end = std::min(text.size(), at + kBehind);
  while (end < text.size() && inside(end)) ++end;
  const std::string before =
      absl::StrCat(begin > 0 ? "..." : "", MakeSafe(text.substr(begin, at - begin)));
  const std::string behind =
      absl::StrCat(MakeSafe(text.substr(at, end - at)), end < text.size() ? "..." : "");
  const std::string number = absl::StrCat("  ", excerpt.line, " | ");
  return {absl::StrCat(number, before, behind),
          absl::StrCat(std::string(number.size() - 2, ' '), "| ",
                       std::string(static_cast<size_t>(DisplayWidth(before)), ' '), "^")};
}

nlohmann::ordered_json ErrorToJson(const absl::Status& status) {
  const std::string hint = HintOf(status);
  Json error;
  error["code"] = absl::StatusCodeToString(status.code());
  error["message"] = status.message();
  error["hint"] = hint.empty() ? Json() : Json(hint);
  error["exit_code"] = static_cast<int>(ExitCodeOf(status));
  error["source"] = "gpuctl";
  if (const std::string cause = CauseOf(status); !cause.empty()) error["cause"] = cause;
  return error;
}

void Console::PrintError(const absl::Status& status) const {
  if (json()) return PrintJson({{"error", ErrorToJson(status)}});
  const std::string hint = HintOf(status);
  Warn(status.message());
  if (const std::optional<Excerpt> excerpt = ExcerptOf(status); excerpt.has_value()) {
    for (const std::string& line : ExcerptLines(*excerpt)) WriteOneLine(line);
  }
  if (!hint.empty()) Note(absl::StrCat(kHintPrefix, hint), Tone::kWarning);
}

bool Console::CanAsk() const { return !json() && isatty(STDIN_FILENO) != 0; }

absl::StatusOr<bool> Console::AskYesNo(absl::string_view question, absl::string_view undone,
                                       absl::string_view nobody, absl::string_view hint) const {
  if (!CanAsk()) return UsageError(nobody, hint);
  const InterruptWord on_interrupt(undone);
  const int columns = terminal.stderr_tty ? GetTerminalSize(STDERR_FILENO).columns : 0;
  const std::string text = MakeSafe(absl::StrCat(question, " [y/N]"));
  // The answer stands behind it.
  WriteError(absl::StrCat(absl::StrJoin(WrapAtWords(text, columns - 2, kIndentBelow), "\n"), " "));
  std::string answer;
  std::getline(std::cin, answer);
  if (std::cin.eof()) EndPrompt();
  answer = absl::AsciiStrToLower(absl::StripAsciiWhitespace(answer));
  return answer == "y" || answer == "yes";
}

absl::StatusOr<size_t> Console::PrintJobBytes(absl::string_view bytes, int wake_fd) const {
  return WriteOrWake(STDOUT_FILENO, bytes, wake_fd);
}

void Console::PrintJobErrorBytes(absl::string_view bytes) const { WriteError(bytes); }

absl::StatusOr<size_t> Console::DrawSafe(absl::string_view frame, int wake_fd) const {
  return WriteOrWake(STDOUT_FILENO, frame, wake_fd);
}

std::string SaidLine(absl::string_view line) { return MakeSafe(absl::StrCat(kSayPrefix, line)); }

InterruptWord::InterruptWord(absl::string_view line) {
  if (line.empty() || sigaction(SIGINT, nullptr, &before_) != 0) return;
  const bool ours = before_.sa_handler == SayAndEnd;
  if (!ours && before_.sa_handler != SIG_DFL) return;
  // The terminal shows ^C where the cursor is.
  const char* const begin = isatty(STDERR_FILENO) != 0 ? "\n" : "";
  outer_ = word_of_interrupt.exchange(KeptWord(absl::StrCat(begin, SaidLine(line), "\n")));
  struct sigaction action = {};
  action.sa_handler = SayAndEnd;
  sigemptyset(&action.sa_mask);
  installed_ = sigaction(SIGINT, &action, nullptr) == 0;
}

InterruptWord::~InterruptWord() {
  if (!installed_) return;
  (void)sigaction(SIGINT, &before_, nullptr);
  (void)word_of_interrupt.exchange(outer_);
}

absl::Status OutputStatus() {
  const int error = output_error;
  return error == 0 ? absl::OkStatus() : absl::ErrnoToStatus(error, "write the output");
}

void ExitAtOnce(const Console& console, const absl::StatusOr<int>& result) {
  if (!result.ok()) console.PrintError(result.status());
  _exit(result.ok() ? *result : static_cast<int>(ExitCodeOf(result.status())));
}

}  // namespace gpuctl
