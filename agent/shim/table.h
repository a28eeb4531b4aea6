// The shim's behaviour as one table: an action and the next state for each state and input.
#ifndef GPUCTL_AGENT_SHIM_TABLE_H_
#define GPUCTL_AGENT_SHIM_TABLE_H_

#include <array>
#include <cstddef>

namespace gpuctl {

enum class State {
  kRunning,      // the direct child lives
  kLingering,    // it ended by itself; other processes may finish within the grace
  kTerminating,  // that grace is over: the remaining processes got SIGTERM
  kStopping,     // the job was stopped: all got SIGTERM, the grace runs
  kKilling,      // SIGKILL is repeated until nothing is left
  kRecording,    // no process is left; `exited` is being written
  kDone,
};
constexpr size_t kStates = 7;

enum class Input {
  kStop,        // a stop with the spec's grace
  kStopNow,     // a stop without grace
  kSignal,      // a signal to pass on
  kChildEnded,  // the direct child was reaped
  kTreeGone,    // no descendant is left
  kDeadline,    // the state's deadline has passed
  kRecorded,    // everything is on the disk
};
constexpr size_t kInputs = 7;

enum class Action {
  kNone,
  kStop,       // write `stopping`, SIGTERM to the tree, deadline: grace
  kStopNow,    // write `stopping`, then as kKill
  kPassOn,     // the signal to the tree
  kLinger,     // deadline: grace
  kTerminate,  // SIGTERM to the tree, deadline: 5 s
  kKill,       // SIGKILL to the tree, deadline: a moment
  kRecord,     // drain and sync the streams, write `exited`; deadline: try again
};

struct Transition {
  Action action;
  State next;
};

using Row = std::array<Transition, kInputs>;

// clang-format off
inline constexpr Row kActions[] = {
  // kRunning
  {{/*kStop*/       {Action::kStop,      State::kStopping},
    /*kStopNow*/    {Action::kStopNow,   State::kKilling},
    /*kSignal*/     {Action::kPassOn,    State::kRunning},
    /*kChildEnded*/ {Action::kLinger,    State::kLingering},
    /*kTreeGone*/   {Action::kRecord,    State::kRecording},
    /*kDeadline*/   {Action::kNone,      State::kRunning},
    /*kRecorded*/   {Action::kNone,      State::kRunning}}},
  // kLingering
  {{/*kStop*/       {Action::kStop,      State::kStopping},
    /*kStopNow*/    {Action::kStopNow,   State::kKilling},
    /*kSignal*/     {Action::kPassOn,    State::kLingering},
    /*kChildEnded*/ {Action::kNone,      State::kLingering},
    /*kTreeGone*/   {Action::kRecord,    State::kRecording},
    /*kDeadline*/   {Action::kTerminate, State::kTerminating},
    /*kRecorded*/   {Action::kNone,      State::kLingering}}},
  // kTerminating
  {{/*kStop*/       {Action::kNone,      State::kTerminating},
    /*kStopNow*/    {Action::kStopNow,   State::kKilling},
    /*kSignal*/     {Action::kPassOn,    State::kTerminating},
    /*kChildEnded*/ {Action::kNone,      State::kTerminating},
    /*kTreeGone*/   {Action::kRecord,    State::kRecording},
    /*kDeadline*/   {Action::kKill,      State::kKilling},
    /*kRecorded*/   {Action::kNone,      State::kTerminating}}},
  // kStopping
  {{/*kStop*/       {Action::kNone,      State::kStopping},
    /*kStopNow*/    {Action::kKill,      State::kKilling},
    /*kSignal*/     {Action::kPassOn,    State::kStopping},
    /*kChildEnded*/ {Action::kNone,      State::kStopping},
    /*kTreeGone*/   {Action::kRecord,    State::kRecording},
    /*kDeadline*/   {Action::kKill,      State::kKilling},
    /*kRecorded*/   {Action::kNone,      State::kStopping}}},
  // kKilling
  {{/*kStop*/       {Action::kNone,      State::kKilling},
    /*kStopNow*/    {Action::kNone,      State::kKilling},
    /*kSignal*/     {Action::kNone,      State::kKilling},
    /*kChildEnded*/ {Action::kNone,      State::kKilling},
    /*kTreeGone*/   {Action::kRecord,    State::kRecording},
    /*kDeadline*/   {Action::kKill,      State::kKilling},
    /*kRecorded*/   {Action::kNone,      State::kKilling}}},
  // kRecording
  {{/*kStop*/       {Action::kNone,      State::kRecording},
    /*kStopNow*/    {Action::kNone,      State::kRecording},
    /*kSignal*/     {Action::kNone,      State::kRecording},
    /*kChildEnded*/ {Action::kNone,      State::kRecording},
    /*kTreeGone*/   {Action::kNone,      State::kRecording},
    /*kDeadline*/   {Action::kRecord,    State::kRecording},
    /*kRecorded*/   {Action::kNone,      State::kDone}}},
  // kDone
  {{/*kStop*/       {Action::kNone,      State::kDone},
    /*kStopNow*/    {Action::kNone,      State::kDone},
    /*kSignal*/     {Action::kNone,      State::kDone},
    /*kChildEnded*/ {Action::kNone,      State::kDone},
    /*kTreeGone*/   {Action::kNone,      State::kDone},
    /*kDeadline*/   {Action::kNone,      State::kDone},
    /*kRecorded*/   {Action::kNone,      State::kDone}}},
};
// clang-format on
static_assert(std::size(kActions) == kStates && static_cast<size_t>(State::kDone) + 1 == kStates,
              "one row a state");
static_assert(static_cast<size_t>(Input::kRecorded) + 1 == kInputs, "one column an input");

constexpr Transition Lookup(State state, Input input) {
  return kActions[static_cast<size_t>(state)][static_cast<size_t>(input)];
}

}  // namespace gpuctl

#endif  // GPUCTL_AGENT_SHIM_TABLE_H_
