#include "client/rented.h"

#include <unistd.h>

#include <iostream>

#include "absl/strings/ascii.h"
#include "absl/strings/str_cat.h"
#include "client/exit_codes.h"

namespace gpuctl {

absl::StatusOr<bool> AskYesNo(const CommandContext& context, const std::string& question,
                              const std::string& nobody) {
  if (context.json() || isatty(STDIN_FILENO) == 0) return UsageError(nobody, "add -y");
  PrintProgress(context, absl::StrCat(question, " [y/N]"));
  std::string answer;
  std::getline(std::cin, answer);
  answer = absl::AsciiStrToLower(absl::StripAsciiWhitespace(answer));
  return answer == "y" || answer == "yes";
}

}  // namespace gpuctl
