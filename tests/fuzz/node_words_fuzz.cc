// Fuzzes a node's words and verdicts as the client turns them into ends, errors, hints and exit
// codes: whatever a node says, a terminal shows plain text, and JSON stays JSON.
//
// Input: records with their lengths. The first byte of each says what it is.
#include <unistd.h>

#include <cstdint>
#include <cstdio>
#include <limits>
#include <nlohmann/json.hpp>
#include <string>

#include "absl/strings/str_split.h"
#include "client/base/exit_codes.h"
#include "client/due/due_machines.h"
#include "client/link/agent_calls.h"
#include "client/link/api_check.h"
#include "client/node/explain_error.h"
#include "client/node/listing.h"
#include "client/node/node_check.h"
#include "client/runs/run_status.h"
#include "client/terminal/console.h"
#include "client/terminal/safe_text.h"
#include "common/base/link_fault.h"
#include "common/files/relative_path.h"
#include "common/job/lifecycle.h"
#include "common/transfer/error_detail.h"
#include "common/transfer/fault_line.h"
#include "tests/fuzz/delimited.h"

namespace gpuctl {
namespace {

// Sends stdout and stderr to a file while it lives.
class Captured {
 public:
  Captured() : file_(File()) {
    fflush(stdout);
    for (const int fd : {STDOUT_FILENO, STDERR_FILENO}) {
      saved_[fd] = dup(fd);
      Require(dup2(fileno(file_), fd) == fd);
    }
  }
  ~Captured() { Restore(); }
  // Returns what was printed.
  std::string Take() {
    Restore();
    const off_t size = lseek(fileno(file_), 0, SEEK_CUR);
    std::string text(static_cast<size_t>(size), '\0');
    Require(pread(fileno(file_), text.data(), text.size(), 0) == static_cast<ssize_t>(size));
    Require(ftruncate(fileno(file_), 0) == 0 && lseek(fileno(file_), 0, SEEK_SET) == 0);
    return text;
  }

 private:
  static FILE* File() {
    static FILE* const file = tmpfile();
    Require(file != nullptr);
    return file;
  }
  void Restore() {
    for (const int fd : {STDOUT_FILENO, STDERR_FILENO}) {
      if (saved_[fd] < 0) continue;
      dup2(saved_[fd], fd);
      close(saved_[fd]);
      saved_[fd] = -1;
    }
  }
  FILE* const file_;
  int saved_[3] = {-1, -1, -1};
};

// A console's lines hold nothing that a terminal obeys. The check is apart from the console's own
// tables: bytes first, then code points.
void CheckShown(absl::string_view text, int lines_at_most) {
  int lines = 0;
  for (const absl::string_view line : absl::StrSplit(text, '\n')) {
    lines += line.empty() ? 0 : 1;
    for (const char c : line) {
      const auto byte = static_cast<unsigned char>(c);
      Require(byte >= 0x20 && byte != 0x7f);
    }
    for (absl::string_view rest = line; !rest.empty();) {
      const CodePoint point = FirstCodePoint(rest);
      Require(point.well_formed);
      const char32_t c = point.value;
      Require(!(c >= 0x80 && c < 0xa0));                   // C1 controls
      Require(!(c >= 0x202a && c <= 0x202e));              // embeddings and overrides
      Require(!(c >= 0x2066 && c <= 0x2069));              // isolates
      Require(c != 0x200e && c != 0x200f && c != 0x061c);  // marks of direction
      Require(c != 0x2028 && c != 0x2029 && c != 0xfeff);  // separators, byte order mark
      Require(!(c >= 0xe0000 && c <= 0xe007f));            // tags
      rest.remove_prefix(point.bytes);
    }
  }
  Require(lines <= lines_at_most);
}

void CheckJson(absl::string_view text) {
  Require(!text.empty() && text.back() == '\n');
  text.remove_suffix(1);
  CheckShown(text, 1);
  Require(nlohmann::json::accept(text.begin(), text.end()));
}

// Prints an error of the node for people and for programs.
void ShowError(const absl::Status& status) {
  if (status.ok()) return;
  const int code = ExitCodeOf(status);
  Require(code > 0 && code <= 255);
  Console console;
  Captured plain;
  console.PrintError(status);
  CheckShown(plain.Take(), 2);
  console.format = OutputFormat::kJson;
  Captured json;
  console.PrintError(status);
  CheckJson(json.Take());
}

void ShowLine(absl::string_view words) {
  Console console;
  Captured said;
  console.Say(words);
  console.Hint(words);
  console.PrintTable({{{std::string(words), "cell"}}});
  CheckShown(said.Take(), 3);
}

NodeTarget Target(bool local) {
  NodeTarget target;
  target.provider = local ? "local" : "ssh";
  target.name = local ? "local" : "ada@gpu.example:22";
  target.host = "gpu.example";
  target.user = "ada";
  return target;
}

void TakeError(const gpuctl::v1::ErrorDetail& detail, const absl::Status& status) {
  const absl::Status told = FromPeer(status, detail);
  // INTERNAL means a bug of this program, and OK is no error.
  Require(told.ok() == status.ok() && told.code() != absl::StatusCode::kInternal);
  for (const bool local : {false, true}) {
    ShowError(ExplainLinkError(told, Target(local)));
    ShowError(ExplainFullNode(told, Target(local)));
  }
}

void TakeStatus(absl::string_view text) {
  if (text.empty()) return;
  // gRPC has 17 codes, and takes no other from the wire.
  const int code = static_cast<unsigned char>(text[0]) % 17;
  text.remove_prefix(1);
  if (code == 0) return;
  const grpc::Status status(static_cast<grpc::StatusCode>(code),
                            std::string(text.substr(0, text.size() / 2)),
                            std::string(text.substr(text.size() / 2)));
  ShowError(ExplainLinkError(FromGrpc(status), Target(false)));
}

void TakeLifecycle(absl::string_view text) {
  const Lifecycle lifecycle = ParseLifecycle(text);
  for (const bool accepted : {false, true}) {
    RunRow row;
    row.run_id = "r-1";
    row.name = "amber-fox-3";
    row.accepted_ms = accepted ? 1 : 0;
    const RunStatus status = DeriveStatus(row, lifecycle);
    if (status.over) {
      Require(status.end.exit_code >= 0 && status.end.exit_code <= 255);
      Require(status.end.job_code >= -1 && status.end.job_code <= 255);
      ShowLine(DescribeEnd(status.end));
    }
    Console console;
    console.format = OutputFormat::kJson;
    Captured json;
    console.PrintJson(RunToJson(row, status));
    CheckJson(json.Take());
  }
}

void TakeVerdict(absl::string_view text) {
  const auto verdict = ParseNodeVerdict(text);
  if (!verdict.ok()) {
    Require(verdict.status().code() == absl::StatusCode::kDataLoss);
    ShowError(verdict.status());
    return;
  }
  ShowLine(WhyDueByVerdict(*verdict));
}

void TakeHello(absl::string_view text) {
  const auto node = ReadMessage<gpuctl::v1::HelloReply>(text);
  ShowError(CheckApiLevel(node));
  PromisedNode promised;
  promised.gpu_name = "H100-SXM";
  promised.gpu_count = 2;
  ShowError(CheckHardware(promised, node));
  promised.gpu_count = 0;
  promised.disk_bytes = std::numeric_limits<int64_t>::max();
  ShowError(CheckHardware(promised, node));
}

void TakeListing(absl::string_view text) {
  auto listing = ReadMessage<gpuctl::v1::ListArtifactsReply>(text);
  const absl::Status status = CheckListing("out/*", {"epoch-*"}, listing);
  ShowError(status);
  if (!status.ok()) return;
  // Where pull writes them: nothing of it leaves the directory.
  for (const auto& file : listing.files()) Require(IsSafeRelativePath(file.path()));
  for (const auto& checkpoint : listing.checkpoints()) {
    Require(IsSafeRelativePath(checkpoint.name()));
  }
}

void Take(absl::string_view record) {
  if (record.empty()) return;
  const int kind = static_cast<unsigned char>(record[0]) % 8;
  record.remove_prefix(1);
  switch (kind) {
    case 0:
      return TakeError(FindFaultLine(record), absl::FailedPreconditionError(record));
    case 1:
      return TakeError(ReadMessage<gpuctl::v1::ErrorDetail>(record),
                       absl::UnavailableError("the node's words"));
    case 2:
      return TakeStatus(record);
    case 3:
      return TakeLifecycle(record);
    case 4:
      return TakeVerdict(record);
    case 5:
      return TakeHello(record);
    case 6:
      return TakeListing(record);
    default:
      return ShowLine(record);
  }
}

}  // namespace
}  // namespace gpuctl

extern "C" int LLVMFuzzerTestOneInput(const uint8_t* data, size_t size) {
  absl::string_view bytes(reinterpret_cast<const char*>(data), size);
  absl::string_view record;
  for (int i = 0; i < 32 && gpuctl::TakeRecord(bytes, record); ++i) gpuctl::Take(record);
  return 0;
}
