#include "common/transfer/fault_line.h"

#include <algorithm>

#include "absl/strings/ascii.h"
#include "absl/strings/escaping.h"
#include "absl/strings/str_cat.h"
#include "absl/strings/str_split.h"
#include "absl/strings/strip.h"

namespace gpuctl {
namespace {

constexpr char kMark[] = "GPUCTL-FAULT 1 ";

}  // namespace

std::string FormatFaultLine(const gpuctl::v1::ErrorDetail& detail) {
  return absl::StrCat("\n", kMark, absl::BytesToHexString(detail.SerializeAsString()), "\n");
}

gpuctl::v1::ErrorDetail FindFaultLine(absl::string_view output) {
  gpuctl::v1::ErrorDetail found;
  for (absl::string_view line : absl::StrSplit(output, '\n')) {
    if (!absl::ConsumePrefix(&line, kMark)) continue;
    line = absl::StripAsciiWhitespace(line);
    gpuctl::v1::ErrorDetail detail;
    const bool hex = line.size() % 2 == 0 && std::all_of(line.begin(), line.end(), [](char c) {
                       return absl::ascii_isxdigit(static_cast<unsigned char>(c));
                     });
    if (hex && detail.ParseFromString(absl::HexStringToBytes(line))) found = detail;
  }
  return found;
}

}  // namespace gpuctl
