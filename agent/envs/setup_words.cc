#include "agent/envs/setup_words.h"

#include "absl/strings/ascii.h"
#include "absl/strings/match.h"
#include "absl/strings/str_cat.h"
#include "absl/strings/str_split.h"
#include "absl/strings/strip.h"
#include "common/files/relative_path.h"

namespace gpuctl {
namespace {

constexpr char kOperators[] = ";&|()\n";
constexpr char kSeparators[] = " \t\r\"'`=<>,[]{}\\";
constexpr size_t kMostWords = 2000;

// Returns the path in its shortest form; "" when it is none below the work directory.
std::string Shorten(absl::string_view word) {
  while (absl::ConsumePrefix(&word, "./")) {
  }
  while (word.size() > 1 && absl::ConsumeSuffix(&word, "/")) {
  }
  if (word.empty() || word == ".") return ".";
  const bool odd = word[0] == '-' || word[0] == '~' || word.find('$') != word.npos;
  return odd || !IsSafeRelativePath(word) ? "" : std::string(word);
}

bool IsNameChar(char c) { return c == '_' || absl::ascii_isalnum(static_cast<unsigned char>(c)); }

}  // namespace

std::vector<SetupWord> WordsOf(absl::string_view script) {
  std::vector<SetupWord> words;
  bool begins_command = true;
  std::string before;
  for (size_t at = 0; at < script.size() && words.size() < kMostWords;) {
    const size_t end = script.find_first_of(absl::StrCat(kOperators, kSeparators), at);
    const absl::string_view word = script.substr(at, end - at);
    if (!word.empty()) {
      std::string path = Shorten(word);
      if (!path.empty() && !(path == "." && begins_command)) {
        words.push_back({std::move(path), before == "--script"});
      }
      begins_command = false;
      before = std::string(word);
    }
    if (end == script.npos) break;
    if (absl::string_view(kOperators).find(script[end]) != absl::string_view::npos) {
      begins_command = true;
    }
    at = end + 1;
  }
  return words;
}

std::set<std::string> VariablesOf(absl::string_view script) {
  std::set<std::string> names;
  for (size_t at = script.find('$'); at != script.npos; at = script.find('$', at + 1)) {
    size_t begin = at + 1;
    if (begin < script.size() && script[begin] == '{') ++begin;
    size_t end = begin;
    while (end < script.size() && IsNameChar(script[end])) ++end;
    if (end > begin) names.emplace(script.substr(begin, end - begin));
  }
  return names;
}

std::vector<std::string> FilesOfRequirements(absl::string_view text) {
  std::vector<std::string> files;
  for (absl::string_view line : absl::StrSplit(text, '\n', absl::SkipWhitespace())) {
    line = absl::StripAsciiWhitespace(line.substr(0, line.find(" #")));
    bool names = false;
    for (const char* flag : {"--requirement", "--constraint", "--editable", "-r", "-c", "-e"}) {
      if (!absl::ConsumePrefix(&line, flag)) continue;
      names = true;
      if (!absl::ConsumePrefix(&line, "=")) line = absl::StripLeadingAsciiWhitespace(line);
      break;
    }
    const absl::string_view word = line.substr(0, line.find_first_of(" \t;["));
    names = names || absl::StartsWith(word, "./") || absl::EndsWith(word, ".whl") ||
            absl::EndsWith(word, ".tar.gz");
    const std::string path = names ? Shorten(word) : "";
    if (!path.empty() && path != ".") files.push_back(path);
  }
  return files;
}

std::string ScriptHeader(absl::string_view script) {
  std::string header;
  bool inside = false;
  for (const absl::string_view line : absl::StrSplit(script, '\n')) {
    const absl::string_view text = absl::StripTrailingAsciiWhitespace(line);
    if (!inside) {
      inside = text == "# /// script";
      continue;
    }
    if (text == "# ///") return header;
    if (!absl::StartsWith(text, "#")) return "";
    absl::StrAppend(&header, text, "\n");
  }
  return "";
}

}  // namespace gpuctl
