// An Http that gives a test's answers in order and keeps the requests. With GPUCTL_REQUESTS_DIR it
// also writes each request there as a JSON file, for the test that compares them with the markets'
// own descriptions.
#ifndef GPUCTL_TESTS_SUPPORT_SCRIPTED_HTTP_H_
#define GPUCTL_TESTS_SUPPORT_SCRIPTED_HTTP_H_

#include <gtest/gtest.h>
#include <unistd.h>

#include <atomic>
#include <cstdlib>
#include <deque>
#include <fstream>
#include <nlohmann/json.hpp>
#include <string>
#include <utility>
#include <vector>

#include "absl/strings/str_cat.h"
#include "provisioning/http/http.h"

namespace gpuctl {

class ScriptedHttp : public Http {
 public:
  // Requests outside `base_url` fail the test.
  explicit ScriptedHttp(std::string base_url) : base_url_(std::move(base_url)) {}
  ~ScriptedHttp() override {
    for (const Step& step : steps_) ADD_FAILURE() << "never asked: " << step.method << step.path;
  }

  // Sets the answer of the next request, which must be `method` for `path`.
  ScriptedHttp& On(const std::string& method, const std::string& path, int status,
                   const std::string& body,
                   std::vector<std::pair<std::string, std::string>> headers = {}) {
    HttpResponse response;
    response.status = status;
    response.body = body;
    response.headers = std::move(headers);
    steps_.push_back({method, path, std::move(response)});
    return *this;
  }
  // Makes the next request fail without an answer.
  ScriptedHttp& Fail(const std::string& method, const std::string& path, absl::Status status) {
    steps_.push_back({method, path, std::move(status)});
    return *this;
  }

  absl::StatusOr<HttpResponse> Send(const HttpRequest& request) override {
    requests_.push_back(request);
    Record(request);
    if (steps_.empty()) {
      ADD_FAILURE() << "unexpected " << request.method << " " << request.url;
      return absl::InternalError("the script is at its end");
    }
    const Step step = std::move(steps_.front());
    steps_.pop_front();
    EXPECT_EQ(request.method, step.method);
    EXPECT_EQ(request.url, base_url_ + step.path);
    return step.answer;
  }

  const std::vector<HttpRequest>& requests() const { return requests_; }
  const HttpRequest& request(size_t i) const { return requests_.at(i); }
  nlohmann::json body(size_t i) const {
    return nlohmann::json::parse(requests_.at(i).body, nullptr, false);
  }
  std::string header(size_t i, const std::string& name) const {
    for (const auto& header : requests_.at(i).headers) {
      if (header.first == name) return header.second;
    }
    return "";
  }

 private:
  struct Step {
    std::string method;
    std::string path;
    absl::StatusOr<HttpResponse> answer;
  };

  void Record(const HttpRequest& request) const {
    const char* directory = getenv("GPUCTL_REQUESTS_DIR");
    if (directory == nullptr) return;
    static std::atomic<int> number{0};
    const nlohmann::json json = {{"base_url", base_url_},
                                 {"method", request.method},
                                 {"path", request.url.substr(base_url_.size())},
                                 {"body", request.body}};
    std::ofstream file(absl::StrCat(directory, "/", getpid(), "-", ++number, ".json"));
    file << json.dump();
    EXPECT_TRUE(file.good()) << directory;
  }

  std::string base_url_;
  std::deque<Step> steps_;
  std::vector<HttpRequest> requests_;
};

}  // namespace gpuctl

#endif  // GPUCTL_TESTS_SUPPORT_SCRIPTED_HTTP_H_
