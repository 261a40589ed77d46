// Bound exchanges, exchanges of fields known at the call, messages. Included by halocline.hpp.
#ifndef HALOCLINE_CPP_EXCHANGE_HPP
#define HALOCLINE_CPP_EXCHANGE_HPP

#include "field.hpp"

#include <initializer_list>
#include <optional>

namespace halocline {

// A field and the pattern that it is bound to. Holds neither.
struct binding {
  binding(const pattern &pattern, const field &field) : pair{pattern.get(), field.get()} {}
  halocline_binding pair;
};
static_assert(sizeof(binding) == sizeof(halocline_binding), "a list of bindings is one of C");

// Options of a bind. What is not set keeps its default.
class bind_options {
 public:
  bind_options() : options_ HALOCLINE_BIND_OPTIONS_INIT {}

  bind_options &name(std::string name) {
    name_ = std::move(name);
    return *this;
  }
  // Seconds that an exchange may take, from its begin.
  bind_options &deadline(double seconds) {
    options_.deadline = seconds;
    return *this;
  }
  // HALOCLINE_LINK_MAILBOX, for example.
  bind_options &link(std::int32_t link) {
    options_.link = link;
    return *this;
  }
  // Whether each exchange is verified.
  bind_options &checked(bool checked) {
    options_.checked = checked ? HALOCLINE_ON : HALOCLINE_OFF;
    return *this;
  }
  // The streams whose work writes owned cells or reads the halo. They have to stay until the bind.
  bind_options &streams(std::initializer_list<const stream *> streams) {
    streams_.clear();
    for (const stream *stream : streams) streams_.push_back(stream->get());
    return *this;
  }
  // HALOCLINE_ON or HALOCLINE_OFF: whether GPU fields use the low-latency protocol for messages of up to `bytes` bytes; 0: its default.
  bind_options &ll(std::int32_t ll, std::size_t bytes = 0) {
    options_.ll = ll;
    options_.ll_bytes = bytes;
    return *this;
  }
  // HALOCLINE_ON or HALOCLINE_OFF: whether streams, and never kernels, wait for peers.
  bind_options &stream_waits(std::int32_t stream_waits) {
    options_.stream_waits = stream_waits;
    return *this;
  }
  // Scheduled exchanges run on the streams given to them.
  bind_options &run_inline(bool run_inline) {
    options_.run_inline = run_inline;
    return *this;
  }

  // For calls of the C interface; valid while this lives and is not changed.
  halocline_bind_options get() const noexcept {
    halocline_bind_options options = options_;
    options.name = name_.empty() ? nullptr : name_.c_str();
    options.streams = streams_.data();
    options.stream_count = streams_.size();
    return options;
  }

 private:
  halocline_bind_options options_;
  std::string name_;
  std::vector<halocline_stream> streams_;
};

// One exchange of an object: a value, which owns nothing.
class pending {
 public:
  explicit pending(halocline_pending handle) noexcept : handle_(handle) {}

  // Blocks until the halo is filled.
  void wait() const { check(halocline_wait(handle_)); }
  bool is_ready() const {
    std::int32_t ready;
    check(halocline_is_ready(handle_, &ready));
    return ready != 0;
  }
  // Makes later work of the stream run after the halo is filled.
  void schedule_wait(const stream &stream) const { check(halocline_schedule_wait(handle_, stream.get())); }
  // Counts the exchanges of the object, from 1.
  std::uint64_t epoch() const noexcept { return handle_.epoch; }
  halocline_pending get() const noexcept { return handle_; }

 private:
  halocline_pending handle_;
};

// Fields bound to patterns.
class halo_exchange : public owner<halocline_halo_exchange, halocline_halo_exchange_free> {
 public:
  using owner::owner;

  // Binds fields. Collective.
  halo_exchange(const comm &comm, span<const binding> fields, const bind_options &options = {}) : owner() {
    bind(comm, fields, 1, options);
  }
  halo_exchange(const comm &comm, std::initializer_list<binding> fields, const bind_options &options = {}) : owner() {
    bind(comm, {fields.begin(), fields.size()}, 1, options);
  }
  // Several sets of fields of equal length, one after the other in `fields`. Collective.
  static halo_exchange alternatives(const comm &comm, span<const binding> fields, std::size_t sets,
                                    const bind_options &options = {}) {
    halo_exchange halo;
    halo.bind(comm, fields, sets, options);
    return halo;
  }

  // Starts an exchange.
  pending exchange() const {
    halocline_pending handle;
    check(halocline_exchange(get(), &handle));
    return pending(handle);
  }
  // Of one of several sets.
  pending exchange(std::size_t set) const {
    halocline_pending handle;
    check(halocline_exchange_set(get(), set, &handle));
    return pending(handle);
  }
  void exchange_and_wait() const { check(halocline_exchange_and_wait(get())); }
  // Starts the reverse of an exchange: each halo cell is combined with the owned cell that it copies, and cleared, unless it is kept.
  pending reduce(halocline::reduce operation, bool keep_halo = false, std::size_t set = 0) const {
    halocline_pending handle;
    check(halocline_reduce(get(), set, static_cast<std::int32_t>(operation), keep_halo ? 1 : 0, &handle));
    return pending(handle);
  }
  // Combines halo cells with their owned cells. Each halo cell gets the previous value of its owned cell. Collective.
  void fetch_and_op(halocline::reduce operation) const {
    check(halocline_fetch_and_op(get(), static_cast<std::int32_t>(operation)));
  }
  // How many halo cells copy each cell of a field, in C order.
  std::vector<std::uint32_t> degree(std::size_t field = 0) const {
    std::size_t count;
    check(halocline_degree(get(), field, nullptr, 0, &count));
    std::vector<std::uint32_t> degree(count);
    check(halocline_degree(get(), field, degree.data(), count, &count));
    return degree;
  }
  // After all earlier work of the streams; the host does not wait for it.
  pending schedule_exchange(span<const halocline_stream> streams, std::size_t set = 0) const {
    halocline_pending handle;
    check(halocline_schedule_exchange(get(), set, streams.data(), streams.size(), &handle));
    return pending(handle);
  }
  pending schedule_exchange(const stream &stream, std::size_t set = 0) const {
    const halocline_stream handle = stream.get();
    return schedule_exchange(span<const halocline_stream>(&handle, 1), set);
  }
  // The reverse of an exchange, after all earlier work of the streams; the host does not wait for it.
  pending schedule_reduce(halocline::reduce operation, span<const halocline_stream> streams, bool keep_halo = false,
                          std::size_t set = 0) const {
    halocline_pending handle;
    check(halocline_schedule_reduce(get(), set, static_cast<std::int32_t>(operation), keep_halo ? 1 : 0, streams.data(),
                                    streams.size(), &handle));
    return pending(handle);
  }
  pending schedule_reduce(halocline::reduce operation, const stream &stream, bool keep_halo = false,
                          std::size_t set = 0) const {
    const halocline_stream handle = stream.get();
    return schedule_reduce(operation, span<const halocline_stream>(&handle, 1), keep_halo, set);
  }
  // Whether the memory of the fields belongs to the program again.
  bool reclaim() const {
    std::int32_t reclaimed;
    check(halocline_reclaim(get(), &reclaimed));
    return reclaimed != 0;
  }
  // The same fields with a narrower halo. Collective.
  halo_exchange narrowed(const halo &to) const {
    halocline_halo_exchange handle;
    const halocline_halo width = to.get();
    check(halocline_narrowed(get(), &width, &handle));
    return halo_exchange(handle);
  }
  // The exchange that was begun last; none before the first.
  std::optional<halocline::pending> latest() const {
    halocline_pending handle;
    check(halocline_latest(get(), &handle));
    return handle.epoch == 0 ? std::nullopt : std::optional<halocline::pending>(halocline::pending(handle));
  }
  // The number of sets of fields.
  std::size_t sets() const {
    std::size_t count;
    check(halocline_sets(get(), &count));
    return count;
  }
  // One of several sets alone.
  halo_exchange alternative(std::size_t set) const {
    halocline_halo_exchange handle;
    check(halocline_alternative(get(), set, &handle));
    return halo_exchange(handle);
  }
  // A table of the links.
  std::string explain() const {
    return detail::text([&](char *text, std::size_t capacity, std::size_t *length) {
      return halocline_explain(get(), text, capacity, length);
    });
  }
  std::vector<halocline_link> links() const {
    return detail::stored<halocline_link>([&](halocline_link *links, std::size_t capacity, std::size_t *count) {
      return halocline_links(get(), links, capacity, count);
    });
  }
  // Bytes of the message to (HALOCLINE_SEND) or from (HALOCLINE_RECEIVE) a peer.
  std::size_t message_bytes(std::size_t peer, std::int32_t direction) const {
    std::size_t bytes;
    check(halocline_message_bytes(get(), peer, direction, &bytes));
    return bytes;
  }
  std::vector<char> pack(std::size_t peer) const {
    std::vector<char> message(message_bytes(peer, HALOCLINE_SEND));
    check(halocline_pack(get(), peer, message.data(), message.size()));
    return message;
  }
  void unpack(std::size_t peer, span<const char> message) const {
    check(halocline_unpack(get(), peer, message.data(), message.size()));
  }
  // As `pack`, of fields of a GPU, in the order of a stream. `message` has `bytes` bytes that the stream's GPU reaches. They have to stay
  // until the stream has done the work.
  void pack_on(std::size_t peer, void *message, std::size_t bytes, const stream &stream) const {
    check(halocline_pack_on(get(), peer, message, bytes, stream.get()));
  }
  void unpack_on(std::size_t peer, const void *message, std::size_t bytes, const stream &stream) const {
    check(halocline_unpack_on(get(), peer, message, bytes, stream.get()));
  }

 private:
  void bind(const comm &comm, span<const binding> fields, std::size_t sets, const bind_options &options) {
    halocline_halo_exchange handle;
    const halocline_bind_options given = options.get();
    if (sets != 0 && fields.size() % sets != 0) {
      // Refused on all ranks: the call is collective.
      (void)halocline_bind_alternatives(comm.get(), nullptr, 1, sets, &given, &handle);
      const std::string message = std::to_string(fields.size()) + " bindings are no " + std::to_string(sets) +
                                  " sets of equal length; give each set as many bindings";
      throw error(HALOCLINE_ERROR_ARGUMENT, message.c_str());
    }
    const std::size_t each = sets == 0 ? 0 : fields.size() / sets;
    check(halocline_bind_alternatives(comm.get(), fields.empty() ? nullptr : &fields.data()->pair, each, sets, &given,
                                      &handle));
    static_cast<owner &>(*this) = owner(handle);
  }
};

// Links of patterns, for fields that are given to each exchange.
class pattern_links : public owner<halocline_pattern_links, halocline_pattern_links_free> {
 public:
  using owner::owner;

  // Collective.
  pattern_links(const comm &comm, const std::vector<const pattern *> &patterns, const bind_options &options = {})
      : owner() {
    std::vector<halocline_pattern> handles;
    for (const pattern *pattern : patterns) handles.push_back(pattern->get());
    halocline_pattern_links handle;
    const halocline_bind_options given = options.get();
    check(halocline_pattern_links_create(comm.get(), handles.data(), handles.size(), &given, &handle));
    static_cast<owner &>(*this) = owner(handle);
  }

  pending exchange(span<const binding> fields) const {
    halocline_pending handle;
    const halocline_binding *first = fields.empty() ? nullptr : &fields.data()->pair;
    check(halocline_pattern_links_exchange(get(), first, fields.size(), &handle));
    return pending(handle);
  }
  pending exchange(std::initializer_list<binding> fields) const {
    return exchange(span<const binding>(fields.begin(), fields.size()));
  }

  // Of fields of a GPU, after the earlier work of streams; none: those of the links.
  pending schedule(span<const binding> fields, span<const halocline_stream> after = {}) const {
    halocline_pending handle;
    const halocline_binding *first = fields.empty() ? nullptr : &fields.data()->pair;
    check(halocline_pattern_links_schedule(get(), first, fields.size(), after.data(), after.size(), &handle));
    return pending(handle);
  }
  pending schedule(std::initializer_list<binding> fields, const stream &after) const {
    const halocline_stream stream = after.get();
    return schedule(span<const binding>(fields.begin(), fields.size()), span<const halocline_stream>(&stream, 1));
  }
  pending schedule(std::initializer_list<binding> fields) const {
    return schedule(span<const binding>(fields.begin(), fields.size()));
  }
  // Whether the memory of the fields belongs to the program again.
  bool reclaim() const {
    std::int32_t reclaimed;
    check(halocline_pattern_links_reclaim(get(), &reclaimed));
    return reclaimed != 0;
  }
  std::vector<halocline_link> links() const {
    return detail::stored<halocline_link>([&](halocline_link *links, std::size_t capacity, std::size_t *count) {
      return halocline_pattern_links_links(get(), links, capacity, count);
    });
  }
  // A table of the links.
  std::string explain() const {
    return detail::text([&](char *text, std::size_t capacity, std::size_t *length) {
      return halocline_pattern_links_explain(get(), text, capacity, length);
    });
  }
};

}  // namespace halocline

#endif
