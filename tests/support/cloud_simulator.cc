#include "tests/support/cloud_simulator.h"

#include <fcntl.h>
#include <gtest/gtest.h>
#include <netinet/in.h>
#include <sys/socket.h>
#include <sys/wait.h>
#include <unistd.h>

#include "absl/strings/match.h"
#include "absl/strings/numbers.h"
#include "absl/strings/str_cat.h"
#include "absl/strings/str_split.h"
#include "common/process/pipe.h"
#include "common/process/process.h"

namespace gpuctl {
namespace {

std::string ReadAll(int fd, char until) {
  std::string text;
  char buffer[4096];
  for (;;) {
    const ssize_t got = read(fd, buffer, sizeof(buffer));
    if (got < 0 && errno == EINTR) continue;
    if (got <= 0) return text;
    text.append(buffer, static_cast<size_t>(got));
    if (until != '\0' && text.back() == until) return text;
  }
}

}  // namespace

CloudSimulator::CloudSimulator(const std::vector<std::string>& options) {
  const char* const bin = getenv("GPUCTL_BIN_DIR");
  EXPECT_NE(bin, nullptr) << "GPUCTL_BIN_DIR is not set; run this by ctest";
  FdPair input = MakePipe("start the simulator").value();
  FdPair output = MakePipe("start the simulator").value();
  SpawnOptions spawn;
  spawn.argv = {absl::StrCat(bin != nullptr ? bin : ".", "/gpuctl-cloudsim"), "--dir",
                dir_.Sub("cloudsim"), "--parent-fd", "0"};
  spawn.argv.insert(spawn.argv.end(), options.begin(), options.end());
  spawn.stdin_fd = input.first.get();
  spawn.stdout_fd = output.second.get();
  spawn.stderr_fd = STDERR_FILENO;
  const auto pid = Spawn(spawn);
  EXPECT_TRUE(pid.ok()) << pid.status();
  if (!pid.ok()) return;
  pid_ = *pid;
  parent_ = std::move(input.second);
  output.second.reset();
  const auto ready = nlohmann::json::parse(ReadAll(output.first.get(), '\n'), nullptr, false);
  EXPECT_TRUE(ready.is_object()) << "the simulator did not start";
  if (!ready.is_object()) return;
  url_ = ready["url"].get<std::string>();
  EXPECT_TRUE(absl::SimpleAtoi(url_.substr(url_.rfind(':') + 1), &port_));
}

CloudSimulator::~CloudSimulator() {
  if (pid_ <= 0) return;
  parent_.reset();
  int status = 0;
  EXPECT_EQ(waitpid(pid_, &status, 0), pid_);
  EXPECT_EQ(status, 0) << "the simulator did not end well";
}

CloudSimulator::Answer CloudSimulator::Request(const std::string& method, const std::string& path,
                                               const nlohmann::json& body,
                                               const std::string& key) const {
  UniqueFd connection(socket(AF_INET, SOCK_STREAM, 0));
  fcntl(connection.get(), F_SETFD, FD_CLOEXEC);
  sockaddr_in address{};
  address.sin_family = AF_INET;
  address.sin_port = htons(static_cast<uint16_t>(port_));
  address.sin_addr.s_addr = htonl(INADDR_LOOPBACK);
  if (connect(connection.get(), reinterpret_cast<sockaddr*>(&address), sizeof(address)) != 0) {
    return {};
  }
  const std::string text = body.is_null() ? "" : body.dump();
  const std::string request = absl::StrCat(
      method, " ", path,
      " HTTP/1.1\r\nHost: 127.0.0.1\r\nUser-Agent: test\r\nConnection: close\r\n",
      key.empty() ? "" : absl::StrCat("Authorization: Bearer ", key, "\r\n"),
      "Content-Type: application/json\r\nContent-Length: ", text.size(), "\r\n\r\n", text);
  if (send(connection.get(), request.data(), request.size(), MSG_NOSIGNAL) !=
      static_cast<ssize_t>(request.size())) {
    return {};
  }
  const std::string reply = ReadAll(connection.get(), '\0');
  Answer answer;
  const size_t end = reply.find("\r\n\r\n");
  if (end == std::string::npos || reply.size() < 12) return answer;
  (void)absl::SimpleAtoi(reply.substr(9, 3), &answer.status);
  answer.json = nlohmann::json::parse(reply.substr(end + 4), nullptr, false);
  return answer;
}

nlohmann::json CloudSimulator::Control(const std::string& method, const std::string& route,
                                       const nlohmann::json& body) const {
  const Answer answer = Request(method, absl::StrCat("/_sim/", route), body);
  EXPECT_EQ(answer.status, 200) << method << " " << route;
  return answer.json;
}

int CloudSimulator::Alive() const {
  int alive = 0;
  const nlohmann::json books = Books();
  for (const nlohmann::json& book : books["instances"]) {
    if (book["alive"].get<bool>()) ++alive;
  }
  return alive;
}

int CloudSimulator::Hold(const nlohmann::json& about) const {
  return Control("POST", "hold", about)["hold"].get<int>();
}

void CloudSimulator::WaitHold(int hold) const {
  Control("GET", absl::StrCat("hold/", hold, "?timeout_s=60"));
}

void CloudSimulator::Release(int hold, bool drop) const {
  Control("POST", "release", {{"hold", hold}, {"drop", drop}});
}

}  // namespace gpuctl
