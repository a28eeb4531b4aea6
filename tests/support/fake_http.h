// An Http that answers from a script.
#ifndef GPUCTL_TESTS_SUPPORT_FAKE_HTTP_H_
#define GPUCTL_TESTS_SUPPORT_FAKE_HTTP_H_

#include <deque>
#include <string>
#include <utility>
#include <vector>

#include "absl/strings/str_cat.h"
#include "common/base/mutex.h"
#include "provisioning/http/http.h"

namespace gpuctl {

// An Http with scripted answers, in order. A request after the last one is an INTERNAL error, so
// that a test sees it. Safe from any thread.
class FakeHttp : public Http {
 public:
  FakeHttp& Answer(absl::StatusOr<HttpResponse> answer) {
    MutexLock lock(mutex_);
    answers_.push_back(std::move(answer));
    return *this;
  }
  FakeHttp& Answer(int status, std::string body = "",
                   std::vector<std::pair<std::string, std::string>> headers = {}) {
    HttpResponse response;
    response.status = status;
    response.body = std::move(body);
    response.headers = std::move(headers);
    return Answer(std::move(response));
  }

  absl::StatusOr<HttpResponse> Send(const HttpRequest& request) override {
    MutexLock lock(mutex_);
    requests_.push_back(request);
    if (answers_.empty()) {
      return absl::InternalError(
          absl::StrCat("no answer is scripted for ", request.method, " ", request.url));
    }
    absl::StatusOr<HttpResponse> answer = std::move(answers_.front());
    answers_.pop_front();
    return answer;
  }

  std::vector<HttpRequest> requests() {
    MutexLock lock(mutex_);
    return requests_;
  }

 private:
  Mutex mutex_;
  std::deque<absl::StatusOr<HttpResponse>> answers_ ABSL_GUARDED_BY(mutex_);
  std::vector<HttpRequest> requests_ ABSL_GUARDED_BY(mutex_);
};

}  // namespace gpuctl

#endif  // GPUCTL_TESTS_SUPPORT_FAKE_HTTP_H_
