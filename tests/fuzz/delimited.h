// Sequences of messages in a fuzzer's bytes, each with its length in front, as protobuf writes
// them to a file.
#ifndef GPUCTL_TESTS_FUZZ_DELIMITED_H_
#define GPUCTL_TESTS_FUZZ_DELIMITED_H_

#include <google/protobuf/message_lite.h>

#include <cstdlib>
#include <string>

#include "absl/strings/string_view.h"

namespace gpuctl {

inline void Require(bool condition) {
  if (!condition) abort();
}

// Takes the next record from `bytes`: a length as a varint, and that many bytes, or what is left of
// them. Returns false at the end.
inline bool TakeRecord(absl::string_view& bytes, absl::string_view& record) {
  if (bytes.empty()) return false;
  size_t length = 0;
  for (int shift = 0; shift < 21 && !bytes.empty(); shift += 7) {
    const auto byte = static_cast<unsigned char>(bytes[0]);
    bytes.remove_prefix(1);
    length |= static_cast<size_t>(byte & 0x7f) << shift;
    if (byte < 0x80) break;
  }
  record = bytes.substr(0, length);
  bytes.remove_prefix(record.size());
  return true;
}

// Reads as much of a message as can be read.
template <typename Message>
Message ReadMessage(absl::string_view record) {
  Message message;
  (void)message.ParsePartialFromArray(record.data(), static_cast<int>(record.size()));
  return message;
}

// Appends `record` to `bytes` with its length, for the makers of a corpus.
inline void AddRecord(absl::string_view record, std::string& bytes) {
  size_t length = record.size();
  while (length >= 0x80) {
    bytes.push_back(static_cast<char>(0x80 | (length & 0x7f)));
    length >>= 7;
  }
  bytes.push_back(static_cast<char>(length));
  bytes.append(record.data(), record.size());
}

}  // namespace gpuctl

#endif  // GPUCTL_TESTS_FUZZ_DELIMITED_H_
