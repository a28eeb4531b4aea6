#include "common/base/log.h"

#include <spdlog/sinks/rotating_file_sink.h>
#include <spdlog/sinks/stdout_sinks.h>
#include <spdlog/spdlog.h>

#include <memory>

namespace gpuctl {
namespace {

std::shared_ptr<spdlog::logger>& Logger() {
  static auto* const logger = new std::shared_ptr<spdlog::logger>(
      std::make_shared<spdlog::logger>("", std::make_shared<spdlog::sinks::stderr_sink_mt>()));
  return *logger;
}

spdlog::level::level_enum ToSpdlog(LogLevel level) {
  switch (level) {
    case LogLevel::kDebug:
      return spdlog::level::debug;
    case LogLevel::kInfo:
      return spdlog::level::info;
    case LogLevel::kWarning:
      return spdlog::level::warn;
    case LogLevel::kError:
      return spdlog::level::err;
  }
  return spdlog::level::info;
}

}  // namespace

void LogToFile(const std::string& path) {
  constexpr size_t kFileBytes = 8 << 20;
  try {
    auto sink = std::make_shared<spdlog::sinks::rotating_file_sink_mt>(path, kFileBytes, 2);
    Logger() = std::make_shared<spdlog::logger>("", std::move(sink));
    Logger()->flush_on(spdlog::level::debug);
  } catch (const spdlog::spdlog_ex& error) {
    Log(LogLevel::kWarning, error.what());
  }
}

void SetLogLevel(LogLevel level) { Logger()->set_level(ToSpdlog(level)); }

void Log(LogLevel level, absl::string_view message) {
  Logger()->log(ToSpdlog(level), "{}", std::string(message));
}

}  // namespace gpuctl
