#include "provisioning/http/curl_library.h"

#include <dlfcn.h>

#include <iterator>
#include <string>

#include "absl/strings/str_cat.h"

namespace gpuctl {
namespace {

#ifdef __APPLE__
constexpr const char* kNames[] = {"libcurl.4.dylib", "/usr/lib/libcurl.4.dylib",
                                  "/opt/homebrew/opt/curl/lib/libcurl.4.dylib"};
constexpr char kInstall[] = "brew install curl";
#else
// The second is Debian's build on GnuTLS, with the same interface.
constexpr const char* kNames[] = {"libcurl.so.4", "libcurl-gnutls.so.4"};
constexpr char kInstall[] = "apt install libcurl4 (Fedora: dnf install libcurl)";
#endif

int OpenFlags() {
  int flags = RTLD_NOW | RTLD_LOCAL;
  // A program with OpenSSL linked in must not lend a part of it to libcurl. Sanitizers do not work
  // with the flag; programs under them have no OpenSSL linked in.
#if defined(RTLD_DEEPBIND) && !defined(GPUCTL_ASAN) && !defined(GPUCTL_TSAN)
  flags |= RTLD_DEEPBIND;
#endif
  return flags;
}

template <typename Function>
bool Find(void* library, const char* name, Function& function) {
  function = reinterpret_cast<Function>(dlsym(library, name));
  return function != nullptr;
}

}  // namespace

absl::StatusOr<CurlLibrary> LoadCurlFrom(const char* const* names, size_t count) {
  std::string causes;
  for (size_t i = 0; i < count; ++i) {
    // Never closed: the library may have registered handlers with the process.
    void* const library = dlopen(names[i], OpenFlags());
    if (library == nullptr) {
      const char* cause = dlerror();
      absl::StrAppend(&causes, causes.empty() ? "" : "; ", cause == nullptr ? names[i] : cause);
      continue;
    }
    CurlLibrary curl;
    if (Find(library, "curl_global_init", curl.global_init) &&
        Find(library, "curl_easy_init", curl.easy_init) &&
        Find(library, "curl_easy_reset", curl.easy_reset) &&
        Find(library, "curl_easy_cleanup", curl.easy_cleanup) &&
        Find(library, "curl_easy_setopt", curl.easy_setopt) &&
        Find(library, "curl_easy_getinfo", curl.easy_getinfo) &&
        Find(library, "curl_easy_perform", curl.easy_perform) &&
        Find(library, "curl_easy_strerror", curl.easy_strerror) &&
        Find(library, "curl_slist_append", curl.slist_append) &&
        Find(library, "curl_slist_free_all", curl.slist_free_all)) {
      return curl;
    }
    absl::StrAppend(&causes, causes.empty() ? "" : "; ", names[i], " lacks functions");
  }
  return absl::FailedPreconditionError(
      absl::StrCat("load libcurl: ", causes, "; install it: ", kInstall));
}

absl::StatusOr<const CurlLibrary*> LoadCurl() {
  static const absl::StatusOr<CurlLibrary>* const curl = [] {
    auto* loaded = new absl::StatusOr<CurlLibrary>(LoadCurlFrom(kNames, std::size(kNames)));
    if (loaded->ok() && (*loaded)->global_init(CURL_GLOBAL_DEFAULT) != CURLE_OK) {
      *loaded = absl::FailedPreconditionError("load libcurl: it cannot be initialized");
    }
    return loaded;
  }();
  if (!curl->ok()) return curl->status();
  return &**curl;
}

}  // namespace gpuctl
