// Traces. Included by halocline.hpp.
#ifndef HALOCLINE_CPP_TRACE_HPP
#define HALOCLINE_CPP_TRACE_HPP

#include "comm.hpp"

namespace halocline {

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

  // Writes the file. Collective.
  void end() const { check(halocline_trace_end(get())); }
};

}  // namespace halocline

#endif
