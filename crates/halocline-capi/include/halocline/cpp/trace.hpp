// Traces. Included by halocline.hpp.
#ifndef HALOCLINE_CPP_TRACE_HPP
#define HALOCLINE_CPP_TRACE_HPP

#include "comm.hpp"
#include "exchange.hpp"

namespace halocline {

// The moments of a round, which is an exchange and the work beside and after it.
enum class moment : std::int32_t {
  begun = HALOCLINE_MOMENT_BEGUN,        // work that needs no halo may start
  interior = HALOCLINE_MOMENT_INTERIOR,  // that work is done
  waited = HALOCLINE_MOMENT_WAITED,      // the stream is ordered after the exchange
  done = HALOCLINE_MOMENT_DONE,          // all work is done: ends the round
};

// The record of a stream of a GPU in a trace.
class device_trace : public owner<halocline_device_trace, halocline_device_trace_free> {
 public:
  using owner::owner;

  // Marks a moment at the position that the stream has reached. Does not wait for the GPU.
  void stamp(moment at) const { check(halocline_device_trace_stamp(get(), static_cast<std::int32_t>(at))); }
  // Also records when this round's exchange ends.
  void observe(const pending &exchange) const { check(halocline_device_trace_observe(get(), exchange.get())); }
};

// A trace that is being recorded. One that is destroyed without `end` leaves no file: an exception must not wait for other ranks.
class trace : public owner<halocline_trace, halocline_trace_free> {
 public:
  using owner::owner;

  // Collective; rank 0 writes the file.
  trace(const comm &comm, const std::string &path) : owner() {
    halocline_trace handle;
    check(halocline_trace_begin(comm.get(), path.c_str(), &handle));
    static_cast<owner &>(*this) = owner(handle);
  }

  // Records so many rounds of a stream of a GPU. Blocks: call it while no exchange is in flight, and where ranks share a GPU call
  // `barrier` before the next one.
  device_trace on_stream(const stream &stream, std::size_t rounds) const {
    halocline_device_trace handle;
    check(halocline_trace_on_stream(get(), stream.get(), rounds, &handle));
    return device_trace(handle);
  }

  // Writes the file. Waits for recorded streams. Collective.
  void end() const { check(halocline_trace_end(get())); }
};

}  // namespace halocline

#endif
