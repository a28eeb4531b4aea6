#include "client/trainer/trainer_program.h"

#include <fcntl.h>
#include <poll.h>
#include <sys/wait.h>
#include <unistd.h>

#include <cerrno>
#include <csignal>
#include <cstdlib>
#include <functional>
#include <utility>

#include "absl/strings/match.h"
#include "absl/strings/str_cat.h"
#include "absl/strings/str_replace.h"
#include "absl/strings/strip.h"
#include "client/base/run_program.h"
#include "client/programs/node_platform.h"
#include "client/trainer/torch_check.h"
#include "client/trainer/trainer_kit.h"
#include "common/base/status_macros.h"
#include "common/base/unique_fd.h"
#include "common/files/files.h"
#include "common/process/pipe.h"
#include "common/process/process.h"
#include "common/process/signal_pipe.h"
#include "trainer/base/error.h"

namespace gpuctl {
namespace {

constexpr absl::string_view kProgramPrefix = "gpuctl-trainer: ";
constexpr absl::string_view kTrainerHint = "HINT: ";
// A Python on a network volume takes its time.
constexpr absl::Duration kCheckWithin = absl::Minutes(2);
constexpr int kBuildFailed = 69;  // of build.sh

absl::Status NoTrainer(absl::string_view why, absl::string_view hint) {
  return WithExitCode(WithHint(absl::NotFoundError(absl::StrCat(
                                   "run the built-in trainer on this computer: ", why)),
                               hint),
                      kExitNotFound);
}

// Returns the program that is run through the kit's own loader.
absl::StatusOr<TrainerProgram> ProgramOfKit(const BundlePaths& paths) {
  ASSIGN_OR_RETURN(const NodePlatform platform,
                   PlatformOfProgramFile(JoinPath(paths.trainer_kit, "gpuctl-trainer")));
  if (platform != OwnPlatform()) {
    return absl::FailedPreconditionError(
        absl::StrCat(paths.trainer_kit, " is for ", PlatformName(platform)));
  }
  ASSIGN_OR_RETURN(const TrainerKit kit, FindTrainerKit(paths));
  return TrainerProgram{
      {JoinPath(paths.trainer_kit, kit.loader), "--library-path",
       JoinPath(paths.trainer_kit, "lib"), JoinPath(paths.trainer_kit, "gpuctl-trainer")},
      // As SetTrainerStart has it for other machines.
      {"LD_PRELOAD=", "OPENSSL_CONF=/dev/null"}};
}

absl::StatusOr<TrainerProgram> ProgramOfSources(const BundlePaths& paths) {
  const std::string script = JoinPath(paths.trainer_sources, "build.sh");
  const absl::StatusOr<ProgramEnd> asked = RunWithin(kCheckWithin, {"/bin/sh", script, "--check"});
  RETURN_IF_ERROR(asked.status());
  ASSIGN_OR_RETURN(const TorchAnswer answer, ParseTorchAnswer(asked->output));
  if (!answer.can_build) {
    return NoTrainer(absl::StrCat("no gpuctl-trainer is beside gpuctl, and it cannot be compiled: ",
                                  answer.text),
                     absl::StrCat(answer.fix,
                                  "; or gpuctl launch RUN.yaml --host HOST, which "
                                  "trains on another machine"));
  }
  return TrainerProgram{{"/bin/sh", script}, {}};
}

// What the trainer says on stderr, line by line.
class SaidLines {
 public:
  explicit SaidLines(const CommandContext& context) : context_(context) {}

  void Add(absl::string_view bytes) {
    rest_.append(bytes.data(), bytes.size());
    for (size_t end = 0; (end = rest_.find('\n')) != std::string::npos;) {
      Say(rest_.substr(0, end));
      rest_.erase(0, end + 1);
    }
  }
  void Finish() {
    if (!rest_.empty()) Say(std::exchange(rest_, ""));
  }
  const std::string& error() const { return error_; }
  const std::string& hint() const { return hint_; }

 private:
  void Say(absl::string_view line) {
    // It names commands that gpuctl has, too.
    if (absl::ConsumePrefix(&line, kTrainerHint)) {
      hint_ = absl::StrReplaceAll(line, {{"gpuctl-trainer ", "gpuctl "}});
      return context_.Hint(hint_);
    }
    if (!absl::ConsumePrefix(&line, kProgramPrefix)) return context_.Note(line);
    error_ = std::string(line);
    context_.Warn(line);
  }

  const CommandContext& context_;
  std::string rest_, error_, hint_;
};

// Passes signals on to the trainer.
class SignalRelay {
 public:
  SignalRelay(const CommandContext& context, SignalPipe& signals, pid_t pid)
      : context_(context), signals_(signals), pid_(pid) {}

  void Pass() {
    for (const int signal : signals_.Take()) {
      ++count_;
      if (count_ == 2) context_.Warn("waiting for the trainer to end; the next signal kills it");
      kill(pid_, count_ > 2 ? SIGKILL : signal);
      last_ = signal;
    }
  }
  int last() const { return last_; }  // 0: none came

 private:
  const CommandContext& context_;
  SignalPipe& signals_;
  const pid_t pid_;
  int count_ = 0;
  int last_ = 0;
};

// Reads what is there. Returns false at the end.
bool ReadInto(int fd, const std::function<void(absl::string_view)>& take) {
  char buffer[16 << 10];
  const ssize_t count = read(fd, buffer, sizeof(buffer));
  if (count < 0) return errno == EINTR || errno == EAGAIN;
  take(absl::string_view(buffer, static_cast<size_t>(count)));
  return count > 0;
}

// Makes a file without a name that holds `text`, open at its beginning.
absl::StatusOr<UniqueFd> NamelessFile(const std::string& text) {
  const char* const directory = std::getenv("TMPDIR");
  std::string path =
      JoinPath(directory == nullptr || *directory == '\0' ? "/tmp" : directory, "gpuctl-XXXXXX");
  UniqueFd file(mkstemp(path.data()));
  if (!file.valid()) return ErrnoStatus(errno, absl::StrCat("make a file in ", DirName(path)));
  fcntl(file.get(), F_SETFD, FD_CLOEXEC);
  unlink(path.c_str());
  RETURN_IF_ERROR(WriteAll(file.get(), text, path));
  if (lseek(file.get(), 0, SEEK_SET) != 0) return ErrnoStatus(errno, path);
  return file;
}

absl::Status ErrorOf(const TrainerCall& call, int wait_status, int signal, const SaidLines& said) {
  const std::string& verb = call.words[0];
  if (WIFSIGNALED(wait_status) && signal == 0) {
    const int killer = WTERMSIG(wait_status);
    if (killer == SIGKILL) {
      return WithHint(absl::ResourceExhaustedError(absl::StrCat(verb, ": the trainer was killed")),
                      "the system does that when memory is short");
    }
    return absl::InternalError(
        absl::StrCat(verb, ": signal ", killer, " ended the trainer; please report this"));
  }
  const int code = WIFSIGNALED(wait_status) ? 128 + signal : WEXITSTATUS(wait_status);
  if (signal != 0 && code == 128 + signal) {
    return WithExitCode(absl::CancelledError(absl::StrCat(verb, ": interrupted")),
                        static_cast<ExitCode>(code));
  }
  const std::string message = said.error().empty()
                                  ? absl::StrCat(verb, ": the trainer ended with code ", code)
                                  : said.error();
  const bool usage = code == static_cast<int>(trainer::ExitCode::kBadConfig);
  const absl::Status status =
      usage ? absl::InvalidArgumentError(message) : absl::FailedPreconditionError(message);
  return WithExitCode(WithHint(status, said.hint()),
                      static_cast<ExitCode>(call.own_codes ? code : ExitCodeForTrainers(code)));
}

}  // namespace

absl::StatusOr<TrainerProgram> FindTrainerProgram(const BundlePaths& paths) {
  if (!paths.trainer.empty()) return TrainerProgram{{paths.trainer}, {}};
  if (!paths.trainer_kit.empty()) {
    absl::StatusOr<TrainerProgram> kit = ProgramOfKit(paths);
    if (kit.ok() || paths.trainer_sources.empty()) return kit;
  }
  if (!paths.trainer_sources.empty()) return ProgramOfSources(paths);
  return NoTrainer("no gpuctl-trainer is beside gpuctl",
                   "install gpuctl again, with its trainer, or build it "
                   "(GPUCTL_BUILD_TRAINER=ON); gpuctl launch trains on other machines");
}

int ExitCodeForTrainers(int code) {
  using trainer::ExitCode;
  switch (static_cast<ExitCode>(code)) {
    case ExitCode::kBadConfig:
      return kExitUsage;
    case ExitCode::kBadData:
    case ExitCode::kIo:
    case ExitCode::kTryAgain:
    case ExitCode::kDiverged:
      return kExitFailed;
    default:
      return code == kBuildFailed ? kExitFailed : code;
  }
}

absl::StatusOr<int> RunTrainer(const CommandContext& context, const TrainerCall& call) {
  ASSIGN_OR_RETURN(const TrainerProgram program, FindTrainerProgram(BundlePaths::Find()));
  ASSIGN_OR_RETURN(FdPair errors, MakePipe("make a pipe"));
  FdPair output;
  if (call.output != nullptr) {
    ASSIGN_OR_RETURN(output, MakePipe("make a pipe"));
  }
  UniqueFd input;
  if (!call.input.empty()) {
    ASSIGN_OR_RETURN(input, NamelessFile(call.input));
  }
  SpawnOptions options;
  options.argv = program.argv;
  options.argv.insert(options.argv.end(), call.words.begin(), call.words.end());
  options.env = program.env;
  options.env.insert(options.env.end(), call.env.begin(), call.env.end());
  options.stdin_fd = input.valid() ? input.get() : STDIN_FILENO;
  options.stdout_fd = call.output != nullptr ? output.second.get() : STDOUT_FILENO;
  options.stderr_fd = errors.second.get();
  ASSIGN_OR_RETURN(SignalPipe signals, SignalPipe::Install({SIGINT, SIGTERM, SIGHUP}));
  ASSIGN_OR_RETURN(const pid_t pid, Spawn(options));
  errors.second.reset();
  output.second.reset();
  SaidLines said(context);
  SignalRelay relay(context, signals, pid);
  while (errors.first.valid() || output.first.valid()) {
    pollfd polled[3] = {{signals.fd(), POLLIN, 0},
                        {errors.first.valid() ? errors.first.get() : -1, POLLIN, 0},
                        {output.first.valid() ? output.first.get() : -1, POLLIN, 0}};
    if (poll(polled, 3, -1) < 0 && errno != EINTR) return ErrnoStatus(errno, "wait for output");
    relay.Pass();
    if (polled[1].revents != 0 &&
        !ReadInto(errors.first.get(), [&](absl::string_view bytes) { said.Add(bytes); })) {
      errors.first.reset();
    }
    if (polled[2].revents != 0 && !ReadInto(output.first.get(), [&](absl::string_view bytes) {
          call.output->append(bytes.data(), bytes.size());
        })) {
      output.first.reset();
    }
  }
  said.Finish();
  int status = 0;
  while (waitpid(pid, &status, 0) < 0 && errno == EINTR) relay.Pass();
  relay.Pass();
  if (WIFEXITED(status) && WEXITSTATUS(status) == 0) return kExitOk;
  const absl::Status error = ErrorOf(call, status, relay.last(), said);
  // The trainer has told people what happened.
  const bool told = WIFEXITED(status) && (!said.error().empty() || relay.last() != 0);
  if (told && !context.json()) return ExitCodeOf(error);
  return error;
}

}  // namespace gpuctl
