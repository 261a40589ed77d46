// Neighbour exchanges, sessions and sparse all-to-alls in C++, and what runs when they are complete.
#include "ranks.hpp"

#include <atomic>
#include <future>
#include <memory_resource>
#include <thread>

constexpr std::size_t LENGTH = 100000;

static std::vector<char> content(std::size_t rank) { return std::vector<char>(LENGTH, static_cast<char>('a' + rank)); }

static bool holds(const hc::received &packet, const char *metadata, const std::vector<char> &payload) {
  const hc::span<const char> found = packet.payload<char>();
  return packet.metadata() == metadata && packet.has_payload() &&
         std::vector<char>(found.begin(), found.end()) == payload;
}

// A payload with an owner, and its packet.
static hc::packet owned_packet(const char *metadata, std::size_t rank, std::weak_ptr<void> *watch) {
  auto memory = std::make_shared<std::vector<char>>(content(rank));
  *watch = memory;
  return {metadata, hc::span<const char>(*memory), memory};
}

static void wait_until_expired(const std::weak_ptr<void> &watch) {
  // A thread of the library may be the last that holds it.
  while (!watch.expired()) std::this_thread::yield();
}

static void on_a_ring(const hc::comm &comm) {
  const std::size_t rank = comm.rank(), size = comm.size(), on_left = (rank + size - 1) % size, on_right = (rank + 1) % size;
  const hc::resource host = hc::resource::host(comm), limited = host.limited(4 * LENGTH, 1);
  const hc::neighbors ring = hc::neighbors::ring(comm, limited);
  const hc::neighbors::neighbor_ranks ranks = ring.ranks();
  TRUE(size == 1 ? !ranks.left && !ranks.right : ranks.left == on_left && ranks.right == on_right);

  std::weak_ptr<void> left, right;
  {
    // Packets may go before the operation is complete: the calls hold their payloads.
    std::promise<halocline_status> promise;
    std::future<halocline_status> outcome = promise.get_future();
    const auto start = [&] {
      const hc::packet to_left = owned_packet("to the left", rank, &left), to_right = owned_packet("to the right", rank, &right);
      return ring.start(7, &to_left, &to_right);
    };
    const hc::round round = start();
    // A function that moves, and does not copy.
    round.on_completion([promise = std::move(promise)](halocline_status status, const char *message) mutable {
      promise.set_value(message[0] == '\0' ? status : HALOCLINE_ERROR_INTERNAL);
    });
    const hc::from_sides came = round.wait();
    TRUE(round.is_complete() && outcome.get() == HALOCLINE_OK);
    TRUE(holds(came.left, "to the right", content(on_left)) && holds(came.right, "to the left", content(on_right)));
    // A rank alone gets the memory that it has sent.
    const halocline_resource_statistics statistics = limited.statistics();
    TRUE(size == 1 || (statistics.in_use >= 2 * LENGTH && statistics.allocations >= 2));
    THROWS(HALOCLINE_ERROR_ARGUMENT, "taken", round.wait());

    // The round is complete: the function runs within the call, where the library refuses calls, and is freed.
    auto shared = std::make_shared<std::atomic<int>>(0);
    std::weak_ptr<void> kept;
    round.on_completion([&, shared](halocline_status, const char *) {
      try {
        const hc::packet nothing = owned_packet("", rank, &kept);
        ring.start(8, &nothing, nullptr);
      } catch (const hc::error &error) {
        *shared = error.status();
      }
    });
    TRUE(*shared == HALOCLINE_ERROR_CALLBACK && shared.use_count() == 1 && kept.expired());
    // A call that is refused frees the function without a call, and the payload.
    THROWS(HALOCLINE_ERROR_HANDLE, "is null", hc::round().on_completion([shared](halocline_status, const char *) { *shared = 1; }));
    TRUE(*shared == HALOCLINE_ERROR_CALLBACK && shared.use_count() == 1);
    const hc::packet unsent = owned_packet("", rank, &kept);
    THROWS(HALOCLINE_ERROR_HANDLE, "is null", hc::neighbors().start(1, &unsent, &unsent));
    TRUE(unsent.keep.use_count() == 1);
    // A function that is no object on the heap of its own.
    static std::atomic<int> calls{0};
    const int before = calls;
    round.on_completion(+[](halocline_status, const char *) { calls++; });
    TRUE(calls > before);
  }
  wait_until_expired(left);
  wait_until_expired(right);
}

// Each rank sends as many packets to the right as its rank.
static void in_a_session(const hc::comm &comm) {
  const std::size_t rank = comm.rank(), size = comm.size();
  const hc::neighbors line = hc::neighbors::line(comm);
  TRUE(line.ranks().left.has_value() == (rank > 0) && line.ranks().right.has_value() == (rank + 1 < size));
  const hc::session session = line.open(1);
  THROWS(HALOCLINE_ERROR_ARGUMENT, "start one", session.wait());
  std::size_t sent = 0, came = 0;
  bool left_ended = false;
  while (!session.is_over()) {
    const hc::packet packet(std::to_string(sent));
    const bool sends = sent < rank && rank + 1 < size;
    session.start(nullptr, sends ? &packet : nullptr, sends ? hc::sides::left : hc::sides::left | hc::sides::right);
    sent += sends;
    auto told = std::make_shared<std::promise<halocline_status>>();
    session.on_completion([told](halocline_status status, const char *) { told->set_value(status); });
    while (!session.is_complete()) std::this_thread::yield();
    TRUE(told->get_future().get() == HALOCLINE_OK);
    const hc::session::turn turn = session.wait();
    TRUE(!turn.right && turn.right_ended && !(turn.left && turn.left_ended));
    if (turn.left) TRUE(turn.left.metadata() == std::to_string(came++));
    left_ended = turn.left_ended;
  }
  TRUE((size == 1 || left_ended) && came == (rank > 0 ? rank - 1 : 0));
  session.finish();
  THROWS(HALOCLINE_ERROR_ARGUMENT, "was finished", session.wait());
  TRUE(line.statistics().sent.packets == sent && line.statistics().received.packets == came);
  comm.barrier();
}

// Ranks that do not want what the neighbours still send.
static void a_session_that_is_finished_early(const hc::comm &comm) {
  const hc::neighbors ring = hc::neighbors::ring(comm);
  const hc::session session = ring.open(1);
  std::weak_ptr<void> payload;
  const auto start = [&] {
    const hc::packet packet = owned_packet("", comm.rank(), &payload);
    session.start(&packet, nullptr);
  };
  start();
  TRUE(session.wait().right.has_payload());
  session.finish();
  wait_until_expired(payload);
  comm.barrier();
}

static void sparse(const hc::comm &comm, bool discovers) {
  const std::size_t rank = comm.rank(), size = comm.size(), next = (rank + 1) % size, last = (rank + size - 1) % size;
  const std::vector<std::size_t> destinations(size > 1 ? 1 : 0, next), sources(size > 1 ? 1 : 0, last);
  const hc::sparse_alltoall operation = discovers ? hc::sparse_alltoall::discover(comm, destinations)
                                                  : hc::sparse_alltoall(comm, sources, destinations);
  std::promise<halocline_status> promise;
  operation.on_completion([&](halocline_status status, const char *) { promise.set_value(status); });
  std::weak_ptr<void> payload;
  for (std::size_t destination : destinations) {
    operation.insert(destination, owned_packet("first", rank, &payload));
    operation.insert(destination, hc::packet("second"));
  }
  TRUE(!operation.is_complete());
  operation.finish();
  operation.wait();
  TRUE(operation.is_complete() && operation.sources() == sources && operation.destinations() == destinations && promise.get_future().get() == HALOCLINE_OK);
  wait_until_expired(payload);
  TRUE(operation.statistics().sent.packets == 2 * destinations.size());
  for (std::size_t source : sources) {
    const std::vector<hc::received> packets = operation.extract(source);
    TRUE(packets.size() == 2 && holds(packets[0], "first", content(last)));
    TRUE(packets[1].metadata() == "second" && !packets[1].has_payload());
  }
  std::weak_ptr<void> refused;
  THROWS(HALOCLINE_ERROR_ARGUMENT, "", operation.insert(rank, owned_packet("", rank, &refused)));
  TRUE(refused.expired());
}

// An operation that is freed before its end has failed, and says so.
static void a_dropped_operation(const hc::comm &comm) {
  hc::sparse_alltoall operation = hc::sparse_alltoall::discover(comm, {});
  std::promise<std::string> promise;
  operation.on_completion([&](halocline_status status, const char *message) {
    promise.set_value(status == HALOCLINE_ERROR_FAILED ? message : "");
  });
  operation.reset();
  TRUE(!promise.get_future().get().empty());
  comm.barrier();
}

// The last rank gives up: all ranks get its reason.
static void given_up(const hc::comm &comm) {
  const hc::neighbors ring = hc::neighbors::ring(comm);
  const hc::packet packet("");
  if (comm.rank() == comm.size() - 1) ring.abort("out of ideas");
  const auto until_it_fails = [&] {
    while (true) ring.exchange(1, &packet, &packet);
  };
  THROWS(HALOCLINE_ERROR_FAILED, "out of ideas", until_it_fails());
  comm.barrier();
}

// A resource with a limit takes what is too much from another one.
static void spilled(const hc::comm &comm) {
  const hc::resource host = hc::resource::host(comm), limited = host.limited(1000, 0, host);
  const hc::neighbors ring = hc::neighbors::ring(comm, limited);
  const std::vector<char> own = content(comm.rank());
  const hc::packet packet("", hc::span<const char>(own));
  const hc::from_sides came = ring.exchange(1, nullptr, &packet);
  TRUE(came.left.payload<char>().size() == LENGTH && came.left.payload<float>().size() == LENGTH / sizeof(float));
  THROWS(HALOCLINE_ERROR_ARGUMENT, "the payload ends within an element; its sender uses another type",
         (came.left.payload<std::array<char, 3>>()));
  TRUE(comm.size() == 1 || (limited.statistics().spilled == LENGTH && limited.statistics().in_use == 0));
  comm.barrier();
}

// A pool of the program that counts the memory that is out.
struct counting_pool : std::pmr::memory_resource {
  std::atomic<std::size_t> out{0};
  void *do_allocate(std::size_t bytes, std::size_t alignment) override {
    if (bytes > LENGTH) throw std::bad_alloc();
    out += bytes;
    return std::pmr::new_delete_resource()->allocate(bytes, alignment);
  }
  void do_deallocate(void *memory, std::size_t bytes, std::size_t alignment) override {
    out -= bytes;
    std::pmr::new_delete_resource()->deallocate(memory, bytes, alignment);
  }
  bool do_is_equal(const memory_resource &other) const noexcept override { return this == &other; }
};

static void in_a_pool_of_the_program(const hc::comm &comm) {
  auto pool = std::make_shared<counting_pool>();
  const std::weak_ptr<void> watch = pool;
  const std::vector<char> own = content(comm.rank());
  {
    const hc::neighbors ring = hc::neighbors::ring(comm, hc::resource::of(pool));
    const hc::packet packet("", hc::span<const char>(own));
    const hc::from_sides came = ring.exchange(1, nullptr, &packet);
    // A rank alone gets the memory that it has sent.
    TRUE(pool->out == (comm.size() > 1 ? LENGTH : 0));
    TRUE(holds(came.left, "", content((comm.rank() + comm.size() - 1) % comm.size())));
    comm.barrier();
    const std::vector<char> longer(LENGTH + 1);
    const hc::packet too_long("", hc::span<const char>(longer));
    std::string thrown = comm.size() > 1 ? "" : "it returned NULL";
    try {
      (void)ring.exchange(2, nullptr, &too_long);
    } catch (const hc::error &error) {
      thrown = error.what();
    }
    TRUE(thrown.find("it returned NULL") != std::string::npos);
  }
  pool.reset();
  wait_until_expired(watch);
  THROWS(HALOCLINE_ERROR_ARGUMENT, "the pool is null", hc::resource::of(std::shared_ptr<counting_pool>()));
  THROWS(HALOCLINE_ERROR_DEVICE, "", hc::resource::of(std::make_shared<counting_pool>(), 1000));
}

static void of_a_gpu_that_is_not_there(const hc::comm &comm) {
  THROWS(HALOCLINE_ERROR_DEVICE, "", hc::resource::cuda(1000));
  THROWS(HALOCLINE_ERROR_DEVICE, "", hc::resource::pinned(comm, 1000));
  THROWS(HALOCLINE_ERROR_HANDLE, "is null", hc::received().order(hc::stream()));
}

static void run(const hc::comm &comm) {
  on_a_ring(comm);
  in_a_session(comm);
  a_session_that_is_finished_early(comm);
  sparse(comm, false);
  sparse(comm, true);
  a_dropped_operation(comm);
  spilled(comm);
  in_a_pool_of_the_program(comm);
  of_a_gpu_that_is_not_there(comm);
  given_up(comm);
}
