#include "trainer/base/error.h"

#include <utility>

#include "trainer/base/text.h"

namespace gpuctl::trainer {
namespace {

constexpr size_t kKept = 4000;  // bytes, at either end

bool BeginsCodePoint(char c) { return (static_cast<unsigned char>(c) & 0xc0) != 0x80; }

std::string Abridged(const std::string& message) {
  if (message.size() <= 2 * kKept) return message;
  size_t end = kKept, begin = message.size() - kKept;
  while (end > 0 && !BeginsCodePoint(message[end])) --end;
  while (begin < message.size() && !BeginsCodePoint(message[begin])) ++begin;
  return message.substr(0, end) + " … " + message.substr(begin);
}

}  // namespace

Error::Error(ExitCode code, const std::string& message, std::string hint)
    : std::runtime_error(Printable(Abridged(message))), code_(code), hint_(std::move(hint)) {}

}  // namespace gpuctl::trainer
