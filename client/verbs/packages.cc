#include "client/verbs/packages.h"

#include <poll.h>
#include <unistd.h>

#include <algorithm>
#include <cerrno>
#include <memory>
#include <utility>

#include "absl/strings/ascii.h"
#include "absl/strings/match.h"
#include "absl/strings/str_cat.h"
#include "absl/strings/str_split.h"
#include "client/base/exit_codes.h"
#include "client/base/shell_quote.h"
#include "client/node/explain_error.h"
#include "client/node/make_links.h"
#include "client/node/node_calls.h"
#include "client/reach/run_script.h"
#include "client/spec/job_spec.h"
#include "common/base/status_macros.h"
#include "common/job/job_layout.h"

namespace gpuctl {
namespace {

constexpr absl::Duration kAnswersWithin = absl::Seconds(30);
constexpr size_t kMostAnswerBytes = 1 << 20;
constexpr size_t kMostPackages = 5000;
constexpr size_t kLongestPackage = 200;

// pip itself is missing in many environments, and slow. What the work directory holds must not
// stand for Python's own modules.
constexpr char kListPackages[] = R"python(import sys
sys.path[:1] = []
import importlib.metadata
found = {}
for one in importlib.metadata.distributions():
    name = one.metadata["Name"]
    if name:
        found.setdefault(name, one.version)
print("python==%d.%d.%d" % sys.version_info[:3])
for name in sorted(found, key=str.lower):
    print("%s==%s" % (name, found[name]))
)python";

// Returns the shell text that lists them; 127: there is no Python. A Python that hangs is killed
// when stdin ends, as it does when this gpuctl gives up or dies.
std::string ListingCommand() {
  return absl::StrCat(
      "exec 3<&0 2>/dev/null; for python in .venv/bin/python venv/bin/python "
      "\"$VIRTUAL_ENV/bin/python\" \"$CONDA_PREFIX/bin/python\" \"$(command -v python)\" "
      "\"$(command -v python3)\"; do [ -x \"$python\" ] || continue; \"$python\" -c ",
      ShellQuote(kListPackages),
      " </dev/null 3<&- & python=$!; { cat <&3; kill -9 $python; } >/dev/null & cat=$!; "
      "wait $python; code=$?; kill $cat; exit $code; done; exit 127");
}

// Reads what the command prints to its end.
absl::StatusOr<std::string> ReadAnswer(CommandContext& context, int fd) {
  const absl::Duration end = context.clock.SinceBoot() + kAnswersWithin;
  std::string answer;
  char buffer[16 << 10];
  for (;;) {
    const absl::Duration left = end - context.clock.SinceBoot();
    if (left <= absl::ZeroDuration()) {
      return absl::DeadlineExceededError("its Python does not answer");
    }
    pollfd polled{fd, POLLIN, 0};
    const int ready = poll(&polled, 1, static_cast<int>(absl::ToInt64Milliseconds(left)) + 1);
    if (ready <= 0) continue;
    const ssize_t got = read(fd, buffer, sizeof(buffer));
    if (got < 0 && errno == EINTR) continue;
    if (got < 0) return ErrnoStatus(errno, "read its answer");
    if (got == 0) return answer;
    answer.append(buffer, static_cast<size_t>(got));
    if (answer.size() > kMostAnswerBytes) {
      return absl::FailedPreconditionError("its answer is too long");
    }
  }
}

absl::Status Explain(const RunRow& row, const absl::Status& status) {
  return WithHint(Annotate(status, absl::StrCat("packages of ", row.name)),
                  "while its machine is there, gpuctl exec RUN -- python -m pip freeze asks, too");
}

}  // namespace

absl::StatusOr<std::vector<std::string>> ParsePackages(absl::string_view text) {
  std::vector<std::string> packages;
  for (absl::string_view line : absl::StrSplit(text, '\n', absl::SkipEmpty())) {
    absl::ConsumeSuffix(&line, "\r");
    const bool plain = std::all_of(line.begin(), line.end(), [](char c) {
      return absl::ascii_isgraph(static_cast<unsigned char>(c));
    });
    const size_t equals = line.find("==");
    if (!plain || line.size() > kLongestPackage || equals == line.npos || equals == 0 ||
        packages.size() == kMostPackages) {
      return absl::FailedPreconditionError("its answer is no list of packages");
    }
    packages.emplace_back(line);
  }
  if (packages.empty()) return absl::FailedPreconditionError("its answer is empty");
  return packages;
}

absl::StatusOr<std::vector<std::string>> AskForPackages(CommandContext& context,
                                                        const RunRow& row) {
  if (row.node_id.empty()) return Explain(row, absl::NotFoundError("no machine has it"));
  ASSIGN_OR_RETURN(const ClientPaths paths, context.Paths());
  ASSIGN_OR_RETURN(RunPlace place, PlaceOf(paths, row));
  ASSIGN_OR_RETURN(const std::unique_ptr<LinkFactory> links, MakeLinks(context, row.target));
  ASSIGN_OR_RETURN(NodeCalls calls, NodeCalls::Connect(context, *links, row.target));
  ASSIGN_OR_RETURN(const gpuctl::v1::HelloReply node, calls.Hello());
  if (node.node_id() != row.node_id) {
    return Explain(row, absl::NotFoundError("another machine answers in its place"));
  }
  place.root = node.root();
  const std::string line =
      CommandScript(place, {"sh", "-c", ListingCommand()}, CommandStyle::kPipes);
  if (line.size() > kLongestArgument) {
    return Explain(row, absl::FailedPreconditionError("the job's environment is too large"));
  }
  const absl::StatusOr<std::unique_ptr<RemoteCommand>> command = links->Run(line);
  if (!command.ok()) return ExplainLinkError(command.status(), row.target);
  const absl::StatusOr<std::string> answer = ReadAnswer(context, (*command)->fd());
  if (!answer.ok()) return Explain(row, answer.status());
  const absl::StatusOr<int> code = (*command)->Wait();
  if (!code.ok()) return ExplainLinkError(code.status(), row.target);
  if (*code == 127) return Explain(row, absl::NotFoundError("the job has no Python there"));
  if (*code == 126) return Explain(row, absl::NotFoundError("its directory there is gone"));
  if (*code != 0) {
    return Explain(row, absl::FailedPreconditionError(
                            absl::StrCat("its Python could not list them, exit ", *code)));
  }
  absl::StatusOr<std::vector<std::string>> packages = ParsePackages(*answer);
  if (!packages.ok()) return Explain(row, packages.status());
  return packages;
}

}  // namespace gpuctl
