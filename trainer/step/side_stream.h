// A stream of a device beside the one that trains, for copies that training does not wait for.

#ifndef TRAINER_STEP_SIDE_STREAM_H_
#define TRAINER_STEP_SIDE_STREAM_H_

#include <c10/core/Device.h>
#include <c10/core/Event.h>
#include <c10/core/Stream.h>

#include <functional>

namespace gpuctl::trainer {

class SideStream {
 public:
  // `device` has streams and events, as CUDA has.
  explicit SideStream(const c10::Device& device);

  // Calls `enqueue`, whose work goes to the side stream: it begins when the work enqueued so far on
  // the stream in use is done.
  void Run(const std::function<void()>& enqueue);
  // Makes later work on the stream in use begin after that of the last Run. Waits for nothing.
  void HoldBackUntilDone() const;
  // Waits until the side stream has done all its work. On any thread.
  void Wait() const;

 private:
  c10::Stream InUse() const;

  const c10::Device device_;
  const c10::Stream stream_;
  c10::Event before_;
  c10::Event after_;
};

}  // namespace gpuctl::trainer

#endif  // TRAINER_STEP_SIDE_STREAM_H_
