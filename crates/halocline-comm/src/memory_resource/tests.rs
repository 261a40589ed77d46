use super::pool::{Pool, class};
use super::*;
use crate::communicator::Communicator;
use halocline_device::sim;
use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::task::Wake;

#[derive(Default)]
struct Woken(AtomicUsize);

impl Wake for Woken {
    fn wake(self: Arc<Self>) {
        self.0.fetch_add(1, Ordering::Relaxed);
    }
}

#[test]
fn a_size_class_wastes_at_most_a_quarter() {
    for bytes in (1..5000).chain([1 << 20, (1 << 20) + 1, 3 << 30]) {
        let class = class(bytes, 1).unwrap();
        assert!(class >= bytes && class <= bytes + bytes / 4 + 1, "{bytes}: {class}");
    }
    assert_eq!(class(usize::MAX, 1), None);
}

#[test]
fn a_pool_keeps_the_largest_blocks_within_its_bytes() {
    let pool = Pool::new(100);
    assert!(pool.put(40, 'a').is_empty() && pool.put(50, 'b').is_empty());
    assert_eq!(pool.put(30, 'c'), ['c']);
    assert_eq!((pool.take(40), pool.take(40), pool.bytes()), (Some('a'), None, 50));
    assert_eq!(pool.put(200, 'd'), ['b', 'd']);
}

#[test]
fn a_buffer_is_reused_by_a_later_one() {
    let memory = HostMemory::of(&Communicator::single());
    for bytes in [100, 5000, 200_000] {
        let mut first = memory.allocate(bytes).unwrap();
        first.bytes_mut().unwrap().fill(7);
        let address = first.address();
        drop(first);
        assert_eq!(memory.allocate(bytes).unwrap().address(), address);
    }
    assert_eq!((memory.statistics().in_use, memory.statistics().allocations), (0, 6));
}

#[test]
fn a_waker_is_woken_once_when_memory_is_given_back() {
    let limited = Limited::new(Arc::new(HostMemory::of(&Communicator::single())), 100);
    let (woken, first) = (Arc::<Woken>::default(), limited.allocate(80).unwrap());
    let waker = Waker::from(Arc::clone(&woken));
    let mut reservation = Reservation::new(50);
    for _ in 0..3 {
        assert!(reservation.poll(&limited, Duration::ZERO, &waker).unwrap().is_none());
    }
    drop(first);
    assert_eq!(woken.0.load(Ordering::Relaxed), 1);
    assert_eq!(reservation.poll(&limited, Duration::ZERO, &waker).unwrap().unwrap().len(), 50);
}

#[test]
fn a_reservation_fails_once_its_patience_has_ended() {
    let limited = Limited::new(Arc::new(HostMemory::of(&Communicator::single())), 100);
    let held = limited.allocate(60).unwrap();
    let mut reservation = Reservation::new(50);
    assert!(reservation.poll(&limited, Duration::from_secs(7), Waker::noop()).unwrap().is_none());
    assert_eq!(reservation.due(), Some(Duration::from_millis(7001)));
    let error = reservation.poll(&limited, Duration::from_secs(8), Waker::noop()).unwrap_err();
    assert!(matches!(error, MemoryError::Shortage { asked: 50, in_use: 60, limit: 100, .. }));
    // A request that can never fit does not wait.
    Reservation::new(101).poll(&limited, Duration::ZERO, Waker::noop()).unwrap_err();
    drop(held);
}

#[test]
fn the_bytes_of_foreign_memory_are_read_only_and_its_owner_is_dropped_with_the_buffer() {
    let owner = Arc::new(vec![1u8, 2, 3]);
    let first = std::ptr::NonNull::new(owner.as_ptr().cast_mut()).unwrap();
    // SAFETY: the vector holds the bytes, which nothing writes.
    let mut buffer = unsafe { Buffer::foreign(first, 3, Arc::clone(&owner)) };
    assert_eq!((buffer.bytes(), buffer.to_vec()), (Some(&[1, 2, 3][..]), Some(vec![1, 2, 3])));
    assert!(buffer.bytes_mut().is_none());
    drop(buffer);
    assert_eq!(Arc::strong_count(&owner), 1);
}

/// Allocates once `may_allocate` is set.
struct Postponing {
    memory: HostMemory,
    may_allocate: std::sync::atomic::AtomicBool,
    waiting: std::sync::Mutex<Vec<Waker>>,
}

impl MemoryResource for Postponing {
    fn kind(&self) -> MemoryKind {
        MemoryKind::Host
    }

    fn allocate(&self, bytes: usize) -> Result<Buffer, MemoryError> {
        match self.may_allocate.load(Ordering::Relaxed) {
            true => self.memory.allocate(bytes),
            false => Err(MemoryError::Postponed { asked: bytes }),
        }
    }

    fn watch(&self, waker: &Waker) {
        self.waiting.lock().unwrap().push(waker.clone());
    }

    fn statistics(&self) -> MemoryStatistics {
        self.memory.statistics()
    }
}

#[test]
fn a_postponed_reservation_waits_without_an_end() {
    let memory = HostMemory::of(&Communicator::single());
    let resource = Postponing { memory, may_allocate: Default::default(), waiting: Default::default() };
    let (woken, mut reservation) = (Arc::<Woken>::default(), Reservation::new(50));
    let waker = Waker::from(Arc::clone(&woken));
    for hours in 0..3 {
        let now = Duration::from_secs(3600 * hours);
        assert!(reservation.poll(&resource, now, &waker).unwrap().is_none());
    }
    assert_eq!((reservation.due(), resource.waiting.lock().unwrap().len()), (None, 3));
    resource.may_allocate.store(true, Ordering::Relaxed);
    assert_eq!(reservation.poll(&resource, Duration::ZERO, &waker).unwrap().unwrap().len(), 50);
}

/// Has no memory of its own at first.
struct Exhausted {
    memory: HostMemory,
    is_exhausted: std::sync::atomic::AtomicBool,
    waiting: std::sync::Mutex<Vec<Waker>>,
}

impl MemoryResource for Exhausted {
    fn kind(&self) -> MemoryKind {
        MemoryKind::Host
    }

    fn allocate(&self, bytes: usize) -> Result<Buffer, MemoryError> {
        match self.is_exhausted.load(Ordering::Relaxed) {
            true => Err(CommError::OutOfMemory(bytes).into()),
            false => self.memory.allocate(bytes),
        }
    }

    fn watch(&self, waker: &Waker) {
        self.waiting.lock().unwrap().push(waker.clone());
    }

    fn statistics(&self) -> MemoryStatistics {
        self.memory.statistics()
    }
}

#[test]
fn a_shortage_below_the_limit_wakes_nobody_and_is_not_counted() {
    let memory = HostMemory::of(&Communicator::single());
    let inner = Arc::new(Exhausted { memory, is_exhausted: true.into(), waiting: Default::default() });
    let (woken, mut reservation) = (Arc::<Woken>::default(), Reservation::new(50));
    let (limited, waker) = (Limited::new(inner.clone(), 100), Waker::from(Arc::clone(&woken)));
    for _ in 0..3 {
        assert!(reservation.poll(&limited, Duration::ZERO, &waker).unwrap().is_none());
    }
    let statistics = limited.statistics();
    assert_eq!((statistics.in_use, statistics.peak, statistics.allocations), (0, 0, 0));
    assert_eq!(woken.0.load(Ordering::Relaxed), 0);
    // The inner resource has memory again.
    inner.is_exhausted.store(false, Ordering::Relaxed);
    inner.waiting.lock().unwrap().drain(..).for_each(Waker::wake);
    assert!(woken.0.load(Ordering::Relaxed) > 0);
    assert_eq!(reservation.poll(&limited, Duration::ZERO, &waker).unwrap().unwrap().len(), 50);
}

#[test]
fn a_pool_that_wakes_nobody_is_asked_seldom_and_in_time() {
    /// Is filled by the program after some requests.
    struct Refilled(AtomicUsize);
    impl MemoryResource for Refilled {
        fn kind(&self) -> MemoryKind {
            MemoryKind::Host
        }
        fn allocate(&self, bytes: usize) -> Result<Buffer, MemoryError> {
            match self.0.fetch_add(1, Ordering::Relaxed) {
                0..12 => Err(MemoryError::Foreign { asked: bytes, why: "the pool is empty".to_owned() }),
                _ => Ok(vec![0; bytes].into()),
            }
        }
        fn statistics(&self) -> MemoryStatistics {
            HostMemory::of(&Communicator::single()).statistics()
        }
    }
    let pool = Arc::new(Refilled(AtomicUsize::new(0)));
    let (limited, mut reservation) = (Limited::new(pool.clone(), 100), Reservation::new(50));
    // Polled by other news every 0.1 ms.
    let mut polls = (0..10_000).map(|tick| Duration::from_micros(100 * tick));
    let came = polls.find(|now| reservation.poll(&limited, *now, Waker::noop()).unwrap().is_some());
    assert_eq!((pool.0.load(Ordering::Relaxed), came), (13, Some(Duration::from_millis(32))));
}

/// A resource of the program with a fault.
struct Faulty(fn(usize) -> Buffer);

impl MemoryResource for Faulty {
    fn kind(&self) -> MemoryKind {
        MemoryKind::Host
    }

    fn allocate(&self, bytes: usize) -> Result<Buffer, MemoryError> {
        Ok(self.0(bytes))
    }

    fn statistics(&self) -> MemoryStatistics {
        HostMemory::of(&Communicator::single()).statistics()
    }
}

#[test]
fn faults_of_a_resource_of_the_program_are_errors() {
    let read_only = |bytes: usize| {
        let owner = Arc::new(vec![0u8; bytes]);
        let first = std::ptr::NonNull::new(owner.as_ptr().cast_mut()).unwrap();
        // SAFETY: the vector holds the bytes, which nothing writes.
        unsafe { Buffer::foreign(first, bytes, owner) }
    };
    for (fault, said) in [
        (read_only as fn(usize) -> Buffer, "cannot be written"),
        (|_| vec![0; 3].into(), "it gave a buffer of 3 bytes"),
        (|_| panic!("a fault"), "it panicked"),
    ] {
        let reserved = Reservation::new(50).poll(&Faulty(fault), Duration::ZERO, Waker::noop());
        let error = reserved.unwrap_err();
        assert!(error.to_string().contains(said) && !error.is_shortage(), "{error}");
        // Memory elsewhere does not hide a fault.
        let host = Arc::new(HostMemory::of(&Communicator::single()));
        let spilling = Limited::new(Arc::new(Faulty(fault)), 100).spilling(host);
        let error = Reservation::new(50).poll(&spilling, Duration::ZERO, Waker::noop()).unwrap_err();
        assert!(matches!(error, MemoryError::Faulty { asked: 50, .. }), "{error}");
    }
}

#[test]
fn idle_memory_of_a_device_is_freed_by_trim() {
    let world = sim::World::live(0, &sim::Options::default()).unwrap();
    let device = world.world().device(0).unwrap();
    let limited = Limited::new(Arc::new(DeviceMemory::new(&device)), 1000);
    let address = limited.allocate(600).unwrap().address();
    assert!(device.place_of(address).is_ok(), "the pool keeps the block");
    limited.trim();
    assert!(device.place_of(address).is_err(), "the block is free");
}
