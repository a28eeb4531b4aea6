// Makes tar archives, good and bad ones.
#ifndef GPUCTL_TESTS_SUPPORT_TAR_FILE_H_
#define GPUCTL_TESTS_SUPPORT_TAR_FILE_H_

#include <cstdint>
#include <cstring>
#include <string>

#include "absl/strings/str_format.h"

namespace gpuctl {

class TarFile {
 public:
  // Appends an entry; `type` as in tar(5).
  void Add(const std::string& path, const std::string& content, char type = '0',
           int64_t modified_s = 0) {
    std::string header(512, '\0');
    const auto put = [&header](size_t at, const std::string& text) {
      header.replace(at, text.size(), text);
    };
    put(0, path.substr(0, 100));
    put(100, "0000755");
    put(124, absl::StrFormat("%011o", content.size()));
    put(136, absl::StrFormat("%011o", modified_s));
    put(148, std::string(8, ' '));
    header[156] = type;
    put(257, std::string("ustar\00000", 8));
    unsigned sum = 0;
    for (const char c : header) sum += static_cast<unsigned char>(c);
    put(148, absl::StrFormat("%06o", sum) + std::string("\0 ", 2));
    text_ += header + content + std::string((512 - content.size() % 512) % 512, '\0');
  }
  // Returns the archive with its end.
  std::string Text() const { return text_ + std::string(1024, '\0'); }

 private:
  std::string text_;
};

}  // namespace gpuctl

#endif  // GPUCTL_TESTS_SUPPORT_TAR_FILE_H_
