// Packets between neighbours on a line or a ring of ranks. Included by halocline.hpp.
#ifndef HALOCLINE_CPP_NEIGHBORS_HPP
#define HALOCLINE_CPP_NEIGHBORS_HPP

#include "packet.hpp"

namespace halocline {

// What came from both sides; empty where nothing came.
struct from_sides {
  received left, right;
};

// A round in flight.
class round : public owner<halocline_round, halocline_round_free> {
 public:
  using owner::owner;

  from_sides wait() const {
    halocline_received left, right;
    check(halocline_round_wait(get(), &left, &right));
    return {received(left), received(right)};
  }
  bool is_complete() const {
    std::int32_t complete;
    check(halocline_round_is_complete(get(), &complete));
    return complete != 0;
  }
  // Calls `done(status, message)` once, when the round is over: a function of any kind, in the thread that finds the outcome, which may
  // be one of the library. It must not block, throw or call this library, and must not be the last that holds an object of it. `message` is
  // that of an error, valid during the call. If this call throws, `done` is not called.
  template <typename Done>
  void on_completion(Done &&done) const {
    detail::on_completion(std::forward<Done>(done), [&](halocline_done call, void *context) {
      return halocline_round_on_completion(get(), call, context);
    });
  }
};

// Sides of a rank, combined by |.
enum class sides : std::int32_t {
  none = 0,
  left = HALOCLINE_LEFT,
  right = HALOCLINE_RIGHT,
  both = HALOCLINE_LEFT | HALOCLINE_RIGHT
};

constexpr sides operator|(sides one, sides other) noexcept {
  return static_cast<sides>(static_cast<std::int32_t>(one) | static_cast<std::int32_t>(other));
}

// A series of rounds. One thread uses it at a time.
class session : public owner<halocline_session, halocline_session_free> {
 public:
  using owner::owner;

  // What a round of a session brought: a side that has ended sends nothing any more.
  struct turn {
    received left, right;
    bool left_ended, right_ended;
  };

  // Starts the next round: a packet for each side, or null. Nothing follows to the sides of `last`, whose packet is null. `wait` follows.
  void start(const packet *left, const packet *right, sides last = sides::none) const {
    detail::send(left, right, [&](const halocline_packet *to_left, const halocline_packet *to_right) {
      return halocline_session_start(get(), to_left, to_right, static_cast<std::int32_t>(last));
    });
  }
  turn wait() const {
    halocline_received left, right;
    std::int32_t ended;
    check(halocline_session_wait(get(), &left, &right, &ended));
    return {received(left), received(right), (ended & HALOCLINE_LEFT) != 0, (ended & HALOCLINE_RIGHT) != 0};
  }
  // Whether `wait` would return at once.
  bool is_complete() const {
    std::int32_t complete;
    check(halocline_session_is_complete(get(), &complete));
    return complete != 0;
  }
  // Calls `done(status, message)` once, when the round in flight is over. As `round::on_completion`.
  template <typename Done>
  void on_completion(Done &&done) const {
    detail::on_completion(std::forward<Done>(done), [&](halocline_done call, void *context) {
      return halocline_session_on_completion(get(), call, context);
    });
  }
  // Whether all directions have ended.
  bool is_over() const {
    std::int32_t over;
    check(halocline_session_is_over(get(), &over));
    return over != 0;
  }
  // Ends what this rank sends, and drops what the neighbours still send. Blocks.
  void finish() const { check(halocline_session_finish(get())); }
};

// The neighbours of a rank on a line or a ring.
class neighbors : public owner<halocline_neighbors, halocline_neighbors_free> {
 public:
  using owner::owner;

  static neighbors line(const comm &comm, const resource &memory = {}) { return create(comm, 0, memory); }
  static neighbors ring(const comm &comm, const resource &memory = {}) { return create(comm, 1, memory); }

  // The ranks of the neighbours; none where there is no other rank.
  struct neighbor_ranks {
    std::optional<std::size_t> left, right;
  };
  neighbor_ranks ranks() const {
    std::int64_t left, right;
    check(halocline_neighbors_ranks(get(), &left, &right));
    const auto rank_of = [](std::int64_t rank) {
      return rank < 0 ? std::nullopt : std::optional<std::size_t>(static_cast<std::size_t>(rank));
    };
    return {rank_of(left), rank_of(right)};
  }

  // What this rank has sent and received so far.
  halocline_packet_statistics statistics() const {
    halocline_packet_statistics found = HALOCLINE_PACKET_STATISTICS_INIT;
    check(halocline_neighbors_statistics(get(), &found));
    return found;
  }

  // Starts a round: a packet for each side, or null.
  round start(std::uint32_t id, const packet *left, const packet *right) const {
    halocline_round handle;
    detail::send(left, right, [&](const halocline_packet *to_left, const halocline_packet *to_right) {
      return halocline_neighbors_start(get(), id, to_left, to_right, &handle);
    });
    return round(handle);
  }
  from_sides exchange(std::uint32_t id, const packet *left, const packet *right) const {
    halocline_received from_left, from_right;
    detail::send(left, right, [&](const halocline_packet *to_left, const halocline_packet *to_right) {
      return halocline_neighbors_exchange(get(), id, to_left, to_right, &from_left, &from_right);
    });
    return {received(from_left), received(from_right)};
  }
  // A series of rounds. The neighbours open one, too.
  session open(std::uint32_t id) const {
    halocline_session handle;
    check(halocline_session_open(get(), id, &handle));
    return session(handle);
  }
  // Gives up: all rounds of all ranks fail with this rank and the reason.
  void abort(const std::string &why) const { check(halocline_neighbors_abort(get(), why.c_str())); }

 private:
  static neighbors create(const comm &comm, std::int32_t ring, const resource &memory) {
    halocline_neighbors handle;
    check(halocline_neighbors_create(comm.get(), ring, memory.get(), &handle));
    return neighbors(handle);
  }
};

}  // namespace halocline

#endif
